"""The simulated kubelet against a running one: the same pods in the same order, the same admissions and resources."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from infra.kubelet import Kubelet, Machine, PodResult
from infra.kubelet.configuration.decode import load
from infra.kubelet.machine import Device
from infra.units import format_cpu_list, parse_bytes
from tests.e2e.cluster_fixture import EmbeddedCluster, cluster, pod_manifest, two_socket_node

pytestmark = pytest.mark.e2e

__all__ = ["cluster"]

NODE = "gpu-b"
GPU = "nvidia.com/gpu"

# In order: name and request, or the name of a pod that ends. Some do not fit, and say so in different ways.
STEPS: list[tuple[str, dict[str, Any] | None]] = [
    ("four-gpus", {"cpu": 8, "memory": "8Gi", "gpus": 4}),
    ("odd-cpus", {"cpu": 3, "memory": "1Gi"}),
    ("two-gpus", {"cpu": 6, "memory": "20Gi", "gpus": 2}),
    ("three-more-gpus", {"cpu": 2, "memory": "1Gi", "gpus": 3}),
    ("much-memory", {"cpu": 2, "memory": "50Gi"}),
    ("four-gpus", None),
    ("four-again", {"cpu": 12, "memory": "2Gi", "gpus": 4}),
    ("too-many-cpus", {"cpu": 14, "memory": "1Gi"}),
    ("small", {"cpu": 2, "memory": "1Gi"}),
    ("two-gpus", None),
    ("last", {"cpu": 10, "memory": "30Gi", "gpus": 4}),
]


def simulated() -> Kubelet:
    node = two_socket_node(NODE)
    devices = {name: [Device.from_dict(device) for device in listed] for name, listed in node["devices"].items()}
    return Kubelet.start(Machine.from_dict(node["machine"]), node["kubelet"], devices)


def as_simulated(name: str, request: dict[str, Any]) -> dict[str, Any]:
    limits = {"cpu": str(request["cpu"]), "memory": request["memory"]} | ({GPU: str(request["gpus"])} if "gpus" in request else {})
    return {"name": name, "containers": [{"name": "main", "limits": limits}]}


def running(embedded: EmbeddedCluster, name: str, request: dict[str, Any]) -> dict[str, Any]:
    """Creates the pod on the node and tells what became of it."""
    command = ["sleep", "3600"]
    embedded.create_pod(pod_manifest(name, image="busybox:1.36", command=command, nodeName=NODE, **request))
    pod = embedded.wait_for_pod(name, lambda pod: pod["status"].get("phase") in ("Running", "Failed"))
    if pod["status"]["phase"] == "Failed":
        return {"admitted": False, "reason": pod["status"]["reason"]}
    uid = pod["metadata"]["uid"]
    state = json.loads(embedded.run("node", "state", NODE).stdout)
    blocks = state["memory_manager_state"]["entries"].get(uid, {}).get("main", [])
    given = [entry for entry in state["kubelet_internal_checkpoint"]["Data"]["PodDeviceEntries"] or [] if entry["PodUID"] == uid]
    return {
        "admitted": True,
        "cpus": state["cpu_manager_state"]["entries"].get(uid, {}).get("main", ""),
        "memory": sorted({node for block in blocks for node in block["numaAffinity"]}),
        "gpus": places(device for entry in given for ids in entry["DeviceIDs"].values() for device in ids),
    }


def places(devices: Iterable[str]) -> dict[int, int]:
    """How many of the GPUs lie on which NUMA node; which of equal ones it is, is the plugin's choice."""
    return dict(Counter(int(device.rsplit("-", 1)[1]) // 4 for device in devices))


def expected(result: PodResult) -> dict[str, Any]:
    if not result.admitted:
        return {"admitted": False, "reason": result.reason}
    only = result.containers[0]
    return {
        "admitted": True,
        "cpus": format_cpu_list(only.cpus),
        "memory": list(only.memory_numa),
        "gpus": places(only.devices.get(GPU, ())),
    }


def test_a_running_kubelet_does_what_the_simulated_one_says(cluster: EmbeddedCluster) -> None:
    kubelet = simulated()
    created, outcomes = [], []
    try:
        for name, request in STEPS:
            if request is None:
                cluster.delete_pod(name)
                assert kubelet.remove(name)
                continue
            created.append(name)
            outcome = running(cluster, name, request)
            assert outcome == expected(kubelet.admit(as_simulated(name, request))), name
            outcomes.append(outcome.get("reason", "admitted"))
    finally:
        for name in created:
            cluster.delete_pod(name)
    assert {"admitted", "TopologyAffinityError", "SMTAlignmentError"} <= set(outcomes)


def test_the_node_offers_what_the_simulated_one_says(cluster: EmbeddedCluster) -> None:
    kubelet = simulated()
    allocatable = cluster.api.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]
    assert int(allocatable["cpu"]) * 1000 == kubelet.allocatable["cpu"]
    assert int(allocatable[GPU]) == kubelet.allocatable[GPU]
    assert parse_bytes(allocatable["memory"]) == kubelet.allocatable["memory"]


def test_the_running_configuration_is_the_one_that_was_computed(cluster: EmbeddedCluster) -> None:
    given = two_socket_node(NODE)["kubelet"]
    served = cluster.api.get(f"/api/v1/nodes/{NODE}/proxy/configz")["kubeletconfig"]
    theirs = load({"evictionHard": {}, **served}, kubernetes_version="1.37")
    ours = load(given, kubernetes_version="1.37")
    differing = {name: (theirs[name], ours[name]) for name in given if theirs[name] != ours[name]}
    # The kubelet writes the number of reservedSystemCPUs over the reservation of CPUs.
    assert differing == {"systemReserved": ({"cpu": "4", "memory": "1Gi"}, {"memory": "1Gi"})}
