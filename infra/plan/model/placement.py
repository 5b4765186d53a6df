"""Where pods lie: slots of a machine, and the NUMA node that each rank is bound to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place for one pod on a machine. CPU ids depend on the order in which pods start: only an example is given."""

    numa_nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    cpu_count: int
    cpus_example: tuple[int, ...]
    memory_numa: tuple[int, ...] = ()  # nodes that the Static memory manager pins; empty without it


@dataclass(frozen=True, kw_only=True)
class SlotGroup:
    """Equal machines with equal slots: `nodes` of them each hold all of `slots`."""

    nodes: int
    slots: tuple[Slot, ...]
    node_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RankBinding:
    """Which NUMA node each local rank is bound to, by the entry step of the main container."""

    numa_node_of_rank: tuple[int, ...]
    cpus_per_numa_node: Mapping[int, int]  # how many of the pod's CPUs lie there, at least
    memory_nodes: tuple[int, ...]  # where the pod may allocate memory


@dataclass(frozen=True, kw_only=True)
class PlacementPlan:
    """How many replicas of a model there are, where their pods lie and how an update replaces them."""

    replicas: int
    pod_anti_affinity: Literal["required", "preferred", "none"]
    max_surge: int
    max_unavailable: int
    slots: tuple[SlotGroup, ...]  # all pods placed once
    places: tuple[Slot, ...] = ()  # all that a pod can come to lie in on any node, in whatever order pods start; CPU ids left open
    rank_binding: RankBinding | None = None  # None: the pod fits one NUMA node and the cpuset alone holds it there
