"""A pool as far as its kubelet matters, and the kubelet that a configuration gives on its machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from infra.catalog.machine import devices_of, machine_of
from infra.catalog.types import NodeShape
from infra.config.pools import CoTenant
from infra.diagnosis import Diagnosis
from infra.kubelet import Device, Kubelet, Machine
from infra.kubelet.advice import advise
from infra.plan.daemons import node_overhead
from infra.plan.model.kubelet import KubeletPlan
from infra.plan.placement import Load, NodeCapacity
from infra.plan.pod_shape import PodShape
from infra.plan.pool.messages import PodName
from infra.plan.pool.proof import MOST_STATES, NumaMap, Resident
from infra.plan.pool.reserve import Reservations
from infra.units import parse_bytes, parse_millicpu

ENOUGH_STATES = 400  # of a node whose pods are known not to block each other: the rest are more of the same


@dataclass(frozen=True, kw_only=True)
class GpuPool:
    """Requirements of a pool that have been read and checked. `user` holds the stack file's fields, spelled right and of the right types."""

    shape: NodeShape
    nodes: int
    kubernetes_version: str
    user: KubeletPlan
    reservations: Reservations
    pods: tuple[PodShape, ...]
    co_tenants: tuple[CoTenant, ...]
    resource_name: str
    platform: str = "existing"
    unavailable: frozenset[str] = frozenset()  # fields that the platform cannot express
    most_states: int = MOST_STATES  # of one kind of node
    most_states_in_all: int = 3_000  # of all kinds of nodes that one candidate is tried on: seconds

    def user_sets(self, field: str) -> bool:
        return field in self.user.fields

    @property
    def cpu_manager_policy(self) -> str:
        """Static unless the user says otherwise: only then has a pod CPUs of its own."""
        return self.user.fields.get("cpuManagerPolicy", "static")

    @property
    def chooses_cpu_options(self) -> bool:
        return self.cpu_manager_policy == "static" and "cpuManagerPolicyOptions" not in self.unavailable

    @property
    def threads_per_core(self) -> int:
        return self.shape.threads_per_core or 1

    @property
    def numa_map(self) -> NumaMap:
        return NumaMap(machine_of(self.shape), devices_of(self.shape, self.resource_name))

    @property
    def guaranteed_co_tenants(self) -> tuple[Resident, ...]:
        """Co-tenants for which the CPU and memory managers set something aside; the others count only in the node fit."""
        residents = []
        for number, tenant in enumerate(self.co_tenants, len(self.pods)):
            if tenant.qos_class == "Guaranteed":
                sizes = {"cpu": tenant.cpu, "memory": tenant.memory}
                container = {"name": tenant.name, "requests": sizes, "limits": sizes}
                residents.append(Resident(number=number, pod={"containers": [container]}, count=tenant.per_node))
        return tuple(residents)

    def residents(self, shapes: Sequence[PodShape], load: Load) -> tuple[Resident, ...]:
        """The planned pods of a load with their numbers, which are the positions of their shapes."""
        counted = enumerate(zip(shapes, load, strict=True))
        return tuple(Resident(number=number, pod=shape.pod, count=count) for number, (shape, count) in counted if count)

    def name_of(self, resident: int) -> PodName | str:
        return PodName(resident) if resident < len(self.pods) else self.co_tenants[resident - len(self.pods)].name

    def without(self, field: str) -> GpuPool:
        """As if the user had left a field out; for a remedy, so that few states are enough."""
        fields = {name: value for name, value in self.user.fields.items() if name != field}
        return replace(self, most_states=ENOUGH_STATES, user=replace(self.user, fields=fields))


def start_kubelet(
    pool: GpuPool,
    configuration: KubeletPlan,
    factors: Mapping[int, Fraction | int] | None = None,
    devices: Mapping[str, Any] | None = None,
) -> Kubelet:
    """The kubelet of a configuration on an empty machine; KubeletRefuses where it does not start.

    `factors` multiplies the memory of NUMA nodes by id, `devices` lists them in another order than the shape's.
    """
    listed = devices_of(pool.shape, pool.resource_name) if devices is None else devices
    machine = _machine(pool, configuration, factors or {})
    return Kubelet.start(machine, configuration.effective, _devices(listed), kubernetes_version=pool.kubernetes_version)


def advise_on(pool: GpuPool, configuration: KubeletPlan) -> list[Diagnosis]:
    """Warnings of the kubelet's own rules about a configuration with which it starts; paths are fields."""
    machine, devices = _machine(pool, configuration, {}), devices_of(pool.shape, pool.resource_name)
    return advise(machine, configuration.fields, _devices(devices), kubernetes_version=pool.kubernetes_version)


def _machine(pool: GpuPool, configuration: KubeletPlan, factors: Mapping[int, Fraction | int]) -> Machine:
    unmanaged = configuration.topology_manager_policy == "none" and not configuration.pins_memory
    return Machine.from_dict(machine_of(pool.shape, factors, without_empty_nodes=unmanaged))


def _devices(devices: Mapping[str, Any]) -> dict[str, list[Device]]:
    return {name: [Device.from_dict(device) for device in listed] for name, listed in devices.items()}


def capacity_of(pool: GpuPool, kubelet: Kubelet) -> NodeCapacity:
    """What the scheduler may give to planned pods on a node: allocatable less co-tenants and DaemonSets."""
    allocatable, overhead = kubelet.allocatable, node_overhead()
    counted = [tenant for tenant in pool.co_tenants if tenant.qos_class != "BestEffort"]
    tenants_millicpu = sum(parse_millicpu(tenant.cpu) * tenant.per_node for tenant in counted)
    tenants_bytes = sum(parse_bytes(tenant.memory) * tenant.per_node for tenant in counted)
    tenants_pods = sum(tenant.per_node for tenant in pool.co_tenants)
    return NodeCapacity(
        millicpu=int(allocatable["cpu"]) - overhead.millicpu - tenants_millicpu,
        memory_bytes=int(allocatable["memory"]) - overhead.memory_bytes - tenants_bytes,
        gpus=int(allocatable.get(pool.resource_name, 0)),
        pods=int(allocatable["pods"]) - overhead.pods - tenants_pods,
    )
