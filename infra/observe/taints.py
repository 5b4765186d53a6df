"""Taints of a pool's nodes that the stack does not name: its pods would not be scheduled there."""

from __future__ import annotations

from collections.abc import Iterator

from infra.diagnosis import Diagnosis
from infra.observe.model import ClusterObservation
from infra.observe.node_fit import CONDITIONS, Taint
from infra.plan.model import ClusterPlan

_TOLD_OTHERWISE = ("not-ready", "unreachable", "unschedulable")  # NodeNotReady and NodeCordoned say it
_PASSING = "node.cloudprovider.kubernetes.io/uninitialized"  # until the cloud's controller has seen the node
_OURS = "numawise.dev/"


def unnamed_taints(plan: ClusterPlan, seen: ClusterObservation) -> Iterator[Diagnosis]:
    """An error for each taint that a pool's pods do not tolerate, with the entry to write; a warning where it stands for a condition that may pass, or
    where the pool has no pods of ours. PreferNoSchedule keeps no pod off."""
    for index, pool in enumerate(plan.node_pools):
        named = {(taint.key, taint.effect) for taint in pool.nodes.taints}
        found: dict[Taint, list[str]] = {}
        for name in pool.nodes.names if pool.nodes.names_given else ():
            node = seen.node(name)
            for taint in node.taints if node is not None else ():
                if (
                    taint.effect != "PreferNoSchedule"
                    and (taint.key, taint.effect) not in named
                    and not taint.key.startswith(_OURS)
                ):
                    found.setdefault(taint, []).append(name)
        ours = bool(plan.models_of(pool.name)) or pool.device_plugin.mode == "managed"
        for taint, nodes in sorted(found.items(), key=lambda item: str(item[0])):
            if taint.key.startswith(CONDITIONS) or taint.key == _PASSING:
                if taint.key.removeprefix(CONDITIONS) not in _TOLD_OTHERWISE:
                    yield Diagnosis.warning(
                        f"nodePools[{index}]",
                        "NodeCondition",
                        f"{_some(nodes)} {'has' if len(nodes) == 1 else 'have'} the taint {taint}, which stands for a condition of the node: no pod of the "
                        f"stack starts there until it has passed; look at `kubectl describe node {nodes[0]}`",
                    )
                continue
            entry = f"{{key: {taint.key}, {f'value: {_quoted(taint.value)}, ' if taint.value else ''}effect: {taint.effect}}}"
            message = (
                f"do not name the taint {taint} of {_some(nodes)}: no pod of the stack tolerates it, and model pods and device plugin would stay Pending; "
                f"add {entry}, or take it off: kubectl taint node {nodes[0]} {taint.key}:{taint.effect}-"
            )
            path = f"nodePools[{index}].taints"
            yield Diagnosis(path, "TaintNotNamed", message) if ours else Diagnosis.warning(path, "TaintNotNamed", message)


def _some(nodes: list[str]) -> str:
    return f"{', '.join(nodes[:5])}{f' and {len(nodes) - 5} others' if len(nodes) > 5 else ''}"


def _quoted(value: str) -> str:
    """As YAML keeps it a text."""
    return (
        value
        if value.replace("-", "").isalpha() and value.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
        else f'"{value}"'
    )
