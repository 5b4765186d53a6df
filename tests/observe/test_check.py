"""What the cluster contradicts is found before anything is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.diagnosis import Diagnosis
from infra.errors import CheckError
from infra.observe.check import Ownership, check
from infra.observe.kubelet_difference import kubelet_differences
from infra.observe.model import ClusterObservation, ObjectKey, ObservedNode, ObservedPlugin, ObservedPod
from infra.plan.model import ClusterPlan
from infra.render import labels
from tests.support.builders import cluster_plan

MINE = labels.owner("local")
OWNERSHIP = Ownership(labels=MINE, node_annotation=(labels.FIELD_MANAGER, labels.field_manager("local")))
DEPLOYMENT = ObjectKey(kind="Deployment", namespace="inference", name="llama-70b")


def node(plan: ClusterPlan, name: str, **changes: Any) -> ObservedNode:
    pool = next(pool for pool in plan.node_pools if name in pool.nodes.names)
    memory_bytes = sum(numa.memory_bytes for numa in pool.hardware.numa_nodes)
    seen = ObservedNode(
        name=name,
        labels={},
        ready=True,
        ready_message="",
        unschedulable=False,
        kubelet_version="v1.37.2",
        capacity={"cpu": "224", "memory": f"{memory_bytes // 1024 + 4096}Ki"},
        allocatable={},
        kubelet={**pool.kubelet.fields, "evictionHard": {"memory.available": "100Mi"}},
    )
    return replace(seen, **changes)


def observation(plan: ClusterPlan, **changes: Any) -> ClusterObservation:
    """A cluster that contradicts nothing, with the given changes."""
    names = [name for pool in plan.node_pools for name in pool.nodes.names]
    seen = ClusterObservation(
        server_version="v1.37.2",
        nodes=tuple(node(plan, name) for name in names),
        pods=(),
        namespaces={"inference": {"pod-security.kubernetes.io/enforce": "restricted"}},
        claims={("inference", "pvc-llama-models"): ("ReadWriteMany",)},
    )
    return replace(seen, **changes)


def with_node(plan: ClusterPlan, name: str, **changes: Any) -> ClusterObservation:
    seen = observation(plan)
    return replace(seen, nodes=tuple(node(plan, n.name, **changes) if n.name == name else n for n in seen.nodes))


def errors(plan: ClusterPlan, seen: ClusterObservation) -> dict[str, Diagnosis]:
    with pytest.raises(CheckError) as caught:
        check(plan, seen, OWNERSHIP)
    return {problem.code: problem for problem in caught.value.problems}


def test_a_cluster_that_fits_gives_no_problem() -> None:
    plan = cluster_plan()
    assert check(plan, observation(plan), OWNERSHIP) == ()


def test_a_mistyped_node_name_is_an_error_with_the_near_name() -> None:
    plan = cluster_plan()
    seen = observation(plan)
    others = tuple(replace(n, name="gpu-x") if n.name == "gpu-b" else n for n in seen.nodes)
    problem = errors(plan, replace(seen, nodes=others))["UnknownNode"]
    assert problem.path == "nodePools[0].nodeNames[1]"
    assert "gpu-b is no node of the cluster" in problem.message
    assert "gpu-x" in problem.message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"capacity": {"cpu": "192"}}, "has 192 CPUs, dgx-h100 has 224"),
        ({"capacity": {"memory": "64Gi"}}, "has 64.0 GiB, less than the 2014.0 GiB"),
        ({"capacity": {"nvidia.com/gpu": "4"}}, "reports 4 nvidia.com/gpu, dgx-h100 has 8"),
    ],
)
def test_a_node_of_another_shape_is_an_error_with_both_numbers(changes: dict[str, Any], said: str) -> None:
    plan = cluster_plan()
    assert said in errors(plan, with_node(plan, "gpu-a", **changes))["ShapeContradicted"].message


def test_a_node_of_another_kubelet_version_is_an_error() -> None:
    plan = cluster_plan()
    assert (
        'kubernetesVersion to "1.36"'
        in errors(plan, with_node(plan, "gpu-a", kubelet_version="v1.36.4"))["KubeletVersionDiffers"].message
    )


def test_a_kubelet_without_the_planned_policy_is_an_error_that_names_both() -> None:
    plan = cluster_plan()
    running = {**plan.node_pools[0].kubelet.fields, "topologyManagerPolicy": "none"}
    problem = errors(plan, with_node(plan, "gpu-a", kubelet=running))["KubeletDiffers"]
    assert "topologyManagerPolicy is none, planned single-numa-node" in problem.message


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ready": False, "ready_message": "stopped", "kubelet": None}, "NodeNotReady"),
        ({"unschedulable": True}, "NodeCordoned"),
        ({"kubelet": None, "kubelet_unreadable": "forbidden"}, "KubeletUnread"),
    ],
)
def test_what_may_pass_by_itself_is_a_warning(changes: dict[str, Any], code: str) -> None:
    plan = cluster_plan()
    assert [problem.code for problem in check(plan, with_node(plan, "gpu-a", **changes), OWNERSHIP)] == [code]


def test_an_object_of_somebody_else_is_an_error_until_it_is_adopted() -> None:
    plan = cluster_plan()
    seen = observation(plan, objects={DEPLOYMENT: {"app.kubernetes.io/managed-by": "Helm"}})
    assert errors(plan, seen)["ForeignObject"].path == "Deployment/inference/llama-70b"
    assert check(plan, seen, replace(OWNERSHIP, adopt=("Deployment/inference/llama-70b",))) == ()


def test_an_object_of_another_stack_is_foreign_too() -> None:
    plan = cluster_plan()
    seen = observation(plan, objects={DEPLOYMENT: labels.owner("prod")})
    assert "ForeignObject" in errors(plan, seen)


def test_our_own_object_is_no_problem() -> None:
    plan = cluster_plan()
    assert check(plan, observation(plan, objects={DEPLOYMENT: MINE}), OWNERSHIP) == ()


def test_a_namespace_and_a_claim_that_are_missing_are_errors() -> None:
    plan = cluster_plan()
    assert "NoNamespace" in errors(plan, observation(plan, namespaces={}))
    assert "NoClaim" in errors(plan, observation(plan, claims={}))


def test_a_claim_for_one_node_does_not_serve_two_replicas() -> None:
    plan = cluster_plan()
    seen = observation(plan, claims={("inference", "pvc-llama-models"): ("ReadWriteOnce",)})
    assert "up to 2 pods mount it" in errors(plan, seen)["ClaimNotShared"].message


def test_a_second_device_plugin_of_the_same_vendor_is_an_error() -> None:
    plan = cluster_plan()
    plugin = ObservedPlugin(
        key=ObjectKey(kind="DaemonSet", namespace="kube-system", name="nvdp"),
        image="nvcr.io/nvidia/k8s-device-plugin:v0.17.0",
        labels={},
        node_selector={},
    )
    assert errors(plan, observation(plan, device_plugins=(plugin,)))["TwoDevicePlugins"].path == "nodePools[0].devicePlugin.mode"
    assert check(plan, observation(plan, device_plugins=(replace(plugin, labels=MINE),)), OWNERSHIP) == ()


def test_foreign_pods_that_hold_what_the_plan_counts_as_free_are_told() -> None:
    plan = cluster_plan()
    pod = ObservedPod(
        namespace="x",
        name="train-0",
        node="gpu-a",
        labels={},
        qos_class="Guaranteed",
        owner_kind="Job",
        requests={"nvidia.com/gpu": "2", "cpu": "8"},
    )
    assert "holds 2 nvidia.com/gpu" in errors(plan, observation(plan, pods=(pod,)))["ForeignGpuPod"].message
    warned = check(plan, observation(plan, pods=(replace(pod, requests={"cpu": "8"}),)), OWNERSHIP)
    assert [problem.code for problem in warned] == ["UndeclaredCoTenant"]
    assert check(plan, observation(plan, pods=(replace(pod, labels=MINE),)), OWNERSHIP) == ()


@pytest.mark.parametrize(
    ("planned", "running", "differs"),
    [
        ({"a": "1Gi"}, {"a": "1024Mi"}, False),
        ({"reservedSystemCPUs": "0,1,2"}, {"reservedSystemCPUs": "0-2"}, False),
        ({"reservedSystemCPUs": "0,1"}, {"reservedSystemCPUs": "0-2"}, True),
        ({"evictionHard": {"memory.available": "100Mi"}}, {"evictionHard": {"memory.available": "100Mi", "x": "1"}}, False),
        ({"evictionHard": {"memory.available": "100Mi"}}, {}, True),
        (
            {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]},
            {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]},
            False,
        ),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}, {"reservedMemory": []}, True),
        ({"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, False),
        ({"maxPods": 110}, {"maxPods": 250}, True),
        ({"enforceNodeAllocatable": []}, {}, False),
    ],
)
def test_configurations_are_compared_by_value(planned: dict[str, Any], running: dict[str, Any], differs: bool) -> None:
    assert bool(kubelet_differences(planned, running)) is differs


def test_a_node_of_another_stack_is_an_error_and_one_of_ours_is_none() -> None:
    plan = cluster_plan()
    mine = with_node(plan, "gpu-a", annotations={labels.FIELD_MANAGER: labels.field_manager("local")})
    assert check(plan, mine, OWNERSHIP) == ()
    theirs = with_node(plan, "gpu-a", annotations={labels.FIELD_MANAGER: labels.field_manager("prod")})
    (problem,) = errors(plan, theirs).values()
    assert problem.code == "NodeOfAnotherStack"
    assert "gpu-a" in problem.message and "numawise-prod" in problem.message and "numawise-local" in problem.message
