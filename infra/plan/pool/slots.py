"""Lays the planned pods out on the nodes: example slots, idle GPUs and those that no planned size can use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from infra.kubelet import Kubelet
from infra.plan.model import Slot, SlotGroup
from infra.plan.placement import Load, NodeCapacity
from infra.plan.pod_shape import MAIN_CONTAINER, PodShape
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.proof import Admission, ContainerFootprint, Footprint, fill
from infra.plan.pool.search import ProvenConfiguration


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Slots of each pod shape, all places that its pods can come to lie in, and the GPUs of the whole pool that stay free."""

    slots: tuple[tuple[SlotGroup, ...], ...]
    places: tuple[tuple[Slot, ...], ...]
    idle_gpus: int
    stranded_gpus: int


def lay_out(pool: GpuPool, proven: ProvenConfiguration, kubelet: Kubelet) -> Layout:
    """The placement of a proven configuration, with the places that an empty node gives when co-tenants start first and then the pods.

    The scheduler may distribute pods otherwise; each node's places stay among those that the proof visited.
    """
    shapes, numa = proven.candidate.shapes, pool.numa_map
    groups: list[list[SlotGroup]] = [[] for _ in shapes]
    idle = stranded = 0
    for count, load in proven.placement.groups:
        filled, admitted = fill(kubelet, [*pool.guaranteed_co_tenants, *pool.residents(shapes, load)], numa)
        for position, pod in enumerate(shapes):
            slots = tuple(_slot(pod, admission) for admission in admitted.get(position, ()))
            if slots:
                groups[position].append(SlotGroup(nodes=count, slots=slots))
        free = pool.shape.gpus - sum(pods * pod.gpus for pods, pod in zip(load, shapes, strict=True))
        idle += count * free
        stranded += count * (free - _usable(filled, shapes, load, proven.capacity))
    return Layout(
        slots=tuple(map(tuple, groups)),
        places=tuple(_places(pool, pod, found) for pod, found in zip(shapes, proven.proof.footprints, strict=True)),
        idle_gpus=idle,
        stranded_gpus=stranded,
    )


def _slot(pod: PodShape, admission: Admission) -> Slot:
    place = admission.footprint.container(MAIN_CONTAINER)
    cpus = admission.cpus[MAIN_CONTAINER]
    return Slot(
        numa_nodes=_numa_nodes(place),
        gpus=tuple(sorted(int(device.removeprefix("gpu")) for device in admission.devices[MAIN_CONTAINER])),
        cpu_count=len(cpus) or pod.cpu,
        cpus_example=cpus,
        memory_numa=place.memory_numa,
    )


def _numa_nodes(place: ContainerFootprint) -> tuple[int, ...]:
    return tuple(sorted({node for node, _ in (*place.cpus, *place.devices) if node >= 0}))


def _places(pool: GpuPool, pod: PodShape, footprints: Iterable[Footprint]) -> tuple[Slot, ...]:
    """The distinct places of the main container, in order of NUMA nodes; GPUs stand for any of the same node, and CPU ids are left open."""
    gpus_of = {node.id: node.gpus or () for node in pool.shape.numa_nodes}
    everywhere = tuple(range(pool.shape.gpus))
    slots = {
        Slot(
            numa_nodes=_numa_nodes(place),
            gpus=tuple(sorted(gpu for node, count in place.devices for gpu in gpus_of.get(node, everywhere)[:count])),
            cpu_count=sum(count for _, count in place.cpus) or pod.cpu,
            cpus_example=(),
            memory_numa=place.memory_numa,
        )
        for place in (footprint.container(MAIN_CONTAINER) for footprint in footprints)
    }
    return tuple(sorted(slots, key=lambda slot: (slot.numa_nodes, slot.gpus, slot.memory_numa)))


def _usable(kubelet: Kubelet, shapes: Sequence[PodShape], load: Load, capacity: NodeCapacity) -> int:
    """GPUs of a node that more pods of the planned sizes could still take, anti-affinity aside; the best of filling by size up and down."""
    by_size = sorted(range(len(shapes)), key=lambda position: shapes[position].gpus)
    return max(_filled_up(kubelet.copy(), shapes, load, capacity, order) for order in (by_size, by_size[::-1]))


def _filled_up(kubelet: Kubelet, shapes: Sequence[PodShape], load: Load, capacity: NodeCapacity, order: Sequence[int]) -> int:
    taken = 0
    for position in order:
        pod = shapes[position]
        while True:
            more = (*load[:position], load[position] + 1, *load[position + 1 :])
            started = {"name": f"more-{position}-{more[position]}", **pod.pod}
            if not capacity.holds(shapes, more) or not kubelet.admit(started).admitted:
                break
            load, taken = more, taken + pod.gpus
    return taken
