"""Small machines, devices and pods for tests."""

from __future__ import annotations

from typing import Any

from infra.kubelet import Device, Kubelet, Machine

GIB = 2**30
GPU = "nvidia.com/gpu"


def machine(nodes: int = 2, cores: int = 8, *, threads: int = 2, gib: int = 64, per_socket: int = 1, **extra: Any) -> Machine:
    """`nodes` NUMA nodes of `cores` cores; the first threads are numbered first, node after node."""
    total = nodes * cores
    numa = [
        {
            "id": n,
            "cpus": [[n * cores + c + t * total for t in range(threads)] for c in range(cores)],
            "socket": n // per_socket,
            "memory_bytes": gib * GIB,
            "distances": [10 if m == n else 21 for m in range(nodes)],
            **extra,
        }
        for n in range(nodes)
    ]
    return Machine.from_dict({"numa": numa})


def gpus(*numa: int | None) -> dict[str, list[Device]]:
    return {GPU: [Device(id=f"gpu{i}", numa=() if n is None else (n,)) for i, n in enumerate(numa)]}


def container(name: str = "c", **limits: Any) -> dict[str, Any]:
    return {"name": name, "limits": {{"gpu": GPU}.get(k, k): v for k, v in limits.items()}}


def pod(name: str, *containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **limits: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "containers": list(containers) or [container(**limits)]}
    return {**found, "initContainers": init} if init else found


def configuration(policy: str = "single-numa-node", **fields: Any) -> dict[str, Any]:
    return {
        "topologyManagerPolicy": policy,
        "cpuManagerPolicy": "static",
        "kubeReserved": {"cpu": "2", "memory": "924Mi"},
        **fields,
    }


def static_memory(**numa: str) -> dict[str, Any]:
    """memoryManagerPolicy Static with reservedMemory; n0="1Gi"."""
    return {
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": int(n[1:]), "limits": {"memory": q}} for n, q in numa.items()],
    }


def kubelet(*, on: Machine | None = None, devices: dict[str, list[Device]] | None = None, **fields: Any) -> Kubelet:
    return Kubelet.start(on or machine(), configuration(**fields), devices or {})
