"""Node selector, node affinity and taints by the scheduler's rules."""

from __future__ import annotations

from typing import Any

import pytest

from infra.observe.node_fit import Taint, daemon_runs_on, selects, tolerates

LABELS = {"gpu": "h100", "zone": "a", "generation": "9"}
GPU = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("pod", "selected"),
    [
        ({}, True),
        ({"nodeSelector": {"gpu": "h100"}}, True),
        ({"nodeSelector": {"gpu": "h100", "zone": "b"}}, False),
        ({"nodeSelector": {"missing": ""}}, False),
        (affinity(expression("gpu", "In", "a100", "h100")), True),
        (affinity(expression("gpu", "In", "a100")), False),
        (affinity(expression("gpu", "NotIn", "h100")), False),
        (affinity(expression("missing", "NotIn", "x")), True),
        (affinity(expression("gpu", "Exists")), True),
        (affinity(expression("missing", "Exists")), False),
        (affinity(expression("gpu", "DoesNotExist")), False),
        (affinity(expression("generation", "Gt", "8")), True),
        (affinity(expression("generation", "Lt", "9")), False),
        (affinity(expression("gpu", "Gt", "8")), False),
        (affinity(expression("gpu", "In", "a100"), expression("zone", "In", "a")), True),
        (affinity({}), False),
        (affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), True),
        (affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), False),
        ({"nodeSelector": {"zone": "b"}, **affinity(expression("gpu", "Exists"))}, False),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}}, True),
    ],
)
def test_a_pod_selects_nodes_as_the_scheduler_reads_it(pod: dict[str, Any], selected: bool) -> None:
    assert selects(pod, name="n1", labels=LABELS) is selected


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}, False),
        ({"key": "amd.com/gpu", "operator": "Exists"}, False),
    ],
)
def test_a_toleration_holds_for_key_value_and_effect(toleration: dict[str, Any], tolerated: bool) -> None:
    assert tolerates([toleration], GPU) is tolerated


def test_a_daemon_runs_on_nodes_whose_conditions_keep_others_off_and_not_past_other_taints() -> None:
    conditions = (Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"), Taint(key="x", effect="PreferNoSchedule"))
    assert daemon_runs_on({}, name="n1", labels=LABELS, taints=conditions)
    assert not daemon_runs_on({}, name="n1", labels=LABELS, taints=(*conditions, GPU))
    assert daemon_runs_on({"tolerations": [{"operator": "Exists"}]}, name="n1", labels=LABELS, taints=(GPU,))
