"""Cases about one field of the kubelet's configuration each, for every field of the table, drawn by its name."""

from __future__ import annotations

import copy
import random
from typing import Any

from infra.kubelet.configuration.fields import FIELDS, Field
from infra.kubelet.configuration.go_types import Kind
from tests.kubelet.generate import GIB, VALUES, Case

_TEXTS = (
    "",
    "x",
    "none",
    "Static",
    "0-1",
    "0,99",
    "3-1",
    "1Gi",
    "10%",
    "/var/log/pods",
    "/a/../b",
    "logs",
    "/\u00e9",
    "1.36",
    "1.35",
    "10s",
    "true",
    5,
    None,
)
_INTEGERS = (0, 1, -1, 2, 10, 1000, 2**31 - 1, 2**31, 2**32, 2**63, 1.0, 1.5, "1", True, None)
_NUMBERS = (0, 0.0, 0.5, 0.9, 1, 1.0001, -0.1, 2, "0.5", True, None)
_DURATIONS = (
    "0s",
    "0",
    "-1s",
    "1us",
    "999us",
    "1ms",
    "100ms",
    "500ms",
    "1s",
    "1001ms",
    "2999ms",
    "3s",
    "2m",
    "5m",
    "300001ms",
    "1h",
    "10",
    "",
    5,
    None,
)
_BOOLEANS = (True, False, None, "true", 1)
_TAINT_KEYS = ("nvidia.com/gpu", "a b", "", "x")
_MAPS: dict[str, tuple[Any, ...]] = {
    "cpuManagerPolicyOptions": tuple(
        {name: "true"} for name in ("full-pcpus-only", "align-by-socket", "strict-cpu-reservation", "x")
    ),
    "topologyManagerPolicyOptions": (
        {"max-allowable-numa-nodes": "8"},
        {"max-allowable-numa-nodes": "7"},
        {"max-allowable-numa-nodes": "x"},
        {"prefer-closest-numa-nodes": "T"},
        {"prefer-closest-numa-nodes": "yes"},
    ),
    "evictionHard": (
        {"memory.available": "5%"},
        {"memory.available": "101%"},
        {"memory.available": "-1Mi"},
        {"nodefs.inodesFree": "5%"},
        {"memory": "1Gi"},
    ),
    "systemReserved": (
        {"cpu": "1"},
        {"memory": "1Gi"},
        {"pid": "100"},
        {"ephemeral-storage": "1Gi"},
        {"cpu": "-1"},
        {"gpu": "1"},
        {"cpu": "99"},
    ),
    "defaultPodSysctls": (
        {"net.ipv4.tcp_keepalive_time": "600"},
        {"net/ipv4/tcp_keepalive_time": "600"},
        {"net.ipv4.x": "1", "net/ipv4/x": "1"},
        {"kernel.sem": "1"},
        {"vm.swappiness": "1"},
        {"Net.x": "1"},
        {"kernel.shm_rmid_forced": "1"},
    ),
    "featureGates": (
        {"NodeSwap": False},
        {"NodeSwap": True},
        {"AllAlpha": True},
        {"AllBeta": False},
        {"Nonsense": True},
        {"MemoryQoS": False},
        {"CPUManagerPolicyBetaOptions": False},
    ),
}
_MAPS["kubeReserved"] = _MAPS["systemReserved"]
_MAPS["evictionSoft"] = _MAPS["evictionHard"]
# What decides whether a value of a field is taken, besides the value; the cases draw one of them or none.
_BESIDES: dict[str, tuple[dict[str, Any], ...]] = {
    "cpuCFSQuotaPeriod": (
        {"featureGates": {"CustomCPUCFSQuotaPeriod": True}},
        {"featureGates": {"CustomCPUCFSQuotaPeriod": False}},
    ),
    "serverTLSBootstrap": ({"featureGates": {"RotateKubeletServerCertificate": False}},),
    "defaultPodSysctls": ({"featureGates": {"DefaultPodSysctls": True}},) * 3,
    "imageMaximumGCAge": ({"featureGates": {"ImageMaximumGCAge": False}}, {"imageMinimumGCAge": "1s"}, {"imageMinimumGCAge": "5m"}),
    "imageMinimumGCAge": ({"imageMaximumGCAge": "2m"}, {"imageMaximumGCAge": "3s"}),
    "imageGCHighThresholdPercent": (
        {"imageGCLowThresholdPercent": 0},
        {"imageGCLowThresholdPercent": 1},
        {"imageGCLowThresholdPercent": 10},
    ),
    "imageGCLowThresholdPercent": ({"imageGCHighThresholdPercent": 1}, {"imageGCHighThresholdPercent": 100}),
    "maxParallelImagePulls": ({"serializeImagePulls": True}, {"serializeImagePulls": False}),
    "serializeImagePulls": ({"maxParallelImagePulls": 1}, {"maxParallelImagePulls": 2}),
    "imagePullCredentialsVerificationPolicy": (
        {"featureGates": {"KubeletEnsureSecretPulledImages": False}},
        {"preloadedImagesVerificationAllowlist": ["a/b"]},
    ),
    "preloadedImagesVerificationAllowlist": ({"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages"},) * 3,
    "shutdownGracePeriod": (
        {"shutdownGracePeriodCriticalPods": "1s"},
        {"featureGates": {"GracefulNodeShutdown": False, "GracefulNodeShutdownBasedOnPodPriority": False}},
    ),
    "shutdownGracePeriodCriticalPods": ({"shutdownGracePeriod": "10s"}, {"shutdownGracePeriod": "1h"}),
    "shutdownGracePeriodByPodPriority": (
        {"shutdownGracePeriod": "10s"},
        {"featureGates": {"GracefulNodeShutdownBasedOnPodPriority": False}},
    ),
    "crashLoopBackOff": (
        {"featureGates": {"KubeletCrashLoopBackOffMax": False}},
        {"featureGates": {"KubeletCrashLoopBackOffMax": True}},
    ),
    "enforceNodeAllocatable": (
        {"systemReservedCgroup": "/system", "kubeReservedCgroup": "/kube"},
        {"kubeReservedCgroup": "/kube"},
        {"cgroupsPerQOS": False},
    ),
    "reservedSystemCPUs": ({"systemReservedCgroup": "/system"}, {"kubeReservedCgroup": "/kube"}, {"kubeReserved": {"cpu": "2"}}),
    "systemReservedCgroup": ({"reservedSystemCPUs": "0"},),
    "systemCgroups": ({"cgroupRoot": "/"},),
    "memoryThrottlingFactor": ({"featureGates": {"MemoryQoS": False}}, {"featureGates": {"MemoryQoS": True}}),
    "memoryReservationPolicy": ({"featureGates": {"MemoryQoS": False}}, {"featureGates": {"MemoryQoS": True}}),
    "enableSystemLogQuery": (
        {"featureGates": {"NodeLogQuery": True}},
        {"enableSystemLogHandler": False},
        {"featureGates": {"NodeLogQuery": False}},
    ),
    "logging": ({"featureGates": {"LoggingAlphaOptions": True}}, {"featureGates": {"LoggingAlphaOptions": False}}),
    "evictionHard": ({"mergeDefaultEvictionSettings": True}, {"memoryManagerPolicy": "Static"}),
    "cpuManagerPolicy": ({"kubeReserved": {"cpu": "1"}}, {"reservedSystemCPUs": "0"}),
    "cpuManagerPolicyOptions": ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}},) * 3
    + ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}, "featureGates": {"CPUManagerPolicyAlphaOptions": True}},),
    "topologyManagerPolicyOptions": ({"topologyManagerPolicy": "restricted"}, {"topologyManagerPolicy": "single-numa-node"}),
    "memoryManagerPolicy": ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]},),
    "reservedMemory": ({"memoryManagerPolicy": "Static"},) * 2,
    "memorySwap": ({"failSwapOn": False},),
}
_FIELD_MACHINE = {
    "numa": [
        {
            "id": n,
            "cpus": [[4 * n, 4 * n + 1], [4 * n + 2, 4 * n + 3]],
            "socket": n,
            "memory_bytes": 8 * GIB,
            "distances": [10 if m == n else 21 for m in range(2)],
        }
        for n in range(2)
    ]
}
_FIELD_POD = {"name": "p", "containers": [{"name": "main", "limits": {"cpu": "1", "memory": "1Gi"}}]}


def field_case(name: str, rng: random.Random) -> Case:
    """A small machine and one pod, and a kubelet section with this field."""
    kubelet: dict[str, Any] = {}
    besides = _BESIDES.get(name, ())
    if besides and rng.random() < 0.7:
        kubelet.update(copy.deepcopy(rng.choice(besides)))
    kubelet[name] = copy.deepcopy(_field_value(FIELDS[name], rng))
    return {"machine": _FIELD_MACHINE, "kubelet": kubelet, "devices": {}, "pods": [_FIELD_POD]}


def _field_value(field: Field, rng: random.Random) -> Any:
    if field.bounds and rng.random() < 0.6:
        lowest, highest = field.bounds
        return rng.choice([lowest - 1, lowest, lowest + 1] + ([] if highest is None else [highest - 1, highest, highest + 1]))
    if field.values and rng.random() < 0.6:
        spelling = rng.choice(field.values)
        if field.kind.form == "string":
            return rng.choice([spelling, spelling, spelling.swapcase(), f"{spelling}x"])
        return [spelling] if rng.random() < 0.5 else rng.choices(field.values, k=rng.randint(1, 3))
    if field.name in _MAPS and rng.random() < 0.85:
        return rng.choice(_MAPS[field.name])
    return _value_of(field.kind, rng)


def _value_of(kind: Kind, rng: random.Random) -> Any:
    """A value that is meant for a Go type: often right, sometimes at an edge, sometimes of another type."""
    if rng.random() < 0.1:
        return rng.choice(VALUES)
    base = kind.go.removeprefix("*")
    if base == "struct":
        assert kind.members is not None
        return {name: _value_of(member, rng) for name, member in kind.members.items() if rng.random() < 0.5}
    if base.startswith("[]"):
        return [_item_of(kind, rng) for _ in range(rng.choice([0, 1, 1, 2]))]
    if base.startswith("map"):
        item = {"map[string]Quantity": ("1Gi", "0", "1.5Gi", 1, "x"), "map[string]bool": _BOOLEANS}.get(
            base, ("1", "", "x", "5%", 1, None)
        )
        keys = rng.sample(["memory", "hugepages-1Gi", "cpu", "a"], rng.choice([0, 1, 1, 2]))
        return {key: rng.choice(item) for key in keys}
    forms = {"boolean": _BOOLEANS, "integer": _INTEGERS, "number": _NUMBERS, "duration": _DURATIONS}
    return rng.choice(forms.get(kind.form, _TEXTS))


def _item_of(kind: Kind, rng: random.Random) -> Any:
    if kind.members is not None:
        item = {name: _value_of(member, rng) for name, member in kind.members.items() if rng.random() < 0.7}
        if "key" in item:
            item["key"] = rng.choice(_TAINT_KEYS)
        if "effect" in item:
            item["effect"] = rng.choice(["NoSchedule", "NoExecute", "", "Never"])
        return item
    if kind.form == "list of integers":
        return rng.choice(_INTEGERS)
    return rng.choice(["pods", "a/b", "a/*", "a/b:1", "*", " a", "a@b", "net.*", "", 5])
