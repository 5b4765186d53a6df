"""Cases about pods: `crowded` nodes, where pods of every priority and shape push each other out, and `pinned` CPUs and memory."""

from __future__ import annotations

import copy
import random
from typing import Any

from tests.kubelet.generate import FPGA, GIB, GPU, Case, pod_level_resources, reserved_memory

# Crowded nodes
_CPUS = ("100m", "500m", "1", "1", "1500m", "2", "3", "0.5", 1)
_SIZES = ("256Mi", "1Gi", "1Gi", "1.5Gi", "2G", "3Gi", "1e9", "4Gi")


def crowded_case(rng: random.Random) -> Case:
    """A small machine, and pods of every priority, shape and fault."""
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
        kubelet["reservedMemory"] = reserved_memory(rng, machine, kubelet)
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
def pinned_case(rng: random.Random) -> Case:
    """A larger machine with static policies and all their options, and Guaranteed pods."""
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
        kubelet["reservedMemory"] = reserved_memory(rng, machine, kubelet)
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
            pod_level_resources(rng, pod, odd=False)
        pods.append(pod)
    return {"machine": machine, "kubelet": kubelet, "devices": devices, "pods": pods}
