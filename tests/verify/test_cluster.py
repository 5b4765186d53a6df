"""Each check of a node and of a model's pods: what holds is no finding, what differs is one with both values and a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from infra.diagnosis import Diagnosis
from infra.observe.client import Client
from infra.observe.model import ClusterObservation, ObservedNode
from infra.outputs.kubelet_state import CpuManagerState, DeviceCheckpoint, MemoryManagerState, NumaMemoryState
from infra.render import labels
from infra.verify.cluster import Verification, check_node, missing_pods, parse_states, running_pods, verify_cluster
from infra.verify.node_files import NodeFiles
from infra.verify.placement import NodeState, RunningPod
from tests.support.builders import cluster_plan, model_plan, pool_plan

POOL = pool_plan("h100")
MODEL = model_plan("llama-70b", POOL)
KUBELET = {
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
    "reservedSystemCPUs": "0,56,112,168",
    "topologyManagerPolicy": "single-numa-node",
}
PLANNED_LABELS = {labels.KUBELET_CONFIG: POOL.kubelet.config_hash, labels.POOL: "h100"}
GOOD = ObservedNode(
    name="gpu-a",
    labels={**PLANNED_LABELS, "other": "x"},
    ready=True,
    ready_message="",
    unschedulable=False,
    kubelet_version="v1.37.2",
    capacity={"cpu": "224"},
    allocatable={"nvidia.com/gpu": "8", "cpu": "220"},
    kubelet=KUBELET,
)


def state(*memory_nodes: int, devices: Mapping[int, tuple[str, ...]] | None = None) -> NodeState:
    empty = NumaMemoryState(assignments=0, tables={}, cells=())
    held = {"uid": {"vllm": {"nvidia.com/gpu": dict(devices or {}), "rdma/hca": {7: ("h",)}}}}
    return NodeState(
        node="gpu-a",
        cpus=CpuManagerState(policy="static"),
        memory=MemoryManagerState(policy="Static", nodes=dict.fromkeys(memory_nodes, empty)),
        devices=DeviceCheckpoint(allocations=held, registered={}),
    )


def checked(node: ObservedNode | None, of: NodeState | None) -> tuple[dict[str, bool | None], tuple[Diagnosis, ...]]:
    seen = ClusterObservation(server_version="v1.37.2", nodes=(node,) if node else (), pods=())
    check, findings = check_node(POOL, "gpu-a", seen, of)
    assert (check.node, check.pool) == ("gpu-a", "h100")
    assert all(finding.severity == "error" and finding.path == "nodes.gpu-a" and finding.remedy for finding in findings)
    return dict(check.checks), tuple(findings)


ALL_HOLD = {"kubelet": True, "labels": True, "devices": True, "topology": True}


@pytest.mark.parametrize("of", [state(0, 1, devices={0: ("g0",), 1: ("g4",)}), state(), state(0, 1)])
def test_a_node_as_planned_has_no_finding(of: NodeState) -> None:
    assert checked(GOOD, of) == (ALL_HOLD, ())


def test_without_state_files_the_topology_is_unread_and_without_configz_the_kubelet_is() -> None:
    assert checked(GOOD, None) == ({**ALL_HOLD, "topology": None}, ())
    checks, (finding,) = checked(replace(GOOD, kubelet=None, kubelet_unreadable="forbidden"), state(0, 1))
    assert checks == {**ALL_HOLD, "kubelet": None}
    assert (finding.code, finding.message) == ("KubeletUnread", "configz of gpu-a could not be read: forbidden.")


@pytest.mark.parametrize(
    ("changes", "of", "failed", "message"),
    [
        (
            {"kubelet": {**KUBELET, "topologyManagerPolicy": "none"}},
            state(0, 1),
            "kubelet",
            "the kubelet of gpu-a has drifted: topologyManagerPolicy is none, planned single-numa-node.",
        ),
        (
            {"labels": {labels.KUBELET_CONFIG: PLANNED_LABELS[labels.KUBELET_CONFIG]}},
            state(0, 1),
            "labels",
            f"labels of gpu-a: {labels.POOL} is not set, planned h100.",
        ),
        ({"allocatable": {"nvidia.com/gpu": "7"}}, state(0, 1), "devices", "gpu-a offers 7 nvidia.com/gpu, planned 8."),
        ({"allocatable": {}}, state(0, 1), "devices", "gpu-a offers 0 nvidia.com/gpu, planned 8."),
        ({"capacity": {"cpu": "223"}}, state(0, 1), "topology", "gpu-a is not dgx-h100: 223 CPUs, planned 224."),
        ({"capacity": {}}, state(0, 1), "topology", "gpu-a is not dgx-h100: 0 CPUs, planned 224."),
        (
            {},
            state(0),
            "topology",
            "gpu-a is not dgx-h100: NUMA nodes [0] in memory_manager_state, planned [0, 1].",
        ),
        (
            {},
            state(0, 1, devices={-1: ("g0",)}),
            "topology",
            "gpu-a is not dgx-h100: devices on NUMA nodes [-1], planned [0, 1] (-1: the plugin reports none).",
        ),
    ],
)
def test_what_differs_fails_its_own_check_alone(changes: dict[str, Any], of: NodeState, failed: str, message: str) -> None:
    checks, (finding,) = checked(replace(GOOD, **changes), of)
    assert checks == {**ALL_HOLD, failed: False}
    assert finding.message == message
    assert finding.code.lower().startswith(failed.lower())


def test_state_files_that_are_missing_are_no_difference() -> None:
    bare = NodeState(node="gpu-a", cpus=None, memory=None, devices=None)
    assert checked(GOOD, bare) == (ALL_HOLD, ())


def test_the_remedies_are_commands() -> None:
    _, (kubelet, relabel, devices, topology) = checked(
        replace(GOOD, kubelet={}, labels={}, allocatable={}, capacity={}), state(0, 1)
    )
    assert "python -m infra render" in kubelet.remedy
    assert relabel.remedy == "pulumi up --refresh, or kubectl label --overwrite node gpu-a " + " ".join(
        f"{key}={value}" for key, value in PLANNED_LABELS.items()
    )
    assert "kubectl get pods -A --field-selector spec.nodeName=gpu-a" in devices.remedy
    assert "python -m infra shape" in topology.remedy


def test_a_planned_node_that_is_not_there_fails_every_check() -> None:
    checks, (finding,) = checked(None, None)
    assert checks == dict.fromkeys(ALL_HOLD, False)
    assert finding.code == "UnknownNode"


CPU_STATE = '{"policyName":"static","defaultCpuSet":"0-1","entries":{},"checksum":1}'


def test_state_files_are_parsed_and_missing_ones_are_none() -> None:
    states, findings = parse_states({"gpu-a": NodeFiles(node="gpu-a", texts={"cpu_manager_state": CPU_STATE})})
    assert findings == []
    found = states["gpu-a"]
    assert found.cpus is not None and found.cpus.default_cpus == (0, 1)
    assert (found.memory, found.devices) == (None, None)


def test_a_file_that_cannot_be_read_is_a_finding_and_the_others_count() -> None:
    files = NodeFiles(node="gpu-a", texts={"cpu_manager_state": CPU_STATE, "memory_manager_state": "{"})
    states, (finding,) = parse_states({"gpu-a": files})
    assert states["gpu-a"].cpus is not None and states["gpu-a"].memory is None
    assert (finding.code, finding.path) == ("UnreadableState", "gpu-a:memory_manager_state")


def test_a_node_that_could_not_be_read_has_no_state_and_a_finding_with_a_command() -> None:
    states, (finding,) = parse_states({"gpu-a": NodeFiles(node="gpu-a", texts={}, why="the reader pod failed: X")})
    assert states == {}
    assert finding.message == "the kubelet's state on gpu-a could not be read: the reader pod failed: X."
    assert finding.remedy.endswith("| grep gpu-a")


def raw_pod(name: str, *, ready: str | None = "True", phase: str = "Running", **more: Any) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "True"}] + ([{"type": "Ready", "status": ready}] if ready else [])
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", **more.pop("metadata", {})},
        "spec": {"nodeName": "gpu-a", **more.pop("spec", {})},
        "status": {"phase": phase, "qosClass": "Guaranteed", "conditions": conditions, **more},
    }


class Pods:
    """An API server that holds pods, nodes and nothing else."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods

    def list(self, path: str, *, query: Any = None) -> Any:
        assert path == "/api/v1/namespaces/inference/pods"
        assert query == {"labelSelector": ",".join(f"{k}={v}" for k, v in labels.selector("vllm", "llama-70b").items())}
        return iter(self.pods)


def running(*pods: dict[str, Any]) -> tuple[list[RunningPod], list[Diagnosis]]:
    return running_pods(cast(Client, Pods(*pods)), MODEL)


def test_running_pods_are_those_on_a_node_that_are_not_being_deleted() -> None:
    found, findings = running(
        raw_pod("a"),
        raw_pod("b", ready="False"),
        raw_pod("c", ready=None),
        raw_pod("gone", metadata={"deletionTimestamp": "2026-11-30T00:00:00Z"}),
        raw_pod("pending", phase="Pending", spec={"nodeName": ""}),
        {"metadata": {"name": "new", "uid": "u"}, "spec": {"nodeName": "gpu-b"}},
    )
    assert findings == []
    assert [(pod.name, pod.uid, pod.node, pod.qos_class, pod.ready) for pod in found] == [
        ("a", "uid-a", "gpu-a", "Guaranteed", True),
        ("b", "uid-b", "gpu-a", "Guaranteed", False),
        ("c", "uid-c", "gpu-a", "Guaranteed", False),
        ("new", "u", "gpu-b", "", False),
    ]


def test_a_refused_pod_is_a_finding_and_one_that_failed_later_is_not() -> None:
    refused = raw_pod(
        "r", phase="Failed", reason="TopologyAffinityError", message="Pod was rejected: Resources cannot be allocated"
    )
    found, (finding,) = running(refused, raw_pod("f", phase="Failed", message="evicted"))
    assert found == []
    assert (finding.code, finding.path, finding.remedy) == ("PodRefused", "pods.r", "kubectl -n inference delete pod r")
    assert finding.message == "the kubelet of gpu-a refused r: TopologyAffinityError: Resources cannot be allocated"


@pytest.mark.parametrize(("ready", "found"), [(2, False), (3, False), (1, True), (0, True)])
def test_fewer_ready_pods_than_planned_are_a_finding(ready: int, found: bool) -> None:
    pods = [
        RunningPod(name=str(i), uid=str(i), node="gpu-a", qos_class="Guaranteed", ready=i < ready) for i in range(max(ready, 2))
    ]
    findings = missing_pods(MODEL, pods)
    assert [finding.code for finding in findings] == ["PodsMissing"] * found
    if found:
        assert findings[0].message == f"{ready} of 2 pods of llama-70b are Ready."
        assert findings[0].remedy.startswith("kubectl -n inference describe deployment ")


def test_a_replica_of_several_pods_needs_all_of_them() -> None:
    model = model_plan("llama-70b", POOL, replicas=2, pods_per_replica=3)
    assert missing_pods(model, [])[0].message == "0 of 6 pods of llama-70b are Ready."


def test_errors_alone_decide_the_verdict() -> None:
    warning = Diagnosis.warning("a", "X", "m")
    assert Verification(nodes=(), pods=(), findings=(warning,)).ok
    assert not Verification(nodes=(), pods=(), findings=(warning, Diagnosis("a", "Y", "m"))).ok


class EmptyCluster:
    """No nodes, no pods, no namespaces: what a wrong kubeconfig leads to."""

    def get(self, path: str, *, query: Any = None) -> Any:
        return {"gitVersion": "v1.37.2"}

    def find(self, path: str) -> Any:
        return None

    def list(self, path: str, *, query: Any = None) -> Any:
        return iter(())

    def request(self, method: str, path: str, **_: Any) -> Any:
        raise AssertionError(f"{method} {path}: there is no node to read")


def test_an_empty_cluster_is_told_node_by_node_and_model_by_model() -> None:
    result = verify_cluster(cluster_plan(), cast(Client, EmptyCluster()), owner={})
    assert not result.ok and result.pods == ()
    assert [(check.node, check.pool) for check in result.nodes] == [("gpu-a", "h100"), ("gpu-b", "h100"), ("gpu-c", "mi300x")]
    assert [finding.code for finding in result.findings] == ["UnknownNode"] * 3 + ["PodsMissing"] * 2
