"""Which waits for a workload cannot end well: THE table, each cause with the reason why waiting does not help.

Every other cause may heal while we wait, and ends at the Deployment's progress deadline: an image that cannot be pulled (the registry comes back, the tag is
pushed, the pull secret is made), a missing Secret, ConfigMap or mount (another controller makes it), a container that crashes (weights arrive, a hub
answers), a pod that is not ready yet, and a kubelet whose device plugin is not registered (UnexpectedAdmissionError after a restart).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from infra.observe.causes import causes
from infra.observe.refused import is_refused
from infra.observe.rollouts import Raw

GATE_REFUSED = 78  # how the gate ends where a pod was given something else than the plan says (infra/agents/gate.py)
_TRIES = 2  # refused pods: the first may have met a pod that was just leaving
_HEALING_REFUSALS = ("UnexpectedAdmissionError", "NodeShutdown", "Evicted")
_AUTOSCALER = "TriggeredScaleUp"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A workload that is not ready: the object, its pods of the newest template, pods of this stack that are about to leave the nodes that its pods may
    use, and the events of its namespace."""

    workload: Raw
    pods: tuple[Raw, ...]
    leaving: tuple[str, ...] = ()
    events: tuple[Raw, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Hopeless:
    """`patience_seconds`: for so long the cause has to stand without a break."""

    name: str
    patience_seconds: int
    why: str
    found: Callable[[Situation], Iterator[str]]


def _bad_name(seen: Situation) -> Iterator[str]:
    for pod in seen.pods:
        for container in _statuses(pod):
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") == "InvalidImageName":
                yield from causes([pod], ())


def _gate(seen: Situation) -> Iterator[str]:
    for pod in seen.pods:
        for container in _statuses(pod):
            states = (container.get("state") or {}, container.get("lastState") or {})
            if any((state.get("terminated") or {}).get("exitCode") == GATE_REFUSED for state in states):
                yield from causes([pod], ())


def _refused(seen: Situation) -> Iterator[str]:
    refused = [pod for pod in seen.pods if is_refused(pod) and pod["status"].get("reason") not in _HEALING_REFUSALS]
    if len(refused) >= _TRIES and not seen.leaving:
        yield from causes(refused, ())


def _unschedulable(seen: Situation) -> Iterator[str]:
    if seen.leaving or any(event.get("reason") == _AUTOSCALER for event in seen.events):
        return
    for pod in seen.pods:
        if (pod.get("status") or {}).get("nominatedNodeName"):
            continue  # the scheduler makes room for it
        if _is_unschedulable(pod):
            yield from causes([pod], ())


def _not_made(seen: Situation) -> Iterator[str]:
    for condition in (seen.workload.get("status") or {}).get("conditions") or ():
        message = condition.get("message", "")
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True" and "forbidden" in message and not seen.leaving:
            yield f"no pod was made: {condition.get('reason', '')}: {message}"


RULES: tuple[Hopeless, ...] = (
    Hopeless(
        name="InvalidImageName", patience_seconds=0, found=_bad_name, why="no registry can answer to a name that is none; correct image:"
    ),
    Hopeless(
        name="GateRefused", patience_seconds=0, found=_gate,
        why="a container that starts again keeps its CPUs and GPUs; delete the pod once, or run `python -m infra verify`, which says what lies where",
    ),
    Hopeless(
        name="Refused", patience_seconds=20, found=_refused,
        why="the kubelet refuses the next pod for the same reason; see `python -m infra verify`",
    ),
    Hopeless(
        name="Unschedulable", patience_seconds=35, found=_unschedulable,
        why="no pod of this stack is about to leave these nodes; free what is missing, or plan for what is there",
    ),
    Hopeless(
        name="NotMade", patience_seconds=35, found=_not_made,
        why="the API server refuses the pod whenever it is made; change the quota or the policy of the namespace",
    ),
)  # fmt: skip


def _is_unschedulable(pod: Raw) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "PodScheduled" and c["status"] == "False" and c.get("reason") == "Unschedulable" for c in conditions)


def _statuses(pod: Raw) -> tuple[Raw, ...]:
    status = pod.get("status") or {}
    return (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
