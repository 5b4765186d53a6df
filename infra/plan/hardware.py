"""Resolves a pool's hardware: the node shape of the catalog or the inline topology, and its accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from infra.catalog.machine import missing_facts
from infra.catalog.names import accelerator_of, find_shape
from infra.catalog.topology import inline_shape
from infra.catalog.types import Accelerator, NodeShape, NumaNode
from infra.config.pools import NodePool
from infra.errors import PlanError
from infra.plan.pod_resources import MachineShare
from infra.plan.pool.reserve import reserved_cores
from infra.units import parse_bytes, parse_cpu_list, parse_millicpu


@dataclass(frozen=True, kw_only=True)
class PoolHardware:
    """What one machine of a pool is."""

    path: str
    pool: NodePool
    shape: NodeShape
    accelerator: Accelerator

    @property
    def largest_numa_gpus(self) -> int | None:
        """GPUs of the NUMA node that has most of them; None where nobody knows which GPU is where."""
        per_node = self.shape.gpus_per_numa_node
        return None if per_node is None else max(per_node)

    @property
    def reports_numa(self) -> bool:
        """Whether the device plugin can give the kubelet a NUMA node for each GPU; a virtual machine may hide it."""
        return self.shape.numa_in_guest is not False and self.shape.gpus_per_numa_node is not None

    def share_for(self, gpus: int) -> MachineShare:
        """What the NUMA nodes that `gpus` GPUs need have for pods: what the stack file reserves, or a core of each node, and 3 % of its memory less.

        The exact reservation is decided later, with the pods; tenants may lie on any NUMA node, so a pod of one node leaves room
        for all of them.
        """
        nodes, reserved = self._nodes_for(gpus), self._reserved_cpus
        threads = self.shape.threads_per_core or 1
        tenants = self.pool.co_tenants
        tenant_cpus = sum(tenant.per_node * parse_millicpu(tenant.cpu) for tenant in tenants if tenant.qos_class == "Guaranteed")
        tenant_bytes = sum(tenant.per_node * parse_bytes(tenant.memory) for tenant in tenants)
        cpus = sum(len(set(node.cpus or ()) - reserved) for node in nodes) - -(-tenant_cpus // 1000)
        memory_bytes = sum((node.memory_bytes or 0) * 97 // 100 for node in nodes) - tenant_bytes
        known = sum(len(node.gpus or ()) for node in nodes)
        options = self.pool.kubelet.get("cpuManagerPolicyOptions")
        off = isinstance(options, Mapping) and str(options.get("full-pcpus-only", "true")).lower() == "false"
        return MachineShare(
            cpus=max(cpus - cpus % threads, 0),
            memory_bytes=max(memory_bytes, 0),
            gpus=known or self.shape.gpus,
            threads_per_core=threads,
            whole_cores=not off and self.pool.kubelet.get("cpuManagerPolicy") != "none",
        )

    @cached_property
    def _reserved_cpus(self) -> frozenset[int]:
        """The CPUs that the stack file keeps from pods, as the kubelet would choose them; else the core of each NUMA node that the plan keeps.

        What cannot be read is an error of the pool's own.
        """
        kubelet, cores = self.pool.kubelet, [core for node in self.shape.numa_nodes for core in node.cores or ()]
        decided = frozenset(cpu for core in reserved_cores(self.shape) for cpu in core)
        try:
            if listed := kubelet.get("reservedSystemCPUs"):
                return frozenset(parse_cpu_list(str(listed)))
            amounts = [
                section.get("cpu", 0)
                for name in ("kubeReserved", "systemReserved")
                if isinstance(section := kubelet.get(name), Mapping)
            ]
            count = -(-sum(map(parse_millicpu, amounts)) // 1000)
        except ValueError:
            return decided
        return frozenset([cpu for core in cores for cpu in core][:count]) if count else decided

    def _nodes_for(self, gpus: int) -> list[NumaNode]:
        largest = self.largest_numa_gpus
        if largest is None or gpus > largest:
            return list(self.shape.numa_nodes)
        return [
            min(
                (node for node in self.shape.numa_nodes if len(node.gpus or ()) >= gpus),
                key=lambda node: (len(set(node.cpus or ()) - self._reserved_cpus), node.id),
            )
        ]


def hardware_of(pool: NodePool, path: str) -> PoolHardware:
    """The pool's hardware; ConfigError for unknown names, PlanError where a fact that planning needs is not known."""
    if pool.topology is not None:
        where = f"{path}.topology"
        shape = inline_shape(pool.topology, where)
    else:
        where = f"{path}.nodeShape"
        shape = find_shape(pool.node_shape or "", where)
    if problems := missing_facts(shape, where):
        raise PlanError(problems)
    return PoolHardware(path=path, pool=pool, shape=shape, accelerator=accelerator_of(shape, where))
