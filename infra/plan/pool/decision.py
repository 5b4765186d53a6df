"""Decides a pool's KubeletConfiguration: the strictest one with which the kubelet starts and admits every planned pod in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from infra.diagnosis import Diagnosis
from infra.errors import PlanError
from infra.kubelet import Kubelet
from infra.plan.model import NumaNodePlan, RankBinding, Slot, SlotGroup
from infra.plan.model.kubelet import KubeletPlan
from infra.plan.pod_shape import PodShape
from infra.plan.pool.gpu_pool import GpuPool, start_kubelet
from infra.plan.pool.messages import Finding, Message, PoolNames
from infra.plan.pool.platforms import PlatformFields
from infra.plan.pool.rank_binding import decide_binding
from infra.plan.pool.reading import read_pool
from infra.plan.pool.reasons import cpu_reasons, place_reasons, pool_reasons
from infra.plan.pool.remedies import with_remedy
from infra.plan.pool.requirements import PoolRequirements
from infra.plan.pool.search import ProvenConfiguration, search
from infra.plan.pool.slots import Layout, lay_out
from infra.plan.pool.updates import not_proven_beside, updates_without_room
from infra.plan.pool.warnings import advice_on, estimated_reservations, misaligned_pods, pool_warnings
from infra.plan.pool.widths import NodeWidths
from infra.plan.strategy import surging


@dataclass(frozen=True, kw_only=True)
class PodDecision:
    """What is decided for the pods of one shape. `shape` is as they will run: CPUs raised where the stack file gave none.

    `slots` place all pods once; `places` are all that a pod can come to lie in on any node, whatever the scheduler and the order of starts, with example
    GPUs of these NUMA nodes and no CPU ids. `binding` is None where every place of the pod is one NUMA node or where ranks cannot be bound
    (then `reasons` and a warning say why).
    """

    shape: PodShape
    slots: tuple[SlotGroup, ...]
    places: tuple[Slot, ...]
    binding: RankBinding | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PoolDecision:
    """What is decided for one pool; equal for all its nodes.

    `kubelet` holds the KubeletConfiguration fields to roll out. `pods` are in the order of the required ones.
    `allocatable_cpu` in whole CPUs; memory at the catalog's lower bound.
    """

    kubelet: KubeletPlan
    numa_nodes: tuple[NumaNodePlan, ...]
    allocatable_cpu: int
    allocatable_memory_bytes: int
    allocatable_gpus: int
    pods: tuple[PodDecision, ...]
    idle_gpus: int
    stranded_gpus: int
    reasons: tuple[str, ...] = ()
    warnings: tuple[Diagnosis, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """A decision for all pools of a kind: `reasons` and `warnings` are worded when the pool has names. With `problems` there is no decision."""

    decision: PoolDecision | None = None
    reasons: tuple[Message, ...] = ()
    warnings: tuple[Finding, ...] = ()
    problems: tuple[Finding, ...] = ()

    def worded(self, names: PoolNames) -> PoolDecision:
        """The decision for the pool of these names; PlanError with its problems."""
        if self.decision is None:
            raise PlanError(problem.worded(names) for problem in self.problems)
        return replace(
            self.decision,
            reasons=tuple(reason.worded(names) for reason in self.reasons),
            warnings=tuple(sorted({warning.worded(names) for warning in self.warnings})),
        )


def decide_pool(requirements: PoolRequirements, names: PoolNames) -> PoolDecision:
    """The decision for one pool.

    Raises PlanError with every problem that one pass can find, each with its path: unknown or misspelled fields, reservations that do not add up, a
    configuration that the kubelet refuses, pods that find no room, and a policy that refuses a pod in some order, with that order.
    """
    return settle_pool(requirements).worded(names)


def settle_pool(requirements: PoolRequirements) -> Settlement:
    """The decision for all pools with these requirements, whatever their names."""
    read = read_pool(requirements)
    if read.pool is None:
        return Settlement(problems=read.problems)
    pool = read.pool
    proven, failures = search(pool)
    alone: tuple[Finding, ...] = ()
    if proven is None and any(pod.standby for pod in pool.pods):
        running = _changed(pool, {index: {"standby": 0} for index in range(len(pool.pods))})
        proven, others = search(running)
        if proven is not None:
            alone = tuple(not_proven_beside(running, failures))
            pool, failures = running, others
    if proven is None:
        return Settlement(problems=tuple(with_remedy(pool, failures)))
    stuck = tuple(updates_without_room(pool, proven))
    if stuck:
        return Settlement(problems=stuck)
    pool, proven = _with_surge(pool, proven)
    advice = advice_on(pool, proven)
    errors = tuple(finding for finding in advice if finding.severity == "error")
    if errors:
        return Settlement(problems=errors)
    platform = PlatformFields.of(requirements.platform)
    estimated = [estimated_reservations(requirements.platform)] if platform.decides_reservations else []
    kubelet = start_kubelet(pool, proven.kubelet)
    layout = lay_out(pool, proven, kubelet)
    pods, warnings = _decide_pods(pool, proven, layout)
    decision = PoolDecision(
        kubelet=replace(proven.kubelet, fields=platform.rolled_out(proven.kubelet.fields)),
        numa_nodes=_numa_nodes(pool, kubelet),
        allocatable_cpu=int(kubelet.allocatable["cpu"]) // 1000,
        allocatable_memory_bytes=int(kubelet.allocatable["memory"]),
        allocatable_gpus=pool.shape.gpus,
        pods=pods,
        idle_gpus=layout.idle_gpus,
        stranded_gpus=layout.stranded_gpus,
    )
    return Settlement(
        decision=decision,
        reasons=pool_reasons(pool, proven, failures),
        warnings=(*read.warnings, *alone, *advice, *estimated, *warnings, *pool_warnings(pool, proven, layout)),
    )


def _with_surge(pool: GpuPool, proven: ProvenConfiguration) -> tuple[GpuPool, ProvenConfiguration]:
    """With one more pod during updates where that finds room and is proven with the same configuration; else as it was."""
    extra = surging(proven.candidate.shapes, proven.capacity, pool.nodes)
    if not extra:
        return pool, proven
    larger = _changed(pool, {index: {"surge": 1} for index in extra})
    again, _ = search(larger)
    return (larger, again) if again is not None and again.kubelet == proven.kubelet else (pool, proven)


def _changed(pool: GpuPool, changes: Mapping[int, Mapping[str, Any]]) -> GpuPool:
    return replace(pool, pods=tuple(replace(pod, **changes.get(index, {})) for index, pod in enumerate(pool.pods)))


def _decide_pods(pool: GpuPool, proven: ProvenConfiguration, layout: Layout) -> tuple[tuple[PodDecision, ...], list[Finding]]:
    widths = NodeWidths.of(pool.shape, reserved_memory=proven.kubelet.reserved_memory, pins_cpus=proven.kubelet.pins_cpus)
    pods: list[PodDecision] = []
    warnings = list(misaligned_pods(pool, proven, widths))
    for position, (required, planned) in enumerate(zip(pool.pods, proven.candidate.shapes, strict=True)):
        bound = decide_binding(pool, proven, layout, widths, position)
        warnings += bound.warnings
        pods.append(
            PodDecision(
                shape=planned,
                slots=layout.slots[position],
                places=layout.places[position],
                binding=bound.binding,
                reasons=(*cpu_reasons(required, planned, widths), *bound.reasons, *place_reasons(layout, position)),
            )
        )
    return tuple(pods), warnings


def _numa_nodes(pool: GpuPool, kubelet: Kubelet) -> tuple[NumaNodePlan, ...]:
    memory = kubelet.allocatable_memory_bytes or _evenly_reserved(pool, kubelet)
    return tuple(
        NumaNodePlan(
            id=node.id,
            cpus=node.cpus or (),
            reserved_cpus=tuple(sorted(kubelet.reserved_cpus.intersection(node.cpus or ()))),
            memory_bytes=node.memory_bytes or 0,
            allocatable_memory_bytes=memory.get(node.id, 0),
            gpus=node.gpus or (),
            nics=node.nics,
        )
        for node in pool.shape.numa_nodes
    )


def _evenly_reserved(pool: GpuPool, kubelet: Kubelet) -> dict[int, int]:
    """Memory that pods may get of each NUMA node where none is pinned: what the node reserves may come from any."""
    nodes = {node.id: node.memory_bytes for node in pool.shape.numa_nodes if node.memory_bytes}
    reserved_bytes = int(kubelet.capacity["memory"]) - int(kubelet.allocatable["memory"])
    share, rest = divmod(reserved_bytes, max(len(nodes), 1))
    first = next(iter(nodes), None)
    return {node: max(size - share - (rest if node == first else 0), 0) for node, size in nodes.items()}
