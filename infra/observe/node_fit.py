"""Whether a pod of a template may run on a node: node selector, required node affinity, taints, by the scheduler's rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# What the DaemonSet controller adds to every pod of its own.
_OF_DAEMONS = (
    "not-ready",
    "unreachable",
    "disk-pressure",
    "memory-pressure",
    "pid-pressure",
    "unschedulable",
    "network-unavailable",
)
CONDITIONS = "node.kubernetes.io/"


@dataclass(frozen=True, kw_only=True)
class Taint:
    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


def matches(selector: Mapping[str, str], node_labels: Mapping[str, str]) -> bool:
    """Whether a node has every label of a node selector."""
    return selector.items() <= node_labels.items()


def selects(pod: Mapping[str, Any], *, name: str, labels: Mapping[str, str]) -> bool:
    """`pod` is a pod's spec: its nodeSelector and the required part of its node affinity."""
    if not matches(pod.get("nodeSelector") or {}, labels):
        return False
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    # One term is enough; all requirements of a term have to hold, and an empty term matches nothing.
    return any(_term(term, name, labels) for term in required.get("nodeSelectorTerms") or ())


def _term(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(expressions or fields) and all(
        [*(_holds(one, labels.get(one["key"])) for one in expressions), *(_holds(one, name) for one in fields)]
    )


def _holds(requirement: Mapping[str, Any], value: str | None) -> bool:
    operator, values = requirement.get("operator"), list(requirement.get("values") or ())
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    try:
        return value is not None and (int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0]))
    except (ValueError, IndexError):
        return False


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Taint) -> bool:
    return any(
        one.get("effect") in (None, "", taint.effect)
        and (
            (one.get("operator") == "Exists" and one.get("key") in (None, "", taint.key))
            or (
                one.get("operator") in (None, "", "Equal")
                and one.get("key") == taint.key
                and (one.get("value") or "") == taint.value
            )
        )
        for one in tolerations
    )


def daemon_runs_on(pod: Mapping[str, Any], *, name: str, labels: Mapping[str, str], taints: Iterable[Taint]) -> bool:
    """Whether a DaemonSet with this pod spec has a pod on the node."""
    daemons = [{"key": f"{CONDITIONS}{condition}", "operator": "Exists"} for condition in _OF_DAEMONS]
    tolerations = [*(pod.get("tolerations") or ()), *daemons]
    return selects(pod, name=name, labels=labels) and all(
        tolerates(tolerations, taint) for taint in taints if taint.effect != "PreferNoSchedule"
    )
