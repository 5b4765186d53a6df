"""The node fit after topology admission (lifecycle/predicate.go, the scheduler's AdmissionCheck) and critical-pod preemption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from infra.kubelet.pods import BEST_EFFORT, BURSTABLE, GUARANTEED, Pod, ResourceList, whole
from infra.kubelet.resource_names import is_extended_resource, is_scalar_resource


class Shortage(NamedTuple):
    """A resource of which the node has too little."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> str:
        return f"OutOf{self.resource}"

    @property
    def message(self) -> str:
        return (
            f"Node didn't have enough resource: {self.resource}, "
            f"requested: {self.requested}, used: {self.used}, capacity: {self.capacity}"
        )

    @property
    def missing(self) -> int:
        return self.requested - (self.capacity - self.used)


@dataclass(frozen=True, slots=True)
class NodeAllocatable:
    """What pods may request together: CPU in thousandths, the rest in whole units; `pods` is how many may run."""

    pods: int
    amounts: Mapping[str, int]


class Preemption(NamedTuple):
    """Pods to evict so that a critical pod fits, or why no set of pods would do."""

    evicted: tuple[int, ...]
    error: str | None


def fit_requests(pod: Pod, allocatable: NodeAllocatable, counted: ResourceList, *, pod_level: bool) -> ResourceList:
    """What has to fit: what the pod counts for, without extended resources that the node does not have."""
    if all(name in allocatable.amounts or not is_extended_resource(name) for name in counted):
        return counted
    return used_requests(_without_missing(pod, allocatable), pod_level=pod_level)


def used_requests(pod: Pod, *, pod_level: bool) -> ResourceList:
    """What an admitted pod counts for on the node, in the units of NodeAllocatable."""
    total = pod.total_requests(pod_level=pod_level)
    return {name: amount if name == "cpu" else whole(amount) for name, amount in total.items()}


def shortages(requests: ResourceList, used: Mapping[str, int], pod_count: int, allocatable: NodeAllocatable) -> list[Shortage]:
    """All resources that do not suffice, in the order in which the kubelet looks (extended ones by name)."""
    found = []
    if pod_count + 1 > allocatable.pods:
        found.append(Shortage("pods", 1, pod_count, allocatable.pods))
    scalars = sorted(name for name in requests if name not in ("cpu", "memory", "ephemeral-storage") and is_scalar_resource(name))
    for name in ("cpu", "memory", "ephemeral-storage", *scalars):
        wanted = requests.get(name, 0)
        if wanted > 0:
            capacity, taken = allocatable.amounts.get(name, 0), used.get(name, 0)
            if wanted > capacity - taken:
                found.append(Shortage(name, wanted, taken, capacity))
    return found


def _without_missing(pod: Pod, allocatable: NodeAllocatable) -> Pod:
    def keep(requests: ResourceList) -> ResourceList:
        return {name: n for name, n in requests.items() if name in allocatable.amounts or not is_extended_resource(name)}

    return replace(
        pod,
        init_containers=tuple(replace(c, requests=keep(c.requests)) for c in pod.init_containers),
        containers=tuple(replace(c, requests=keep(c.requests)) for c in pod.containers),
    )


# Preemption (preemption/preemption.go): the fewest and smallest pods, Guaranteed ones last.
def preempt(pod: Pod, others: Sequence[tuple[Pod, str]], short: Sequence[Shortage], *, pod_level: bool) -> Preemption:
    """Which of the `others` (pod, QoS class) the kubelet evicts for a critical pod; positions in `others`."""
    amounts = [_requests_for_preemption(other, pod_level=pod_level) for other, _ in others]
    wanted = {shortage.resource: shortage.missing for shortage in short}
    by_qos: dict[str, list[int]] = {BEST_EFFORT: [], BURSTABLE: [], GUARANTEED: []}
    for index, (other, qos) in enumerate(others):
        if pod.preempts(other):
            by_qos[qos].append(index)
    best_effort, burstable, guaranteed = by_qos[BEST_EFFORT], by_qos[BURSTABLE], by_qos[GUARANTEED]
    left = _subtract(wanted, amounts, best_effort + burstable + guaranteed)
    if left:
        return Preemption((), _unable(left))
    evict_guaranteed = _by_distance(guaranteed, _subtract(wanted, amounts, best_effort + burstable), amounts)
    evict_burstable = _by_distance(burstable, _subtract(wanted, amounts, best_effort + evict_guaranteed), amounts)
    evict_best_effort = _by_distance(best_effort, _subtract(wanted, amounts, evict_burstable + evict_guaranteed), amounts)
    return Preemption((*evict_best_effort, *evict_burstable, *evict_guaranteed), None)


def _unable(left: Mapping[str, int]) -> str:
    needs = "".join(f"(res: {name}, q: {amount}), " for name, amount in left.items())
    return f"preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [{needs}]"


def _requests_for_preemption(pod: Pod, *, pod_level: bool) -> ResourceList:
    if pod_level and pod.has_pod_level_resources:
        total = dict(pod.pod_requests or {})
    else:
        total = pod.total_requests(pod_level=False, overhead=False)
    for name, amount in pod.overhead.items():
        if total.get(name):
            total[name] += amount
    return {"pods": 1, **{name: amount if name == "cpu" else whole(amount) for name, amount in total.items()}}


def _subtract(wanted: Mapping[str, int], amounts: Sequence[ResourceList], pods: Sequence[int]) -> dict[str, int]:
    left: dict[str, int] = {}
    for name, amount in wanted.items():
        for index in pods:
            amount -= amounts[index].get(name, 0)
            if amount <= 0:
                break
        if amount > 0:
            left[name] = amount
    return left


def _by_distance(pods: Sequence[int], wanted: dict[str, int], amounts: Sequence[ResourceList]) -> list[int]:
    candidates, chosen = list(pods), []
    while wanted:
        best, best_distance = 0, float(len(wanted) + 1)
        for place, index in enumerate(candidates):
            distance = 0.0
            for name, amount in wanted.items():
                rest = amount - amounts[index].get(name, 0)
                if rest > 0:
                    distance += (rest / amount) ** 2
            if distance < best_distance or (distance == best_distance and _smaller(amounts[index], amounts[candidates[best]])):
                best, best_distance = place, distance
        chosen.append(candidates[best])
        wanted = _subtract(wanted, amounts, [candidates[best]])
        candidates[best] = candidates[-1]
        candidates.pop()
    return chosen


def _smaller(one: ResourceList, other: ResourceList) -> bool:
    for name in ("memory", "cpu"):
        if one.get(name, 0) != other.get(name, 0):
            return one.get(name, 0) < other.get(name, 0)
    return True
