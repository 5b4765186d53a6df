"""Nodes that change their pool, leave and come back, and pools by selector, on the real engine and real kubelets.

The tests of this file build on each other in order: one cluster, one stack.
"""

from __future__ import annotations

from typing import Any

import pytest

from infra.render import labels
from tests.e2e.cluster_fixture import wait_for
from tests.e2e.stack_fixture import RunningStack, stack

pytestmark = pytest.mark.e2e

__all__ = ["stack"]

Cluster = dict[str, Any]


def pools_of(stack: RunningStack) -> dict[str, str | None]:
    """Node -> the pool whose label it has."""
    nodes = stack.client.list("/api/v1/nodes")
    return {node["metadata"]["name"]: node["metadata"]["labels"].get(labels.POOL) for node in nodes}


def running(stack: RunningStack, model: str) -> dict[str, str]:
    """Pod -> node, of those that stay."""
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
        for pod in stack.pods()
        if pod["metadata"]["name"].startswith(f"{model}-") and "deletionTimestamp" not in pod["metadata"]
    }


def renamed(cluster: Cluster) -> None:
    cluster["nodePools"][0]["name"] = "hopper"
    cluster["models"][0]["nodePool"] = "hopper"


def one_replica(cluster: Cluster) -> None:
    renamed(cluster)
    cluster["models"][0]["replicas"] = 1


def test_a_stack_of_the_release_before_keeps_its_labels(stack: RunningStack) -> None:
    """Its resources were named by pool and node."""
    done = stack.pulumi("up")
    assert done.status == 0, done.text
    checkpoint = stack.workspace().checkpoint
    text = checkpoint.read_text()
    for pool, node in (("h100", "gpu-a"), ("h100", "gpu-b"), ("mi300x", "gpu-c")):
        assert f"NodePatch::node/{node}" in text
        text = text.replace(f"NodePatch::node/{node}", f"NodePatch::{pool}-node/{node}")
    checkpoint.write_text(text)
    again = stack.pulumi("up")
    assert again.status == 0, again.text
    assert not again.changes.keys() & {"created", "deleted", "replaced"}, again.text
    assert pools_of(stack) == {"gpu-a": "h100", "gpu-b": "h100", "gpu-c": "mi300x"}
    assert set(stack.pulumi("up").changes) == {"unchanged"}


def test_a_renamed_pool_keeps_labels_plugins_and_nodes(stack: RunningStack) -> None:
    qwen = running(stack, "qwen-72b")
    done = stack.pulumi("up", renamed)
    assert done.status == 0, done.text
    assert pools_of(stack) == {"gpu-a": "hopper", "gpu-b": "hopper", "gpu-c": "mi300x"}
    assert sorted(running(stack, "llama-70b").values()) == ["gpu-a", "gpu-b"]
    assert running(stack, "qwen-72b") == qwen
    assert stack.refused_pods() == []
    again = stack.pulumi("up", renamed)
    assert set(again.changes) == {"unchanged"}, again.text


def test_a_node_that_moves_to_another_pool_ends_with_its_labels_and_no_pod_restarts(stack: RunningStack) -> None:
    assert stack.pulumi("up", one_replica).status == 0
    before = running(stack, "llama-70b")
    ((_, kept),) = before.items()
    other = {"gpu-a": "gpu-b", "gpu-b": "gpu-a"}[kept]

    def moved(cluster: Cluster) -> None:
        one_replica(cluster)
        cluster["nodePools"][0]["nodeNames"] = [kept]
        cluster["nodePools"].append({**cluster["nodePools"][0], "name": "spare", "nodeNames": [other]})

    done = stack.pulumi("up", moved)
    assert done.status == 0, done.text
    assert pools_of(stack) == {kept: "hopper", other: "spare", "gpu-c": "mi300x"}
    assert running(stack, "llama-70b") == before
    back = stack.pulumi("up", one_replica)
    assert back.status == 0, back.text
    assert pools_of(stack) == {"gpu-a": "hopper", "gpu-b": "hopper", "gpu-c": "mi300x"}
    assert running(stack, "llama-70b") == before


def test_a_lost_node_is_a_warning_where_the_others_hold_the_plan_and_never_comes_back_as_a_phantom(stack: RunningStack) -> None:
    before = running(stack, "llama-70b")
    ((_, kept),) = before.items()
    lost = {"gpu-a": "gpu-b", "gpu-b": "gpu-a"}[kept]
    stack.client.request("DELETE", f"/api/v1/nodes/{lost}")

    def shrunk(cluster: Cluster) -> None:
        one_replica(cluster)
        cluster["nodePools"][0]["nodeNames"] = [kept]

    for change, options in ((one_replica, ()), (shrunk, ()), (shrunk, ()), (shrunk, ("--refresh",))):
        done = stack.pulumi("up", change, *options)
        assert done.status == 0, done.text
        assert ("is no node of the cluster" in done.text) is (change is one_replica), done.text
        assert set(pools_of(stack)) == {kept, "gpu-c"}
        assert running(stack, "llama-70b") == before
    assert set(done.changes) == {"unchanged"}, done.text
    assert not [urn for urn in stack.urns() if urn.endswith(f"node/{lost}")]


def test_too_few_nodes_are_an_error_of_their_pools_models_alone(stack: RunningStack) -> None:
    before = running(stack, "llama-70b")

    def both(cluster: Cluster) -> None:
        renamed(cluster)
        cluster["models"][1]["gpuMemoryUtilization"] = 0.9

    done = stack.pulumi("up", both)
    assert done.status != 0
    assert "1 of the 2 nodes of hopper are in the cluster" in done.text, done.text
    assert "Traceback" not in done.text
    assert {name for kind, name in done.changed("updated") if kind.endswith(":Deployment")} >= {"qwen-72b-deployment"}, done.text
    assert not done.changed("deleted"), done.text
    assert running(stack, "llama-70b") == before
    assert len(pools_of(stack)) == 2


def test_a_pool_by_selector_is_deployed_on_the_nodes_that_match(stack: RunningStack) -> None:
    ((_, kept),) = running(stack, "llama-70b").items()
    chosen = {"metadata": {"labels": {"example.com/gpus": "h100"}}}
    stack.client.request("PATCH", f"/api/v1/nodes/{kept}", body=chosen, content_type="application/merge-patch+json")

    def selected(cluster: Cluster) -> None:
        one_replica(cluster)
        del cluster["nodePools"][0]["nodeNames"]
        cluster["nodePools"][0] |= {"nodeSelector": {"example.com/gpus": "h100"}, "nodes": 2}

    done = stack.pulumi("up", selected)
    assert done.status == 0, done.text
    assert "matches 1 nodes, and the plan counts 2" in done.text
    assert pools_of(stack) == {kept: "hopper", "gpu-c": "mi300x"}
    again = stack.pulumi("up", selected)
    assert set(again.changes) == {"unchanged"}, again.text
    wait_for(lambda: list(running(stack, "llama-70b").values()) == [kept], seconds=120)


def test_lost_labels_are_told_and_mended_by_a_refresh(stack: RunningStack) -> None:
    gone = {"metadata": {"labels": {labels.POOL: None}}}
    stack.client.request("PATCH", "/api/v1/nodes/gpu-c", body=gone, content_type="application/merge-patch+json")
    told = stack.pulumi("preview", one_replica)
    assert "gpu-c has lost the labels of mi300x" in told.text, told.text
    assert stack.pulumi("up", one_replica, "--refresh").status == 0
    assert pools_of(stack)["gpu-c"] == "mi300x"


def test_another_cluster_under_the_same_stack_is_told_before_anything_is_touched(stack: RunningStack) -> None:
    checkpoint = stack.workspace().checkpoint
    text = checkpoint.read_text()
    uid = stack.client.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    assert uid in text
    gone = stack.client.get("/apis/apps/v1/namespaces/inference/deployments/qwen-72b")["metadata"]["uid"]
    checkpoint.write_text(text.replace(uid, "0" * 36).replace(gone, "1" * 36))
    done = stack.pulumi("up", one_replica)
    assert done.status != 0
    assert "leads to another cluster than the last update did" in done.text, done.text
    assert not done.changed("updated") and not done.changed("created")
    assert stack.pulumi("refresh").status == 0
    mended = stack.pulumi("up", one_replica)
    assert mended.status == 0, mended.text
    assert_verified_but_nodes(stack)


def assert_verified_but_nodes(stack: RunningStack) -> None:
    """The stack file as it is tracked names a node that was taken away."""
    codes = {finding["code"] for finding in stack.verify()["findings"]}
    assert codes <= {"UnknownNode", "PodsMissing", "LabelsDiffer", "PodElsewhere"}, codes
