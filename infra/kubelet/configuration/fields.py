"""The fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1): one row a field, and the only list of them.

Decoding, defaults, flags, bounds, what earlier versions do not know, the stack file's `kubelet:` section and what a managed platform can
express are read from here. A new field is a new row; `make record` then asks the kubelet's own code about it.

Sources: k8s.io/kubelet config/v1beta1/types.go, SetDefaults_KubeletConfiguration, options.AddKubeletConfigFlags and the policy options of
the CPU and topology manager, of k8s.io/kubernetes v1.33 to v1.37.2. The table is held against the kubelet's own list by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from infra.kubelet.configuration.go_types import (
    BOOL,
    DURATION,
    FLOAT64,
    FLUSH_FREQUENCY,
    INT32,
    INT64,
    QUANTITY,
    SECOND,
    STRING,
    STRING_MAP,
    STRINGS,
    TIME,
    UINT32,
    Kind,
    list_of,
    map_of,
    pointer,
    struct,
)

ALPHA, BETA, STABLE = "alpha", "beta", "stable"
# The managed platforms that take some fields and no others. GKE: NodeKubeletConfig of the Kubernetes Engine API v1. AKS:
# linuxKubeletConfig, "custom node configuration" of its documentation. All others take a whole KubeletConfiguration: drop-in
# directory, EKS NodeConfig, OpenShift KubeletConfig, kubelet-arg config=, Talos machine.kubelet.extraConfig.
RESTRICTING_PLATFORMS = ("aks", "gke")
_AKS, _GKE, _AKS_GKE = ("aks",), ("gke",), RESTRICTING_PLATFORMS


@dataclass(frozen=True, slots=True)
class Field:
    """A field.

    `default` replaces the zero value of a plain type and the absence of a pointer; None: the zero value stays. `flag` is the command-line flag
    that stands for the field, or flags by the member of the struct that each sets (every such flag is deprecated in favour of the file).
    `earlier`: defaults of earlier versions by the version since which they hold, up to the one whose entry is the default. `values`: all spellings there are (of a list: of its items). `bounds`: lowest and highest valid number. `options`: the keys of a map of
    policy options, each with its stages by the version since which it has them. `since`, `removed`: the supported versions that know the field
    (empty: from the first, to the last). `platforms`: of the managed platforms that take only some fields, those that take this one.
    """

    name: str
    kind: Kind
    _: KW_ONLY
    default: Any = None
    earlier: Mapping[str, Any] = field(default_factory=dict)
    flag: str | Mapping[str, str] = ""
    values: tuple[str, ...] = ()
    bounds: tuple[int, int | None] | None = None
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    since: str = ""
    removed: str = ""
    platforms: tuple[str, ...] = ()

    @property
    def initial(self) -> Any:
        """What holds where a configuration does not name the field."""
        return self.kind.zero if self.default is None else self.default

    @property
    def flags(self) -> Mapping[str, str]:
        """Flags, each with the member that it sets (empty: the field itself)."""
        if isinstance(self.flag, str):
            return {self.flag: ""} if self.flag else {}
        return self.flag


# Kinds of single fields
_OPTIONS = map_of(STRING, flag_syntax="pair")
_THRESHOLDS = map_of(STRING, flag_syntax="thresholds")
_AUTHENTICATION = struct(
    x509=struct(clientCAFile=STRING),
    webhook=struct(enabled=pointer(BOOL), cacheTTL=DURATION),
    anonymous=struct(enabled=pointer(BOOL)),
)
_AUTHORIZATION = struct(mode=STRING, webhook=struct(cacheAuthorizedTTL=DURATION, cacheUnauthorizedTTL=DURATION))
_ROUTING = struct(splitStream=BOOL, infoBufferSize=QUANTITY)
_LOGGING = struct(
    format=STRING,
    flushFrequency=FLUSH_FREQUENCY,
    verbosity=UINT32,
    vmodule=list_of(struct(filePattern=STRING, verbosity=UINT32), flag_syntax="patterns"),
    options=struct(text=_ROUTING, json=_ROUTING),
)
_SHUTDOWN_PERIODS = list_of(struct(priority=INT32, shutdownGracePeriodSeconds=INT64))
_RESERVED_MEMORY = list_of(struct(numaNode=INT32, limits=map_of(QUANTITY)), flag_syntax="memory")
_TAINTS = list_of(struct(key=STRING, value=STRING, effect=STRING, timeAdded=TIME), flag_syntax="taints")
_TRACING = pointer(struct(endpoint=pointer(STRING), samplingRatePerMillion=pointer(INT32)))

# Values, options and flags too long for a row
_CREDENTIAL_POLICIES = ("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify")
_ENFORCEMENTS = ("pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible", "none")
_TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_CPU_OPTIONS = {
    "full-pcpus-only": {"1.33": STABLE},
    "strict-cpu-reservation": {"1.33": BETA, "1.35": STABLE},
    "prefer-align-cpus-by-uncorecache": {"1.33": ALPHA, "1.34": BETA, "1.36": STABLE},
    "distribute-cpus-across-numa": {"1.33": BETA},
    "align-by-socket": {"1.33": ALPHA},
    "distribute-cpus-across-cores": {"1.33": ALPHA},
}
_TOPOLOGY_OPTIONS = {
    "prefer-closest-numa-nodes": {"1.33": STABLE},
    "max-allowable-numa-nodes": {"1.33": BETA, "1.35": STABLE},
}
_AUTHENTICATION_FLAGS = {
    "anonymous-auth": "anonymous.enabled",
    "authentication-token-webhook": "webhook.enabled",
    "authentication-token-webhook-cache-ttl": "webhook.cacheTTL",
    "client-ca-file": "x509.clientCAFile",
}
_AUTHORIZATION_FLAGS = {
    "authorization-mode": "mode",
    "authorization-webhook-cache-authorized-ttl": "webhook.cacheAuthorizedTTL",
    "authorization-webhook-cache-unauthorized-ttl": "webhook.cacheUnauthorizedTTL",
}
_LOGGING_FLAGS = {
    "logging-format": "format",
    "log-flush-frequency": "flushFrequency",
    "v": "verbosity",
    "vmodule": "vmodule",
    "log-text-split-stream": "options.text.splitStream",
    "log-text-info-buffer-size": "options.text.infoBufferSize",
    "log-json-split-stream": "options.json.splitStream",
    "log-json-info-buffer-size": "options.json.infoBufferSize",
}

_TABLE = (
    Field("enableServer", pointer(BOOL), default=True, flag="enable-server"),
    Field("staticPodPath", STRING, flag="pod-manifest-path"),
    Field("podLogsDir", STRING, default="/var/log/pods"),
    Field("syncFrequency", DURATION, default=60 * SECOND, flag="sync-frequency"),
    Field("fileCheckFrequency", DURATION, default=20 * SECOND, flag="file-check-frequency"),
    Field("httpCheckFrequency", DURATION, default=20 * SECOND, flag="http-check-frequency"),
    Field("staticPodURL", STRING, flag="manifest-url"),
    Field("staticPodURLHeader", map_of(STRINGS, flag_syntax="headers"), flag="manifest-url-header"),
    Field("address", STRING, default="0.0.0.0", flag="address"),
    Field("port", INT32, default=10250, bounds=(1, 65535), flag="port"),
    Field("readOnlyPort", INT32, bounds=(0, 65535), flag="read-only-port"),
    Field("tlsCertFile", STRING, flag="tls-cert-file"),
    Field("tlsPrivateKeyFile", STRING, flag="tls-private-key-file"),
    Field("tlsCipherSuites", STRINGS, flag="tls-cipher-suites"),
    Field("tlsCurvePreferences", list_of(INT32), since="1.36"),
    Field("tlsMinVersion", STRING, flag="tls-min-version"),
    Field("rotateCertificates", BOOL, flag="rotate-certificates"),
    Field("serverTLSBootstrap", BOOL, flag="rotate-server-certificates"),
    Field("authentication", _AUTHENTICATION, flag=_AUTHENTICATION_FLAGS),
    Field("authorization", _AUTHORIZATION, flag=_AUTHORIZATION_FLAGS),
    Field("registryPullQPS", pointer(INT32), default=5, bounds=(0, None), flag="registry-qps"),
    Field("registryBurst", INT32, default=10, bounds=(0, None), flag="registry-burst"),
    Field("imagePullCredentialsVerificationPolicy", STRING, values=_CREDENTIAL_POLICIES),
    Field("preloadedImagesVerificationAllowlist", STRINGS),
    Field("eventRecordQPS", pointer(INT32), default=50, bounds=(0, None), flag="event-qps"),
    Field("eventBurst", INT32, default=100, bounds=(0, None), flag="event-burst"),
    Field("enableDebuggingHandlers", pointer(BOOL), default=True, flag="enable-debugging-handlers"),
    Field("enableContentionProfiling", BOOL, flag="contention-profiling"),
    Field("healthzPort", pointer(INT32), default=10248, bounds=(0, 65535), flag="healthz-port"),
    Field("healthzBindAddress", STRING, default="127.0.0.1", flag="healthz-bind-address"),
    Field("oomScoreAdj", pointer(INT32), default=-999, bounds=(-1000, 1000), flag="oom-score-adj"),
    Field("clusterDomain", STRING, flag="cluster-domain"),
    Field("clusterDNS", STRINGS, flag="cluster-dns"),
    Field("streamingConnectionIdleTimeout", DURATION, default=4 * 3600 * SECOND, flag="streaming-connection-idle-timeout"),
    Field("nodeStatusUpdateFrequency", DURATION, default=10 * SECOND, flag="node-status-update-frequency"),
    Field("nodeStatusReportFrequency", DURATION, default=300 * SECOND),
    Field("nodeLeaseDurationSeconds", INT32, default=40, bounds=(1, None)),
    Field("imageMinimumGCAge", DURATION, default=120 * SECOND, flag="minimum-image-ttl-duration", platforms=_GKE),
    Field("imageMaximumGCAge", DURATION, platforms=_GKE),
    Field(
        "imageGCHighThresholdPercent",
        pointer(INT32),
        default=85,
        bounds=(0, 100),
        flag="image-gc-high-threshold",
        platforms=_AKS_GKE,
    ),
    Field(
        "imageGCLowThresholdPercent", pointer(INT32), default=80, bounds=(0, 100), flag="image-gc-low-threshold", platforms=_AKS_GKE
    ),
    Field("volumeStatsAggPeriod", DURATION, default=60 * SECOND, flag="volume-stats-agg-period"),
    Field("kubeletCgroups", STRING, flag="kubelet-cgroups"),
    Field("systemCgroups", STRING, flag="system-cgroups"),
    Field("cgroupRoot", STRING, flag="cgroup-root"),
    Field("cgroupsPerQOS", pointer(BOOL), default=True, flag="cgroups-per-qos"),
    Field("cgroupDriver", STRING, default="cgroupfs", flag="cgroup-driver"),
    Field("cpuManagerPolicy", STRING, default="none", values=("none", "static"), flag="cpu-manager-policy", platforms=_AKS_GKE),
    Field("singleProcessOOMKill", pointer(BOOL), platforms=_GKE),
    Field("cpuManagerPolicyOptions", _OPTIONS, options=_CPU_OPTIONS, flag="cpu-manager-policy-options"),
    Field("cpuManagerReconcilePeriod", DURATION, default=10 * SECOND, flag="cpu-manager-reconcile-period"),
    Field("memoryManagerPolicy", STRING, default="None", values=("None", "Static"), flag="memory-manager-policy", platforms=_GKE),
    Field(
        "topologyManagerPolicy",
        STRING,
        default="none",
        values=_TOPOLOGY_POLICIES,
        flag="topology-manager-policy",
        platforms=_AKS_GKE,
    ),
    Field(
        "topologyManagerScope",
        STRING,
        default="container",
        values=("container", "pod"),
        flag="topology-manager-scope",
        platforms=_GKE,
    ),
    Field("topologyManagerPolicyOptions", STRING_MAP, options=_TOPOLOGY_OPTIONS, flag="topology-manager-policy-options"),
    Field("qosReserved", STRING_MAP, flag="qos-reserved"),
    Field("runtimeRequestTimeout", DURATION, default=120 * SECOND, flag="runtime-request-timeout"),
    Field(
        "hairpinMode",
        STRING,
        default="promiscuous-bridge",
        values=("none", "hairpin-veth", "promiscuous-bridge"),
        flag="hairpin-mode",
    ),
    Field("maxPods", INT32, default=110, bounds=(0, None), flag="max-pods", platforms=_AKS_GKE),
    Field("podCIDR", STRING, flag="pod-cidr"),
    Field("podPidsLimit", pointer(INT64), default=-1, flag="pod-max-pids", platforms=_AKS_GKE),
    Field("resolvConf", pointer(STRING), default="/etc/resolv.conf", flag="resolv-conf"),
    Field("runOnce", BOOL, flag="runonce"),
    Field("cpuCFSQuota", pointer(BOOL), default=True, flag="cpu-cfs-quota", platforms=_AKS_GKE),
    Field("cpuCFSQuotaPeriod", pointer(DURATION), default=SECOND // 10, flag="cpu-cfs-quota-period", platforms=_AKS_GKE),
    Field("nodeStatusMaxImages", pointer(INT32), default=50, bounds=(-1, None), flag="node-status-max-images"),
    Field("maxOpenFiles", INT64, default=1000000, bounds=(0, None), flag="max-open-files"),
    Field("contentType", STRING, default="application/vnd.kubernetes.protobuf", flag="kube-api-content-type"),
    Field("kubeAPIQPS", pointer(INT32), default=50, bounds=(0, None), flag="kube-api-qps"),
    Field("kubeAPIBurst", INT32, default=100, bounds=(0, None), flag="kube-api-burst"),
    Field("serializeImagePulls", pointer(BOOL), flag="serialize-image-pulls"),
    Field("maxParallelImagePulls", pointer(INT32), bounds=(1, None), platforms=_GKE),
    Field("evictionHard", _THRESHOLDS, flag="eviction-hard"),
    Field("evictionSoft", _THRESHOLDS, flag="eviction-soft", platforms=_GKE),
    Field("evictionSoftGracePeriod", STRING_MAP, flag="eviction-soft-grace-period", platforms=_GKE),
    Field("evictionPressureTransitionPeriod", DURATION, default=300 * SECOND, flag="eviction-pressure-transition-period"),
    Field("evictionMaxPodGracePeriod", INT32, flag="eviction-max-pod-grace-period", platforms=_GKE),
    Field("evictionMinimumReclaim", STRING_MAP, flag="eviction-minimum-reclaim", platforms=_GKE),
    Field("mergeDefaultEvictionSettings", pointer(BOOL), default=False),
    Field("podsPerCore", INT32, bounds=(0, None), flag="pods-per-core"),
    Field("enableControllerAttachDetach", pointer(BOOL), default=True, flag="enable-controller-attach-detach"),
    Field("protectKernelDefaults", BOOL, flag="protect-kernel-defaults"),
    Field("makeIPTablesUtilChains", pointer(BOOL), default=True, flag="make-iptables-util-chains"),
    Field("iptablesMasqueradeBit", pointer(INT32), default=14, bounds=(0, 31)),
    Field("iptablesDropBit", pointer(INT32), default=15, bounds=(0, 31)),
    Field("featureGates", map_of(BOOL, flag_syntax="gates"), flag="feature-gates"),
    Field("failSwapOn", pointer(BOOL), default=True, flag="fail-swap-on", platforms=_AKS),
    Field("memorySwap", struct(swapBehavior=STRING)),
    Field("containerLogMaxSize", STRING, default="10Mi", flag="container-log-max-size", platforms=_AKS_GKE),
    Field("containerLogMaxFiles", pointer(INT32), default=5, bounds=(2, None), flag="container-log-max-files", platforms=_AKS_GKE),
    Field("containerLogMaxWorkers", pointer(INT32), default=1, bounds=(1, None)),
    Field("containerLogMonitorInterval", pointer(DURATION), default=10 * SECOND),
    Field("configMapAndSecretChangeDetectionStrategy", STRING, default="Watch"),
    Field("systemReserved", STRING_MAP, flag="system-reserved"),
    Field("kubeReserved", STRING_MAP, flag="kube-reserved"),
    Field("reservedSystemCPUs", STRING, flag="reserved-cpus"),
    Field("showHiddenMetricsForVersion", STRING),
    Field("systemReservedCgroup", STRING, flag="system-reserved-cgroup"),
    Field("kubeReservedCgroup", STRING, flag="kube-reserved-cgroup"),
    Field("enforceNodeAllocatable", STRINGS, default=["pods"], values=_ENFORCEMENTS, flag="enforce-node-allocatable"),
    Field("allowedUnsafeSysctls", STRINGS, flag="allowed-unsafe-sysctls", platforms=_AKS_GKE),
    Field("defaultPodSysctls", STRING_MAP, since="1.37"),
    Field("volumePluginDir", STRING, default="/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", flag="volume-plugin-dir"),
    Field("providerID", STRING, flag="provider-id"),
    Field("kernelMemcgNotification", BOOL, flag="kernel-memcg-notification"),
    Field("logging", _LOGGING, flag=_LOGGING_FLAGS),
    Field("enableSystemLogHandler", pointer(BOOL), default=True),
    Field("enableSystemLogQuery", pointer(BOOL), default=False),
    Field("shutdownGracePeriod", DURATION),
    Field("shutdownGracePeriodCriticalPods", DURATION),
    Field("shutdownGracePeriodByPodPriority", _SHUTDOWN_PERIODS),
    Field("crashLoopBackOff", struct(maxContainerRestartPeriod=pointer(DURATION))),
    Field("reservedMemory", _RESERVED_MEMORY, flag="reserved-memory"),
    Field("enableProfilingHandler", pointer(BOOL), default=True),
    Field("enableDebugFlagsHandler", pointer(BOOL), default=True),
    Field("seccompDefault", pointer(BOOL), default=False, platforms=_AKS),
    Field("memoryThrottlingFactor", pointer(FLOAT64), earlier={"1.33": 0.9, "1.37": None}),
    Field("memoryReservationPolicy", STRING, default="None", values=("None", "TieredReservation"), since="1.36"),
    Field("registerWithTaints", _TAINTS, flag="register-with-taints"),
    Field("registerNode", pointer(BOOL), default=True, flag="register-node"),
    Field("tracing", _TRACING),
    Field("localStorageCapacityIsolation", pointer(BOOL), default=True, flag="local-storage-capacity-isolation"),
    Field("containerRuntimeEndpoint", STRING, default="unix:///run/containerd/containerd.sock", flag="container-runtime-endpoint"),
    Field("imageServiceEndpoint", STRING, flag="image-service-endpoint"),
    Field("failCgroupV1", pointer(BOOL), default=True, earlier={"1.33": False, "1.35": True}, flag="fail-cgroupv1"),
    Field("userNamespaces", pointer(struct(idsPerPod=pointer(INT64)))),
)
FIELDS: Mapping[str, Field] = {row.name: row for row in _TABLE}
HEADER = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
