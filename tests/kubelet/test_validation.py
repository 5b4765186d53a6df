"""The start of a kubelet at its edges: what is valid, what is reserved, what a version knows."""

from __future__ import annotations

from typing import Any

import pytest

from infra.errors import ConfigError
from infra.kubelet import Kubelet, KubeletRefuses
from infra.kubelet.admission.reservation import EVICTION_SIGNALS, eviction_memory, reserved_resources
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.validate import parse_cpu_set, validation_errors
from infra.kubelet.configuration.versions import parse_version, rules_of
from infra.kubelet.quantity import NANO
from tests.kubelet.build import configuration, machine, static_memory


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", []), ("0", [0]), ("3", [3]), ("0-2,8", [0, 1, 2, 8]), ("5-5", [5]), ("2,1", [1, 2]), ("1048575", [1048575])],
)
def test_cpu_sets(text: str, cpus: list[int]) -> None:
    assert parse_cpu_set(text) == sum(1 << cpu for cpu in cpus)


@pytest.mark.parametrize(
    ("text", "words"), [("x", "no CPU list"), ("1,", "no CPU list"), ("1-", "no CPU list"), ("2-1", "runs backwards \\(2 > 1\\)"), ("1048576", "names CPU 1048576")]
)  # fmt: skip
def test_no_cpu_sets(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_cpu_set(text)


@pytest.mark.parametrize(("text", "version"), [("1.36", (1, 36)), ("v1.36", (1, 36)), ("1.36.2", (1, 36))])
def test_versions_are_major_and_minor(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("version", ["1.37", "v1.37", "1.37.2", "v1.37.2-gke.1"])
def test_versions_are_known_by_their_minor(version: str) -> None:
    assert rules_of(version).version == "1.37"


@pytest.mark.parametrize("version", ["1.32", "1.38", "1", "x", "1.37x", "11.37"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(ConfigError, match="use one of"):
        rules_of(version)


@pytest.mark.parametrize(
    ("version", "cpu", "topology"),
    [("1.33", ["stable", "beta", "alpha", "beta", "alpha", "alpha"], ["stable", "beta"]), ("1.34", ["stable", "beta", "beta", "beta", "alpha", "alpha"], ["stable", "beta"]),
     ("1.35", ["stable", "stable", "beta", "beta", "alpha", "alpha"], ["stable", "stable"]), ("1.36", ["stable", "stable", "stable", "beta", "alpha", "alpha"], ["stable", "stable"])],
)  # fmt: skip
def test_stages_of_options_by_version(version: str, cpu: list[str], topology: list[str]) -> None:
    rules = rules_of(version)
    assert (list(rules.cpu_options.values()), list(rules.topology_options.values())) == (cpu, topology)


@pytest.mark.parametrize(
    ("version", "hints", "sockets", "odd"),
    [
        ("1.33", False, False, False),
        ("1.34", False, False, True),
        ("1.35", False, False, True),
        ("1.36", True, False, True),
        ("1.37", True, True, True),
    ],
)
def test_rules_by_version(version: str, hints: bool, sockets: bool, odd: bool) -> None:
    rules = rules_of(version)
    assert rules.device_hints_on_device_nodes_only == hints
    assert rules.distribution_knows_sockets == sockets
    assert rules.uncore_cache_takes_odd_requests == odd


@pytest.mark.parametrize(
    ("pattern", "valid"),
    [("a", True), ("a/b", True), ("a/*", True), ("r:5000/a", True), ("a:1", False), ("r:5000/a:1", False), ("a@sha256:0", False), ("*", False), ("/*", False),
     ("a*", False), ("a/*/b", False), (" a", False), ("", False), ("r:5000/*", True)],
)  # fmt: skip
def test_image_patterns(pattern: str, valid: bool) -> None:
    fields = {
        "preloadedImagesVerificationAllowlist": [pattern],
        "imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages",
    }
    errors = validation_errors(load(fields, kubernetes_version="1.37"))
    assert errors == [] if valid else len(errors) == 1 and repr(pattern) in errors[0]


@pytest.mark.parametrize(
    ("endpoint", "valid"),
    [("localhost:4317", True), ("dns:///a:1", True), ("unix:///run/x", True), ("unix-abstract://x", True), ("http://a", False), ("a b:1", False),
     ("a:port", False)],
)  # fmt: skip
def test_tracing_endpoints(endpoint: str, valid: bool) -> None:
    errors = validation_errors(load({"tracing": {"endpoint": endpoint}}, kubernetes_version="1.37"))
    assert errors == [] if valid else len(errors) == 1 and repr(endpoint) in errors[0]


@pytest.mark.parametrize(
    ("version", "fields", "gate"),
    [("1.33", {"imageMaximumGCAge": "1h"}, "ImageMaximumGCAge"), ("1.35", {"enableSystemLogQuery": True}, "NodeLogQuery"),
     ("1.33", {"memorySwap": {"swapBehavior": "NoSwap"}}, "NodeSwap")],
)  # fmt: skip
def test_gates_that_earlier_versions_can_switch_off(version: str, fields: dict[str, Any], gate: str) -> None:
    for on in (True, False):
        errors = validation_errors(load({**fields, **_gates(**{gate: on})}, kubernetes_version=version))
        assert [gate in error for error in errors] == ([] if on else [True])


@pytest.mark.parametrize("name", ["shutdownGracePeriod", "shutdownGracePeriodCriticalPods"])
def test_graceful_shutdown_can_be_switched_off(name: str) -> None:
    off = _gates(
        **dict.fromkeys(("GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority", "WindowsGracefulNodeShutdown"), False)
    )
    for period, expected in (("1s", [True]), ("1ns", [True]), ("0s", [])):
        errors = validation_errors(load({name: period, **off}, kubernetes_version="1.37"))
        assert ["needs the feature gate GracefulNodeShutdown" in error for error in errors] == expected


@pytest.mark.parametrize(
    ("reserved", "words"),
    [({"cpu": "1", "memory": "0"}, ""), ({"cpu": "1", "memory": "-1"}, "must not be negative"), ({"cpu": "1", "gpu": "1"}, "gpu"), ({"cpu": "1", "memory": "x"}, "is no quantity")],
)  # fmt: skip
def test_amounts_that_may_be_reserved(reserved: dict[str, str], words: str) -> None:
    if not words:
        assert reserved_resources(reserved, "kubeReserved") == {"cpu": NANO, "memory": 0}
        return
    with pytest.raises(KubeletRefuses) as refusal:
        reserved_resources(reserved, "kubeReserved")
    assert (refusal.value.stage, words in refusal.value.errors[0]) == ("kubeReserved", True)


@pytest.mark.parametrize(
    ("text", "milli"),
    [("1", 1000), ("1m", 1), ("1500m", 1500), ("0.0001", 0), ("0.0005", 1), ("0.0014", 1), ("0.0015", 2), ("1u", 0)],
)
def test_reserved_cpus_are_rounded_to_thousandths(text: str, milli: int) -> None:
    assert reserved_resources({"cpu": text}, "kubeReserved") == {"cpu": milli * 10**6}


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"maxPods": -1}, "maxPods: -1 must not be negative"), ({"nodeLeaseDurationSeconds": -1}, "nodeLeaseDurationSeconds: -1 must be at least 1"),
     ({"oomScoreAdj": 1001}, "oomScoreAdj: 1001 must be between -1000 and 1000"), ({"port": 65536}, "port: 65536 must be between 1 and 65535"),
     ({"maxParallelImagePulls": 0}, "maxParallelImagePulls: 0 must be at least 1")],
)  # fmt: skip
def test_bounds_are_named(fields: dict[str, Any], words: str) -> None:
    assert words in validation_errors(load(fields, kubernetes_version="1.37"))


def _gates(**gates: bool) -> dict[str, Any]:
    return {"featureGates": gates}


_QUOTA, _MAX, _QOS = _gates(CustomCPUCFSQuotaPeriod=True), _gates(KubeletCrashLoopBackOffMax=True), _gates(MemoryQoS=True)


_TRUSTED = {"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages"}


# Each row was held against the kubelet's own ValidateKubeletConfiguration when it was written; most come in pairs at an edge.
@pytest.mark.parametrize(
    ("fields", "valid"),
    [
        ({"cpuCFSQuotaPeriod": "1ms", **_QUOTA}, True), ({"cpuCFSQuotaPeriod": "999us", **_QUOTA}, False),
        ({"cpuCFSQuotaPeriod": "1s", **_QUOTA}, True), ({"cpuCFSQuotaPeriod": "1001ms", **_QUOTA}, False),
        ({"cpuCFSQuotaPeriod": "100ms", **_gates(CustomCPUCFSQuotaPeriod=False)}, True),
        ({"cpuCFSQuotaPeriod": "101ms", **_gates(CustomCPUCFSQuotaPeriod=False)}, False),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}, **_MAX}, True),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "999ms"}, **_MAX}, False),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "300s"}, **_MAX}, True),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "301s"}, **_MAX}, False),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "10s"}, **_gates(KubeletCrashLoopBackOffMax=False)}, False),
        ({"imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 79}, True), ({"imageGCHighThresholdPercent": 80}, False),
        ({"imageMinimumGCAge": "0s"}, True), ({"imageMinimumGCAge": "-1s"}, False),
        ({"imageMaximumGCAge": "121s"}, True), ({"imageMaximumGCAge": "120s"}, False), ({"imageMaximumGCAge": "0s"}, True),
        ({"imageMaximumGCAge": "-1s"}, False),
        ({"maxParallelImagePulls": 1, "serializeImagePulls": True}, True), ({"maxParallelImagePulls": 2, "serializeImagePulls": True}, False),
        ({"maxParallelImagePulls": 2}, True),
        ({"containerLogMonitorInterval": "3s"}, True), ({"containerLogMonitorInterval": "2999ms"}, False),
        ({"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "1s"}, True),
        ({"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "1001ms"}, False),
        ({"shutdownGracePeriod": "999ms"}, False), ({"shutdownGracePeriod": "2s", "shutdownGracePeriodCriticalPods": "999ms"}, False),
        ({"shutdownGracePeriod": "-1s", "shutdownGracePeriodCriticalPods": "-1s"}, False),
        ({"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 1}]}, True),
        ({"shutdownGracePeriodByPodPriority": [{"priority": 0}], "shutdownGracePeriod": "1s"}, False),
        ({"shutdownGracePeriodByPodPriority": [{"priority": 0}], **_gates(GracefulNodeShutdownBasedOnPodPriority=False)}, False),
        ({"memoryThrottlingFactor": 1, **_QOS}, True), ({"memoryThrottlingFactor": 1.01, **_QOS}, False), ({"memoryThrottlingFactor": 0, **_QOS}, False),
        ({"memoryThrottlingFactor": 0.01, **_QOS}, True), ({"memoryThrottlingFactor": 0.9, **_gates(MemoryQoS=False)}, True),
        ({"memoryThrottlingFactor": 0.8, **_gates(MemoryQoS=False)}, False),
        ({"memoryReservationPolicy": "TieredReservation", **_QOS}, True),
        ({"memoryReservationPolicy": "TieredReservation", **_gates(MemoryQoS=False)}, False), ({"memoryReservationPolicy": "Some"}, False),
        ({"userNamespaces": {"idsPerPod": 65536}}, True), ({"userNamespaces": {"idsPerPod": 0}}, False),
        ({"userNamespaces": {"idsPerPod": 65537}}, False), ({"userNamespaces": {"idsPerPod": 2**32 - 65536}}, True),
        ({"userNamespaces": {"idsPerPod": 2**32}}, False),
        ({"logging": {"verbosity": 2**31 - 1}}, True), ({"logging": {"verbosity": 2**31}}, False),
        ({"logging": {"vmodule": [{"filePattern": "a", "verbosity": 1}]}}, True), ({"logging": {"vmodule": [{"filePattern": "", "verbosity": 1}]}}, False),
        ({"logging": {"vmodule": [{"filePattern": "a=b", "verbosity": 1}]}}, False),
        ({"logging": {"vmodule": [{"filePattern": "a", "verbosity": 2**31}]}}, False),
        ({"logging": {"format": "json", "vmodule": [{"filePattern": "a", "verbosity": 1}]}}, False), ({"logging": {"format": "json"}}, True),
        ({"logging": {"format": "xml"}}, False), ({"logging": {"flushFrequency": "1ns"}}, True), ({"logging": {"flushFrequency": "-1ns"}}, False), ({"logging": {"flushFrequency": -1}}, False),
        ({"logging": {"options": {"text": {"splitStream": True}}}}, False), ({"logging": {"options": {"json": {"infoBufferSize": "1"}}}}, False),
        ({"logging": {"options": {"text": {"splitStream": True}}}, **_gates(LoggingAlphaOptions=True)}, True),
        ({"tracing": {"samplingRatePerMillion": 1_000_000}}, True), ({"tracing": {"samplingRatePerMillion": 1_000_001}}, False),
        ({"tracing": {"samplingRatePerMillion": 0}}, True), ({"tracing": {"samplingRatePerMillion": -1}}, False),
        ({"podLogsDir": "/var/log"}, True), ({"podLogsDir": "/var//log"}, False), ({"podLogsDir": "/var/../log"}, False), ({"podLogsDir": "/v\u00e4r"}, False),
        ({"podLogsDir": "logs"}, True), ({"podLogsDir": "/var/log/"}, False), ({"podLogsDir": "/"}, True), ({"podLogsDir": "/./var"}, False), ({"podLogsDir": "/../var"}, False), ({"podLogsDir": "/a/b/../c"}, False),
        ({"enforceNodeAllocatable": ["none"]}, True), ({"enforceNodeAllocatable": ["none", "pods"]}, False), ({"enforceNodeAllocatable": ["pods", "pods"]}, False),
        ({"enforceNodeAllocatable": ["kube-reserved"]}, False), ({"enforceNodeAllocatable": ["kube-reserved"], "kubeReservedCgroup": "/k"}, True),
        ({"enforceNodeAllocatable": ["kube-reserved"], "systemReservedCgroup": "/s"}, False),
        ({"enforceNodeAllocatable": ["system-reserved"], "systemReservedCgroup": "/s"}, True),
        ({"enforceNodeAllocatable": ["system-reserved", "system-reserved-compressible"], "systemReservedCgroup": "/s"}, False),
        ({"cgroupsPerQOS": False}, False), ({"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"]}, True),
        ({"systemCgroups": "/s"}, False), ({"systemCgroups": "/s", "cgroupRoot": "/"}, True),
        ({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/k"}, False), ({"kubeReservedCgroup": "/k"}, True),
        ({"showHiddenMetricsForVersion": "1.36"}, True), ({"showHiddenMetricsForVersion": "1.35"}, False),
        ({"serverTLSBootstrap": True}, True), ({"serverTLSBootstrap": True, **_gates(RotateKubeletServerCertificate=False)}, False), ({"runOnce": True}, False),
        ({"enableSystemLogQuery": True}, True), ({"enableSystemLogQuery": True, "enableSystemLogHandler": False}, False),
        ({"defaultPodSysctls": {"net.ipv4.x": "1"}, **_gates(DefaultPodSysctls=True)}, True), ({"defaultPodSysctls": {"net.ipv4.x": "1"}, **_gates(DefaultPodSysctls=False)}, False),
        ({"defaultPodSysctls": {"vm.swappiness": "1"}, **_gates(DefaultPodSysctls=True)}, False),
        ({"defaultPodSysctls": {"net/a": "1", "net.a": "1"}, **_gates(DefaultPodSysctls=True)}, False),
        ({"defaultPodSysctls": {"net." + "a" * 249: "1"}, **_gates(DefaultPodSysctls=True)}, True),
        ({"defaultPodSysctls": {"net." + "a" * 250: "1"}, **_gates(DefaultPodSysctls=True)}, False),
        ({"memorySwap": {"swapBehavior": "LimitedSwap"}}, True), ({"memorySwap": {"swapBehavior": "Some"}}, False),
        ({"registerWithTaints": [{"key": "a", "value": "b" * 63, "effect": "NoSchedule"}]}, True),
        ({"registerWithTaints": [{"key": "a", "value": "b" * 64, "effect": "NoSchedule"}]}, False),
        ({"registerWithTaints": [{"key": "a", "effect": "Never"}]}, False), ({"registerWithTaints": [{"key": ""}]}, False),
        ({"registerWithTaints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-31T12:00:00Z"}]}, False),
        ({"preloadedImagesVerificationAllowlist": ["a"], **_TRUSTED}, True), ({"preloadedImagesVerificationAllowlist": ["a"]}, False),
        ({"imagePullCredentialsVerificationPolicy": "Always"}, False),
        ({"imagePullCredentialsVerificationPolicy": "NeverVerify", **_gates(KubeletEnsureSecretPulledImages=False)}, False),
        ({"hairpinMode": "hairpin"}, False), ({"topologyManagerScope": "node"}, False), ({"topologyManagerPolicy": "best"}, False),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1"}}, {"numaNode": 1, "limits": {"memory": "1"}}]}, True),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1"}}, {"numaNode": 0, "limits": {"memory": "1"}}]}, False),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"cpu": "1"}}]}, False), ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "0"}}]}, False),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"hugepages-1Gi": "1Gi"}}]}, True),
    ],
)  # fmt: skip
def test_edges_of_the_validation(fields: dict[str, Any], valid: bool) -> None:
    errors = validation_errors(load(fields, kubernetes_version="1.37"))
    assert (errors == []) == valid, errors
    assert all(": " in error and error.split(":")[0] for error in errors)


@pytest.mark.parametrize(
    ("hard", "kept"),
    [({}, 0), ({"memory.available": "100Mi"}, 100 * 2**20), ({"memory.available": "5%"}, 5 * 2**20), ({"memory.available": "0%"}, 0),
     ({"memory.available": "100%"}, 0), ({"nodefs.available": "5%"}, 0), ({"memory.available": "50.0%"}, 50 * 2**20),
     ({"memory.available": "1Mi", "nodefs.available": "10%"}, 2**20), ({"memory.available": "99.9%"}, 104752743)],
)  # fmt: skip
def test_what_thresholds_keep_of_100_mebibytes(hard: dict[str, str], kept: int) -> None:
    assert eviction_memory(hard, 100 * 2**20 * NANO) == kept * NANO


@pytest.mark.parametrize(
    ("signal", "text", "words"),
    [("memory.avail", "1Gi", "Did you mean"), ("memory.available", "x%", "'x%' is no percentage"), ("memory.available", "100.1%", "between 0% and 100%"),
     ("memory.available", "x", "neither a quantity"), ("memory.available", "0", "must be positive"), ("memory.available", "-1", "must be positive")],
)  # fmt: skip
def test_thresholds_that_stop_the_kubelet(signal: str, text: str, words: str) -> None:
    assert "memory.available" in EVICTION_SIGNALS
    with pytest.raises(KubeletRefuses) as refusal:
        eviction_memory({signal: text}, NANO)
    assert refusal.value.stage == "evictionHard"
    assert f"evictionHard.{signal}: " in refusal.value.errors[0]
    assert words in refusal.value.errors[0]


def test_a_wrong_sum_of_reserved_memory_names_its_parts() -> None:
    fields = configuration(
        kubeReserved={"cpu": "1", "memory": "1Gi"}, evictionHard={"nodefs.available": "10%"}, **static_memory(n0="2Gi")
    )
    with pytest.raises(KubeletRefuses) as refusal:
        Kubelet.start(machine(), fields, {})
    assert refusal.value.errors[0].endswith("it must be 1Gi = kubeReserved 1Gi")
    pages = configuration(**static_memory(n0="1Gi"))
    pages["reservedMemory"][0]["limits"]["hugepages-1Gi"] = "1Gi"
    with pytest.raises(KubeletRefuses, match=r'of type "hugepages-1Gi".*it must be 0 = no reservation at all'):
        Kubelet.start(machine(), pages, {})


def test_topology_options_need_their_gate_until_they_are_stable() -> None:
    fields = configuration(topologyManagerPolicyOptions={"max-allowable-numa-nodes": "9"})
    off = {**fields, "featureGates": {"TopologyManagerPolicyBetaOptions": False}}
    for version, document, starts in (("1.34", fields, True), ("1.34", off, False), ("1.35", off, True)):
        if starts:
            assert Kubelet.start(machine(), document, {}, kubernetes_version=version)
        else:
            with pytest.raises(KubeletRefuses, match="needs the feature gate TopologyManagerPolicyBetaOptions"):
                Kubelet.start(machine(), document, {}, kubernetes_version=version)


def test_the_highest_verbosity_is_named() -> None:
    errors = validation_errors(load({"logging": {"verbosity": 2**31}}, kubernetes_version="1.37"))
    assert errors == ["logging.verbosity: 2147483648 must be at most 2147483647"]
