"""The fields of `kubelet:` in a stack file: names, kinds and spellings, before the kubelet's own validation sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.diagnosis import Diagnosis, did_you_mean

# KubeletConfiguration, kubelet.config.k8s.io/v1beta1 of Kubernetes 1.37, by the kind of value.
KINDS: Mapping[str, str] = {
    name: kind
    for kind, names in {
        "string": """staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile tlsMinVersion
            imagePullCredentialsVerificationPolicy healthzBindAddress clusterDomain kubeletCgroups systemCgroups cgroupRoot cgroupDriver
            cpuManagerPolicy memoryManagerPolicy topologyManagerPolicy topologyManagerScope hairpinMode podCIDR resolvConf contentType
            containerLogMaxSize configMapAndSecretChangeDetectionStrategy reservedSystemCPUs showHiddenMetricsForVersion
            systemReservedCgroup kubeReservedCgroup volumePluginDir providerID memoryReservationPolicy containerRuntimeEndpoint
            imageServiceEndpoint""",
        "boolean": """enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers enableContentionProfiling
            cgroupsPerQOS singleProcessOOMKill runOnce cpuCFSQuota serializeImagePulls mergeDefaultEvictionSettings
            enableControllerAttachDetach protectKernelDefaults makeIPTablesUtilChains failSwapOn kernelMemcgNotification
            enableSystemLogHandler enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler seccompDefault registerNode
            localStorageCapacityIsolation failCgroupV1""",
        "integer": """port readOnlyPort registryPullQPS registryBurst eventRecordQPS eventBurst healthzPort oomScoreAdj
            nodeLeaseDurationSeconds imageGCHighThresholdPercent imageGCLowThresholdPercent maxPods podPidsLimit nodeStatusMaxImages
            maxOpenFiles kubeAPIQPS kubeAPIBurst maxParallelImagePulls evictionMaxPodGracePeriod podsPerCore iptablesMasqueradeBit
            iptablesDropBit containerLogMaxFiles containerLogMaxWorkers""",
        "number": "memoryThrottlingFactor",
        "duration": """syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout nodeStatusUpdateFrequency
            nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod cpuManagerReconcilePeriod
            runtimeRequestTimeout cpuCFSQuotaPeriod evictionPressureTransitionPeriod containerLogMonitorInterval shutdownGracePeriod
            shutdownGracePeriodCriticalPods""",
        "map of strings": """cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard evictionSoft
            evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved defaultPodSysctls""",
        "map of booleans": "featureGates",
        "list of strings": """tlsCipherSuites preloadedImagesVerificationAllowlist clusterDNS enforceNodeAllocatable
            allowedUnsafeSysctls""",
        "list of integers": "tlsCurvePreferences",
        "list of objects": "shutdownGracePeriodByPodPriority reservedMemory registerWithTaints",
        "object": """staticPodURLHeader authentication authorization memorySwap logging crashLoopBackOff tracing userNamespaces""",
    }.items()
    for name in names.split()
}
_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "cpuManagerPolicy": ("none", "static"),
    "memoryManagerPolicy": ("None", "Static"),
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
}
# The command line's names, where people look for a field by its flag.
_FLAGS: Mapping[str, str] = {
    "reserved-cpus": "reservedSystemCPUs",
    "reservedCpus": "reservedSystemCPUs",
    "reservedCPUs": "reservedSystemCPUs",
    "cpu-manager": "cpuManagerPolicy",
    "cpu-manager-policy": "cpuManagerPolicy",
    "cpu-manager-policy-options": "cpuManagerPolicyOptions",
    "memory-manager-policy": "memoryManagerPolicy",
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-scope": "topologyManagerScope",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
    "reserved-memory": "reservedMemory",
    "eviction-hard": "evictionHard",
    "max-pods": "maxPods",
    "feature-gates": "featureGates",
}
_HEADER = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
_EXPECTED = {
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "duration": "a duration such as 5s or 100ms",
    "map of strings": "a map of names to values",
    "map of booleans": "a map of names to true or false",
    "list of strings": "a list of strings",
    "list of integers": "a list of whole numbers",
    "list of objects": "a list of maps",
    "object": "a map",
}


def read_user_fields(user_kubelet: Mapping[str, Any], path: str) -> tuple[dict[str, Any], list[Diagnosis]]:
    """The user's fields as the kubelet would take them, and what is wrong with their names, kinds and spellings.

    A field that is null counts as left out. Quantities and options may be written as numbers or booleans; the kubelet wants strings, so that is what they
    become. The kubelet itself ignores an unknown field (it decodes leniently after the strict attempt): here it is an error.
    """
    fields: dict[str, Any] = {}
    problems: list[Diagnosis] = []
    for name, value in user_kubelet.items():
        where = f"{path}.{name}"
        if name in _HEADER:
            if value != _HEADER[name]:
                problems.append(Diagnosis(where, "WrongKind", f"is {value!r}; only {_HEADER[name]} can be planned."))
            continue
        kind = KINDS.get(name)
        if kind is None:
            hint = f' Did you mean "{_FLAGS[name]}"?' if name in _FLAGS else did_you_mean(str(name), KINDS)
            problems.append(
                Diagnosis(
                    where, "UnknownField", f"no field of KubeletConfiguration; a kubelet would ignore it without a word.{hint}"
                )
            )
        elif value is not None:
            taken = _take(kind, value)
            if taken is _WRONG:
                problems.append(Diagnosis(where, "WrongType", f"{value!r} is not {_EXPECTED[kind]}."))
            elif name in _SPELLINGS and taken not in _SPELLINGS[name]:
                known = ", ".join(_SPELLINGS[name])
                problems.append(
                    Diagnosis(where, "WrongSpelling", f"{taken!r} is none of {known}.{did_you_mean(taken, _SPELLINGS[name])}")
                )
            else:
                fields[name] = taken
    return fields, problems


_WRONG = object()


def _take(kind: str, value: Any) -> Any:
    if kind in ("string", "duration"):
        return value if isinstance(value, str) else _WRONG
    if kind == "boolean":
        return value if isinstance(value, bool) else _WRONG
    if kind == "integer":
        return value if type(value) is int and -(2**31) <= value < 2**63 else _WRONG
    if kind == "number":
        return value if isinstance(value, int | float) and not isinstance(value, bool) else _WRONG
    if kind == "map of strings":
        return _map_of_strings(value)
    if kind == "map of booleans":
        good = isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, bool) for k, v in value.items())
        return dict(value) if good else _WRONG
    if kind == "object":
        return dict(value) if isinstance(value, Mapping) and all(isinstance(k, str) for k in value) else _WRONG
    item_types: dict[str, type] = {"list of strings": str, "list of integers": int, "list of objects": Mapping}
    if not isinstance(value, list | tuple) or not all(isinstance(i, item_types[kind]) and not isinstance(i, bool) for i in value):
        return _WRONG
    return [dict(item) if isinstance(item, Mapping) else item for item in value]


def _map_of_strings(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _WRONG
    taken: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            return _WRONG
        if item is None:
            continue
        if isinstance(item, bool):
            taken[key] = "true" if item else "false"
        elif isinstance(item, int | float | str):
            taken[key] = str(item)
        else:
            return _WRONG
    return taken
