"""Stack local from nothing to verified pods, its changes and its end, on the real engine and real kubelets.

The tests of this file build on each other in order: one cluster, one stack.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.render import labels
from tests.e2e.cluster_fixture import wait_for
from tests.e2e.stack_fixture import RunningStack, assert_verified, stack

pytestmark = pytest.mark.e2e

__all__ = ["stack"]

GOLDEN_URNS = Path(__file__).resolve().parents[1] / "golden" / "local" / "engine" / "urns.txt"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"


def test_preview_on_an_empty_cluster_touches_nothing(stack: RunningStack) -> None:
    before = {pod["metadata"]["uid"] for pod in stack.client.list("/api/v1/pods")}
    done = stack.pulumi("preview")
    assert done.status == 0, done.text
    assert {pod["metadata"]["uid"] for pod in stack.client.list("/api/v1/pods")} == before
    assert stack.client.find("/api/v1/namespaces/numawise-system") is None


def test_up_ends_with_every_pod_in_a_planned_slot(stack: RunningStack) -> None:
    done = stack.pulumi("up")
    assert done.status == 0, done.text
    verified = stack.verify()
    assert verified["ok"], verified["findings"]
    assert verified["status"] == 0
    pods = {(pod["model"], pod["node"]): pod for pod in verified["pods"]}
    assert set(pods) == {("llama-70b", "gpu-a"), ("llama-70b", "gpu-b"), ("qwen-72b", "gpu-c")}
    for (model, _), pod in pods.items():
        assert pod["qosClass"] == "Guaranteed"
        assert pod["slot"] is not None
        assert len(pod["numaNodes"]) == (1 if model == "llama-70b" else 2)
    assert all(check for node in verified["nodes"] for check in node["checks"].values())


def test_no_kubelet_refused_a_pod_or_its_configuration(stack: RunningStack) -> None:
    assert stack.refused_pods() == []
    events = list(stack.client.list("/api/v1/events"))
    refusals = [
        event
        for event in events
        if event["reason"] in ("TopologyAffinityError", "UnexpectedAdmissionError", "FailedAdmission")
        or event["reason"].startswith("OutOf")
    ]
    assert refusals == []
    starts = [event for event in events if event["reason"] == "Starting" and event.get("source", {}).get("component") == "kubelet"]
    assert {event["involvedObject"]["name"] for event in starts} >= {"gpu-a", "gpu-b", "gpu-c"}
    for node in ("gpu-a", "gpu-b", "gpu-c"):
        log = (stack.folder / "cluster" / "nodes" / node / "kubelet.log").read_text(errors="replace")
        assert "failed to run Kubelet" not in log
        assert "invalid configuration" not in log.lower()


def test_the_urns_are_those_of_the_golden_list(stack: RunningStack) -> None:
    assert stack.urns() == GOLDEN_URNS.read_text().splitlines()


def test_up_again_changes_nothing(stack: RunningStack) -> None:
    done = stack.pulumi("up")
    assert done.status == 0, done.text
    assert set(done.changes) == {"unchanged"}, done.text


def test_another_address_of_the_api_server_changes_nothing(stack: RunningStack) -> None:
    text = stack.kubeconfig.read_text()
    assert "https://127.0.0.1:" in text
    stack.kubeconfig.write_text(text.replace("https://127.0.0.1:", "https://localhost:"))
    try:
        done = stack.pulumi("up")
    finally:
        stack.kubeconfig.write_text(text)
    assert done.status == 0, done.text
    assert set(done.changes) == {"unchanged"}, done.text


def test_one_changed_field_updates_what_it_concerns_and_a_rolling_restart_with_all_slots_taken_ends(stack: RunningStack) -> None:
    before = {pod["metadata"]["name"] for pod in stack.pods() if pod["metadata"]["name"].startswith("llama-70b-")}

    def lower(cluster: dict[str, Any]) -> None:
        cluster["models"][0]["gpuMemoryUtilization"] = 0.88

    done = stack.pulumi("up", lower)
    assert done.status == 0, done.text
    assert {kind for kind, _ in done.changed("updated")} == {DEPLOYMENT}, done.text
    assert done.changes.get("updated", 0) >= 1
    assert not done.changes.keys() & {"created", "deleted", "replaced"}, done.text
    after = {
        pod["metadata"]["name"]
        for pod in stack.pods()
        if pod["metadata"]["name"].startswith("llama-70b-") and "deletionTimestamp" not in pod["metadata"]
    }
    assert len(after) == 2
    assert not after & before, "both pods were replaced one after the other"
    assert stack.refused_pods() == []
    back = stack.pulumi("up")
    assert back.status == 0, back.text
    assert_verified(stack)


def test_a_drifted_node_label_is_mended_by_refresh_and_up(stack: RunningStack) -> None:
    label = {"metadata": {"labels": {labels.KUBELET_CONFIG: None}}}
    stack.client.request("PATCH", "/api/v1/nodes/gpu-b", body=label, content_type="application/merge-patch+json")
    verified = stack.verify()
    assert [finding["code"] for finding in verified["findings"]] == ["LabelsDiffer"]
    done = stack.pulumi("up", None, "--refresh")
    assert done.status == 0, done.text
    assert_verified(stack)


def test_a_foreign_object_is_refused_before_anything_is_touched(stack: RunningStack) -> None:
    service = {"metadata": {"name": "second", "namespace": "inference"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}
    stack.client.request("POST", "/api/v1/namespaces/inference/services", body=service)

    def with_second(cluster: dict[str, Any]) -> None:
        cluster["models"][0]["replicas"] = 1
        cluster["models"].append({**cluster["models"][0], "name": "second"})

    try:
        done = stack.pulumi("up", with_second)
        assert done.status != 0
        assert "Service/inference/second" in done.text
        assert not done.changed("created") and not done.changed("updated")
    finally:
        stack.client.request("DELETE", "/api/v1/namespaces/inference/services/second")


def test_a_mistyped_node_name_makes_no_phantom_node(stack: RunningStack) -> None:
    def mistyped(cluster: dict[str, Any]) -> None:
        cluster["nodePools"][0]["nodeNames"] = ["gpu-a", "gpu-bb"]

    done = stack.pulumi("up", mistyped)
    assert done.status != 0
    assert "gpu-bb is no node of the cluster" in done.text
    assert stack.client.find("/api/v1/nodes/gpu-bb") is None


def test_destroy_leaves_nothing_of_ours_and_all_that_is_not(stack: RunningStack) -> None:
    done = stack.pulumi("destroy")
    assert done.status == 0, done.text
    selector = {"labelSelector": f"{labels.STACK}=local"}
    for path in (
        "/api/v1/pods", "/api/v1/services", "/api/v1/configmaps", "/api/v1/serviceaccounts", "/api/v1/secrets", "/apis/apps/v1/deployments",
        "/apis/apps/v1/daemonsets", "/apis/policy/v1/poddisruptionbudgets", "/apis/networking.k8s.io/v1/networkpolicies",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1/roles", "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    ):  # fmt: skip
        wait_for(lambda path=path: list(stack.client.list(path, query=selector)) == [], describe=lambda path=path: path)
    for node in stack.client.list("/api/v1/nodes"):
        assert not {labels.POOL, labels.KUBELET_CONFIG} & set(node["metadata"]["labels"])
    assert len(list(stack.client.list("/api/v1/nodes"))) == 3
    claim = stack.client.get("/api/v1/namespaces/inference/persistentvolumeclaims/pvc-llama-models")
    assert claim["status"]["phase"] == "Bound"
    retained = stack.client.find("/api/v1/namespaces/numawise-system")
    assert retained is not None, "namespaces that we create are retained"
    assert "numawise-system" in done.text, "what is retained is listed"


def test_up_after_destroy_takes_the_retained_namespace_and_an_adopted_object_with_what_others_wrote_to_it(
    stack: RunningStack,
) -> None:
    path = "/apis/policy/v1/namespaces/inference/poddisruptionbudgets"
    theirs = {
        "metadata": {"name": "llama-70b", "labels": {"app.kubernetes.io/managed-by": "somebody"}},
        "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": "theirs"}}},
    }
    stack.client.request("POST", path, body=theirs)

    def adopting(cluster: dict[str, Any]) -> None:
        cluster["adopt"] = ["PodDisruptionBudget/inference/llama-70b"]

    refused = stack.pulumi("up")
    assert refused.status != 0 and "PodDisruptionBudget/inference/llama-70b" in refused.text
    assert not refused.changed("created")
    done = stack.pulumi("up", adopting)
    assert done.status == 0, done.text
    taken = stack.client.get(f"{path}/llama-70b")
    assert taken["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "numawise"
    assert taken["spec"]["maxUnavailable"] == 1
    assert taken["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "llama-70b"
    assert_verified(stack)
    back = stack.pulumi("up")
    assert back.status == 0, back.text
    assert set(back.changed("updated")) == {("kubernetes:policy/v1:PodDisruptionBudget", "llama-70b-poddisruptionbudget")}


def test_a_node_of_another_stack_is_refused_before_anything_is_touched(stack: RunningStack) -> None:
    path, annotation = "/api/v1/nodes/gpu-a", {"metadata": {"annotations": {labels.FIELD_MANAGER: "numawise-prod"}}}
    assert stack.client.get(path)["metadata"]["annotations"][labels.FIELD_MANAGER] == labels.field_manager("local")
    merge = "application/merge-patch+json"
    stack.client.request("PATCH", path, body=annotation, content_type=merge)
    try:
        done = stack.pulumi("up")
        assert done.status != 0
        assert "numawise-prod" in done.text and "gpu-a" in done.text
        assert not done.changed("updated")
    finally:
        annotation["metadata"]["annotations"][labels.FIELD_MANAGER] = labels.field_manager("local")
        stack.client.request("PATCH", path, body=annotation, content_type=merge)
