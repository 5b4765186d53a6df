"""A KubeletConfiguration (v1beta1) as the kubelet loads it: decoded into Go's types, unknown fields left out, defaults applied.

The kubelet decodes strictly first and falls back to a lenient decoding with a warning in its log: a misspelt field stops nobody,
it is just not there. Types are another matter: a number where a string belongs stops the kubelet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from infra.kubelet.configuration.feature_gates import FeatureGates, gates_of
from infra.kubelet.configuration.versions import VersionRules, rules_of
from infra.kubelet.faults import KubeletRefuses
from infra.kubelet.quantity import parse_json_quantity

SECOND = 10**9
_MILLISECOND = 10**6
_DURATION_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_DURATION_PART = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)

# eviction.DefaultEvictionHard on Linux: what holds where evictionHard is absent.
DEFAULT_EVICTION_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


class _WrongType(Exception):
    """A value that Go cannot decode into the field."""


class Kind(NamedTuple):
    """How a value is decoded, and the zero value of its Go type."""

    decode: Callable[[Any, str], Any]
    zero: Any


def parse_duration(text: str) -> int:
    """time.ParseDuration, in nanoseconds; ValueError where Go finds none."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total, end = 0, 0
    for part in _DURATION_PART.finditer(body):
        whole, fraction, unit = part.group(1), part.group(2) or "", part.group(3)
        if part.start() != end or not (whole or fraction):
            break
        total += int(whole or "0") * _DURATION_UNITS[unit]
        total += int(fraction or "0") * _DURATION_UNITS[unit] // 10 ** len(fraction)
        end = part.end()
    if not body or end != len(body) or total >= 2**63:
        raise ValueError(f"{text!r} is no duration; write it like 10s, 5m or 1h30m")
    return -total if text.startswith("-") else total


def _string(value: Any, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _WrongType(f"{path}: {_json_name(value)} {value!r} where the kubelet takes a string; put it in quotes")
    return value


def _bool(value: Any, path: str) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _WrongType(f"{path}: {value!r} where the kubelet takes true or false (no quotes)")
    return value


def _integer(bits: int, *, signed: bool = True) -> Callable[[Any, str], int]:
    lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)

    def decode(value: Any, path: str) -> int:
        if value is None:
            return 0
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
            value = int(value)
        if type(value) is not int:
            raise _WrongType(f"{path}: {value!r} where the kubelet takes a whole number (no quotes)")
        if not lowest <= value <= highest:
            raise _WrongType(f"{path}: {value} does not fit into {'' if signed else 'u'}int{bits} ({lowest} to {highest})")
        return value

    return decode


def _float(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _WrongType(f"{path}: {value!r} where the kubelet takes a number")
    return float(value)


def _duration(value: Any, path: str) -> int:
    if not isinstance(value, str):
        raise _WrongType(f"{path}: {value!r} where the kubelet takes a duration in quotes, like 10s")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise _WrongType(f"{path}: {error}") from None


def _flush_frequency(value: Any, path: str) -> int:
    return _duration(value, path) if isinstance(value, str) else _integer(64)(value, path)


def _quantity(value: Any, path: str) -> Any:
    try:
        return parse_json_quantity(value)
    except ValueError as error:
        raise _WrongType(f"{path}: {value!r}: {error}") from None


def _time(value: Any, path: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", value):
        raise _WrongType(f"{path}: {value!r} where the kubelet takes a time like 2026-01-31T12:00:00Z")
    return value


def _list_of(kind: Kind) -> Kind:
    def decode(value: Any, path: str) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise _WrongType(f"{path}: {_json_name(value)} where the kubelet takes a list")
        return [kind.decode(item, f"{path}[{index}]") for index, item in enumerate(value)]

    return Kind(decode, None)


def _map_of(kind: Kind) -> Kind:
    def decode(value: Any, path: str) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _WrongType(f"{path}: {_json_name(value)} where the kubelet takes a map")
        return {str(key): kind.decode(item, f"{path}.{key}") for key, item in value.items()}

    return Kind(decode, None)


def _struct(**fields: Kind) -> Kind:
    zero = {name: kind.zero for name, kind in fields.items()}

    def decode(value: Any, path: str) -> dict[str, Any]:
        if value is None:
            return dict(zero)
        if not isinstance(value, Mapping):
            raise _WrongType(f"{path}: {_json_name(value)} where the kubelet takes a map")
        found = dict(zero)
        for name, item in value.items():
            kind = fields.get(name)
            if kind is not None:
                found[name] = kind.decode(item, f"{path}.{name}")
        return found

    return Kind(decode, zero)


def _pointer(kind: Kind) -> Kind:
    return Kind(lambda value, path: None if value is None else kind.decode(value, path), None)


def _json_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "list" if isinstance(value, list | tuple) else "map"


STRING, BOOL, INT32, INT64, FLOAT64 = (
    Kind(_string, ""),
    Kind(_bool, False),
    Kind(_integer(32), 0),
    Kind(_integer(64), 0),
    Kind(_float, 0.0),
)
_UINT32, _DURATION, _QUANTITY = Kind(_integer(32, signed=False), 0), Kind(_duration, 0), Kind(_quantity, None)
_STRINGS, _STRING_MAP = _list_of(STRING), _map_of(STRING)
_ROUTING = _struct(splitStream=BOOL, infoBufferSize=_QUANTITY)
_TAINT = _struct(key=STRING, value=STRING, effect=STRING, timeAdded=Kind(_time, None))


def _many(kind: Kind, default: Any, names: str) -> dict[str, tuple[Kind, Any]]:
    return dict.fromkeys(names.split(), (kind, default))


# Every field of kubelet.config.k8s.io/v1beta1 KubeletConfiguration (k8s.io/kubelet v0.37.2), with its default. A default replaces
# the zero value of a plain field and the absence of a pointer (`_pointer`), as SetDefaults_KubeletConfiguration does.
FIELDS: dict[str, tuple[Kind, Any]] = {
    **_many(_pointer(BOOL), True, "enableServer enableDebuggingHandlers cgroupsPerQOS cpuCFSQuota enableControllerAttachDetach"),
    **_many(_pointer(BOOL), True, "makeIPTablesUtilChains failSwapOn enableSystemLogHandler enableProfilingHandler"),
    **_many(_pointer(BOOL), True, "enableDebugFlagsHandler failCgroupV1 registerNode localStorageCapacityIsolation"),
    **_many(_pointer(BOOL), False, "mergeDefaultEvictionSettings seccompDefault enableSystemLogQuery"),
    **_many(_pointer(BOOL), None, "singleProcessOOMKill serializeImagePulls"),
    **_many(BOOL, False, "rotateCertificates serverTLSBootstrap enableContentionProfiling runOnce protectKernelDefaults"),
    **_many(BOOL, False, "kernelMemcgNotification"),
    **_many(STRING, "", "staticPodPath staticPodURL tlsCertFile tlsPrivateKeyFile tlsMinVersion clusterDomain kubeletCgroups"),
    **_many(STRING, "", "systemCgroups cgroupRoot podCIDR reservedSystemCPUs showHiddenMetricsForVersion systemReservedCgroup"),
    **_many(STRING, "", "kubeReservedCgroup providerID imageServiceEndpoint apiVersion kind"),
    **_many(STRING, None, "imagePullCredentialsVerificationPolicy"),
    "podLogsDir": (STRING, "/var/log/pods"),
    "address": (STRING, "0.0.0.0"),
    "healthzBindAddress": (STRING, "127.0.0.1"),
    "cgroupDriver": (STRING, "cgroupfs"),
    "cpuManagerPolicy": (STRING, "none"),
    "memoryManagerPolicy": (STRING, "None"),
    "topologyManagerPolicy": (STRING, "none"),
    "topologyManagerScope": (STRING, "container"),
    "hairpinMode": (STRING, "promiscuous-bridge"),
    "resolvConf": (_pointer(STRING), "/etc/resolv.conf"),
    "contentType": (STRING, "application/vnd.kubernetes.protobuf"),
    "containerLogMaxSize": (STRING, "10Mi"),
    "configMapAndSecretChangeDetectionStrategy": (STRING, "Watch"),
    "volumePluginDir": (STRING, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"),
    "memoryReservationPolicy": (STRING, "None"),
    "containerRuntimeEndpoint": (STRING, "unix:///run/containerd/containerd.sock"),
    "port": (INT32, 10250),
    "readOnlyPort": (INT32, 0),
    "registryPullQPS": (_pointer(INT32), 5),
    "registryBurst": (INT32, 10),
    "eventRecordQPS": (_pointer(INT32), 50),
    "eventBurst": (INT32, 100),
    "healthzPort": (_pointer(INT32), 10248),
    "oomScoreAdj": (_pointer(INT32), -999),
    "nodeLeaseDurationSeconds": (INT32, 40),
    "imageGCHighThresholdPercent": (_pointer(INT32), 85),
    "imageGCLowThresholdPercent": (_pointer(INT32), 80),
    "maxPods": (INT32, 110),
    "podPidsLimit": (_pointer(INT64), -1),
    "nodeStatusMaxImages": (_pointer(INT32), 50),
    "maxOpenFiles": (INT64, 1000000),
    "kubeAPIQPS": (_pointer(INT32), 50),
    "kubeAPIBurst": (INT32, 100),
    "maxParallelImagePulls": (_pointer(INT32), None),
    "evictionMaxPodGracePeriod": (INT32, 0),
    "podsPerCore": (INT32, 0),
    "iptablesMasqueradeBit": (_pointer(INT32), 14),
    "iptablesDropBit": (_pointer(INT32), 15),
    "containerLogMaxFiles": (_pointer(INT32), 5),
    "containerLogMaxWorkers": (_pointer(INT32), 1),
    "memoryThrottlingFactor": (_pointer(FLOAT64), None),
    "syncFrequency": (_DURATION, 60 * SECOND),
    "fileCheckFrequency": (_DURATION, 20 * SECOND),
    "httpCheckFrequency": (_DURATION, 20 * SECOND),
    "streamingConnectionIdleTimeout": (_DURATION, 4 * 3600 * SECOND),
    "nodeStatusUpdateFrequency": (_DURATION, 10 * SECOND),
    "nodeStatusReportFrequency": (_DURATION, 300 * SECOND),
    "imageMinimumGCAge": (_DURATION, 120 * SECOND),
    "imageMaximumGCAge": (_DURATION, 0),
    "volumeStatsAggPeriod": (_DURATION, 60 * SECOND),
    "cpuManagerReconcilePeriod": (_DURATION, 10 * SECOND),
    "runtimeRequestTimeout": (_DURATION, 120 * SECOND),
    "cpuCFSQuotaPeriod": (_pointer(_DURATION), 100 * _MILLISECOND),
    "evictionPressureTransitionPeriod": (_DURATION, 300 * SECOND),
    "containerLogMonitorInterval": (_pointer(_DURATION), 10 * SECOND),
    "shutdownGracePeriod": (_DURATION, 0),
    "shutdownGracePeriodCriticalPods": (_DURATION, 0),
    **_many(_STRINGS, None, "tlsCipherSuites preloadedImagesVerificationAllowlist clusterDNS allowedUnsafeSysctls"),
    "enforceNodeAllocatable": (_STRINGS, ["pods"]),
    "tlsCurvePreferences": (_list_of(INT32), None),
    "staticPodURLHeader": (_map_of(_STRINGS), None),
    **_many(_STRING_MAP, None, "cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard evictionSoft"),
    **_many(_STRING_MAP, None, "evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved defaultPodSysctls"),
    "featureGates": (_map_of(BOOL), None),
    "authentication": (
        _struct(
            x509=_struct(clientCAFile=STRING),
            webhook=_struct(enabled=_pointer(BOOL), cacheTTL=_DURATION),
            anonymous=_struct(enabled=_pointer(BOOL)),
        ),
        None,
    ),
    "authorization": (
        _struct(mode=STRING, webhook=_struct(cacheAuthorizedTTL=_DURATION, cacheUnauthorizedTTL=_DURATION)),
        None,
    ),
    "memorySwap": (_struct(swapBehavior=STRING), None),
    "logging": (
        _struct(
            format=STRING,
            flushFrequency=Kind(_flush_frequency, 0),
            verbosity=_UINT32,
            vmodule=_list_of(_struct(filePattern=STRING, verbosity=_UINT32)),
            options=_struct(text=_ROUTING, json=_ROUTING),
        ),
        None,
    ),
    "shutdownGracePeriodByPodPriority": (_list_of(_struct(priority=INT32, shutdownGracePeriodSeconds=INT64)), None),
    "crashLoopBackOff": (_struct(maxContainerRestartPeriod=_pointer(_DURATION)), None),
    "reservedMemory": (_list_of(_struct(numaNode=INT32, limits=_map_of(_QUANTITY))), None),
    "registerWithTaints": (_list_of(_TAINT), None),
    "tracing": (_pointer(_struct(endpoint=_pointer(STRING), samplingRatePerMillion=_pointer(INT32))), None),
    "userNamespaces": (_pointer(_struct(idsPerPod=_pointer(INT64))), None),
}
_DEFAULTS = {name: kind.zero if default is None else default for name, (kind, default) in FIELDS.items()}


@dataclass(frozen=True, slots=True)
class Configuration:
    """A decoded and defaulted configuration: `fields` by their names in YAML (durations in nanoseconds), and the feature gates."""

    fields: Mapping[str, Any]
    gates: FeatureGates
    rules: VersionRules
    given: frozenset[str]
    unknown: tuple[str, ...] = field(default=())

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def load(document: Mapping[str, Any], *, kubernetes_version: str) -> Configuration:
    """Decodes and defaults a configuration; KubeletRefuses at stage `load` where the kubelet could not."""
    fields = dict(_DEFAULTS)
    rules = rules_of(kubernetes_version)
    unknown = []
    try:
        for name, value in document.items():
            if name in ("apiVersion", "kind"):
                continue
            known = FIELDS.get(name)
            if known is None or name in rules.unknown_fields:
                unknown.append(str(name))
                continue
            kind, default = known
            decoded = kind.decode(value, str(name))
            if default is None or (decoded != kind.zero if kind.zero is not None else decoded is not None):
                fields[name] = decoded
    except _WrongType as wrong:
        raise KubeletRefuses("load", (str(wrong),)) from None
    gates, errors = gates_of(rules.version, fields["featureGates"] or {})
    if errors:
        raise KubeletRefuses("load", errors)
    _conditional_defaults(fields, gates)
    return Configuration(fields, gates, rules, frozenset(map(str, document)), tuple(unknown))


def _conditional_defaults(fields: dict[str, Any], gates: FeatureGates) -> None:
    pulls = fields["maxParallelImagePulls"]
    if fields["serializeImagePulls"] is None:
        fields["serializeImagePulls"] = pulls is None or pulls < 2
    if gates["KubeletCrashLoopBackOffMax"] and fields["crashLoopBackOff"]["maxContainerRestartPeriod"] is None:
        fields["crashLoopBackOff"] = {"maxContainerRestartPeriod": 300 * SECOND}
    if gates["KubeletEnsureSecretPulledImages"] and not fields["imagePullCredentialsVerificationPolicy"]:
        fields["imagePullCredentialsVerificationPolicy"] = "NeverVerifyPreloadedImages"
    eviction = fields["evictionHard"]
    if eviction is None:
        fields["evictionHard"] = DEFAULT_EVICTION_HARD
    elif fields["mergeDefaultEvictionSettings"]:
        fields["evictionHard"] = {**DEFAULT_EVICTION_HARD, **eviction}
    frequency = fields["nodeStatusUpdateFrequency"]
    if fields["nodeStatusReportFrequency"] == _DEFAULTS["nodeStatusReportFrequency"] and frequency != 10 * SECOND:
        fields["nodeStatusReportFrequency"] = frequency
    _access_defaults(fields)
    if not fields["logging"]["format"]:
        fields["logging"] = {**fields["logging"], "format": "text"}
    if not fields["logging"]["flushFrequency"]:
        fields["logging"] = {**fields["logging"], "flushFrequency": 5 * SECOND}


def _access_defaults(fields: dict[str, Any]) -> None:
    anonymous, webhook = fields["authentication"]["anonymous"], fields["authentication"]["webhook"]
    fields["authentication"] = {
        **fields["authentication"],
        "anonymous": {"enabled": bool(anonymous["enabled"])},
        "webhook": {"enabled": webhook["enabled"] is not False, "cacheTTL": webhook["cacheTTL"] or 120 * SECOND},
    }
    rules = fields["authorization"]["webhook"]
    fields["authorization"] = {
        "mode": fields["authorization"]["mode"] or "Webhook",
        "webhook": {
            "cacheAuthorizedTTL": rules["cacheAuthorizedTTL"] or 300 * SECOND,
            "cacheUnauthorizedTTL": rules["cacheUnauthorizedTTL"] or 30 * SECOND,
        },
    }
