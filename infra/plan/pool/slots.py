"""Lays the planned pods out on the nodes: example slots, idle GPUs and those that no planned size can use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.machine import devices_of, machine_of
from infra.kubelet import Kubelet
from infra.plan.model import Slot, SlotGroup
from infra.plan.placement import Load, PodShape
from infra.plan.pool.proof import Admission, Footprint, NumaMap, fill
from infra.plan.pool.question import Question, residents_of
from infra.plan.pool.search import Answer


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Slots by pod shape, all places that its pods can come to lie in, and the GPUs of the whole pool that stay free."""

    by_pod: Mapping[str, tuple[SlotGroup, ...]]
    places: Mapping[str, tuple[Slot, ...]]
    idle_gpus: int
    stranded_gpus: int


def lay_out(question: Question, answer: Answer, kubelet: Kubelet) -> Slots:
    """The placement of an answer, with the places that an empty node gives when co-tenants start first and then the pods.

    The scheduler may distribute pods otherwise; each node's places stay among those that the proof visited.
    """
    shapes = answer.candidate.shapes
    numa = NumaMap(machine_of(question.shape), devices_of(question.shape, question.resource_name))
    groups: dict[str, list[SlotGroup]] = {pod.name: [] for pod in shapes}
    idle = stranded = 0
    for count, load in answer.placement.groups:
        residents = [*question.guaranteed_co_tenants, *residents_of(shapes, load)]
        filled, admitted = fill(kubelet, residents, numa)
        for pod in shapes:
            slots = tuple(_slot(pod, admission) for admission in admitted.get(pod.name, ()))
            if slots:
                groups[pod.name].append(SlotGroup(nodes=count, slots=slots))
        free = question.shape.gpus - sum(pods * pod.gpus for pods, pod in zip(load, shapes, strict=True))
        idle += count * free
        stranded += count * (free - _usable(filled, shapes, load, free, answer, numa))
    return Slots(
        by_pod={name: tuple(found) for name, found in groups.items()},
        places={pod.name: _places(question, pod, answer.footprints[pod.name]) for pod in shapes},
        idle_gpus=idle,
        stranded_gpus=stranded,
    )


def _slot(pod: PodShape, admission: Admission) -> Slot:
    place = admission.footprint.container(pod.main_container)
    cpus = admission.cpus[pod.main_container]
    nodes = {node for node, _ in (*place.cpus, *place.devices) if node >= 0}
    return Slot(
        numa_nodes=tuple(sorted(nodes)),
        gpus=tuple(sorted(int(device.removeprefix("gpu")) for device in admission.devices[pod.main_container])),
        cpu_count=len(cpus) or pod.cpu,
        cpus_example=cpus,
        memory_numa=place.memory_numa,
    )


def _places(question: Question, pod: PodShape, footprints: Iterable[Footprint]) -> tuple[Slot, ...]:
    """The distinct places of the main container, in order of NUMA nodes; GPUs stand for any of the same node, and CPU ids are left open."""
    gpus_of = {node.id: node.gpus or () for node in question.shape.numa_nodes}
    everywhere = tuple(range(question.shape.gpus))
    slots = {
        Slot(
            numa_nodes=tuple(sorted({node for node, _ in (*place.cpus, *place.devices) if node >= 0})),
            gpus=tuple(sorted(gpu for node, count in place.devices for gpu in gpus_of.get(node, everywhere)[:count])),
            cpu_count=sum(count for _, count in place.cpus) or pod.cpu,
            cpus_example=(),
            memory_numa=place.memory_numa,
        )
        for place in (footprint.container(pod.main_container) for footprint in footprints)
    }
    return tuple(sorted(slots, key=lambda slot: (slot.numa_nodes, slot.gpus, slot.memory_numa)))


def _usable(kubelet: Kubelet, shapes: Sequence[PodShape], load: Load, free: int, answer: Answer, numa: NumaMap) -> int:
    """GPUs of a node that more pods of the planned sizes could still take, anti-affinity aside; the best of filling by size up and down."""
    best = 0
    by_size = sorted(range(len(shapes)), key=lambda index: shapes[index].gpus)
    for order in (by_size, by_size[::-1]):
        state, counts, used = kubelet.copy(), load, 0
        for index in order:
            pod = shapes[index]
            while 0 < pod.gpus <= free - used:
                more = (*counts[:index], counts[index] + 1, *counts[index + 1 :])
                if not answer.capacity.holds(shapes, more):
                    break
                if not state.admit({"name": f"{pod.name}-more-{counts[index]}", **pod.pod}).admitted:
                    break
                counts, used = more, used + pod.gpus
        best = max(best, used)
    return best
