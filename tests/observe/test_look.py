"""One look at a cluster: what it lists, what it takes for absent, and what it does not ask for."""

from __future__ import annotations

from typing import Any

import pytest

from infra.kinds import ObjectKey
from infra.observe.client import ApiError
from infra.observe.look import observe
from infra.observe.model import ClusterObservation, ObservedNode, ObservedPod
from tests.observe.stub_client import StubClient
from tests.support.builders import changed, cluster_plan

PLAN = cluster_plan()  # gpu-a, gpu-b and gpu-c
CONFIGZ = "/api/v1/nodes/{}/proxy/configz"


def raw_node(name: str, *, ready: str | None = "True", **changes: Any) -> dict[str, Any]:
    conditions = [{"type": "MemoryPressure", "status": "False"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready, "message": "kubelet stopped" if ready == "False" else ""})
    return {"metadata": {"name": name}, "status": {"conditions": conditions}, **changes}


def raw_pod(name: str = "train-0", *, node: str | None = "gpu-a", phase: str = "Running", **changes: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "x", **changes.pop("metadata", {})}
    spec = {"containers": [], **({"nodeName": node} if node else {}), **changes.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, **changes.pop("status", {})}}


def look(
    *,
    nodes: tuple[dict[str, Any], ...] = (),
    pods: tuple[dict[str, Any], ...] = (),
    daemon_sets: tuple[dict[str, Any], ...] = (),
    objects: dict[str, Any] | None = None,
    wanted: tuple[ObjectKey, ...] = (),
) -> ClusterObservation:
    lists = {"/api/v1/nodes": list(nodes), "/api/v1/pods": list(pods), "/apis/apps/v1/daemonsets": list(daemon_sets)}
    return observe(PLAN, StubClient(objects or {}, lists), wanted)


def one_node(raw: dict[str, Any], **objects: Any) -> ObservedNode:
    return look(nodes=(raw,), objects={CONFIGZ.format(name): found for name, found in objects.items()}).nodes[0]


def one_pod(raw: dict[str, Any]) -> ObservedPod:
    (found,) = look(pods=(raw,)).pods
    return found


def test_the_kubelets_of_planned_ready_nodes_are_read_and_no_others() -> None:
    """Reading one takes a request to the node: a cluster may have thousands."""
    running = {"kubeletconfig": {"maxPods": 110}}
    names = ("gpu-a", "web-1")
    objects = {CONFIGZ.format(name): running for name in ("gpu-a", "gpu-b", "web-1")}
    seen = look(nodes=(*map(raw_node, names), raw_node("gpu-b", ready="False")), objects=objects)
    assert {node.name: node.kubelet for node in seen.nodes} == {"gpu-a": {"maxPods": 110}, "web-1": None, "gpu-b": None}


def test_a_node_is_what_its_object_says() -> None:
    node = one_node(
        {
            "metadata": {"name": "gpu-a", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.37.2"},
                "capacity": {"cpu": "224"},
                "allocatable": {"cpu": "220"},
            },
        },
        **{"gpu-a": {"kubeletconfig": {}}},
    )
    assert (node.labels, node.annotations) == ({"a": "b"}, {"c": "d"})
    assert (node.ready, node.unschedulable, node.kubelet_version) == (True, True, "v1.37.2")
    assert (node.capacity, node.allocatable, node.kubelet, node.kubelet_unreadable) == ({"cpu": "224"}, {"cpu": "220"}, {}, "")


@pytest.mark.parametrize("raw", [{"metadata": {"name": "gpu-a"}}, {"metadata": {"name": "gpu-a"}, "spec": None, "status": None}])
def test_a_node_that_has_not_registered_fully_is_not_ready_and_has_nothing(raw: dict[str, Any]) -> None:
    node = one_node(raw)
    assert (node.ready, node.ready_message, node.unschedulable) == (False, "the kubelet has not reported", False)
    assert (node.labels, node.annotations, node.kubelet_version, node.capacity, node.allocatable) == ({}, {}, "", {}, {})
    assert (node.kubelet, node.kubelet_unreadable) == (None, "the node is not Ready")


@pytest.mark.parametrize(("ready", "message"), [("False", "kubelet stopped"), ("Unknown", "")])
def test_a_node_is_ready_only_where_the_condition_says_true(ready: str, message: str) -> None:
    node = one_node(raw_node("gpu-a", ready=ready))
    assert (node.ready, node.ready_message) == (False, message)


class _Refusing(StubClient):
    def get(self, path: str, **options: Any) -> Any:
        if path.endswith("configz"):
            raise ApiError(403, "nodes/proxy is forbidden")
        return super().get(path, **options)


def test_a_kubelet_that_may_not_be_read_says_why() -> None:
    seen = observe(PLAN, _Refusing({}, {"/api/v1/nodes": [raw_node("gpu-a")]}), ())
    assert (seen.nodes[0].kubelet, seen.nodes[0].kubelet_unreadable) == (None, "nodes/proxy is forbidden")


@pytest.mark.parametrize("answer", [None, {}, "text"])
def test_an_answer_that_is_no_configuration_is_no_configuration(answer: Any) -> None:
    node = one_node(raw_node("gpu-a"), **{"gpu-a": answer})
    assert node.kubelet is None
    assert node.kubelet_unreadable


@pytest.mark.parametrize(
    ("node", "phase", "seen"),
    [
        ("gpu-a", "Running", True),
        ("gpu-b", "Pending", True),
        ("gpu-a", "Succeeded", False),
        ("gpu-a", "Failed", False),
        ("web-1", "Running", False),
        (None, "Pending", False),
    ],
)
def test_pods_that_are_bound_to_planned_nodes_and_have_not_ended_are_seen(node: str | None, phase: str, seen: bool) -> None:
    assert bool(look(pods=(raw_pod(node=node, phase=phase),)).pods) is seen


def test_a_pods_requests_are_summed_over_its_containers() -> None:
    containers = [
        {"resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": "1"}}},
        {"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"cpu": "8"}}},
        {"resources": {"limits": {"cpu": "8"}}},
        {},
    ]
    pod = one_pod(raw_pod(spec={"containers": containers}, status={"qosClass": "Burstable"}))
    assert pod.requests == {"cpu": "1500m", "nvidia.com/gpu": "2"}
    assert pod.qos_class == "Burstable"


def test_a_pod_is_named_with_its_owner_and_labels() -> None:
    metadata = {"labels": {"app": "train"}, "ownerReferences": [{"kind": "Job", "name": "train"}]}
    pod = one_pod(raw_pod(metadata=metadata))
    assert (pod.namespace, pod.name, pod.node, pod.owner_kind, pod.labels) == ("x", "train-0", "gpu-a", "Job", {"app": "train"})


def test_a_bare_pod_has_no_owner_no_labels_and_no_requests() -> None:
    pod = one_pod({"metadata": {"name": "p", "namespace": "x"}, "spec": {"nodeName": "gpu-a"}})
    assert (pod.owner_kind, pod.labels, pod.requests, pod.qos_class) == ("", {}, {}, "")


def test_objects_that_exist_are_seen_with_their_labels_and_others_are_not() -> None:
    here, bare, absent = (ObjectKey(kind="ConfigMap", namespace="a", name=name) for name in ("here", "bare", "absent"))
    objects = {here.path: {"metadata": {"labels": {"owner": "me"}}}, bare.path: {"metadata": {}}}
    assert look(objects=objects, wanted=(here, bare, absent)).objects == {here: {"owner": "me"}, bare: {}}


def test_namespaces_are_those_that_the_plan_names_and_that_exist() -> None:
    objects = {
        f"/api/v1/namespaces/{name}": {"metadata": {"labels": {"n": name}}}
        for name in ("inference", "kube-system", "numawise-system")
    }
    assert look(objects=objects).namespaces == {"inference": {"n": "inference"}, "numawise-system": {"n": "numawise-system"}}


def test_a_models_own_namespace_is_looked_at_too() -> None:
    plan = changed(PLAN, models=(changed(PLAN.models[0], namespace="other"),))
    client = StubClient({"/api/v1/namespaces/other": {"metadata": {}}})
    assert observe(plan, client, ()).namespaces == {"other": {}}


CLAIM = "/api/v1/namespaces/inference/persistentvolumeclaims/pvc-llama-models"


@pytest.mark.parametrize(
    ("claim", "modes"),
    [
        ({"spec": {"accessModes": ["ReadWriteMany"]}, "status": {"accessModes": ["ReadOnlyMany"]}}, ("ReadOnlyMany",)),
        ({"spec": {"accessModes": ["ReadWriteMany"]}, "status": {}}, ("ReadWriteMany",)),
        ({"spec": {"accessModes": ["ReadWriteOnce"]}}, ("ReadWriteOnce",)),
        ({"spec": {}}, ()),
    ],
)
def test_a_bound_claims_modes_count_before_the_wanted_ones(claim: dict[str, Any], modes: tuple[str, ...]) -> None:
    assert look(objects={CLAIM: claim}).claims == {("inference", "pvc-llama-models"): modes}


def test_a_claim_that_does_not_exist_is_left_out() -> None:
    assert look().claims == {}


def daemon_set(*images: str, **metadata: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"image": image} for image in images], "nodeSelector": {"gpu": "yes"}}}
    return {"metadata": {"name": "plugin", "namespace": "kube-system", **metadata}, "spec": {"template": template}}


@pytest.mark.parametrize(
    "image",
    [
        "nvcr.io/nvidia/k8s-device-plugin:v0.17.0",
        "docker.io/rocm/k8s-device-plugin:1.31",
        "gke.gcr.io/nvidia-gpu-device-plugin@sha256:0",
        "registry.example/amdgpu-device-plugin:1",
    ],
)
def test_a_device_plugin_is_known_by_its_image(image: str) -> None:
    (plugin,) = look(daemon_sets=(daemon_set("busybox:1", image, labels={"a": "b"}),)).device_plugins
    assert plugin.key == ObjectKey(kind="DaemonSet", namespace="kube-system", name="plugin")
    assert (plugin.image, plugin.labels, plugin.pod) == (image, {"a": "b"}, {"nodeSelector": {"gpu": "yes"}})


def test_other_daemon_sets_are_no_plugins_and_one_with_two_such_containers_is_one() -> None:
    bare: dict[str, Any] = {"metadata": {"name": "x", "namespace": "y"}, "spec": {"template": {"spec": {}}}}
    assert look(daemon_sets=(daemon_set("fluent/fluent-bit:4"), bare)).device_plugins == ()
    (plugin,) = look(daemon_sets=(daemon_set("a/k8s-device-plugin:1", "b/k8s-device-plugin:2"),)).device_plugins
    assert (plugin.image, plugin.labels) == ("a/k8s-device-plugin:1", {})


@pytest.mark.parametrize(
    ("annotation", "seen"),
    [
        ('{"maxPods": 250}', {"maxPods": 250}),
        ("{}", {}),
        ("not JSON", {"maxPods": 110}),
        ("[1]", {"maxPods": 110}),
        (None, {"maxPods": 110}),
    ],
)
def test_an_observed_configuration_on_the_node_is_taken_before_the_kubelet_is_asked(
    annotation: str | None, seen: dict[str, Any]
) -> None:
    raw = raw_node("gpu-a")
    if annotation is not None:
        raw["metadata"]["annotations"] = {"numawise.dev/observed-kubelet-config": annotation}
    assert one_node(raw, **{"gpu-a": {"kubeletconfig": {"maxPods": 110}}}).kubelet == seen


def test_with_the_annotation_no_right_on_the_kubelet_is_needed() -> None:
    class Forbidding(StubClient):
        def get(self, path: str, **_: Any) -> Any:
            if path.endswith("/configz"):
                raise ApiError(403, "nodes/proxy is forbidden")
            return super().get(path)

    raw = raw_node("gpu-a")
    raw["metadata"]["annotations"] = {"numawise.dev/observed-kubelet-config": '{"maxPods": 7}'}
    (node,) = observe(PLAN, Forbidding({}, {"/api/v1/nodes": [raw]}), ()).nodes
    assert (node.kubelet, node.kubelet_unreadable) == ({"maxPods": 7}, "")
