"""What of a machine decides a kubelet's answers: memory at and above the catalog's promise, and how many NUMA nodes a request needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from infra.catalog.types import NodeShape
from infra.plan.pool.memory_split import usable_bytes

MOST_MEMORY = Fraction(21, 20)  # of the stated memory: the modules' nominal size is at most 5 % above what a kernel reports


def memory_variants(shape: NodeShape, *, pinned: bool) -> tuple[tuple[str, Mapping[int, Fraction]], ...]:
    """Machines to prove the plan on, since a stated memory is a range, what the kernel reports at least and 5 % above: (words, factor by node).

    Memory decides admission only by what it holds or not, so the extremes are tried: the stated memory, the most on all nodes and, where the
    memory manager pins (`pinned`), the most on a single one. Unpinned, the machine with most memory is the hardest case: more pods may come to a node.
    """
    ids = [node.id for node in shape.numa_nodes if node.memory_bytes]
    everywhere = ("with 5 % more memory than its shape states", dict.fromkeys(ids, MOST_MEMORY))
    if not pinned:
        return (everywhere,)
    variants: list[tuple[str, Mapping[int, Fraction]]] = [("with the memory that its shape states", {}), everywhere]
    if 1 < len(ids) <= 8:
        variants += [(f"with 5 % more memory than its shape states on NUMA node {node}", {node: MOST_MEMORY}) for node in ids]
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

    def nodes_of(self, request: int) -> int:
        """The width of a request; 0 too where the whole machine cannot hold it, since then no policy matters."""
        return self.of_request(request) or 0

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


def memory_widths(shape: NodeShape, reserved: Mapping[int, int], factor: Fraction | int = 1) -> Widths:
    """Memory of each NUMA node without its reservation and huge pages; `factor` times the stated memory."""
    return Widths.of(
        [
            max(usable_bytes(int((node.memory_bytes or 0) * factor), node.hugepages) - reserved.get(node.id, 0), 0)
            for node in shape.numa_nodes
        ]
    )
