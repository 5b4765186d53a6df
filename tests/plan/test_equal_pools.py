"""Pools and models that are equal but for names are decided once, and each reads as if it had been decided alone."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from infra.config.load import parse_cluster_document
from infra.errors import NumawiseError
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan
from tests.support.documents import small_document


def plan(document: dict[str, Any]) -> ClusterPlan:
    return plan_stack(parse_cluster_document(document))


def copies(document: dict[str, Any], count: int) -> dict[str, Any]:
    """The document's pool and model again and again, under other names."""
    many = deepcopy(document)
    many["nodePools"] = [
        {**document["nodePools"][0], "name": f"pool-{i}", "nodeNames": [f"n{i}-a", f"n{i}-b"]} for i in range(count)
    ]
    many["models"] = [{**document["models"][0], "name": f"model-{i}", "nodePool": f"pool-{i}"} for i in range(count)]
    return many


def alone(document: dict[str, Any], index: int) -> ClusterPlan:
    one = deepcopy(document)
    one["nodePools"], one["models"] = [document["nodePools"][index]], [document["models"][index]]
    return plan(one)


def test_each_of_many_equal_pools_is_planned_as_if_it_were_alone() -> None:
    document = copies(small_document(), 3)
    together = plan(document)
    for index in range(3):
        single = alone(document, index)
        assert together.node_pools[index] == single.node_pools[0]
        assert together.models[index] == single.models[0]


def test_warnings_carry_the_paths_of_their_own_pool_and_model() -> None:
    document = small_document()
    document["models"][0]["resources"] = {"cpu": "8", "memory": "128Gi"}
    warnings = plan(copies(document, 2)).warnings
    below = [warning.path for warning in warnings if warning.code == "BelowCpuFloor"]
    assert below == ["models[0].resources.cpu", "models[1].resources.cpu"]


def test_errors_carry_the_paths_of_their_own_pool_and_model() -> None:
    document = small_document()
    document["models"][0]["replicas"] = 3
    with pytest.raises(NumawiseError) as caught:
        plan(copies(document, 2))
    assert {problem.path.split(".")[0] for problem in caught.value.problems} == {"models[0]", "models[1]"}
    for problem in caught.value.problems:
        assert "stand-in" not in problem.message


def test_pools_that_differ_in_their_kubelet_are_decided_apart() -> None:
    document = copies(small_document(), 2)
    document["nodePools"][1]["kubelet"] = {"topologyManagerPolicy": "best-effort"}
    first, second = plan(document).node_pools
    assert (first.kubelet.topology_manager_policy, second.kubelet.topology_manager_policy) == ("single-numa-node", "best-effort")
    assert replace(first, name=second.name) != second
