"""A node shape as a kubelet would find it, at the memory that the catalog promises and at more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from infra.catalog.types import NodeShape
from infra.errors import Problem
from infra.plan.kubelet.reserve import usable_bytes

_MUCH_MORE = 64  # times the promised memory: no request is wider than one NUMA node any more


def missing_facts(shape: NodeShape, path: str) -> list[Problem]:
    """What the shape does not say, but a kubelet's answer depends on."""
    if not shape.missing:
        return []
    return [
        Problem(
            path,
            "UnknownHardware",
            f"the catalog does not know {', '.join(shape.missing)} of {shape.id}, so that no admission can be proven; write the facts inline as "
            "`topology:` (python -m infra topology reads them from a node's own outputs).",
        )
    ]


def machine_of(
    shape: NodeShape, memory_factors: Mapping[int, int] | None = None, *, without_empty_nodes: bool = False
) -> dict[str, Any]:
    """The machine in the form that the simulator reads; `memory_factors` multiplies the memory of NUMA nodes by id.

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
            "memory_bytes": (node.memory_bytes or 0) * factors.get(node.id, 1),
        }
        if node.hugepages:
            entry["hugepages"] = dict(node.hugepages)
        if node.distances:
            entry["distances"] = list(node.distances)
        nodes.append(entry)
    total = sum((node.memory_bytes or 0) * factors.get(node.id, 1) for node in shape.numa_nodes)
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
    """The devices as the plugin reports them.

    Where a virtual machine hides NUMA, the kernel says node -1: NVIDIA's plugin leaves the topology out then, AMD's passes the -1 on
    (internal/pkg/plugin of ROCm/k8s-device-plugin), which no NUMA node of the machine matches.
    """
    hidden = shape.numa_in_guest is False
    nowhere: dict[str, Any] = {"numa": [-1]} if resource_name.startswith("amd.com/") else {}
    return {
        resource_name: [
            {"id": f"gpu{gpu}", **(nowhere if hidden or node is None else {"numa": [node]})}
            for gpu, node in enumerate(shape.gpu_numa_nodes)
        ]
    }


def memory_variants(shape: NodeShape, *, pinned: bool) -> tuple[tuple[str, Mapping[int, int]], ...]:
    """Machines to prove the plan on, since the catalog gives a lower bound of the kernel's MemTotal: (words, factor by node).

    Memory decides admission only by what it holds or not, so the extremes are tried: the bound, much more on all nodes and, where the memory
    manager pins (`pinned`), much more on a single one. Unpinned, one machine with much memory is the hardest case: more pods may come to a node.
    """
    ids = [node.id for node in shape.numa_nodes if node.memory_bytes]
    everywhere = ("with more memory than the catalog promises", dict.fromkeys(ids, _MUCH_MORE))
    if not pinned:
        return (everywhere,)
    variants: list[tuple[str, Mapping[int, int]]] = [("with the memory that the catalog promises", {}), everywhere]
    if 1 < len(ids) <= 8:
        variants += [(f"with more memory than the catalog promises on NUMA node {node}", {node: _MUCH_MORE}) for node in ids]
    return tuple(variants)


@dataclass(frozen=True)
class Widths:
    """How many NUMA nodes an empty machine needs at least for a resource, as the kubelet counts them for its hints."""

    capacities: tuple[int, ...]  # per NUMA node, largest first

    @classmethod
    def of(cls, amounts: Sequence[int]) -> Widths:
        return cls(tuple(sorted((amount for amount in amounts if amount), reverse=True)))

    def of_request(self, request: int) -> int | None:
        """The width of a request; None where the whole machine cannot hold it, 0 for nothing."""
        if request <= 0:
            return 0
        return next((count for count, total in enumerate(accumulate(self.capacities), 1) if total >= request), None)

    def least_of_width(self, width: int) -> int:
        """The smallest request that needs `width` nodes."""
        return sum(self.capacities[: width - 1]) + 1

    @property
    def largest(self) -> int:
        return self.capacities[0] if self.capacities else 0


def gpu_widths(shape: NodeShape) -> Widths:
    hidden = shape.numa_in_guest is False
    return Widths.of(() if hidden else [len(node.gpus or ()) for node in shape.numa_nodes])


def cpu_widths(shape: NodeShape) -> Widths:
    """All CPUs of each NUMA node, the reserved ones too: so the kubelet counts."""
    return Widths.of([len(node.cpus or ()) for node in shape.numa_nodes])


def memory_widths(shape: NodeShape, reserved: Mapping[int, int]) -> Widths:
    """Memory of each NUMA node without its reservation and huge pages, at the catalog's lower bound."""
    return Widths.of(
        [max(usable_bytes(node.memory_bytes or 0, node.hugepages) - reserved.get(node.id, 0), 0) for node in shape.numa_nodes]
    )
