"""Taints that the stack does not name are told before pods wait for ever, with the entry that mends it."""

from __future__ import annotations

import pytest
import yaml

from infra.config.pools import Taint as NamedTaint
from infra.observe.node_fit import Taint
from infra.observe.taints import unnamed_taints
from infra.plan.model import TaintPlan
from tests.observe.test_check import OWNERSHIP, check, codes, with_node
from tests.support.builders import changed, cluster_plan

DEDICATED = Taint(key="dedicated", value="ml", effect="NoSchedule")


def test_a_taint_that_is_not_named_is_an_error_with_the_entry_to_write() -> None:
    plan = cluster_plan()
    (problem,) = unnamed_taints(plan, with_node(plan, "gpu-a", taints=(DEDICATED,)))
    assert (problem.path, problem.code, problem.severity) == ("nodePools[0].taints", "TaintNotNamed", "error")
    assert "dedicated=ml:NoSchedule of gpu-a" in problem.message
    assert "add {key: dedicated, value: ml, effect: NoSchedule}" in problem.message


@pytest.mark.parametrize("taint", [
    DEDICATED, Taint(key="example.com/gpu", effect="NoExecute"), Taint(key="a", value="true", effect="NoSchedule"), Taint(key="a", value="1", effect="NoSchedule"),
    Taint(key="a", value="on", effect="NoSchedule"), Taint(key="a", value="v1.2", effect="NoSchedule"),
])  # fmt: skip
def test_the_entry_that_is_offered_works_when_it_is_put_in(taint: Taint) -> None:
    plan = cluster_plan()
    seen = with_node(plan, "gpu-a", taints=(taint,))
    (problem,) = unnamed_taints(plan, seen)
    entry = yaml.safe_load(problem.message[problem.message.index("add {") + 4 : problem.message.index("}") + 1])
    written = NamedTaint.model_validate(entry)
    pool = plan.node_pools[0]
    named = TaintPlan(key=written.key, value=written.value, effect=written.effect)
    nodes = changed(pool, taints=(*pool.nodes.taints, named))
    assert list(unnamed_taints(changed(plan, node_pools=(nodes, *plan.node_pools[1:])), seen)) == []


@pytest.mark.parametrize(
    ("taint", "found"),
    [
        (Taint(key="dedicated", value="ml", effect="PreferNoSchedule"), []),
        (Taint(key="nvidia.com/gpu", value="other", effect="NoExecute"), ["TaintNotNamed"]),
        (Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"), []),
        (Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"), []),
        (Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule"), ["NodeCondition"]),
        (Taint(key="node.kubernetes.io/network-unavailable", effect="NoSchedule"), ["NodeCondition"]),
        (Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule"), ["NodeCondition"]),
        (Taint(key="numawise.dev/rollout", effect="NoSchedule"), []),
        (Taint(key="CriticalAddonsOnly", effect="NoExecute"), ["TaintNotNamed"]),
    ],
)
def test_conditions_of_nodes_and_preferences_are_no_errors(taint: Taint, found: list[str]) -> None:
    plan = cluster_plan()
    problems = list(unnamed_taints(plan, with_node(plan, "gpu-a", taints=(taint,))))
    assert [problem.code for problem in problems] == found
    assert all(problem.severity == ("error" if problem.code == "TaintNotNamed" else "warning") for problem in problems)


def test_a_named_taint_is_tolerated_with_any_value() -> None:
    plan = cluster_plan()
    pool = changed(plan.node_pools[0], taints=(TaintPlan(key="dedicated", value="x", effect="NoSchedule"),))
    plan = changed(plan, node_pools=(pool, *plan.node_pools[1:]))
    assert codes(with_node(plan, "gpu-a", taints=(DEDICATED,)), plan) == []


def test_a_pool_without_pods_of_ours_gets_a_warning() -> None:
    plan = cluster_plan()
    plan = changed(plan, models=(), node_pools=tuple(changed(pool, mode="existing") for pool in plan.node_pools))
    (warning,) = check(plan, with_node(plan, "gpu-a", taints=(DEDICATED,)), OWNERSHIP)
    assert (warning.code, warning.severity) == ("TaintNotNamed", "warning")
