"""ValidateKubeletConfiguration: what the kubelet checks of its configuration before it looks at the machine.

Every message names the field, the value and what to write instead. The machine is taken to run cgroup v2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from infra.diagnosis import did_you_mean, shown
from infra.kubelet.configuration.decode import Configuration
from infra.kubelet.configuration.fields import FIELDS
from infra.kubelet.configuration.go_types import SECOND
from infra.kubelet.resource_names import is_qualified_name

_BOUNDS = {name: field.bounds for name, field in FIELDS.items() if field.bounds}
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_USER_NAMESPACE_UNIT = 65536
_MOST_VERBOSE = 2**31 - 1
_PREVIOUS_THROTTLING_FACTOR = 0.9
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?", re.ASCII)
_NAMESPACED_SYSCTLS = ("kernel.shm", "kernel.msg", "fs.mqueue.", "net.", "kernel.sem")


def validation_errors(c: Configuration) -> list[str]:
    """Everything that ValidateKubeletConfiguration refuses."""
    return [
        *_bounds(c),
        *_numbers(c),
        *_images(c),
        *_taints(c),
        *_topology(c),
        *_shutdown(c),
        *_swap_and_restarts(c),
        *_node_allocatable(c),
        *_reserved_cpus(c),
        *_reserved_memory(c),
        *_user_namespaces(c),
        *_logging_and_tracing(c),
        *_memory_qos(c),
        *_logs(c),
    ]


def _bounds(c: Configuration) -> Iterator[str]:
    for name, (lowest, highest) in _BOUNDS.items():
        value = c[name]
        if value is None:
            continue
        if highest is not None and not lowest <= value <= highest:
            yield f"{name}: {value} must be between {lowest} and {highest}"
        elif value < lowest:
            yield f"{name}: {value} must {f'be at least {lowest}' if lowest else 'not be negative'}"


def _numbers(c: Configuration) -> Iterator[str]:
    if c["systemCgroups"] and not c["cgroupRoot"]:
        yield "systemCgroups: needs cgroupRoot; give both or neither"
    period = c["cpuCFSQuotaPeriod"]
    if not c.gates["CustomCPUCFSQuotaPeriod"]:
        if period != SECOND // 10:
            yield "cpuCFSQuotaPeriod: a value other than 100ms needs the feature gate CustomCPUCFSQuotaPeriod"
    elif not SECOND // 1000 <= period <= SECOND:
        yield "cpuCFSQuotaPeriod: must be between 1ms and 1s"
    if c["serverTLSBootstrap"] and not c.gates["RotateKubeletServerCertificate"]:
        yield "serverTLSBootstrap: needs the feature gate RotateKubeletServerCertificate"
    if c["runOnce"]:
        yield "runOnce: is no longer supported; leave it out"
    yield from _sysctls(c)


def _sysctls(c: Configuration) -> Iterator[str]:
    sysctls = c["defaultPodSysctls"]
    if not sysctls:
        return
    if not c.gates["DefaultPodSysctls"]:
        yield "defaultPodSysctls: needs the feature gate DefaultPodSysctls"
        return
    seen = set()
    for name in sysctls:
        normal = _normal_sysctl(name)
        if len(name) > 253 or not _SYSCTL.fullmatch(name):
            yield f"defaultPodSysctls: {shown(name)} is no sysctl name"
            continue
        if not normal.startswith(_NAMESPACED_SYSCTLS):
            yield f"defaultPodSysctls: {shown(name)} is not known to be namespaced; set it on the node instead"
        if normal in seen:
            yield f"defaultPodSysctls: {shown(normal)} stands there twice"
        seen.add(normal)


def _normal_sysctl(name: str) -> str:
    first = re.search(r"[./]", name)
    if first is None or first.group() == ".":
        return name
    return name.translate(str.maketrans("./", "/."))


def _images(c: Configuration) -> Iterator[str]:
    high, low = c["imageGCHighThresholdPercent"], c["imageGCLowThresholdPercent"]
    if low >= high:
        yield f"imageGCLowThresholdPercent: {low} must be less than imageGCHighThresholdPercent {high}"
    oldest, youngest = c["imageMaximumGCAge"], c["imageMinimumGCAge"]
    if oldest and not c.gates["ImageMaximumGCAge"]:
        yield "imageMaximumGCAge: needs the feature gate ImageMaximumGCAge"
    if oldest < 0 or (youngest < 0 and c.rules.checks_minimum_image_age):
        yield "imageMinimumGCAge, imageMaximumGCAge: must not be negative"
    if 0 < oldest <= youngest:
        yield "imageMaximumGCAge: must be greater than imageMinimumGCAge"
    pulls = c["maxParallelImagePulls"]
    if pulls is not None and pulls > 1 and c["serializeImagePulls"]:
        yield f"maxParallelImagePulls: {pulls} needs serializeImagePulls: false"
    policy, allowed = c["imagePullCredentialsVerificationPolicy"], c["preloadedImagesVerificationAllowlist"]
    if c.gates["KubeletEnsureSecretPulledImages"]:
        yield from _spelling(c, "imagePullCredentialsVerificationPolicy")
        if allowed and policy != "NeverVerifyAllowlistedImages":
            yield "preloadedImagesVerificationAllowlist: needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages"
        else:
            yield from _image_patterns(allowed or (), short_names=c.rules.takes_short_image_names)
    elif policy or allowed:
        yield "imagePullCredentialsVerificationPolicy: needs the feature gate KubeletEnsureSecretPulledImages"


def _image_patterns(patterns: Iterable[str], *, short_names: bool) -> Iterator[str]:
    for pattern in patterns:
        trimmed = pattern.removesuffix("*") if pattern.endswith("/*") else pattern
        name = trimmed.rpartition("/")[2]
        wildcard = trimmed != pattern
        tagged = not wildcard and ("@" in trimmed or ":" in name)
        if pattern != pattern.strip() or not trimmed or "*" in trimmed or tagged or (wildcard and len(trimmed) == 1):
            yield f"preloadedImagesVerificationAllowlist: {shown(pattern)} is no image without tag, nor a prefix that ends in /*"
            return
        if not short_names and not wildcard and not _is_full_image_name(trimmed):
            yield f"preloadedImagesVerificationAllowlist: {shown(pattern)} must name its registry, such as docker.io/library/nginx"
            return


def _is_full_image_name(name: str) -> bool:
    registry, _, rest = name.partition("/")
    if registry == "docker.io":
        return "/" in rest
    named = registry == "localhost" or "." in registry or ":" in registry or registry != registry.lower()
    return bool(rest) and named and registry != "index.docker.io"


def _taints(c: Configuration) -> Iterator[str]:
    for index, taint in enumerate(c["registerWithTaints"] or ()):
        path = f"registerWithTaints[{index}]"
        if not is_qualified_name(taint["key"]):
            yield f"{path}.key: {shown(taint['key'])} is no taint key; write it like nvidia.com/gpu"
        elif len(taint["value"]) > 63 or not _LABEL_VALUE.fullmatch(taint["value"]):
            yield f"{path}.value: {shown(taint['value'])} is no taint value"
        elif taint["effect"] and taint["effect"] not in _TAINT_EFFECTS:
            yield one_of(f"{path}.effect", taint["effect"], _TAINT_EFFECTS)
        if taint["timeAdded"] is not None:
            yield f"{path}.timeAdded: must be left out"


def _topology(c: Configuration) -> Iterator[str]:
    yield from _spelling(c, "topologyManagerPolicy")
    yield from _spelling(c, "topologyManagerScope")


def _spelling(c: Configuration, name: str) -> Iterator[str]:
    if c[name] not in FIELDS[name].values:
        yield one_of(name, c[name], FIELDS[name].values)


def one_of(path: str, value: object, allowed: Iterable[str]) -> str:
    """What is wrong with a value that is none of `allowed`."""
    return f"{path}: {shown(value)} must be one of {', '.join(allowed)}.{did_you_mean(value, allowed)}"


def _shutdown(c: Configuration) -> Iterator[str]:
    period, critical, by_priority = (
        c["shutdownGracePeriod"],
        c["shutdownGracePeriodCriticalPods"],
        c["shutdownGracePeriodByPodPriority"],
    )
    if c.gates["GracefulNodeShutdown"]:
        if critical > period:
            yield "shutdownGracePeriodCriticalPods: must not be longer than shutdownGracePeriod"
        for name, value in (("shutdownGracePeriod", period), ("shutdownGracePeriodCriticalPods", critical)):
            if value < 0 or 0 < value < SECOND:
                yield f"{name}: must be 0 or at least 1s"
    elif period > 0 or critical > 0:
        yield "shutdownGracePeriod: needs the feature gate GracefulNodeShutdown"
    if by_priority and not c.gates["GracefulNodeShutdownBasedOnPodPriority"]:
        yield "shutdownGracePeriodByPodPriority: needs the feature gate GracefulNodeShutdownBasedOnPodPriority"
    elif by_priority and period > 0:
        yield "shutdownGracePeriodByPodPriority: cannot stand together with shutdownGracePeriod"


def _swap_and_restarts(c: Configuration) -> Iterator[str]:
    behavior = c["memorySwap"]["swapBehavior"]
    if c.gates["NodeSwap"]:
        if behavior not in ("", "NoSwap", "LimitedSwap"):
            yield one_of("memorySwap.swapBehavior", behavior, ("NoSwap", "LimitedSwap"))
    elif behavior:
        yield "memorySwap.swapBehavior: needs the feature gate NodeSwap"
    longest = c["crashLoopBackOff"]["maxContainerRestartPeriod"]
    if not c.gates["KubeletCrashLoopBackOffMax"]:
        if longest is not None:
            yield "crashLoopBackOff.maxContainerRestartPeriod: needs the feature gate KubeletCrashLoopBackOffMax"
    elif not 1000 <= longest // 10**6 <= 300_000:
        yield "crashLoopBackOff.maxContainerRestartPeriod: must be between 1s and 300s"


def _node_allocatable(c: Configuration) -> Iterator[str]:
    enforced = c["enforceNodeAllocatable"] or []
    for kind in ("system-reserved", "kube-reserved"):
        if kind in enforced and f"{kind}-compressible" in enforced:
            yield f"enforceNodeAllocatable: {kind} and {kind}-compressible exclude each other"
    seen: set[str] = set()
    for value in enforced:
        if value in seen:
            yield f"enforceNodeAllocatable: {shown(value)} stands there twice"
            continue
        seen.add(value)
        if value not in FIELDS["enforceNodeAllocatable"].values:
            yield one_of("enforceNodeAllocatable", value, FIELDS["enforceNodeAllocatable"].values)
            continue
        if value == "none":
            if len(enforced) > 1:
                yield "enforceNodeAllocatable: none excludes all other values"
            continue
        cgroup = "systemReservedCgroup" if value.startswith("system") else "kubeReservedCgroup"
        if value != "pods" and not c[cgroup]:
            yield f"{cgroup}: must be given where enforceNodeAllocatable holds {value}"
        if not c["cgroupsPerQOS"]:
            yield f"cgroupsPerQOS: must be true where enforceNodeAllocatable holds {value}"
    yield from _spelling(c, "hairpinMode")


def _reserved_cpus(c: Configuration) -> Iterator[str]:
    text = c["reservedSystemCPUs"]
    if not text:
        return
    if c["systemReservedCgroup"] or c["kubeReservedCgroup"]:
        yield "reservedSystemCPUs: cannot stand together with systemReservedCgroup or kubeReservedCgroup"
    try:
        parse_cpu_set(text)
    except ValueError as error:
        yield f"reservedSystemCPUs: {error}"


def parse_cpu_set(text: str) -> int:
    """cpuset.Parse: a list such as 0-3,8 as a set of CPUs; ValueError where the kubelet finds none."""
    cpus = 0
    for part in text.split(",") if text else ():
        bounds = part.split("-", 1)
        if not all(re.fullmatch(r"[+-]?\d{1,18}", bound, re.ASCII) for bound in bounds):
            raise ValueError(f"{shown(text)} is no CPU list; write it like 0-1,112-113, without spaces")
        first, last = int(bounds[0]), int(bounds[-1])
        if first > last:
            raise ValueError(f"{shown(part)} runs backwards ({first} > {last})")
        if last >= 2**20:
            raise ValueError(f"{shown(part)} names CPU {last}; no machine has so many")
        cpus |= ((1 << (last - first + 1)) - 1) << first if first >= 0 else 0
    return cpus


def _reserved_memory(c: Configuration) -> Iterator[str]:
    seen: set[tuple[int, str]] = set()
    reservations: list[dict[str, Any]] = c["reservedMemory"] or []
    for index, entry in enumerate(reservations):
        for name, quantity in (entry["limits"] or {}).items():
            path = f"reservedMemory[{index}].limits.{name}"
            if name != "memory" and not name.startswith("hugepages-"):
                yield f"{path}: only memory and hugepages-<size> can be reserved on a NUMA node"
            if quantity.nano == 0:
                yield f"{path}: must not be zero; leave the entry of NUMA node {entry['numaNode']} out"
            if (entry["numaNode"], name) in seen:
                yield (
                    f"{path}: the reserved memory has a duplicate value for NUMA node {entry['numaNode']} "
                    f'and resource "{name}"; add them up in one entry'
                )
            seen.add((entry["numaNode"], name))


def _user_namespaces(c: Configuration) -> Iterator[str]:
    ids: Any = (c["userNamespaces"] or {}).get("idsPerPod")
    if ids is not None and (ids < _USER_NAMESPACE_UNIT or ids % _USER_NAMESPACE_UNIT or ids >= 2**32):
        yield f"userNamespaces.idsPerPod: {ids} must be a multiple of {_USER_NAMESPACE_UNIT} below 2^32"


def _logging_and_tracing(c: Configuration) -> Iterator[str]:
    version = c["showHiddenMetricsForVersion"]
    if version and version != c.rules.previous:
        yield f"showHiddenMetricsForVersion: {shown(version)} must be the version before the kubelet's own, {c.rules.previous}"
    logging = c["logging"]
    if logging["flushFrequency"] <= 0 and c.rules.checks_flush_frequency:
        yield "logging.flushFrequency: must be greater than zero"
    if logging["format"] not in ("text", "json"):
        yield one_of("logging.format", logging["format"], ("text", "json"))
    for path, verbosity in [("logging.verbosity", logging["verbosity"])] + [
        (f"logging.vmodule[{i}].verbosity", item["verbosity"]) for i, item in enumerate(logging["vmodule"] or ())
    ]:
        if verbosity > _MOST_VERBOSE:
            yield f"{path}: {verbosity} must be at most {_MOST_VERBOSE}"
    if logging["vmodule"] and logging["format"] != "text":
        yield "logging.vmodule: only works with format text"
    for index, item in enumerate(logging["vmodule"] or ()):
        if not item["filePattern"] or re.search("[=,]", item["filePattern"]):
            yield f"logging.vmodule[{index}].filePattern: {shown(item['filePattern'])} must be a pattern without = and ,"
    for kind, options in logging["options"].items():
        if (options["splitStream"] or options["infoBufferSize"].value) and not c.gates["LoggingAlphaOptions"]:
            yield f"logging.options.{kind}: needs the feature gate LoggingAlphaOptions"
    if c["tracing"] is not None and c.gates.refuses("KubeletTracing"):
        yield "tracing: needs the feature gate KubeletTracing"
        return
    tracing = c["tracing"] or {}
    rate, endpoint = tracing.get("samplingRatePerMillion"), tracing.get("endpoint")
    if rate is not None and not 0 <= rate <= 1_000_000:
        yield f"tracing.samplingRatePerMillion: {rate} must be between 0 and 1000000"
    if endpoint is not None:
        yield from _endpoint(endpoint)


def _endpoint(endpoint: str) -> Iterator[str]:
    url = endpoint if "//" in endpoint else f"dns://{endpoint}"
    try:
        parts = urlsplit(url)
        _ = parts.port
        bad = parts.scheme not in ("dns", "unix", "unix-abstract") or re.search(r"[\s\x00-\x1f]", url) is not None
    except ValueError:
        bad = True
    if bad:
        yield f"tracing.endpoint: {shown(endpoint)} must be host:port or a dns, unix or unix-abstract address"


def _memory_qos(c: Configuration) -> Iterator[str]:
    factor, policy, on = c["memoryThrottlingFactor"], c["memoryReservationPolicy"], c.gates["MemoryQoS"]
    if c.rules.throttling_needs_gate and factor is not None and not on and factor != _PREVIOUS_THROTTLING_FACTOR:
        yield "memoryThrottlingFactor: needs the feature gate MemoryQoS"
    if factor is not None and not 0 < factor <= 1:
        yield f"memoryThrottlingFactor: {factor} must be greater than 0 and at most 1"
    if policy == "TieredReservation" and not on:
        yield "memoryReservationPolicy: TieredReservation needs the feature gate MemoryQoS"
    yield from _spelling(c, "memoryReservationPolicy")


def _logs(c: Configuration) -> Iterator[str]:
    if c["enableSystemLogQuery"] and not c.gates["NodeLogQuery"]:
        yield "enableSystemLogQuery: needs the feature gate NodeLogQuery"
    if c["enableSystemLogQuery"] and not c["enableSystemLogHandler"]:
        yield "enableSystemLogQuery: needs enableSystemLogHandler: true"
    if c["containerLogMonitorInterval"] < 3 * SECOND:
        yield "containerLogMonitorInterval: must be at least 3s"
    directory = c["podLogsDir"]
    if not directory.startswith("/"):
        # The kubelet resolves a relative path against the folder of its configuration file.
        directory = f"/{directory}"
    if not directory.isascii():
        yield f"podLogsDir: {shown(directory)} must be ASCII"
    elif c["podLogsDir"].startswith("/") and _clean(directory) != directory:
        yield f"podLogsDir: {shown(directory)} must be normalized; write {_clean(directory)}"


def _clean(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
