"""How reservedMemory is divided over the NUMA nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.catalog.types import NodeShape
from infra.units import MIB, format_bytes, parse_bytes


@dataclass(frozen=True, kw_only=True)
class MemorySplit:
    """reservedMemory by NUMA node id, and why it is divided so."""

    by_node: Mapping[int, int]
    reason: str

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [
            {"numaNode": node, "limits": {"memory": mebibytes(value_bytes)}}
            for node, value_bytes in sorted(self.by_node.items())
            if value_bytes
        ]


def memory_splits(total_bytes: int, shape: NodeShape) -> tuple[MemorySplit, ...]:
    """Ways to divide the reservation over NUMA nodes, best first: what remains is as equal as can be; all of it on one node.

    Every way adds up to the byte: the kubelet compares the sum only, and lets each node serve what is left of it.
    """
    usable = {
        node.id: usable_bytes(node.memory_bytes, node.hugepages) for node in shape.numa_nodes if node.cpus and node.memory_bytes
    }
    splits: list[MemorySplit] = []
    level = _level(total_bytes, usable)
    if level is not None:
        text = ", ".join(f"{mebibytes(value)} on NUMA node {node}" for node, value in sorted(level.items()) if value)
        splits.append(
            MemorySplit(
                by_node=level,
                reason=f"reservedMemory is divided so that the NUMA nodes have equal room left ({text}): with all of it on one node, of two equal "
                "pods one would not fit (kubernetes/kubernetes#120733)."
                if len(usable) > 1
                else f"reservedMemory is {text}.",
            )
        )
    for node, size in usable.items():
        if len(usable) > 1 and total_bytes < size:
            reason = f"reservedMemory lies on NUMA node {node} alone: the planned pods need the whole of another node."
            splits.append(MemorySplit(by_node={node: total_bytes}, reason=reason))
    return tuple(splits)


def usable_bytes(memory_bytes: int, hugepages: Sequence[tuple[str, int]]) -> int:
    """Memory of a NUMA node without its huge pages, which belong to another resource."""
    return memory_bytes - sum(parse_bytes(size) * count for size, count in hugepages)


def _level(total_bytes: int, usable: Mapping[int, int]) -> dict[int, int] | None:
    """Takes `total_bytes` from the fullest nodes so that what remains is as equal as possible, in whole MiB but for one node."""
    if total_bytes >= sum(usable.values()):
        return None
    units, rest = divmod(total_bytes, MIB)
    order = sorted(usable, key=lambda node: (-usable[node], node))
    taken = dict.fromkeys(usable, 0)
    for count in range(1, len(order) + 1):
        group = order[:count]
        if count == len(order) or sum((usable[node] - usable[order[count]]) // MIB for node in group) >= units:
            remaining_each = (sum(usable[node] for node in group) // MIB - units) // count
            for node in group:
                taken[node] = max(0, usable[node] // MIB - remaining_each)
            surplus = sum(taken.values()) - units
            for node in reversed(group):
                cut = min(surplus, taken[node])
                taken[node] -= cut
                surplus -= cut
            break
    level = {node: value * MIB for node, value in taken.items()}
    level[order[0]] += rest
    return level if all(level[node] < usable[node] or not level[node] for node in level) else None


def mebibytes(value_bytes: int) -> str:
    """Memory as the issue reports and documents write it: 1636Mi; plain bytes where it is no whole number of them."""
    return f"{value_bytes // MIB}Mi" if value_bytes % MIB == 0 else format_bytes(value_bytes)
