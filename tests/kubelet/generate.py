"""Random cases for the kubelet simulator, wider than any one cluster: odd machines, every option, every shape of pod.

A case follows from its seed alone. `ordinary` draws what clusters have; `odd` what the kubelet's code has corners for; `mutated` spoils
one or two fields of a kubelet section, for the start of the kubelet.
"""

from __future__ import annotations

import copy
import random
from typing import Any

from infra.kubelet.admission.reservation import eviction_memory, reserved_resources
from infra.kubelet.quantity import parse_json_quantity

GIB, MIB = 2**30, 2**20
GPU, NIC, FPGA = "nvidia.com/gpu", "rdma/hca", "example.com/fpga"
Case = dict[str, Any]


def generate(kind: str, seed: int) -> Case:
    """The case of a seed; `kind` is ordinary, odd or mutated."""
    rng = random.Random(f"{kind}/{seed}")
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
        kubelet["reservedMemory"] = reserved_memory(rng, machine, kubelet)
    if odd and rng.random() < 0.1:
        kubelet.update(rng.choice([{"maxPods": 2}, {"podsPerCore": 1, "maxPods": 3}, {"maxPods": 250}]))
    return kubelet


def reserved_memory(rng: random.Random, machine: dict[str, Any], kubelet: dict[str, Any]) -> list[dict[str, Any]]:
    """reservedMemory that (mostly) adds up to what the kubelet section reserves, over some of the NUMA nodes."""
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
        pod_level_resources(rng, pod, odd=odd)
    return pod


def pod_level_resources(rng: random.Random, pod: dict[str, Any], *, odd: bool) -> None:
    """Gives the pod spec.resources, and often a container that shares what the others leave."""
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
# Drawn by position: frozen, so that a new field of the kubelet changes no recorded case. New fields have cases of their own
# (`field`).
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
VALUES: tuple[Any, ...] = (
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
            ] = copy.deepcopy(rng.choice(VALUES))
            continue
        key = rng.choice(keys)
        if action == "replace":
            target[key] = copy.deepcopy(rng.choice(VALUES))
        elif action == "drop":
            del target[key]
        elif action == "rename":
            target[rng.choice([key.lower(), key[:-1], key + "s", key.swapcase()])] = target.pop(key)
        elif isinstance(target[key], str) and target[key]:
            text = target[key]
            at = rng.randrange(len(text))
            target[key] = text[:at] + rng.choice(["", " ", "0", "-", "x", text[at].swapcase()]) + text[at + 1 :]
    return spoilt
