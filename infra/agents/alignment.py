"""What counts as a right placement: the one rule by which the gate in the pod and verify outside judge.

A container is aligned where its GPUs, its CPUs and its pinned memory lie on one set of NUMA nodes that is as large as a proven place's and built
alike, with whole cores and without reserved CPUs. Which set of equal ones it is depends on the order of starts, and nothing depends on it.
Standard library only: infra/agents/source.py puts this text into the gate's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Held:
    """What a container was given. `gpus` counts by NUMA node; `memory_nodes` are those that its memory may come from."""

    gpus: Mapping[int, int]
    cpus: frozenset[int]
    cpu_nodes: frozenset[int]
    memory_nodes: frozenset[int]


@dataclass(frozen=True)
class Place:
    """A proven place. `gpus` None: an earlier plan, which did not say how many lie on each node. `memory_nodes` empty: memory is not pinned."""

    numa_nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...] = ()
    gpus: tuple[tuple[int, int], ...] | None = None  # (NUMA node, GPUs)


@dataclass(frozen=True)
class Expected:
    """What the plan proved for a container, and how the machine is built.

    `cpu_count` None: CPUs are not exclusive and decide nothing. `built` is what makes NUMA nodes equal: (CPUs, GPUs) of each. `cores` are the
    physical cores whose CPUs have to be held together; empty where halves are allowed.
    """

    places: tuple[Place, ...]
    cpu_count: int | None = None
    built: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    reserved_cpus: frozenset[int] = frozenset()
    cores: tuple[tuple[int, ...], ...] = ()


def expected_of(
    plan: Mapping[str, Any], cores: tuple[tuple[int, ...], ...], cpus_of_nodes: Mapping[int, int], gpus_known: bool
) -> Expected:
    """What a pod's plan.json proved. `cores` and `cpus_of_nodes` (how many each NUMA node has) are the machine's own; `gpus_known`: whether the
    kernel tells the NUMA node of every GPU.

    A plan of an earlier release has `slots` in place of `places`: its NUMA nodes are alike by their CPUs alone.
    """
    if "places" in plan:
        places = [
            Place(
                tuple(place["numaNodes"]),
                tuple(place["memoryNuma"]),
                tuple((node, count) for node, count in place["gpus"]) if gpus_known else None,
            )
            for place in plan["places"]
        ]
        built = {node["id"]: (node["cpus"], node["gpus"]) for node in plan["numaNodes"]}
    else:
        places = [Place(tuple(slot["numaNodes"]), tuple(slot["memoryNuma"])) for slot in plan["slots"]]
        built = {node: (count, 0) for node, count in cpus_of_nodes.items()}
    return Expected(
        places=tuple(places),
        cpu_count=plan["cpus"] if plan["exclusiveCpus"] else None,
        built=built,
        reserved_cpus=frozenset(plan.get("reservedCpus", ())),
        cores=cores if plan.get("wholeCores") else (),
    )


def reserved(held: Held, expected: Expected) -> list[int]:
    """CPUs that the kubelet keeps back for the system, among those held."""
    return [] if expected.cpu_count is None else sorted(held.cpus & expected.reserved_cpus)


def half_cores(cpus: Iterable[int], cores: Iterable[tuple[int, ...]]) -> list[int]:
    """CPUs whose sibling on the same core is not among `cpus`."""
    mine = set(cpus)
    return [cpu for core in cores for cpu in core if cpu in mine and not mine.issuperset(core)]


def halves(held: Held, expected: Expected) -> list[int]:
    """As half_cores, where whole cores are planned."""
    return [] if expected.cpu_count is None else half_cores(held.cpus, expected.cores)


def fits(held: Held, place: Place, expected: Expected) -> bool:
    """Whether what is held lies as the place says: there, or on other NUMA nodes that are built alike."""
    if expected.cpu_count is not None and len(held.cpus) != expected.cpu_count:
        return False
    cpu_nodes = held.cpu_nodes if expected.cpu_count is not None else frozenset[int]()
    memory_nodes = held.memory_nodes if place.memory_nodes else frozenset[int]()
    gpus = {node: count for node, count in held.gpus.items() if count}
    nodes = set(gpus) | cpu_nodes | memory_nodes
    here = Counter(_kind(node, gpus, memory_nodes, place, expected) for node in nodes)
    pinned = frozenset(place.memory_nodes)
    planned = Counter(_kind(node, dict(place.gpus or ()), pinned, place, expected) for node in pinned.union(place.numa_nodes))
    # On nodes of the place that hold nothing, nothing had to be held: CPUs come as they come, GPUs and pinned memory do not.
    return not here - planned and not any(gpu_count or has_memory for _, gpu_count, has_memory in planned - here)


def _kind(
    node: int, gpus: Mapping[int, int], memory_nodes: frozenset[int], place: Place, expected: Expected
) -> tuple[object, int, bool]:
    """What makes two NUMA nodes exchangeable; one that the machine's table does not know is like itself alone."""
    return (
        expected.built.get(node, ("node", node)),
        gpus.get(node, 0) if place.gpus is not None else 0,
        node in memory_nodes,
    )


def fitting(held: Held, expected: Expected) -> list[Place]:
    """The proven places that the container lies as."""
    return [place for place in expected.places if fits(held, place, expected)]
