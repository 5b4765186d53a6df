"""The kubelet's command line: which flag stands for which field of the configuration (options.AddKubeletConfigFlags, v1.37.2)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

# Flags whose name is the field's in kebab case, by the kind of their value.
_SAME_NAME = {
    "bool": "enableServer failSwapOn rotateCertificates enableDebuggingHandlers cgroupsPerQOS enableControllerAttachDetach "
    "localStorageCapacityIsolation kernelMemcgNotification serializeImagePulls protectKernelDefaults registerNode",
    "string": "containerRuntimeEndpoint imageServiceEndpoint tlsCertFile tlsPrivateKeyFile tlsMinVersion clusterDomain volumePluginDir "
    "kubeletCgroups systemCgroups cgroupDriver cgroupRoot cpuManagerPolicy topologyManagerPolicy topologyManagerScope "
    "memoryManagerPolicy hairpinMode resolvConf containerLogMaxSize systemReservedCgroup kubeReservedCgroup address "
    "healthzBindAddress",
    "int": "port readOnlyPort registryBurst eventBurst healthzPort oomScoreAdj maxPods containerLogMaxFiles nodeStatusMaxImages "
    "maxOpenFiles evictionMaxPodGracePeriod podsPerCore",
    "duration": "syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout nodeStatusUpdateFrequency "
    "volumeStatsAggPeriod cpuManagerReconcilePeriod runtimeRequestTimeout evictionPressureTransitionPeriod",
    "list": "tlsCipherSuites allowedUnsafeSysctls enforceNodeAllocatable",
    "map": "topologyManagerPolicyOptions qosReserved evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved",
    "pair": "cpuManagerPolicyOptions",
    "thresholds": "evictionHard evictionSoft",
    "gates": "featureGates",
    "memory": "reservedMemory",
    "taints": "registerWithTaints",
}
_OTHER_NAME = {
    "pod-manifest-path": ("staticPodPath", "string"),
    "manifest-url": ("staticPodURL", "string"),
    "fail-cgroupv1": ("failCgroupV1", "bool"),
    "anonymous-auth": ("authentication.anonymous.enabled", "bool"),
    "authentication-token-webhook": ("authentication.webhook.enabled", "bool"),
    "authentication-token-webhook-cache-ttl": ("authentication.webhook.cacheTTL", "duration"),
    "client-ca-file": ("authentication.x509.clientCAFile", "string"),
    "authorization-mode": ("authorization.mode", "string"),
    "authorization-webhook-cache-authorized-ttl": ("authorization.webhook.cacheAuthorizedTTL", "duration"),
    "authorization-webhook-cache-unauthorized-ttl": ("authorization.webhook.cacheUnauthorizedTTL", "duration"),
    "rotate-server-certificates": ("serverTLSBootstrap", "bool"),
    "registry-qps": ("registryPullQPS", "int"),
    "event-qps": ("eventRecordQPS", "int"),
    "contention-profiling": ("enableContentionProfiling", "bool"),
    "cluster-dns": ("clusterDNS", "list"),
    "minimum-image-ttl-duration": ("imageMinimumGCAge", "duration"),
    "image-gc-high-threshold": ("imageGCHighThresholdPercent", "int"),
    "image-gc-low-threshold": ("imageGCLowThresholdPercent", "int"),
    "provider-id": ("providerID", "string"),
    "cgroups-per-qos": ("cgroupsPerQOS", "bool"),
    "pod-cidr": ("podCIDR", "string"),
    "pod-max-pids": ("podPidsLimit", "int"),
    "runonce": ("runOnce", "bool"),
    "cpu-cfs-quota": ("cpuCFSQuota", "bool"),
    "cpu-cfs-quota-period": ("cpuCFSQuotaPeriod", "duration"),
    "make-iptables-util-chains": ("makeIPTablesUtilChains", "bool"),
    "kube-api-content-type": ("contentType", "string"),
    "kube-api-qps": ("kubeAPIQPS", "int"),
    "kube-api-burst": ("kubeAPIBurst", "int"),
    "reserved-cpus": ("reservedSystemCPUs", "string"),
}
# Flags that stand for no field of the configuration, with the kind of their value.
OTHER_FLAGS = {
    **dict.fromkeys(
        [
            "config",
            "config-dir",
            "kubeconfig",
            "bootstrap-kubeconfig",
            "hostname-override",
            "node-ip",
            "cert-dir",
            "cloud-provider",
            "root-dir",
            "node-labels",
            "lock-file",
            "minimum-container-ttl-duration",
            "maximum-dead-containers-per-container",
            "maximum-dead-containers",
            "experimental-mounter-path",
            "runtime-cgroups",
            "image-credential-provider-config",
            "image-credential-provider-bin-dir",
            "manifest-url-header",
            "v",
            "vmodule",
            "log-flush-frequency",
            "logging-format",
            "housekeeping-interval",
        ],
        "string",
    ),
    **dict.fromkeys(
        ["seccomp-default", "exit-on-lock-contention", "experimental-allocatable-ignore-eviction", "help", "version"], "bool"
    ),
}


@dataclass(frozen=True, slots=True)
class FieldFlag:
    """A flag for a field; `field` is its path in the configuration, `kind` what its value looks like."""

    name: str
    field: str
    kind: str

    def parse(self, texts: list[str]) -> Any:
        """The value after all occurrences of the flag; ValueError says what is wrong with one."""
        parse_one = _COLLECTIONS.get(self.kind)
        if parse_one is None:
            return _SCALARS.get(self.kind, str)(texts[-1])
        if self.kind in ("list", "memory", "taints"):
            return [item for text in texts for item in parse_one(text)]
        return {name: value for text in texts for name, value in parse_one(text)}


@lru_cache(maxsize=1)
def field_flags() -> dict[str, FieldFlag]:
    """All flags for fields, by name without dashes in front."""
    found = {name: FieldFlag(name, field, kind) for name, (field, kind) in _OTHER_NAME.items()}
    for kind, fields in _SAME_NAME.items():
        for field in fields.split():
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", field).lower()
            found.setdefault(name, FieldFlag(name, field, kind))
    return found


def field_flag(name: str) -> FieldFlag | None:
    return field_flags().get(name)


def _boolean(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise ValueError(f"{text!r} must be true or false")


def _integer(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"{text!r} must be a whole number") from None


def _items(text: str) -> list[str]:
    return text.split(",") if text else []


def _pairs(text: str, sign: str = "=") -> list[tuple[str, str]]:
    found = []
    for item in filter(None, text.split(",")):
        name, separator, value = item.partition(sign)
        if not separator:
            raise ValueError(f"{item!r} must look like name{sign}value")
        found.append((name.strip(), value.strip()))
    return found


def _pair(text: str) -> list[tuple[str, str]]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"{text!r} must look like name=value")
    return [(name.strip(), value.strip())]


def _gates(text: str) -> list[tuple[str, bool]]:
    return [(name, _boolean(value)) for name, value in _pairs(text)]


def _memory(text: str) -> list[dict[str, Any]]:
    found = []
    for reservation in text.split(";") if text else ():
        node, colon, limits = reservation.partition(":")
        if not colon or ":" in limits or not re.fullmatch(r"[+-]?\d+", node, re.ASCII):
            raise ValueError(f"{reservation!r} must look like 0:memory=1Gi,hugepages-1Gi=2Gi")
        amounts = dict(_pairs(limits))
        for name in amounts:
            if name != "memory" and not name.startswith("hugepages-"):
                raise ValueError(f"{name!r} is neither memory nor hugepages-<size>")
        found.append({"numaNode": int(node), "limits": amounts})
    return found


def _taints(text: str) -> list[dict[str, str]]:
    found = []
    for item in filter(None, text.split(",")):
        named, colon, effect = item.partition(":")
        key, _, value = named.partition("=")
        if not colon or not key:
            raise ValueError(f"{item!r} must look like key=value:NoSchedule")
        found.append({"key": key, "value": value, "effect": effect})
    return found


_SCALARS: dict[str, Callable[[str], Any]] = {"bool": _boolean, "int": _integer}
_COLLECTIONS: dict[str, Callable[[str], Any]] = {
    "list": _items,
    "map": _pairs,
    "pair": _pair,
    "thresholds": lambda text: _pairs(text, "<"),
    "gates": _gates,
    "memory": _memory,
    "taints": _taints,
}
