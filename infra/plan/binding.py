"""Rank binding: where a pod's GPUs lie on several NUMA nodes, which node each rank is bound to, and the proof that it has CPUs and memory there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.plan.model import RankBinding
from infra.plan.pool.proof import ContainerFootprint


@dataclass(frozen=True)
class Unbound:
    """Why ranks cannot be bound, as a sentence with both numbers, and what of the pod is in the way: nothing where it cannot be changed."""

    reason: str
    lacks: Literal["", "cpus", "even cpus", "memory"] = ""


def bind_ranks(
    gpu_nodes: Sequence[int | None],
    footprints: Iterable[ContainerFootprint],
    *,
    all_memory_nodes: Sequence[int],
    threads_per_core: int,
) -> RankBinding | Unbound | None:
    """The binding of one pod's ranks, or why there is none; None where every place that the pod can get is a single NUMA node.

    `gpu_nodes` is the NUMA node of each of the pod's GPUs in device order, which is the order of local ranks: rank 0 drives the first.
    `footprints` are all places that the main container can come to have, in every order of starts and ends: on each NUMA node of its GPUs it must hold
    an exclusive physical core a GPU in all of them. Without pinned memory the container may allocate on `all_memory_nodes`.
    """
    places = list(footprints)
    if not places or all(len(place.devices) <= 1 for place in places):
        return None
    if any(node is None for node in gpu_nodes) or any(node < 0 for place in places for node, _ in place.devices):
        return Unbound("the device plugin reports no NUMA node for the GPUs, so that no rank can be bound to one.")
    for place in places:
        unbound = _lacking(place, all_memory_nodes, threads_per_core)
        if unbound is not None:
            return unbound
    homes = tuple(node for node in gpu_nodes if node is not None)
    memory_nodes = set(all_memory_nodes)
    for place in places:
        if place.memory_numa:
            memory_nodes &= set(place.memory_numa)
    counts = [dict(place.cpus) for place in places]
    return RankBinding(
        numa_node_of_rank=homes,
        cpus_per_numa_node={node: min(held[node] for held in counts if node in held) for node in sorted(set(homes))},
        memory_nodes=tuple(sorted(memory_nodes)),
    )


def _lacking(place: ContainerFootprint, all_memory_nodes: Sequence[int], threads_per_core: int) -> Unbound | None:
    cpus = dict(place.cpus)
    total = sum(cpus.values())
    memory = place.memory_numa or tuple(all_memory_nodes)
    for node, gpus in place.devices:
        if cpus.get(node, 0) == 0:
            if not total:
                return Unbound(
                    "the container holds no exclusive CPUs (cpuManagerPolicy static gives them for whole CPUs), so that no rank is bound."
                )
            elsewhere = " and ".join(f"{count} on NUMA node {other}" for other, count in place.cpus)
            return Unbound(
                f"the ranks of the {gpus} GPUs on NUMA node {node} cannot be bound there: the CPU manager gives the pod {elsewhere} and none on NUMA "
                f"node {node}, since {total} CPUs fit fewer nodes than the GPUs.",
                lacks="cpus",
            )
        if cpus[node] < gpus * threads_per_core:
            return Unbound(
                f"the ranks of the {gpus} GPUs on NUMA node {node} cannot be bound there: the pod holds {cpus[node]} CPUs on it, less than a physical core a rank "
                f"({gpus * threads_per_core} CPUs).",
                lacks="even cpus",
            )
        if node not in memory:
            pinned = ", ".join(map(str, memory))
            return Unbound(
                f"the ranks of the {gpus} GPUs on NUMA node {node} cannot be bound there: the memory manager pins the pod's memory to NUMA node {pinned}.",
                lacks="memory",
            )
    return None


def describe_binding(binding: RankBinding) -> str:
    """The binding in a sentence: `ranks 0-3 run on NUMA node 0 (58 CPUs) ...`."""
    parts = []
    for node in sorted(set(binding.numa_node_of_rank)):
        ranks = [rank for rank, home in enumerate(binding.numa_node_of_rank) if home == node]
        span = (
            f"{ranks[0]}-{ranks[-1]}"
            if ranks == list(range(ranks[0], ranks[-1] + 1)) and len(ranks) > 1
            else ", ".join(map(str, ranks))
        )
        parts.append(f"rank{'s' if len(ranks) > 1 else ''} {span} to NUMA node {node} ({binding.cpus_per_numa_node[node]} CPUs)")
    return " and ".join(parts)
