"""How an update replaces replicas: with one more pod where every order leaves room for it, else one after the other; and models of no replicas."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config.load import parse_cluster_document
from infra.errors import PlanError
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan
from tests.support.documents import small_document


def planned(*models: dict[str, Any], nodes: int = 2, kubelet: dict[str, Any] | None = None) -> ClusterPlan:
    """Models of four H100 a pod on DGX H100 nodes, of two NUMA nodes with four GPUs each."""
    document = small_document()
    pool = {**document["nodePools"][0], "nodeShape": "dgx-h100", "nodeNames": [f"gpu-{n}" for n in range(nodes)]}
    pool["kubelet"] = kubelet or {}
    base = {**document["models"][0], "nodePool": pool["name"], "tensorParallelSize": 4, "podAntiAffinity": "none"}
    base.pop("strategy", None)
    named = [{**base, "name": f"m{index}", **changes} for index, changes in enumerate(models)]
    return plan_stack(parse_cluster_document({**document, "nodePools": [pool], "models": named}))


def strategies(plan: ClusterPlan) -> list[tuple[int, int]]:
    return [(model.placement.max_surge, model.placement.max_unavailable) for model in plan.models]


def reason(plan: ClusterPlan, index: int = 0) -> str:
    return next(text for text in plan.models[index].reasons if text.startswith("strategy"))


ONE, TWO, FOUR, NONE = ({"replicas": count} for count in (1, 2, 4, 0))


@pytest.mark.parametrize(
    "models, nodes, expected",
    [
        pytest.param([ONE], 1, [(1, 0)], id="half a node is free"),
        pytest.param([{**ONE, "podAntiAffinity": "required"}], 1, [(0, 1)], id="its own pod keeps the next one off the only node"),
        pytest.param([{**ONE, "podAntiAffinity": "required"}], 2, [(1, 0)], id="another node is free"),
        pytest.param([TWO], 1, [(0, 1)], id="full"),
        pytest.param([ONE, ONE], 1, [(0, 1), (0, 1)], id="full with two models"),
        pytest.param([ONE, ONE], 2, [(1, 0), (1, 0)], id="room for both at once"),
        pytest.param([ONE, TWO], 2, [(1, 0), (0, 1)], id="room for one of two at once"),
        pytest.param(
            [ONE, {**ONE, "tensorParallelSize": 8}], 2, [(0, 1), (0, 1)], id="pods on both nodes would keep the larger one off"
        ),
        pytest.param([NONE], 1, [(0, 1)], id="nothing runs"),
        pytest.param([TWO, NONE], 1, [(0, 1), (0, 1)], id="full beside one that does not run"),
    ],
)
def test_a_replica_surges_where_every_order_leaves_room(models: list[dict[str, Any]], nodes: int, expected: list[Any]) -> None:
    assert strategies(planned(*models, nodes=nodes)) == expected


def test_without_room_the_reason_says_for_how_long_a_replica_is_down() -> None:
    text = reason(planned(TWO, nodes=1))
    assert "not every order leaves room for another pod of 4 GPUs" in text
    assert "one of 2 replicas after the other is down for about 1006 s at each change, at most 1380 s" in text
    assert "the only replica is down for about" in reason(planned(ONE, ONE, nodes=1))
    assert "so that an update starts a new pod before it ends an old one" in reason(planned(ONE))


def test_a_given_strategy_that_could_never_end_is_an_error_and_what_it_advises_works() -> None:
    with pytest.raises(PlanError) as caught:
        planned({**TWO, "strategy": {"maxSurge": 1, "maxUnavailable": 0}}, nodes=1)
    text = str(caught.value)
    assert "models[0].strategy" in text and "have no room for 1 more in every order" in text
    assert "Use maxSurge: 0, maxUnavailable: 1" in text
    assert strategies(planned({**TWO, "strategy": {"maxSurge": 0, "maxUnavailable": 1}}, nodes=1)) == [(0, 1)]


@pytest.mark.parametrize("strategy", [{"maxSurge": 1, "maxUnavailable": 1}, {"maxSurge": 0, "maxUnavailable": 2}])
def test_a_given_strategy_that_ends_is_kept(strategy: dict[str, int]) -> None:
    plan = planned({**TWO, "strategy": strategy}, nodes=1)
    assert strategies(plan) == [(strategy["maxSurge"], strategy["maxUnavailable"])]
    assert reason(plan).endswith("given.")


def test_surge_changes_no_kubelet() -> None:
    assert (
        planned(ONE).node_pools[0].kubelet
        == planned({**ONE, "strategy": {"maxSurge": 0, "maxUnavailable": 1}}).node_pools[0].kubelet
    )


def test_a_model_of_no_replicas_is_planned_as_it_would_run_and_holds_no_gpus() -> None:
    running, standing = planned(ONE), planned(NONE)
    one, none = running.models[0], standing.models[0]
    assert (one.parallelism, one.memory, one.resources, one.times) == (none.parallelism, none.memory, none.resources, none.times)
    assert (none.placement.replicas, none.placement.slots) == (0, ())
    assert none.placement.places and set(none.placement.places) <= set(one.placement.places)
    assert standing.node_pools[0].kubelet == running.node_pools[0].kubelet, "the kubelets need no other configuration for it"
    assert standing.node_pools[0].idle_gpus == 16


def test_it_needs_no_room() -> None:
    assert [model.placement.replicas for model in planned(FOUR, NONE, NONE).models] == [4, 0, 0]


def test_beside_models_with_which_it_is_not_proven_it_warns_and_the_others_are_planned_as_without_it() -> None:
    small = {"tensorParallelSize": 1, "model": "meta-llama/Llama-3.1-8B-Instruct", "resources": {"cpu": "8", "memory": "64Gi"}}
    kubelet = {"topologyManagerPolicy": "single-numa-node"}
    with pytest.raises(PlanError):
        planned(ONE, {**ONE, **small}, {**ONE, **small}, nodes=1, kubelet=kubelet)
    plan = planned(ONE, {**NONE, **small}, {**NONE, **small}, nodes=1, kubelet=kubelet)
    assert [warning.path for warning in plan.warnings if warning.code == "NotProvenBesideOthers"] == [
        "models[1].replicas",
        "models[2].replicas",
    ]
    assert plan.models[0].placement.slots == planned(ONE, nodes=1, kubelet=kubelet).models[0].placement.slots


def test_below_zero_is_no_number_of_replicas() -> None:
    with pytest.raises(Exception, match="replicas"):
        planned({"replicas": -1})
