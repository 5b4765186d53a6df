"""What differs between the kubelets of the supported minors, by the smallest cases that show it. The answers are those of their own code."""

from __future__ import annotations

from typing import Any

import pytest

from infra.kubelet import simulate_case
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.feature_gates import dependencies, known_gates
from infra.kubelet.configuration.versions import SUPPORTED

MACHINE = {"numa": [{"id": 0, "cpus": [[0, 4], [1, 5], [2, 6], [3, 7]], "socket": 0, "memory_bytes": 8 << 30}]}
STATIC = {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}}
MEMORY = {
    "memoryManagerPolicy": "Static",
    "kubeReserved": {"cpu": "1", "memory": "924Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}
TWO = {"cpu": "2", "memory": "1Gi"}
FROM_34, UP_TO_36 = SUPPORTED[1:], SUPPORTED[:4]


def _answer(version: str, kubelet: dict[str, Any], *pods: dict[str, Any]) -> list[str]:
    """Per pod its QoS class and CPUs, or why it is refused; one entry where the kubelet does not start."""
    case = {"machine": MACHINE, "kubelet": kubelet, "pods": list(pods), "kubernetesVersion": version}
    result = simulate_case(case)
    if result["config_errors"]:
        return ["refuses to start"]
    return [f"{pod['qos']} {pod['containers'][0]['cpus']}".strip() if pod["admitted"] else pod["reason"] for pod in result["pods"]]


def _pod(name: str = "a", *, level: dict[str, Any] | None = None, **limits: str) -> dict[str, Any]:
    pod: dict[str, Any] = {"name": name, "containers": [{"name": "c", "limits": limits}]}
    return pod if level is None else {**pod, "resources": level}


def _gates(**gates: bool) -> dict[str, Any]:
    return {"featureGates": gates}


@pytest.mark.parametrize("version", FROM_34)
def test_requests_of_the_pod_level_are_completed_from_its_limits(version: str) -> None:
    pods = [_pod(level={"limits": TWO}), _pod("b", cpu="6", memory="2Gi")]
    assert _answer(version, STATIC, *pods) == ["Guaranteed", "OutOfcpu"]


@pytest.mark.parametrize("version", FROM_34)
def test_containers_may_not_request_more_than_their_pod(version: str) -> None:
    assert _answer(version, STATIC, _pod(level={"limits": TWO}, cpu="3", memory="512Mi")) == ["InvalidPod"]


@pytest.mark.parametrize(
    ("version", "cpu", "expected"),
    [
        ("1.33", "2", "Guaranteed 1,5"),
        *((version, "2", "PodLevelResourcesNotSupported") for version in FROM_34),
        # Up to 1.35 the managers act first, as on any other pod.
        *((version, "1", "SMTAlignmentError") for version in ("1.33", "1.34", "1.35")),
        ("1.36", "1", "PodLevelResourcesNotSupported"),
    ],
)
def test_with_the_gate_off_pods_with_pod_level_resources(version: str, cpu: str, expected: str) -> None:
    # What depends on the gate is off as well where the version checks that.
    off = [
        name for name, needs in dependencies(version).items() if "PodLevelResources" in needs and known_gates(version)[name].default
    ]
    kubelet = {
        **STATIC,
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        **_gates(PodLevelResources=False, **dict.fromkeys(off, False)),
    }
    assert _answer(version, kubelet, _pod(level={"limits": TWO, "requests": TWO}, cpu=cpu, memory="1Gi")) == [expected]


def test_1_33_pins_containers_of_pods_with_pod_level_resources() -> None:
    pod = _pod(level={"limits": TWO, "requests": TWO}, **TWO)
    for on in (False, True):
        assert _answer("1.33", {**STATIC, **_gates(PodLevelResources=on)}, pod) == ["Guaranteed 1,5"]


@pytest.mark.parametrize(("version", "expected"), [("1.33", "InvalidPod"), ("1.34", "Burstable"), ("1.37", "Burstable")])
def test_requests_of_the_pod_level_cover_what_they_do_not_name(version: str, expected: str) -> None:
    kubelet = {**STATIC, **_gates(PodLevelResources=True)}
    assert _answer(version, kubelet, _pod(level={"requests": {"cpu": "1"}}, memory="1Gi")) == [expected]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.34", "BestEffort"), ("1.35", "BestEffort"), ("1.36", "BestEffort"), ("1.37", "Guaranteed 1,5")],
)
def test_a_pod_level_that_names_nothing(version: str, expected: str) -> None:
    assert _answer(version, STATIC, _pod(level={"limits": {}}, **TWO)) == [expected]


@pytest.mark.parametrize(("version", "expected"), [("1.36", "UnexpectedAdmissionError"), ("1.37", "Guaranteed")])
def test_a_container_without_memory_of_its_own_in_a_pod_that_has_some(version: str, expected: str) -> None:
    kubelet = {**MEMORY, **_gates(PodLevelResourceManagers=True)}
    assert _answer(version, kubelet, _pod(level={"limits": TWO, "requests": TWO})) == [expected]


@pytest.mark.parametrize(
    ("gate", "value", "starting"),
    [
        ("TopologyManagerPolicyOptions", False, ("1.33", "1.34", "1.35")),
        ("SidecarContainers", True, UP_TO_36),
        ("MemoryManager", True, ("1.33", "1.34", "1.35")),
        ("EventedPLEG", True, SUPPORTED),
        ("DRAConsumableCapacity", False, SUPPORTED[1:]),
        ("KubeProxyIPVS", True, ("1.37",)),
        ("NoSuchGate", True, ()),
    ],
)
def test_gates_with_which_a_kubelet_starts(gate: str, value: bool, starting: tuple[str, ...]) -> None:
    assert tuple(version for version in SUPPORTED if not _answer(version, _gates(**{gate: value}))) == starting


@pytest.mark.parametrize(
    ("kubelet", "starting"),
    [
        ({"memoryThrottlingFactor": 0.8, **_gates(MemoryQoS=False)}, UP_TO_36),
        ({"memoryThrottlingFactor": 1.1}, ()),
        ({"imageMinimumGCAge": "-1s"}, ("1.33", "1.34", "1.35")),
        ({"imageMaximumGCAge": "-1s"}, ()),
        ({"showHiddenMetricsForVersion": "1.34"}, ("1.35",)),
        ({"tracing": {}, **_gates(KubeletTracing=False)}, ()),
    ],
)
def test_configurations_with_which_a_kubelet_starts(kubelet: dict[str, Any], starting: tuple[str, ...]) -> None:
    assert tuple(version for version in SUPPORTED if not _answer(version, kubelet)) == starting


def test_defaults_of_a_version() -> None:
    found = {version: load({}, kubernetes_version=version).fields for version in SUPPORTED}
    assert [fields["memoryThrottlingFactor"] for fields in found.values()] == [0.9, 0.9, 0.9, 0.9, None]
    assert [fields["failCgroupV1"] for fields in found.values()] == [False, False, True, True, True]


def test_gates_stand_once_and_in_order() -> None:
    for version in SUPPORTED:
        assert set(dependencies(version)) <= set(known_gates(version))
        assert all(need in known_gates(version) for needs in dependencies(version).values() for need in needs)


@pytest.mark.parametrize("version", SUPPORTED)
def test_reserved_cpus_below_half_a_thousandth_count_up_to_1_36(version: str) -> None:
    kubelet = {**STATIC, "kubeReserved": {"cpu": "0.0004"}}
    assert _answer(version, kubelet, _pod(cpu=TWO["cpu"], memory=TWO["memory"])) == (
        ["refuses to start"] if version == "1.37" else ["Guaranteed 1,5"]
    )


@pytest.mark.parametrize(
    ("version", "gates", "starts"),
    [
        *((version, {}, version >= "1.35") for version in SUPPORTED),
        ("1.34", {"ContainerRestartRules": True}, True),
        ("1.35", {"ContainerRestartRules": False}, False),
    ],
)
def test_a_restart_policy_of_one_container_needs_its_gate(version: str, gates: dict[str, bool], starts: bool) -> None:
    container = {"name": "c", "limits": {"cpu": "1"}}
    pods = [
        {"name": "a", "containers": [{**container, "restartPolicy": "Never"}]},
        {"name": "b", "containers": [container], "initContainers": [{**container, "name": "i", "restartPolicy": "OnFailure"}]},
        {"name": "d", "containers": [container], "initContainers": [{**container, "name": "i", "restartPolicy": "Always"}]},
    ]
    refused = [answer == "InvalidPod" for answer in _answer(version, _gates(**gates), *pods)]
    assert refused == [not starts, not starts, False]


@pytest.mark.parametrize(
    ("image", "refusing"),
    [
        *((image, ("1.33", "1.34", "1.35")) for image in ("a", "a/b", "docker.io/a", "index.docker.io/a/b")),
        *((image, ()) for image in ("docker.io/a/b", "registry.io/a", "localhost/a", "a.b:80/c", "a/*")),
        ("a:1", SUPPORTED),
    ],
)
def test_images_that_need_no_verification(image: str, refusing: tuple[str, ...]) -> None:
    kubelet = {
        **_gates(KubeletEnsureSecretPulledImages=True),
        "imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages",
        "preloadedImagesVerificationAllowlist": [image],
    }
    assert tuple(version for version in SUPPORTED if _answer(version, kubelet)) == refusing


@pytest.mark.parametrize("version", SUPPORTED)
def test_a_negative_flush_frequency_is_refused_since_1_35(version: str) -> None:
    assert bool(_answer(version, {"logging": {"flushFrequency": "-5s"}})) == (version >= "1.35")
