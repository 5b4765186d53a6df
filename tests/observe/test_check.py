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
from infra.observe.node_fit import Taint
from infra.plan.model import ClusterPlan, CoTenantPlan, TaintPlan
from infra.render import labels
from infra.units import GIB
from tests.support.builders import changed, cluster_plan, pool_plan
from tests.support.golden import plan_of

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


def test_a_mistyped_node_name_is_told_with_the_near_name() -> None:
    plan = cluster_plan()
    seen = observation(plan)
    others = tuple(replace(n, name="gpu-x") if n.name == "gpu-b" else n for n in seen.nodes)
    (problem,) = check(plan, replace(seen, nodes=others), OWNERSHIP)
    assert problem.code == "UnknownNode"
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


def codes(seen: ClusterObservation, plan: ClusterPlan | None = None, **ownership: Any) -> list[str]:
    """Codes of everything that check() finds, warnings or errors."""
    try:
        return [problem.code for problem in check(plan or cluster_plan(), seen, replace(OWNERSHIP, **ownership))]
    except CheckError as error:
        return [problem.code for problem in error.problems]


@pytest.mark.parametrize(("version", "found"), [("v1.37.9", []), ("v1.36.2", ["ServerVersionDiffers"]), ("", [])])
def test_another_version_of_the_api_server_is_a_warning(version: str, found: list[str]) -> None:
    assert codes(observation(cluster_plan(), server_version=version)) == found


def test_nodes_that_have_no_names_cannot_be_checked() -> None:
    plan = cluster_plan(node_pools=(pool_plan("h100", names_given=False),), models=())
    problem = errors(plan, observation(plan))["NodesNotNamed"]
    assert problem.path == "nodePools[0].nodeNames"
    assert "the plan counts 2 nodes" in problem.message


def test_a_cluster_without_nodes_says_so_and_a_large_one_names_ten() -> None:
    plan = cluster_plan()

    def told(nodes: tuple[ObservedNode, ...]) -> str:
        return check(plan, observation(plan, nodes=nodes), OWNERSHIP)[0].message

    assert "The cluster has no nodes." in told(())
    many = [replace(node(plan, "gpu-a"), name=f"web-{index}") for index in range(11)]
    message = told(tuple(many))
    assert message.endswith("web-9 ...."), message
    ten = told(tuple(many[:10]))
    assert ten.endswith("web-9."), ten


@pytest.mark.parametrize(
    ("capacity", "found"),
    [
        ({}, []),
        ({"cpu": "224"}, []),
        ({"cpu": "223"}, ["ShapeContradicted"]),
        ({"memory": f"{2014 * GIB}"}, []),
        ({"memory": f"{2014 * GIB - 1}"}, ["ShapeContradicted"]),
        ({"memory": f"{2100 * GIB}"}, []),
        ({"nvidia.com/gpu": "8"}, []),
        ({"nvidia.com/gpu": "0"}, []),  # the plugin has not registered yet
        ({"nvidia.com/gpu": "9"}, ["ShapeContradicted"]),
        ({"amd.com/gpu": "4"}, []),
    ],
)
def test_a_nodes_capacity_is_compared_where_it_is_known(capacity: dict[str, str], found: list[str]) -> None:
    assert codes(with_node(cluster_plan(), "gpu-a", capacity=capacity)) == found


@pytest.mark.parametrize(("label", "found"), [(None, []), ("NVIDIA-H100", []), ("NVIDIA-H200", ["ShapeContradicted"])])
def test_a_label_of_feature_discovery_that_names_another_product_contradicts(label: str | None, found: list[str]) -> None:
    pool = pool_plan("h100", product_label=("nvidia.com/gpu.product", "NVIDIA-H100"))
    plan = cluster_plan(node_pools=(pool,), models=())
    carried = {} if label is None else {"nvidia.com/gpu.product": label}
    assert codes(with_node(plan, "gpu-a", labels=carried), plan) == found


@pytest.mark.parametrize(("version", "found"), [("v1.37.0", []), ("", []), ("v1.38.0", ["KubeletVersionDiffers"])])
def test_a_kubelets_version_is_compared_where_the_node_tells_it(version: str, found: list[str]) -> None:
    assert codes(with_node(cluster_plan(), "gpu-a", kubelet_version=version)) == found


def test_an_unread_kubelet_of_a_node_that_is_down_is_told_once() -> None:
    seen = with_node(cluster_plan(), "gpu-a", ready=False, kubelet=None, kubelet_unreadable="the node is not Ready")
    assert codes(seen) == ["NodeNotReady"]


@pytest.mark.parametrize(
    ("enforced", "needed", "create", "found"),
    [
        ("restricted", "restricted", False, []),
        ("baseline", "restricted", False, []),
        ("restricted", "baseline", False, ["PodSecurityTooStrict"]),
        ("baseline", "privileged", False, ["PodSecurityTooStrict"]),
        ("restricted", "baseline", True, []),
        ("unknown", "privileged", False, []),
        (None, "privileged", False, []),
    ],
)
def test_a_namespace_has_to_admit_what_the_pods_need(enforced: str | None, needed: Any, create: bool, found: list[str]) -> None:
    plan = cluster_plan(pod_security=needed, create=create)
    labelled = {} if enforced is None else {"pod-security.kubernetes.io/enforce": enforced}
    assert codes(observation(plan, namespaces={"inference": labelled}), plan) == found


def test_a_namespace_that_is_created_need_not_exist_but_a_models_own_does() -> None:
    plan = cluster_plan(create=True)
    assert codes(observation(plan, namespaces={}), plan) == []
    other = changed(plan, models=(changed(plan.models[0], namespace="other"),))
    problem = errors(other, observation(other, namespaces={}))["NoNamespace"]
    assert problem.path == "models[0].namespace"
    assert "other does not exist" in problem.message


def test_a_claim_is_missed_only_in_a_namespace_that_exists() -> None:
    plan = cluster_plan()
    assert codes(observation(plan, namespaces={}, claims={})) == ["NoNamespace"]


@pytest.mark.parametrize(
    ("changes", "modes", "pods"),
    [
        ({"replicas": 1}, ("ReadWriteOnce",), None),
        ({"replicas": 1, "max_surge": 1}, ("ReadWriteOnce",), 2),
        ({"replicas": 1, "pods_per_replica": 3}, ("ReadWriteOnce",), 3),
        ({"replicas": 3, "pods_per_replica": 2, "max_surge": 1}, ("ReadWriteOnce", "ReadWriteOncePod"), 7),
        ({"replicas": 3}, ("ReadWriteOnce", "ReadOnlyMany"), None),
        ({"replicas": 3}, ("ReadWriteMany",), None),
    ],
)
def test_a_claim_has_to_serve_all_pods_that_mount_it(changes: dict[str, int], modes: tuple[str, ...], pods: int | None) -> None:
    plan = cluster_plan()
    plan = changed(plan, models=(changed(plan.models[0], **changes),))
    seen = observation(plan, claims={("inference", "pvc-llama-models"): modes})
    if pods is None:
        assert codes(seen, plan) == []
    else:
        assert f"up to {pods} pods mount it" in errors(plan, seen)["ClaimNotShared"].message


def test_what_is_to_be_adopted_and_is_not_there_is_told_by_its_index() -> None:
    plan = cluster_plan()
    seen = observation(plan, objects={DEPLOYMENT: {}})
    (problem,) = check(plan, seen, replace(OWNERSHIP, adopt=(str(DEPLOYMENT), "Service/inference/x")))
    assert (problem.code, problem.path) == ("NothingToAdopt", "adopt[1]")


def test_nodes_are_never_foreign_objects_and_both_owner_labels_count() -> None:
    plan = cluster_plan()
    gpu_a = ObjectKey(kind="Node", namespace="", name="gpu-a")
    assert codes(observation(plan, objects={gpu_a: {}})) == []
    half = {"app.kubernetes.io/managed-by": "numawise"}
    assert codes(observation(plan, objects={DEPLOYMENT: half})) == ["ForeignObject"]


@pytest.mark.parametrize(
    ("image", "path"),
    [
        ("docker.io/rocm/k8s-device-plugin:1", "nodePools[1].devicePlugin.mode"),
        ("registry.example/amdgpu-device-plugin:1", "nodePools[1].devicePlugin.mode"),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.0", "nodePools[0].devicePlugin.mode"),
    ],
)
def test_a_second_plugin_concerns_the_pools_of_its_vendor_that_bring_their_own(image: str, path: str) -> None:
    plan = cluster_plan()
    key = ObjectKey(kind="DaemonSet", namespace="kube-system", name="p")
    seen = observation(plan, device_plugins=(ObservedPlugin(key=key, image=image, labels={}),))
    with pytest.raises(CheckError) as caught:
        check(plan, seen, OWNERSHIP)
    assert [problem.path for problem in caught.value.problems] == [path]
    existing = tuple(changed(pool, mode="existing") for pool in plan.node_pools)
    assert codes(seen, changed(plan, node_pools=existing)) == []


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"requests": {"cpu": "1"}}, ["UndeclaredCoTenant"]),
        ({"requests": {"cpu": "999m"}}, []),
        ({"requests": {"cpu": "8"}, "qos_class": "Burstable"}, []),
        ({"requests": {}}, []),
        ({"requests": {"nvidia.com/gpu": "1"}, "qos_class": "Burstable"}, ["ForeignGpuPod"]),
        ({"requests": {"amd.com/gpu": "1", "cpu": "500m"}}, []),
        ({"requests": {"cpu": "8"}, "node": "gpu-x"}, []),
        ({"requests": {"cpu": "8"}, "name": "agent-7"}, []),
    ],
)
def test_a_foreign_pod_counts_where_it_may_hold_what_the_plan_gives_away(changes: dict[str, Any], found: list[str]) -> None:
    tenant = CoTenantPlan(name="agent", per_node=1, cpu="8", memory="1Gi", qos_class="Guaranteed")
    plan = cluster_plan(node_pools=(pool_plan("h100", co_tenants=(tenant,)),), models=())
    pod = ObservedPod(namespace="x", name="train-0", node="gpu-a", labels={}, qos_class="Guaranteed", owner_kind="Job", requests={})
    assert codes(observation(plan, pods=(replace(pod, **changes),)), plan) == found


def test_problems_come_sorted_and_warnings_only_where_nothing_is_wrong() -> None:
    plan = cluster_plan()
    seen = replace(with_node(plan, "gpu-a", unschedulable=True), server_version="v1.36.0")
    assert codes(seen) == ["ServerVersionDiffers", "NodeCordoned"]
    assert codes(replace(seen, claims={})) == ["NoClaim", "NoClaim"]


@pytest.mark.parametrize(
    ("planned", "running", "said"),
    [
        ({"maxPods": 110}, {}, ("maxPods is not set, planned 110",)),
        ({"maxPods": 0}, {}, ()),
        ({"maxPods": 1}, {}, ("maxPods is not set, planned 1",)),
        ({"staticPodPath": ""}, {}, ()),
        ({"failSwapOn": False}, {}, ()),
        ({"failSwapOn": True}, {}, ("failSwapOn is not set, planned True",)),
        ({"maxPods": None}, {}, ()),
        ({"kind": "KubeletConfiguration", "apiVersion": "v1beta1"}, {}, ()),
        ({"reservedSystemCPUs": "0-1"}, {}, ("reservedSystemCPUs is not set, planned 0-1",)),
        ({"cpuManagerPolicyOptions": {}}, {}, ()),
        ({"a": {"b": "1", "c": "2"}}, {"a": {"b": "1"}}, ("a is {b: 1}, planned {b: 1, c: 2}",)),
        ({"a": ["x", "y"]}, {"a": ["x"]}, ("a is [x], planned [x, y]",)),
        ({"a": ["x"]}, {}, ("a is not set, planned [x]",)),
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}, ("a is [y, x], planned [x, y]",)),
        ({"a": 5}, {"a": "5"}, ()),
        ({"b": "1", "a": "2"}, {"b": "0", "a": "0"}, ("a is 0, planned 2", "b is 0, planned 1")),
    ],
)
def test_each_difference_is_told_with_both_values(planned: dict[str, Any], running: dict[str, Any], said: tuple[str, ...]) -> None:
    assert kubelet_differences(planned, running) == said


# A drop-in is advised only where the kubelet starts with it


def of_the_first_node(plan: ClusterPlan, seen: ClusterObservation) -> str:
    with pytest.raises(CheckError) as caught:
        check(plan, seen, OWNERSHIP)
    found = {problem.path: problem.message for problem in caught.value.problems if problem.code == "KubeletDiffers"}
    return found["nodePools[0].nodeNames[0]"]


def advised(plan: ClusterPlan, **running: Any) -> str:
    seen = with_node(plan, "gpu-a", kubelet={**plan.node_pools[0].kubelet.fields, "topologyManagerPolicy": "none", **running})
    return of_the_first_node(plan, seen)


def test_a_node_whose_base_names_cgroups_is_mended_by_the_drop_in() -> None:
    plan = plan_of("local")
    running = {name: value for name, value in plan.node_pools[0].kubelet.fields.items() if name != "reservedSystemCPUs"}
    seen = with_node(plan, "gpu-a", kubelet={**running, "systemReservedCgroup": "/system", "kubeReservedCgroup": "/runtime"})
    message = of_the_first_node(plan, seen)
    assert "systemReservedCgroup is /system, planned empty" in message
    assert message.endswith("removed), then start it")


@pytest.mark.parametrize(
    ("running", "said"),
    [
        ({"cpuManagerPolicyOptions": {"align-by-socket": "true"}}, "align-by-socket"),
        ({"cgroupsPerQOS": False}, "cgroupsPerQOS"),
        ({"featureGates": {"NoSuchGate": True}}, "NoSuchGate"),
        ({"memorySwap": {"swapBehavior": "Wrong"}}, "swapBehavior"),
    ],
)
def test_a_drop_in_with_which_the_kubelet_would_not_start_is_not_advised(running: dict[str, Any], said: str) -> None:
    message = advised(plan_of("local"), **running)
    assert "The drop-in alone does not do it" in message and said in message
    assert "nodePools[0].kubelet" in message
    assert "Write the drop-in" not in message


def test_an_option_that_a_drop_in_leaves_there_has_to_be_taken_out() -> None:
    message = advised(plan_of("local"), cpuManagerPolicyOptions={"prefer-align-cpus-by-uncorecache": "true"})
    assert "take out of its own configuration file" in message and "prefer-align-cpus-by-uncorecache" in message


@pytest.mark.parametrize(
    ("pod", "labelled", "taints", "found"),
    [
        ({}, {}, (), ["TwoDevicePlugins"]),
        ({"nodeSelector": {"gpu": "yes"}}, {}, (), []),
        ({"nodeSelector": {"gpu": "yes"}}, {"gpu": "yes"}, (), ["TwoDevicePlugins"]),
        ({}, {}, (Taint(key="nvidia.com/gpu", effect="NoSchedule"),), []),
        ({"tolerations": [{"operator": "Exists"}]}, {}, (Taint(key="nvidia.com/gpu", effect="NoSchedule"),), ["TwoDevicePlugins"]),
    ],
)
def test_a_plugin_conflicts_only_where_it_runs_on_a_node_of_the_pool(
    pod: dict[str, Any], labelled: dict[str, str], taints: tuple[Taint, ...], found: list[str]
) -> None:
    pool = changed(pool_plan("h100"), taints=(TaintPlan(key="nvidia.com/gpu", value="", effect="NoSchedule"),))
    plan = cluster_plan(node_pools=(pool,), models=())
    key = ObjectKey(kind="DaemonSet", namespace="kube-system", name="nvdp")
    plugin = ObservedPlugin(key=key, image="nvcr.io/nvidia/k8s-device-plugin:v0.17.0", labels={}, pod=pod)
    nodes = tuple(replace(one, labels=labelled, taints=taints) for one in observation(plan).nodes)
    assert codes(observation(plan, nodes=nodes, device_plugins=(plugin,)), plan) == found
