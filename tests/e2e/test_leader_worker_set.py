"""A model over two nodes with the real LeaderWorkerSet controller, engine and kubelets.

The tests of this file build on each other in order: one cluster, one stack.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.config.load import load_stack_file
from tests.e2e.cluster_fixture import is_ready, wait_for
from tests.e2e.group_controller import run_group_controller
from tests.e2e.stack_fixture import RunningStack, assert_verified
from tools.cluster.layout import Layout
from tools.cluster.stack import machine_set_of
from tools.engine import Engine
from tools.work.embedded import cluster, settle_state, take_down

pytestmark = pytest.mark.e2e

GROUP = {
    "name": "llama-405b",
    "nodePool": "h100",
    "model": "meta-llama/Llama-3.1-405B-Instruct",
    "replicas": 1,
    "tensorParallelSize": 8,
    "pipelineParallelSize": 2,
    "maxModelLen": 8192,
    "storage": {"existingClaim": "pvc-llama-models", "modelPath": "Llama-3.1-405B-Instruct"},
}


def _over_nodes(document: dict[str, Any]) -> None:
    """Both NVIDIA machines serve one model: eight GPUs a machine span two NUMA nodes, which best-effort admits."""
    document["nodePools"] = document["nodePools"][:1]
    document["nodePools"][0]["kubelet"] = {"topologyManagerPolicy": "best-effort"}
    document["models"] = [GROUP]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    running = RunningStack(tmp_path_factory.mktemp("stack"))
    workspace = running.workspace(_over_nodes)
    machines = running.folder / "machines-given.json"
    machines.write_text(json.dumps(machine_set_of(load_stack_file(workspace.stack_file))))
    try:
        assert cluster(workspace, "up", "--nodes", str(machines)) == 0
        settle_state(workspace)
        Engine(workspace)
        yield running
    finally:
        take_down(workspace)


def _group(stack: RunningStack) -> list[dict[str, Any]]:
    """The group's pods, leader first."""
    pods = [pod for pod in stack.pods() if "leaderworkerset.sigs.k8s.io/name" in pod["metadata"]["labels"]]
    return sorted(pods, key=lambda pod: pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"])


def test_without_the_controller_nothing_is_touched_and_the_way_out_is_said(stack: RunningStack) -> None:
    done = stack.pulumi("up", _over_nodes)
    assert done.status != 0
    assert "models[0]: a replica of llama-405b spans 2 nodes, and this cluster does not know LeaderWorkerSet" in done.text, (
        done.text
    )
    assert "kubernetes-sigs/lws/releases/download/v0.9.0/manifests.yaml" in done.text
    assert not stack.pods()


def test_with_it_up_ends_with_both_pods_ready_and_preview_has_nothing_to_do(stack: RunningStack) -> None:
    run_group_controller(stack.client, Layout(stack.kubeconfig.parent), "gpu-a")
    done = stack.pulumi("up", _over_nodes)
    assert done.status == 0, done.text
    names = [pod["metadata"]["name"] for pod in _group(stack)]
    assert names == ["llama-405b-0", "llama-405b-0-1"]
    assert len({pod["spec"]["nodeName"] for pod in _group(stack)}) == 2
    assert_verified(stack, _over_nodes)
    again = stack.pulumi("up", _over_nodes)
    assert again.status == 0
    assert set(again.changes) == {"unchanged"}, again.text


def test_the_models_service_is_ours_and_the_replicas_is_the_controllers(stack: RunningStack) -> None:
    services = {s["metadata"]["name"]: s for s in stack.client.list("/api/v1/namespaces/inference/services")}
    assert set(services) == {"llama-405b", "llama-405b-0"}
    assert services["llama-405b-0"]["spec"]["clusterIP"] == "None"
    slices = stack.client.list("/apis/discovery.k8s.io/v1/namespaces/inference/endpointslices")
    addresses = [
        address
        for piece in slices
        if piece["metadata"]["labels"]["kubernetes.io/service-name"] == "llama-405b"
        for endpoint in piece.get("endpoints") or ()
        for address in endpoint["addresses"]
    ]
    assert addresses == [_group(stack)[0]["status"]["podIP"]], "the leader alone answers"


def test_a_lost_worker_brings_the_whole_group_anew(stack: RunningStack) -> None:
    before = {pod["metadata"]["uid"] for pod in _group(stack)}
    stack.client.request("DELETE", "/api/v1/namespaces/inference/pods/llama-405b-0-1")

    def anew() -> bool:
        pods = _group(stack)
        return len(pods) == 2 and all(is_ready(pod) for pod in pods) and not before & {pod["metadata"]["uid"] for pod in pods}

    wait_for(anew, seconds=180, describe=lambda: str([pod["metadata"]["name"] for pod in _group(stack)]))
    assert_verified(stack, _over_nodes)
