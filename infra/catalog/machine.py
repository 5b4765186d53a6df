"""A node shape as a kubelet finds it: the machine that cAdvisor reports, and the devices that the device plugin reports."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from infra.catalog.types import NodeShape
from infra.catalog.vendors import vendors
from infra.diagnosis import Diagnosis


def missing_facts(shape: NodeShape, path: str) -> list[Diagnosis]:
    """What the shape does not say, but a kubelet's answer depends on."""
    if not shape.missing:
        return []
    shown = ", ".join(shape.missing[:4]) + (f" and {len(shape.missing) - 4} more" if len(shape.missing) > 4 else "")
    return [
        Diagnosis(
            path,
            "UnknownHardware",
            f"the catalog does not know {shown} of {shape.name}, so that no admission can be proven, and nothing is guessed; write the facts inline as "
            "`topology:` (python -m infra shape FILE... makes it from a node's lscpu, numactl -H and nvidia-smi topo -m).",
        )
    ]


def machine_of(
    shape: NodeShape, memory_factors: Mapping[int, Fraction | int] | None = None, *, without_empty_nodes: bool = False
) -> dict[str, Any]:
    """The machine of a shape that misses no facts, in the form of an admission case; `memory_factors` multiplies the memory of NUMA nodes by id.

    `{"numa": [{"id", "cpus": physical cores, each a list of logical CPUs, "socket", "memory_bytes", "hugepages", "distances"}], "memory_capacity_bytes"}`.

    `without_empty_nodes` leaves NUMA nodes out that have neither CPUs nor GPUs (GB200 shows 32 of them): no topology policy and no memory manager, then
    no answer depends on them.
    """
    factors = memory_factors or {}
    nodes = []
    for index, node in enumerate(shape.numa_nodes):
        if without_empty_nodes and not node.cpus and not node.gpus:
            continue
        entry: dict[str, Any] = {
            "id": node.id,
            "cpus": [list(core) for core in node.cores or ()],
            "socket": _socket(shape, index),
            "memory_bytes": int((node.memory_bytes or 0) * factors.get(node.id, 1)),
        }
        if node.hugepages:
            entry["hugepages"] = dict(node.hugepages)
        if node.distances:
            entry["distances"] = list(node.distances)
        nodes.append(entry)
    total = sum(int((node.memory_bytes or 0) * factors.get(node.id, 1)) for node in shape.numa_nodes)
    return {"numa": nodes, "memory_capacity_bytes": total}


def _socket(shape: NodeShape, index: int) -> int:
    """The given socket; else NUMA nodes in order over the known sockets; else each node with CPUs is a socket of its own."""
    node = shape.numa_nodes[index]
    if node.socket is not None:
        return node.socket
    with_cpus = [position for position, other in enumerate(shape.numa_nodes) if other.cpus]
    if index not in with_cpus:
        return 0
    rank, count = with_cpus.index(index), len(with_cpus)
    return rank * shape.sockets // count if shape.sockets and count % shape.sockets == 0 else rank


def devices_of(shape: NodeShape, resource_name: str) -> dict[str, list[dict[str, Any]]]:
    """The shape's GPUs as the plugin reports them: `{"nvidia.com/gpu": [{"id": "gpu0", "numa": [0]}]}`.

    Where a virtual machine hides NUMA, the kernel says node -1: NVIDIA's plugin leaves the topology out then, AMD's passes the -1 on
    (internal/pkg/plugin of ROCm/k8s-device-plugin), which no NUMA node of the machine matches.
    """
    hidden = shape.numa_in_guest is False
    unknown = {row.resource_name: row.hidden_numa_node for row in vendors().values()}.get(resource_name)
    nowhere = [] if unknown is None else [unknown]
    return {
        resource_name: [
            {"id": f"gpu{gpu}", "numa": nowhere if hidden or node is None else [node]}
            for gpu, node in enumerate(shape.gpu_numa_nodes)
        ]
    }
