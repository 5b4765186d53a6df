"""Random cases for the kubelet simulator, wider than any one cluster: odd machines, every option, every shape of pod.

A case follows from its seed alone. `ordinary` draws what clusters have; `odd` what the kubelet's code has corners for; `mutated` spoils
one or two fields of a kubelet section, for the start of the kubelet; `crowded` has small machines, on which pods of every priority and
shape push each other out; `pinned` cuts CPUs and memory of larger machines with every policy option; `field` gives one field of the catalogue a value, its seed is the
field's name and a number.
"""

from __future__ import annotations

import copy
import random
from typing import Any

from infra.kubelet.admission.reservation import eviction_memory, reserved_resources
from infra.kubelet.configuration.fields import FIELDS, Field
from infra.kubelet.configuration.go_types import Kind
from infra.kubelet.quantity import parse_json_quantity

GIB, MIB = 2**30, 2**20
GPU, NIC, FPGA = "nvidia.com/gpu", "rdma/hca", "example.com/fpga"
Case = dict[str, Any]


def generate(kind: str, seed: int | str) -> Case:
    """The case of a seed; `kind` is ordinary, odd, mutated, crowded, pinned or field."""
    rng = random.Random(f"{kind}/{seed}")
    if kind == "crowded":
        return {"id": f"crowded/{seed}", **_crowded_case(rng)}
    if kind == "pinned":
        return {"id": f"pinned/{seed}", **_pinned_case(rng)}
    if kind == "field":
        return {"id": f"field/{seed}", **_field_case(str(seed).split("/")[0], rng)}
    case = _case(rng, odd=kind != "ordinary")
    if kind == "mutated":
        case["kubelet"] = mutate(case["kubelet"], rng)
        case["pods"] = case["pods"][:2]
    return {"id": f"{kind}/{seed}", **case}


# Machines
def _machine(rng: random.Random, *, odd: bool) -> dict[str, Any]:
    nodes = rng.choice([1, 2, 2, 2, 4, 4, 8] + ([3, 6, 5] if odd else []))
    per_socket = rng.choice([d for d in (1, 2, 4, 8) if nodes % d == 0])
    cores = rng.choice({1: [4, 16, 32], 2: [4, 8, 24, 48], 3: [4, 6], 4: [4, 8, 16], 5: [3, 4], 6: [2, 4]}.get(nodes, [2, 4, 8]))
    threads = rng.choice([1, 2, 2, 2] + ([4] if odd else []))
    order = rng.choice(["block", "round-robin", "adjacent"])
    gib = rng.choice([8, 32, 64, 256])
    total = nodes * cores
    numa: list[dict[str, Any]] = []
    caches: list[list[int]] = []
    for node in range(nodes):
        here = cores if not odd or rng.random() < 0.8 else rng.choice([1, cores // 2 or 1, 0 if node else cores])
        core_list = []
        for core in range(here):
            number = core * nodes + node if order == "round-robin" else node * cores + core
            core_list.append([number * threads + t if order == "adjacent" else number + t * total for t in range(threads)])
        if odd and len(core_list) > 2 and rng.random() < 0.1:
            core_list[-1] = core_list[-1][:1]
        size = rng.choice([2, 4, 3]) if odd else 4
        caches += [[cpu for core in core_list[i : i + size] for cpu in core] for i in range(0, here, size)]
        entry: dict[str, Any] = {"id": node, "cpus": core_list, "socket": node // per_socket, "memory_bytes": gib * GIB}
        if rng.random() < 0.2:
            entry["memory_bytes"] = int(gib * GIB * rng.choice([0.5, 1.5, 0.997])) + rng.randrange(4096)
        if rng.random() < 0.25:
            entry["hugepages"] = {"1Gi": rng.choice([0, 1, 4]), "2Mi": rng.choice([0, 128, 1024])}
            if odd and rng.random() < 0.15:
                entry["hugepages"]["64Ki"] = 16
        if rng.random() < 0.95:
            entry["distances"] = [10 if m == node else rng.choice([12, 20, 21]) if odd else 21 for m in range(nodes)]
        if odd and rng.random() < 0.08 and here:
            entry["core_sockets"] = [rng.randrange(2) for _ in range(here)]
        numa.append(entry)
    machine: dict[str, Any] = {"numa": numa}
    if rng.random() < 0.4:
        machine["uncore_caches"] = caches if not odd or rng.random() < 0.8 else caches[: len(caches) // 2]
    if odd:
        if rng.random() < 0.1:
            machine["exact_hugepages"] = True
        if rng.random() < 0.1:
            machine["memory_capacity_bytes"] = sum(n["memory_bytes"] for n in numa) - rng.choice([0, 4096, GIB])
        if rng.random() < 0.08:
            for entry in numa:
                entry["id"] = entry["id"] * 2 + 1
                if "distances" in entry:
                    entry["distances"] = [10 + (abs(entry["id"] - m) + 1) // 2 for m in range(2 * nodes + 1)]
        if rng.random() < 0.1:
            rng.shuffle(numa)
    return machine


def _devices(rng: random.Random, machine: dict[str, Any], *, odd: bool) -> dict[str, list[dict[str, Any]]]:
    ids = [n["id"] for n in machine["numa"]]
    devices: dict[str, list[dict[str, Any]]] = {}
    for resource, prefix, chance in ((GPU, "gpu", 0.85), (NIC, "nic", 0.35), (FPGA, "fpga", 0.1)):
        if rng.random() > chance:
            continue
        count = rng.choice([0, 1, 2, 4, 8, 8, 6, 10] if odd else [1, 2, 4, 8, 8])
        listed = []
        style = rng.choice(
            ["even", "even", "uneven", "one", "none", "some", "several" if odd else "even", "unknown" if odd else "even"]
        )
        for index in range(count):
            numa = [ids[index * len(ids) // count]]
            if style == "uneven":
                numa = [rng.choice(ids)]
            elif style == "one":
                numa = [ids[-1]]
            elif style == "none" or (style == "some" and rng.random() < 0.3):
                numa = []
            elif style == "several" and rng.random() < 0.6:
                numa = rng.sample(ids, rng.randint(1, len(ids)))
            elif style == "unknown" and rng.random() < 0.3:
                numa = [rng.choice([-1, 61])]
            device: dict[str, Any] = {"id": f"{prefix}{index}"}
            if numa or rng.random() < 0.3:
                device["numa"] = numa
            if rng.random() < 0.04:
                device["healthy"] = False
            listed.append(device)
        if odd and rng.random() < 0.3:
            rng.shuffle(listed)
        devices[resource] = listed
    return devices


# Kubelet sections
def _kubelet(rng: random.Random, machine: dict[str, Any], *, odd: bool) -> dict[str, Any]:
    ids = [n["id"] for n in machine["numa"]]
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": rng.choice(["none", "best-effort", "best-effort", "restricted", "restricted", "single-numa-node"]),
        "topologyManagerScope": rng.choice(["container", "pod"]),
        "cpuManagerPolicy": rng.choice(["static"] * 5 + ["none"]),
        "memoryManagerPolicy": rng.choice(["Static", "None"]),
    }
    strict = kubelet["topologyManagerPolicy"] != "none"
    if len(ids) > 5 and kubelet["topologyManagerPolicy"] != "single-numa-node":
        # The kubelet merges every combination of hints: three resources on eight NUMA nodes take it seconds.
        kubelet["memoryManagerPolicy"] = "None"
    if strict and rng.random() < 0.3:
        kubelet["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": rng.choice(["true", "T", "false"])}
    gates: dict[str, bool] = {}
    if kubelet["cpuManagerPolicy"] == "static":
        options = {
            name: "true"
            for name, chance in (
                ("full-pcpus-only", 0.3),
                ("distribute-cpus-across-numa", 0.25),
                ("align-by-socket", 0.15),
                ("strict-cpu-reservation", 0.15),
                ("prefer-align-cpus-by-uncorecache", 0.2),
                ("distribute-cpus-across-cores", 0.1),
            )
            if rng.random() < chance
        }
        if rng.random() < 0.9:
            if "distribute-cpus-across-cores" in options or "distribute-cpus-across-numa" in options:
                options.pop("prefer-align-cpus-by-uncorecache", None)
            if "distribute-cpus-across-cores" in options:
                options.pop("full-pcpus-only", None)
                options.pop("distribute-cpus-across-numa", None)
            if kubelet["topologyManagerPolicy"] == "single-numa-node":
                options.pop("align-by-socket", None)
            gates["CPUManagerPolicyAlphaOptions"] = True
        if options:
            kubelet["cpuManagerPolicyOptions"] = options
    if rng.random() < 0.2:
        gates["PodLevelResourceManagers"] = True
    if odd and rng.random() < 0.03:
        gates["PodLevelResources"] = False
        gates.pop("PodLevelResourceManagers", None)
        gates.update(InPlacePodLevelResourcesVerticalScaling=False, PodLevelResourceManagers=False)
    if gates:
        kubelet["featureGates"] = gates
    kubelet["kubeReserved"] = {"cpu": rng.choice(["1", "2", "500m", "1500m", "4"]), "memory": rng.choice(["1Gi", "924Mi", "2G"])}
    if rng.random() < 0.3:
        kubelet["systemReserved"] = {"cpu": rng.choice(["250m", "1"]), "memory": rng.choice(["512Mi", "300M"])}
    if rng.random() < 0.25:
        cpus = [t for n in machine["numa"] for core in n["cpus"][:2] for t in core]
        kubelet["reservedSystemCPUs"] = ",".join(map(str, sorted(rng.sample(cpus, rng.randint(1, min(len(cpus), 4))))))
    threshold = rng.choice([None, None, "500Mi", "1%", "0%", "2.5%"])
    if threshold:
        kubelet["evictionHard"] = {"memory.available": threshold, "nodefs.available": "10%"}
        if rng.random() < 0.2:
            del kubelet["evictionHard"]["memory.available"]
            kubelet["mergeDefaultEvictionSettings"] = rng.random() < 0.5
    if kubelet["memoryManagerPolicy"] == "Static":
        kubelet["reservedMemory"] = _reserved_memory(rng, machine, kubelet)
    if odd and rng.random() < 0.1:
        kubelet.update(rng.choice([{"maxPods": 2}, {"podsPerCore": 1, "maxPods": 3}, {"maxPods": 250}]))
    return kubelet


def _reserved_memory(rng: random.Random, machine: dict[str, Any], kubelet: dict[str, Any]) -> list[dict[str, Any]]:
    capacity = machine.get("memory_capacity_bytes") or sum(n["memory_bytes"] for n in machine["numa"])
    hard = kubelet.get("evictionHard", {"memory.available": "100Mi"})
    if kubelet.get("mergeDefaultEvictionSettings"):
        hard = {"memory.available": "100Mi", **hard}
    need = eviction_memory(hard, capacity * 10**9)
    for name in ("kubeReserved", "systemReserved"):
        need += reserved_resources(kubelet.get(name, {}), name).get("memory", 0)
    need //= 10**9
    ids = [n["id"] for n in machine["numa"]]
    chosen = sorted(rng.sample(ids, rng.randint(1, len(ids))))
    share = need // len(chosen)
    amounts = [share] * (len(chosen) - 1) + [need - share * (len(chosen) - 1)]
    if rng.random() < 0.06:
        amounts[0] += 1
    return [{"numaNode": node, "limits": {"memory": str(amount)}} for node, amount in zip(chosen, amounts, strict=True)]


# Pods
def _case(rng: random.Random, *, odd: bool) -> Case:
    machine = _machine(rng, odd=odd)
    kubelet = _kubelet(rng, machine, odd=odd)
    devices = _devices(rng, machine, odd=odd)
    if len(machine["numa"]) > 5 and kubelet["topologyManagerPolicy"] in ("best-effort", "restricted"):
        devices.pop(NIC, None)
        devices.pop(FPGA, None)
    pods: list[dict[str, Any]] = []
    alive: list[str] = []
    for step in range(rng.choice([1, 2, 3, 5, 8, 12])):
        if alive and rng.random() < 0.25:
            pods.append({"name": alive.pop(rng.randrange(len(alive))), "remove": True})
            continue
        pods.append(_pod(rng, f"p{step}", machine, kubelet, devices, odd=odd))
        alive.append(f"p{step}")
    case: Case = {"machine": machine, "kubelet": kubelet, "devices": devices, "pods": pods}
    if odd and rng.random() < 0.1:
        case["holdStart"] = True
    return case


def _pod(
    rng: random.Random,
    name: str,
    machine: dict[str, Any],
    kubelet: dict[str, Any],
    devices: dict[str, list[dict[str, Any]]],
    *,
    odd: bool,
) -> dict[str, Any]:
    cpus = sum(len(core) for n in machine["numa"] for core in n["cpus"])
    node_cpus = max(1, cpus // len(machine["numa"]))
    node_memory = max(n["memory_bytes"] for n in machine["numa"])
    qos = rng.choice(["guaranteed"] * 7 + ["burstable", "burstable", "best-effort"])
    greed = rng.choice([0.15, 0.4, 0.8, 1.3])

    def container(label: str, scale: float) -> dict[str, Any]:
        count = max(1, int(node_cpus * greed * scale * rng.random()))
        cpu: Any = str(count) if rng.random() < 0.85 else f"{count * 1000 - 500}m"
        memory = max(MIB, int(node_memory * greed * scale * rng.random()))
        limits: dict[str, Any] = {"cpu": cpu, "memory": str(memory)}
        if odd and rng.random() < 0.08:
            limits["memory"] = rng.choice(["1.5Gi", "2G", "1e9", "1500M", "123456789", 2**31, "0.5Gi", "1Ti"])
        for resource, listed in devices.items():
            if rng.random() < 0.4 * scale + 0.1:
                limits[resource] = str(max(0, min(len(listed) + (rng.random() < 0.05), rng.choice([1, 1, 2, 3, 4, 8]))))
        if odd and rng.random() < 0.03:
            limits["vendor.example/absent"] = "1"
        if rng.random() < 0.12:
            limits["hugepages-1Gi"] = f"{rng.choice([1, 2])}Gi"
        if odd and rng.random() < 0.04:
            limits["hugepages-2Mi"] = rng.choice(["4Mi", "3Mi", "64Mi"])
        entry: dict[str, Any] = {"name": label, "limits": limits}
        if qos == "burstable":
            entry["requests"] = {**limits, "memory": str(memory // 2) if rng.random() < 0.7 else limits["memory"]}
            if rng.random() < 0.4:
                del limits["cpu"]
            if odd and rng.random() < 0.1:
                entry["requests"]["cpu"] = str(count + 1)
        elif qos == "best-effort":
            entry["limits"] = {k: v for k, v in limits.items() if "/" in k}
        return entry

    pod: dict[str, Any] = {"name": name, "containers": [container("main", 1)]}
    for index in range(rng.choice([0, 0, 0, 1, 2])):
        pod["containers"].append(container(f"side{index}", 0.3))
    init = []
    for index in range(rng.choice([0, 0, 0, 1, 2, 3])):
        entry = container(f"init{index}", rng.choice([0.3, 1]))
        if rng.random() < 0.4:
            entry["restartPolicy"] = "Always"
        init.append(entry)
    if init:
        pod["initContainers"] = init
    if odd and rng.random() < 0.08:
        pod["priority"] = rng.choice([0, 1000, 2_000_000_000, 2_000_001_000])
    if odd and rng.random() < 0.05:
        pod["overhead"] = {"cpu": "250m", "memory": "64Mi"}
    if odd and rng.random() < 0.02:
        pod["name"] = rng.choice(["Bad_Name", "", "p0"])
    if rng.random() < (0.5 if kubelet.get("featureGates", {}).get("PodLevelResourceManagers") else 0.04):
        _pod_level(rng, pod, odd=odd)
    return pod


def _pod_level(rng: random.Random, pod: dict[str, Any], *, odd: bool) -> None:
    containers = pod["containers"] + pod.get("initContainers", [])
    cpu = sum(parse_json_quantity(c["limits"].get("cpu", 0)).milli for c in containers)
    memory = sum(parse_json_quantity(c["limits"].get("memory", 0)).value for c in containers)
    total = {"cpu": str(-(-cpu // 1000) + rng.choice([0, 0, 1, 2])), "memory": str(memory + rng.choice([0, GIB]))}
    if rng.random() < 0.6:
        pod["containers"].append({"name": "shared"})
    if rng.random() < 0.3 and "initContainers" in pod:
        pod["initContainers"].append({"name": "shared-init", **({"restartPolicy": "Always"} if rng.random() < 0.5 else {})})
    if odd and rng.random() < 0.1:
        total["cpu"] = f"{-(-cpu // 1000) * 1000 + 500}m"
    pod["resources"] = {"requests": dict(total), "limits": dict(total)}
    if odd and rng.random() < 0.1:
        del pod["resources"]["requests"]["memory"]


# Spoilt kubelet sections
# Drawn by position: frozen, so that a new field of the kubelet changes no recorded case. New fields have cases of their own (`field`).
_DRAWN_FIELDS = [
    "enableServer",
    "enableDebuggingHandlers",
    "cgroupsPerQOS",
    "cpuCFSQuota",
    "enableControllerAttachDetach",
    "makeIPTablesUtilChains",
    "failSwapOn",
    "enableSystemLogHandler",
    "enableProfilingHandler",
    "enableDebugFlagsHandler",
    "failCgroupV1",
    "registerNode",
    "localStorageCapacityIsolation",
    "mergeDefaultEvictionSettings",
    "seccompDefault",
    "enableSystemLogQuery",
    "singleProcessOOMKill",
    "serializeImagePulls",
    "rotateCertificates",
    "serverTLSBootstrap",
    "enableContentionProfiling",
    "runOnce",
    "protectKernelDefaults",
    "kernelMemcgNotification",
    "staticPodPath",
    "staticPodURL",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "tlsMinVersion",
    "clusterDomain",
    "kubeletCgroups",
    "systemCgroups",
    "cgroupRoot",
    "podCIDR",
    "reservedSystemCPUs",
    "showHiddenMetricsForVersion",
    "systemReservedCgroup",
    "kubeReservedCgroup",
    "providerID",
    "imageServiceEndpoint",
    "apiVersion",
    "kind",
    "imagePullCredentialsVerificationPolicy",
    "podLogsDir",
    "address",
    "healthzBindAddress",
    "cgroupDriver",
    "cpuManagerPolicy",
    "memoryManagerPolicy",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "hairpinMode",
    "resolvConf",
    "contentType",
    "containerLogMaxSize",
    "configMapAndSecretChangeDetectionStrategy",
    "volumePluginDir",
    "memoryReservationPolicy",
    "containerRuntimeEndpoint",
    "port",
    "readOnlyPort",
    "registryPullQPS",
    "registryBurst",
    "eventRecordQPS",
    "eventBurst",
    "healthzPort",
    "oomScoreAdj",
    "nodeLeaseDurationSeconds",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "maxPods",
    "podPidsLimit",
    "nodeStatusMaxImages",
    "maxOpenFiles",
    "kubeAPIQPS",
    "kubeAPIBurst",
    "maxParallelImagePulls",
    "evictionMaxPodGracePeriod",
    "podsPerCore",
    "iptablesMasqueradeBit",
    "iptablesDropBit",
    "containerLogMaxFiles",
    "containerLogMaxWorkers",
    "memoryThrottlingFactor",
    "syncFrequency",
    "fileCheckFrequency",
    "httpCheckFrequency",
    "streamingConnectionIdleTimeout",
    "nodeStatusUpdateFrequency",
    "nodeStatusReportFrequency",
    "imageMinimumGCAge",
    "imageMaximumGCAge",
    "volumeStatsAggPeriod",
    "cpuManagerReconcilePeriod",
    "runtimeRequestTimeout",
    "cpuCFSQuotaPeriod",
    "evictionPressureTransitionPeriod",
    "containerLogMonitorInterval",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "tlsCipherSuites",
    "preloadedImagesVerificationAllowlist",
    "clusterDNS",
    "allowedUnsafeSysctls",
    "enforceNodeAllocatable",
    "tlsCurvePreferences",
    "staticPodURLHeader",
    "cpuManagerPolicyOptions",
    "topologyManagerPolicyOptions",
    "qosReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "systemReserved",
    "kubeReserved",
    "defaultPodSysctls",
    "featureGates",
    "authentication",
    "authorization",
    "memorySwap",
    "logging",
    "shutdownGracePeriodByPodPriority",
    "crashLoopBackOff",
    "reservedMemory",
    "registerWithTaints",
    "tracing",
    "userNamespaces",
]
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        8,
        2**31,
        2**63,
        1.5,
        "",
        "0",
        "true",
        "Static",
        "static",
        "none",
        "None",
        "-1",
        "1Gi",
        "500m",
        "10%",
    ),
    *(
        "110%",
        "0%",
        "-5%",
        "1.5Gi",
        "0-1",
        "0-1,9999",
        "3-1",
        "a",
        "10s",
        "1h",
        "-1s",
        "5",
        [],
        [1],
        ["pods"],
        {},
        {"cpu": "1"},
        {"a": "b"},
    ),
    *(
        {"cpu": 1},
        {"memory": "1Gi"},
        {"gpu": "1"},
        [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        [{"numaNode": 0, "limits": {"memory": "0"}}],
    ),
    *(
        [{"numaNode": 9, "limits": {"memory": "1Gi"}}],
        [{"limits": {"hugepages-1Gi": "1Gi"}}],
        [{"numaNode": "0"}],
        [{"key": "a b"}],
    ),
    *([{"key": "x", "effect": "Never"}], {"memory.available": "100Mi"}, {"memory.available": ""}, {"memory": "5%"}),
)


def mutate(kubelet: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The section with one to three changes: a value replaced, a key renamed, dropped or added."""
    spoilt = copy.deepcopy(kubelet)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        maps = [spoilt, *(v for v in spoilt.values() if isinstance(v, dict) and v)]
        target = rng.choice(maps)
        keys = list(target)
        action = rng.choice(["replace", "replace", "add", "add", "drop", "rename", "text"])
        if action == "add" or not keys:
            target[
                rng.choice(_DRAWN_FIELDS) if target is spoilt else rng.choice(["cpu", "memory", "pid", "x", "AllAlpha", "NodeSwap"])
            ] = copy.deepcopy(rng.choice(_VALUES))
            continue
        key = rng.choice(keys)
        if action == "replace":
            target[key] = copy.deepcopy(rng.choice(_VALUES))
        elif action == "drop":
            del target[key]
        elif action == "rename":
            target[rng.choice([key.lower(), key[:-1], key + "s", key.swapcase()])] = target.pop(key)
        elif isinstance(target[key], str) and target[key]:
            text = target[key]
            at = rng.randrange(len(text))
            target[key] = text[:at] + rng.choice(["", " ", "0", "-", "x", text[at].swapcase()]) + text[at + 1 :]
    return spoilt


# Single fields
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


def _field_case(name: str, rng: random.Random) -> Case:
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
        return rng.choice(_VALUES)
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


# Crowded nodes
_CPUS = ("100m", "500m", "1", "1", "1500m", "2", "3", "0.5", 1)
_SIZES = ("256Mi", "1Gi", "1Gi", "1.5Gi", "2G", "3Gi", "1e9", "4Gi")


def _crowded_case(rng: random.Random) -> Case:
    nodes = rng.choice([1, 1, 2, 2, 3])
    numa = [
        {
            "id": n,
            "cpus": [[2 * (3 * n + c), 2 * (3 * n + c) + 1] for c in range(3)],
            "socket": n,
            "memory_bytes": rng.choice([6, 8]) * GIB,
            "hugepages": {"1Gi": rng.choice([0, 1, 2]), "2Mi": rng.choice([0, 16])},
            "distances": [10 if m == n else 21 for m in range(nodes)],
        }
        for n in range(nodes)
    ]
    machine = {"numa": numa}
    kubelet: dict[str, Any] = {
        "kubeReserved": rng.choice(
            [
                {"cpu": "1"},
                {"cpu": "500m", "memory": "512Mi"},
                {"cpu": "1m", "memory": "1Gi", "pid": "100"},
                {"cpu": "1500m", "ephemeral-storage": "1Gi"},
            ]
        ),
        "topologyManagerPolicy": rng.choice(["none", "none", "best-effort", "restricted", "single-numa-node"]),
        "topologyManagerScope": rng.choice(["container", "pod"]),
        "cpuManagerPolicy": rng.choice(["none", "static", "static"]),
        "maxPods": rng.choice([3, 5, 110]),
        "evictionHard": {
            "memory.available": rng.choice(["100Mi", "2.5%", "0%", "100%", "10%", "0.1%", "512M", "99.9%", "5 %", "1.5Gi"])
        },
    }
    if rng.random() < 0.3:
        kubelet["systemReserved"] = rng.choice([{"cpu": "100m"}, {"memory": "300M"}, {"cpu": "0.1", "memory": "1.5Gi"}])
    gates: dict[str, bool] = {}
    if rng.random() < 0.3:
        gates["PodLevelResourcesFixDefaulting"] = False
    if rng.random() < 0.4:
        gates["PodLevelResourceManagers"] = True
    if gates:
        kubelet["featureGates"] = gates
    if rng.random() < 0.3:
        kubelet["memoryManagerPolicy"] = "Static"
        kubelet["evictionHard"] = {"memory.available": rng.choice(["100Mi", "0%", "5%"])}
        kubelet["reservedMemory"] = _reserved_memory(rng, machine, kubelet)
    devices = {FPGA: [{"id": f"f{i}", "numa": [i % nodes]} for i in range(rng.choice([1, 2, 4]))]} if rng.random() < 0.6 else {}
    pods: list[dict[str, Any]] = []
    for step in range(rng.choice([3, 6, 10])):
        if pods and rng.random() < 0.12:
            pods.append({"name": rng.choice(pods)["name"], "remove": True})
        else:
            pods.append(_crowding_pod(rng, f"p{step}"))
    return {"machine": machine, "kubelet": kubelet, "devices": devices, "pods": pods}


def _crowding_pod(rng: random.Random, name: str) -> dict[str, Any]:
    style = rng.choice(["guaranteed", "guaranteed", "burstable", "limits of one", "nothing"])
    pod: dict[str, Any] = {
        "name": name,
        "containers": [_crowding_container(rng, f"c{i}", style) for i in range(rng.choice([1, 1, 2]))],
    }
    if rng.random() < 0.25:
        pod["initContainers"] = [_crowding_container(rng, f"i{i}", style) for i in range(rng.choice([1, 2]))]
        if rng.random() < 0.5:
            pod["initContainers"][0]["restartPolicy"] = "Always"
    if rng.random() < 0.5:
        pod["priority"] = rng.choice([0, 5, 1000, 2_000_000_000, 2_000_000_000, 2_000_001_000])
    if rng.random() < 0.2:
        pod["overhead"] = rng.choice([{"cpu": "100m"}, {"memory": "128Mi"}, {"cpu": "250m", "memory": "64Mi"}, {}, {"cpu": "-1"}])
    if rng.random() < 0.35:
        level = {
            name: rng.choice(texts)
            for name, texts in (("cpu", _CPUS), ("memory", _SIZES), ("hugepages-1Gi", ("1Gi", "2Gi")))
            if rng.random() < 0.6
        }
        other = rng.choice([level, {}, {name: rng.choice(_CPUS) for name in level if name == "cpu"}])
        pod["resources"] = rng.choice(
            [{"requests": level, "limits": level}, {"limits": level}, {"requests": level}, {"requests": other, "limits": level}]
        )
    if rng.random() < 0.12:
        _spoil_pod(rng, pod)
    return pod


def _crowding_container(rng: random.Random, name: str, style: str) -> dict[str, Any]:
    full: dict[str, Any] = {"cpu": rng.choice(_CPUS), "memory": rng.choice(_SIZES)}
    if rng.random() < 0.2:
        full[FPGA] = rng.choice(["1", "1", "2", 0])
    if rng.random() < 0.15:
        full[rng.choice(["hugepages-1Gi", "hugepages-2Mi"])] = rng.choice(["1Gi", "2Mi", "4Mi", "3Mi"])
    if rng.random() < 0.08:
        full["ephemeral-storage"] = "1Gi"
    if style == "guaranteed":
        return {"name": name, "limits": full}
    if style == "burstable":
        kept = {resource: amount for resource, amount in full.items() if resource in ("cpu", "memory") or rng.random() < 0.9}
        return {"name": name, "limits": kept, "requests": {"cpu": "100m", **({"memory": "128Mi"} if rng.random() < 0.6 else {})}}
    if style == "limits of one":
        return {"name": name, "limits": {rng.choice(list(full)): full[rng.choice(["cpu", "memory"])]}}
    return {"name": name}


def _spoil_pod(rng: random.Random, pod: dict[str, Any]) -> None:
    container = rng.choice(pod["containers"])
    limits = container.setdefault("limits", {})
    spoil = rng.choice(
        ["name", "duplicate", "policy", "fraction", "unknown", "page", "over", "empty", "label", "foreign", "negative", "long"]
    )
    if spoil == "name":
        pod["name"] = rng.choice(["P", "-a", "a_b", "a.b", "a" * 254, "a..b", "a-", ""])
    elif spoil == "duplicate":
        pod["containers"].append(copy.deepcopy(container))
    elif spoil == "policy":
        container["restartPolicy"] = rng.choice(["Always", "Never", "Sometimes", "OnFailure"])
    elif spoil == "fraction":
        limits[FPGA] = rng.choice(["500m", "1.5", "1000m"])
    elif spoil == "unknown":
        limits[
            rng.choice(
                ["gpu", "storage", "pods", "nvidia.com/", "a b/c", "requests.example.com/x", "kubernetes.io/x", "limits.cpu"]
            )
        ] = "1"
    elif spoil == "page":
        limits[rng.choice(["hugepages-1Gi", "hugepages-3", "hugepages-x", "hugepages-0", "hugepages-1.5"])] = rng.choice(
            ["1", "1Gi", "3"]
        )
    elif spoil == "over":
        container["requests"] = {**container.get("requests", {}), "cpu": "99", FPGA: "3"}
    elif spoil == "empty":
        pod["containers"] = []
    elif spoil == "label":
        container["name"] = rng.choice(["C", "c.d", "c" * 64, "", "c_d", "c" * 63])
    elif spoil == "foreign":
        limits["vendor.example/absent"] = rng.choice(["0", "1"])
    elif spoil == "negative":
        limits["cpu"] = "-1"
    else:
        pod["overhead"] = {"cpu": "1", "hugepages-1Gi": "1Gi", "gpu": "1"}


# Exclusive CPUs and memory
def _pinned_case(rng: random.Random) -> Case:
    nodes = rng.choice([2, 2, 3, 4, 4, 6])
    cores, threads = rng.choice([3, 4, 6]), rng.choice([1, 2, 2])
    per_socket = rng.choice([size for size in (1, 2, 3) if nodes % size == 0])
    total = nodes * cores
    numa, caches = [], []
    for node in range(nodes):
        listed = [[node * cores + core + thread * total for thread in range(threads)] for core in range(cores)]
        if rng.random() < 0.1:
            listed.pop()
        size = rng.choice([2, 3])
        caches += [[cpu for core in listed[at : at + size] for cpu in core] for at in range(0, len(listed), size)]
        distances = [
            10 if other == node else 12 if other // per_socket == node // per_socket else rng.choice([21, 32])
            for other in range(nodes)
        ]
        numa.append({"id": node, "cpus": listed, "socket": node // per_socket, "memory_bytes": 8 * GIB, "distances": distances})
    machine: dict[str, Any] = {"numa": numa, **({"uncore_caches": caches} if rng.random() < 0.5 else {})}
    options = {
        name: "true"
        for name in ("full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket", "strict-cpu-reservation")
        if rng.random() < 0.4
    }
    if "distribute-cpus-across-numa" not in options and rng.random() < 0.5:
        options["prefer-align-cpus-by-uncorecache"] = "true"
    elif not {"full-pcpus-only", "distribute-cpus-across-numa"} & set(options):
        options["distribute-cpus-across-cores"] = "true"
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": rng.choice(["none", "best-effort", "restricted", "restricted"]),
        "topologyManagerScope": rng.choice(["container", "container", "pod"]),
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": options,
        "featureGates": {"CPUManagerPolicyAlphaOptions": True, "PodLevelResourceManagers": rng.random() < 0.5},
        "kubeReserved": {"cpu": rng.choice(["1", "2", "3"]), "memory": "924Mi"},
    }
    if kubelet["topologyManagerPolicy"] != "none" and rng.random() < 0.5:
        kubelet["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}
    if rng.random() < 0.3:
        kubelet["reservedSystemCPUs"] = ",".join(
            map(str, sorted(rng.sample(sorted(cpu for n in numa for core in n["cpus"] for cpu in core), 2)))
        )
    pins_memory = nodes < 5 and rng.random() < 0.5
    if pins_memory:
        kubelet["memoryManagerPolicy"] = "Static"
        kubelet["reservedMemory"] = _reserved_memory(rng, machine, kubelet)
    devices = {GPU: [{"id": f"g{index}", "numa": [index % nodes]} for index in range(2 * nodes)]} if rng.random() < 0.5 else {}
    widest = cores * threads
    pods: list[dict[str, Any]] = []
    for step in range(rng.choice([3, 5, 8])):
        if pods and rng.random() < 0.25:
            pods.append({"name": rng.choice(pods)["name"], "remove": True})
            continue
        containers = []
        for index in range(rng.choice([1, 1, 2])):
            count = rng.choice([1, 2, threads, widest // 2, widest, widest + threads, 2 * widest, rng.randint(1, 2 * widest)])
            limits = {"cpu": str(count), "memory": rng.choice(["1Gi", "3Gi", "6Gi", "9Gi"] if pins_memory else ["64Mi"])}
            if devices and rng.random() < 0.4:
                limits[GPU] = str(rng.choice([1, 2, 3]))
            containers.append({"name": f"c{index}", "limits": limits})
        pod: dict[str, Any] = {"name": f"p{step}", "containers": containers}
        if rng.random() < 0.3:
            first = {"name": "i0", "limits": {"cpu": str(rng.randint(1, widest)), "memory": "2Gi"}}
            pod["initContainers"] = [first, {**copy.deepcopy(first), "name": "i1"}] if rng.random() < 0.3 else [first]
            if rng.random() < 0.4:
                pod["initContainers"][0]["restartPolicy"] = "Always"
        if kubelet["featureGates"]["PodLevelResourceManagers"] and rng.random() < 0.4:
            _pod_level(rng, pod, odd=False)
        pods.append(pod)
    return {"machine": machine, "kubelet": kubelet, "devices": devices, "pods": pods}
