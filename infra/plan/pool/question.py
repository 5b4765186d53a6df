"""A pool as far as its kubelet matters: what is asked, and the kubelet that a configuration gives on its machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from infra.catalog.machine import devices_of, machine_of
from infra.catalog.types import NodeShape
from infra.config.pools import CoTenant
from infra.diagnosis import Diagnosis
from infra.kubelet import Device, Kubelet, Machine
from infra.kubelet.configuration.advice import advise
from infra.plan.daemons import node_overhead
from infra.plan.placement import Load, NodeCapacity, PodShape
from infra.plan.pool.proof import MOST_STATES, Resident
from infra.plan.pool.reserve import DEFAULT_MAX_PODS, Reservations
from infra.units import parse_bytes, parse_millicpu

ENOUGH_STATES = 400  # of a node whose pods are known not to block each other: the rest are more of the same


@dataclass(frozen=True, kw_only=True)
class Question:
    """A pool as far as its kubelet matters. `user` holds the stack file's fields, read and spelled right."""

    path: str
    shape: NodeShape
    nodes: int
    kubernetes_version: str
    user: Mapping[str, Any]
    reservations: Reservations
    pods: tuple[PodShape, ...]
    co_tenants: tuple[CoTenant, ...]
    resource_name: str
    unavailable: frozenset[str] = frozenset()  # fields that the platform cannot express
    most_states: int = MOST_STATES

    @property
    def guaranteed_co_tenants(self) -> tuple[Resident, ...]:
        """Co-tenants for which the CPU and memory managers set something aside; the others count only in the node fit."""
        residents = []
        for tenant in self.co_tenants:
            if tenant.qos_class == "Guaranteed":
                sizes = {"cpu": tenant.cpu, "memory": tenant.memory}
                container = {"name": tenant.name, "requests": sizes, "limits": sizes}
                residents.append(Resident(name=tenant.name, pod={"containers": [container]}, count=tenant.per_node))
        return tuple(residents)


def start_kubelet(
    question: Question,
    fields: Mapping[str, Any],
    factors: Mapping[int, int] | None = None,
    devices: Mapping[str, Any] | None = None,
) -> Kubelet:
    """The kubelet of a configuration on an empty machine; KubeletRefuses where it does not start.

    `factors` multiplies the memory of NUMA nodes by id, `devices` lists them in another order than the shape's.
    """
    listed = devices_of(question.shape, question.resource_name) if devices is None else devices
    return Kubelet.start(
        _machine(question, fields, factors or {}), fields, _devices(listed), kubernetes_version=question.kubernetes_version
    )


def advise_on(question: Question, fields: Mapping[str, Any]) -> list[Diagnosis]:
    """Warnings of the kubelet's own rules about a configuration with which it starts; paths are fields."""
    machine, devices = _machine(question, fields, {}), devices_of(question.shape, question.resource_name)
    return advise(machine, fields, _devices(devices), kubernetes_version=question.kubernetes_version)


def _machine(question: Question, fields: Mapping[str, Any], factors: Mapping[int, int]) -> Machine:
    unmanaged = fields["topologyManagerPolicy"] == "none" and fields["memoryManagerPolicy"] == "None"
    return Machine.from_dict(machine_of(question.shape, factors, without_empty_nodes=unmanaged))


def _devices(devices: Mapping[str, Any]) -> dict[str, list[Device]]:
    return {name: [Device.from_dict(device) for device in listed] for name, listed in devices.items()}


def capacity_of(question: Question, kubelet: Kubelet) -> NodeCapacity:
    """What the scheduler may give to planned pods on a node: allocatable less co-tenants and DaemonSets."""
    there, overhead = kubelet.allocatable, node_overhead()
    counted = [tenant for tenant in question.co_tenants if tenant.qos_class != "BestEffort"]
    return NodeCapacity(
        millicpu=int(there["cpu"]) - overhead.millicpu - sum(parse_millicpu(tenant.cpu) * tenant.per_node for tenant in counted),
        memory_bytes=int(there["memory"])
        - overhead.memory_bytes
        - sum(parse_bytes(tenant.memory) * tenant.per_node for tenant in counted),
        gpus=int(there.get(question.resource_name, 0)),
        pods=int(there.get("pods", question.user.get("maxPods", DEFAULT_MAX_PODS)))
        - overhead.pods
        - sum(t.per_node for t in question.co_tenants),
    )


def residents_of(shapes: tuple[PodShape, ...], load: Load) -> tuple[Resident, ...]:
    return tuple(Resident(name=pod.name, pod=pod.pod, count=count) for pod, count in zip(shapes, load, strict=True) if count)


def reserved_by_node(fields: Mapping[str, Any]) -> dict[int, int] | None:
    """reservedMemory by NUMA node in bytes; None without the Static memory manager."""
    if fields.get("memoryManagerPolicy") != "Static":
        return None
    reserved: dict[int, int] = {}
    for entry in fields.get("reservedMemory") or ():
        node = int(entry.get("numaNode") or 0)  # null decodes as if it were left out, to 0
        reserved[node] = reserved.get(node, 0) + parse_bytes((entry.get("limits") or {}).get("memory") or 0)
    return reserved


def without(question: Question, field: str) -> Question:
    """The same question as if the user had left a field out; for a hint, so that few states are enough."""
    return replace(
        question, most_states=ENOUGH_STATES, user={name: value for name, value in question.user.items() if name != field}
    )
