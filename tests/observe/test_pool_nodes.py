"""The plan on the nodes that are there: which ones a selector finds, and whether those left hold the models."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from infra.config.load import parse_cluster_document
from infra.observe.model import ClusterObservation, ObservedNode
from infra.observe.pool_nodes import Starved, lost_labels, selection, starved_models, with_selected_nodes, without_missing_nodes
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan
from infra.render.labels import POOL
from tests.support.documents import small_document


def seen(*names: str, **labels: dict[str, str]) -> ClusterObservation:
    nodes = tuple(
        ObservedNode(
            name=name, labels=labels.get(name, {}), ready=True, ready_message="", unschedulable=False, kubelet_version="", capacity={},
            allocatable={}, kubelet=None,
        )
        for name in names
    )  # fmt: skip
    return ClusterObservation(server_version="v1.37.0", nodes=nodes, pods=())


def by_selector(nodes: int) -> ClusterPlan:
    document = copy.deepcopy(small_document())
    pool = document["nodePools"][0]
    del pool["nodeNames"]
    pool |= {"nodeSelector": {"gpu": "h100"}, "nodes": nodes}
    return plan_stack(parse_cluster_document(document))


GPU = {"gpu": "h100"}


@pytest.mark.parametrize(
    ("nodes", "cluster", "names", "codes"),
    [
        (2, seen("b", "a", "web", a=GPU, b=GPU), ("a", "b"), []),
        (2, seen("b", "web", b=GPU), ("b",), ["NodesMissing"]),
        (2, seen("a", "b", "c", a=GPU, b=GPU, c=GPU), ("a", "b"), ["NodesLeftOver"]),
        (2, seen("a", "b", "c", a=GPU, b={**GPU, POOL: "h100"}, c={**GPU, POOL: "h100"}), ("b", "c"), ["NodesLeftOver"]),
        (2, seen("a", "b", a={"gpu": "a100"}), (), ["NodesMissing"]),
    ],
)
def test_a_selector_finds_as_many_nodes_as_the_plan_counts(
    nodes: int, cluster: ClusterObservation, names: tuple[str, ...], codes: list[str]
) -> None:
    plan = by_selector(nodes)
    bound = with_selected_nodes(plan, cluster, pool_label=POOL)
    assert (bound.node_pools[0].nodes.names, bound.node_pools[0].nodes.names_given) == (names, True)
    assert [problem.code for problem in selection(plan, bound, cluster.nodes)] == codes
    assert with_selected_nodes(bound, cluster, pool_label=POOL) == bound


def test_nodes_of_a_pool_by_name_are_not_taken_by_a_selector() -> None:
    document = copy.deepcopy(small_document())
    first = document["nodePools"][0]
    first["nodeNames"] = ["a", "b"]
    document["nodePools"].append(
        {**{k: v for k, v in first.items() if k != "nodeNames"}, "name": "rest", "nodeSelector": GPU, "nodes": 1}
    )
    plan = plan_stack(parse_cluster_document(document))
    bound = with_selected_nodes(plan, seen("a", "b", "c", a=GPU, b=GPU, c=GPU), pool_label=POOL)
    assert bound.pool("rest").nodes.names == ("c",)


def starved(nodes: list[str], there: tuple[str, ...], **model: Any) -> tuple[Starved, ...]:
    document = copy.deepcopy(small_document())
    document["nodePools"][0]["nodeNames"] = nodes
    document["models"][0] |= model
    config = parse_cluster_document(document)
    return starved_models(config, plan_stack(config), seen(*there))


@pytest.mark.parametrize(
    ("nodes", "there", "replicas", "held"),
    [
        (["a", "b"], ("a", "b"), 2, True),
        (["a", "b"], ("a",), 2, False),  # anti-affinity: one replica a node
        (["a", "b"], ("a",), 1, True),
        (["a", "b", "c"], ("a", "c"), 2, True),
        (["a", "b"], (), 1, False),
    ],
)
def test_missing_nodes_starve_models_only_where_the_others_do_not_hold_them(
    nodes: list[str], there: tuple[str, ...], replicas: int, held: bool
) -> None:
    found = starved(nodes, there, replicas=replicas)
    assert (found == ()) is held
    if found:
        assert found[0].pool == "h100" and found[0].models == ("llama-70b",)
        missing = [name for name in nodes if name not in there]
        assert f"{len(there)} of the {len(nodes)} nodes of h100 are in the cluster" in found[0].why.message
        assert missing[0] in found[0].why.message


def test_a_node_that_is_not_there_is_left_out_and_nothing_else_changes() -> None:
    plan = plan_stack(parse_cluster_document(small_document()))
    first = plan.node_pools[0].nodes.names[0]
    smaller = without_missing_nodes(plan, seen(first), planned=plan)
    assert smaller.node_pools[0].nodes.names == (first,)
    assert smaller.node_pools[0].kubelet == plan.node_pools[0].kubelet
    updated_in_place = replace(plan.models[0].placement, max_surge=0, max_unavailable=1)
    assert smaller.models == (replace(plan.models[0], placement=updated_in_place), *plan.models[1:])


def test_no_pod_surges_where_a_node_is_missing_and_any_may_where_all_are_there() -> None:
    plan = plan_stack(parse_cluster_document(small_document()))
    surging = replace(plan.models[0], placement=replace(plan.models[0].placement, max_surge=1, max_unavailable=0))
    plan = replace(plan, models=(surging,))
    names = plan.node_pools[0].nodes.names
    (fewer,) = without_missing_nodes(plan, seen(names[0]), planned=plan).models
    assert (fewer.placement.max_surge, fewer.placement.max_unavailable) == (0, 1)
    assert without_missing_nodes(plan, seen(*names), planned=plan).models == plan.models


@pytest.mark.parametrize(("labelled", "label", "told"), [(True, True, False), (True, False, True), (False, False, False)])
def test_labels_that_the_state_holds_and_the_node_does_not_are_told(labelled: bool, label: bool, told: bool) -> None:
    plan = plan_stack(parse_cluster_document(small_document()))
    first = plan.node_pools[0].nodes.names[0]
    cluster = seen(first, **{first: {POOL: "h100"} if label else {}})
    assert bool(list(lost_labels(plan, cluster, [first] if labelled else [], pool_label=POOL))) is told
