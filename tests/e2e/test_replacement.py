"""Models on full GPUs are replaced, renamed, moved, shrunk and brought back, each in one update; and an update that failed is healed.

The tests of this file build on each other in order: one cluster, one stack, and the two H100 nodes full of pods from the first test on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from infra.observe.room import ROOM_GIVEN
from tests.e2e.stack_fixture import RunningStack, Update, stack

pytestmark = pytest.mark.e2e

__all__ = ["stack"]

Change = Callable[[dict[str, Any]], None]
MOST_SECONDS = 120


def model(name: str, **changes: Any) -> dict[str, Any]:
    """Four GPUs a pod, two pods: half of both nodes."""
    return {
        "name": name,
        "nodePool": "h100",
        "model": "meta-llama/Meta-Llama-3-70B-Instruct",
        "tensorParallelSize": 4,
        "replicas": 2,
        "maxModelLen": 4096,
        "resources": {"cpu": "32", "memory": "128Gi"},
        "storage": {"existingClaim": "pvc-llama-models", "modelPath": "Meta-Llama-3-70B-Instruct"},
        **changes,
    }


def holding(*models: dict[str, Any]) -> Change:
    """These on the H100 nodes."""

    def change(cluster: dict[str, Any]) -> None:
        cluster["models"] = [*models, *(other for other in cluster["models"] if other["nodePool"] != "h100")]

    return change


def updated(stack: RunningStack, change: Change) -> Update:
    """An update that ends well and in time, and after which another one changes nothing."""
    began = time.monotonic()
    done = stack.pulumi("up", change)
    seconds = time.monotonic() - began
    assert done.status == 0, done.text
    assert seconds < MOST_SECONDS
    again = stack.pulumi("up", change)
    assert again.status == 0, again.text
    assert set(again.changes) == {"unchanged"}, again.text
    return done


def ready_pods(stack: RunningStack, namespace: str = "inference") -> dict[str, int]:
    """Pods that are ready and not about to go, by model."""
    found: dict[str, int] = {}
    for pod in stack.client.list(f"/api/v1/namespaces/{namespace}/pods"):
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
        if ready and "deletionTimestamp" not in pod["metadata"] and pod["spec"]["nodeName"] != "gpu-c":
            name = pod["metadata"]["labels"]["app.kubernetes.io/instance"]
            found[name] = found.get(name, 0) + 1
    return found


def test_two_models_on_full_gpus_are_replaced_by_two_others_in_one_update(stack: RunningStack) -> None:
    updated(stack, holding(model("a"), model("b")))
    assert ready_pods(stack) == {"a": 2, "b": 2}
    preview = stack.pulumi("preview", holding(model("c"), model("d")))
    assert (
        "Deployment/inference/a: goes from 2 to 0 replicas and gives 8 GPUs of h100 before inference/c, inference/d start"
        in preview.text
    )
    assert ready_pods(stack) == {"a": 2, "b": 2}, "a preview touches nothing"
    updated(stack, holding(model("c"), model("d")))
    assert ready_pods(stack) == {"c": 2, "d": 2}
    assert stack.refused_pods() == []


def test_a_rename_is_one_update_and_the_other_model_keeps_its_pods(stack: RunningStack) -> None:
    before = {pod["metadata"]["uid"] for pod in stack.pods() if pod["metadata"]["name"].startswith("d-")}
    updated(stack, holding(model("e"), model("d")))
    assert ready_pods(stack) == {"e": 2, "d": 2}
    assert {pod["metadata"]["uid"] for pod in stack.pods() if pod["metadata"]["name"].startswith("d-")} == before


def test_a_model_moves_to_another_namespace_in_one_update(stack: RunningStack) -> None:
    namespace = stack.client.get("/api/v1/namespaces/inference")
    body = {"metadata": {"name": "other", "labels": namespace["metadata"]["labels"] | {"kubernetes.io/metadata.name": "other"}}}
    stack.client.request("POST", "/api/v1/namespaces", body=body)
    claim = stack.client.get("/api/v1/namespaces/inference/persistentvolumeclaims/pvc-llama-models")
    volume = stack.client.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
    copy = {key: value for key, value in volume["spec"].items() if key not in ("claimRef", "nodeAffinity")}
    stack.client.request("POST", "/api/v1/persistentvolumes", body={"metadata": {"name": "weights-of-other"}, "spec": copy})
    spec = {key: value for key, value in claim["spec"].items() if key != "volumeName"} | {"volumeName": "weights-of-other"}
    path = "/api/v1/namespaces/other/persistentvolumeclaims"
    stack.client.request("POST", path, body={"metadata": {"name": "pvc-llama-models"}, "spec": spec})
    updated(stack, holding(model("e"), model("d", namespace="other")))
    assert (ready_pods(stack), ready_pods(stack, "other")) == ({"e": 2}, {"d": 2})
    updated(stack, holding(model("e"), model("d")))
    assert (ready_pods(stack), ready_pods(stack, "other")) == ({"e": 2, "d": 2}, {})


def test_a_model_shrinks_beside_one_that_is_new(stack: RunningStack) -> None:
    updated(stack, holding(model("e", replicas=1), model("d"), model("f", replicas=1)))
    assert ready_pods(stack) == {"e": 1, "d": 2, "f": 1}


def test_a_model_that_fails_after_others_gave_it_room_leaves_a_stack_that_heals(stack: RunningStack) -> None:
    before = holding(model("e", replicas=1), model("d"), model("f", replicas=1))
    broken = model("g", env={"SIM_NUMAWISE_READY": "false"}, startup={"budgetSeconds": 20}, progressDeadlineSeconds=30)
    failed = stack.pulumi("up", holding(broken, model("d")))
    assert failed.status != 0
    assert "inference/g: " in failed.text and "1 workload did not become ready: inference/g" in failed.text
    assert ready_pods(stack) == {"d": 2}
    path = "/apis/apps/v1/namespaces/inference/deployments/e"
    assert ROOM_GIVEN in stack.client.get(path)["metadata"]["annotations"]
    preview = stack.pulumi("preview", before)
    assert "inference/e runs 0: an update that did not end had scaled it down" in preview.text
    updated(stack, before)
    assert ready_pods(stack) == {"e": 1, "d": 2, "f": 1}
    assert ROOM_GIVEN not in stack.client.get(path)["metadata"].get("annotations", {})
    # Nothing that the scaling left behind may conflict with what the engine applies later.
    updated(stack, holding(model("e"), model("d")))
    assert ready_pods(stack) == {"e": 2, "d": 2}
