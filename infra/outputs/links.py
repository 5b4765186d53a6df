"""How near two GPUs are, and which GPU sets are best.

The order: NVLink (more links first) or xGMI (fewer hops first), then PIX, PXB, PHB (on AMD any PCIe), NODE, SYS (once printed SOC).
A set is judged by its worst link, then by the NUMA nodes that it is known to touch (a GPU whose node is not known comes after those
whose is), then by the sum of its links, then by the lowest GPU indices.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

SET_SIZES = (2, 4, 8)
# Beyond this many candidates (irregular machines of more than about 20 GPUs) a search would take minutes.
MOST_CANDIDATES = 2_000_000

_PCIE_RANK = {"PIX": 1000, "PXB": 2000, "PHB": 3000, "NODE": 4000, "SYS": 5000, "SOC": 5000}
_CLASS = {
    "PIX": "pcie-switch(PIX)",
    "PXB": "pcie-switch(PXB)",
    "PHB": "host-bridge/pcie",
    "NODE": "same-numa(NODE)",
    "SYS": "cross-socket(SYS)",
    "SOC": "cross-socket(SYS)",
}
FABRIC_CLASS = "nvlink/xgmi"


@dataclass(frozen=True, order=True)
class Link:
    """One link as it is ranked: a smaller `rank` is nearer; `label` as printed (NV18, PIX, XGMIh1, PCIEh3)."""

    rank: int
    label: str
    kind: str


@lru_cache(maxsize=4096)
def nvidia_link(cell: str) -> Link | None:
    """The link of a cell of `nvidia-smi topo`; None for what is no link between two devices."""
    if match := re.fullmatch(r"NV(\d{1,3})", cell):
        return Link(-int(match[1]), cell, FABRIC_CLASS)
    return Link(_PCIE_RANK[cell], cell, _CLASS[cell]) if cell in _PCIE_RANK else None


@lru_cache(maxsize=4096)
def amd_link(link_type: str, hops: int | None, weight: int | None, *, with_hops: bool = True) -> Link | None:
    """The link of a pair of AMD GPUs.

    rocm-smi prints one hop for every xGMI pair of an MI250X; the weight distinguishes them (15 for each physical hop).
    """
    if link_type == "XGMI":
        physical = weight // 15 if weight and weight % 15 == 0 else hops
        rank = -100 + (physical if physical is not None else 1)
        return Link(rank, f"XGMIh{physical}" if with_hops and physical is not None else "XGMI", FABRIC_CLASS)
    if link_type == "PCIE":
        rank = _PCIE_RANK["PHB"] + (hops or 0)
        return Link(rank, f"PCIEh{hops}" if with_hops and hops is not None else "PCIE", "host-bridge/pcie")
    if link_type == "XXXX":
        # Partitions of one OAM: rocm-smi has no name for a link inside one device.
        return Link(-200, "XXXX", "same-device")
    return None


@dataclass(frozen=True, kw_only=True)
class GpuSet:
    """The best set of one size. `ties` counts the sets that are equal in worst link, NUMA nodes and sum of links."""

    gpus: tuple[int, ...]
    worst: Link
    numa_nodes: int
    ties: int


@dataclass(frozen=True, kw_only=True)
class GpuLinks:
    """The GPUs of one machine by index, the link of each pair (missing: not readable) and each one's NUMA node (None: unknown)."""

    gpus: tuple[int, ...]
    links: Mapping[tuple[int, int], Link]
    numa: Mapping[int, Hashable | None]

    def link(self, one: int, other: int) -> Link | None:
        """The link of a pair; where the two directions were read differently, the worse."""
        there, back = self.links.get((one, other)), self.links.get((other, one))
        return max(there, back) if there is not None and back is not None else there or back

    def unknown_pairs(self) -> int:
        return sum(self.link(one, other) is None for one, other in combinations(self.gpus, 2))


def best_sets(machine: GpuLinks, sizes: Sequence[int] = SET_SIZES) -> dict[int, GpuSet | None]:
    """The best set of each size that the machine has GPUs for; None where no set of that size is known completely."""
    return {size: best_set(machine, size) for size in sizes if size <= len(machine.gpus)}


def best_set(machine: GpuLinks, size: int) -> GpuSet | None:
    """The best set of `size` GPUs, the same as a search over all sets finds.

    GPUs that can be exchanged without any change are taken together, so that 64 equal partitions cost no more than 8 GPUs.
    ValueError where even then there are more than MOST_CANDIDATES.
    """
    groups = _exchangeable(machine)
    inside = [machine.link(group[0], group[1]) if len(group) > 1 else None for group in groups]
    between = [[machine.link(a[0], b[0]) for b in groups] for a in groups]
    numa = [machine.numa.get(group[0]) for group in groups]
    best_score: tuple[int, int, bool, int] | None = None
    best_gpus: tuple[int, ...] = ()
    ties = 0
    taken: list[int] = [0] * len(groups)
    steps = 0

    def extend(start: int, left: int, worst: int, total: int, ways: int) -> None:
        nonlocal best_score, best_gpus, ties, steps
        steps += 1
        if steps > MOST_CANDIDATES:
            raise ValueError(f"{len(machine.gpus)} GPUs without any symmetry have too many sets of {size}")
        if left == 0:
            touched = {numa[i] for i, count in enumerate(taken) if count}
            score = (worst, _known_nodes(touched), None in touched, total)
            if best_score is not None and score > best_score:
                return
            gpus = tuple(sorted(gpu for i, count in enumerate(taken) for gpu in groups[i][:count]))
            if best_score is None or score < best_score:
                best_score, best_gpus, ties = score, gpus, ways
            else:
                best_gpus, ties = min(best_gpus, gpus), ties + ways
            return
        for index in range(start, len(groups)):
            link = None
            new_worst, new_total, fits = worst, total, True
            for i in range(index):
                if taken[i]:
                    link = between[i][index]
                    if link is None:
                        fits = False
                        break
                    new_worst = max(new_worst, link.rank)
            if not fits or (best_score is not None and new_worst > best_score[0]):
                continue
            for count in range(1, min(left, len(groups[index])) + 1):
                own = inside[index]
                if count > 1 and own is None:
                    break
                worst_now, total_now = new_worst, new_total
                if count > 1 and own is not None:
                    worst_now = max(worst_now, own.rank)
                    total_now += own.rank * (count * (count - 1) // 2)
                for i in range(index):
                    if taken[i] and (link := between[i][index]) is not None:
                        total_now += link.rank * taken[i] * count
                if best_score is not None and worst_now > best_score[0]:
                    break
                taken[index] = count
                extend(index + 1, left - count, worst_now, total_now, ways * comb(len(groups[index]), count))
                taken[index] = 0

    extend(0, size, -(10**6), 0, 1)
    if best_score is None:
        return None
    worst_rank = best_score[0]
    pairs = (machine.link(one, other) for one, other in combinations(best_gpus, 2))
    worst_link = max((link for link in pairs if link is not None), default=None)
    assert worst_link is not None and worst_link.rank == worst_rank
    return GpuSet(gpus=best_gpus, worst=worst_link, numa_nodes=best_score[1], ties=ties)


def _known_nodes(nodes: Iterable[Hashable | None]) -> int:
    """On how many NUMA nodes GPUs lie at least: one whose node is not known may be on any of the others'."""
    return max(len({node for node in nodes if node is not None}), 1)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A chosen set against the best of its size: `bad` where a nearer class of link was to be had, `degraded` where only NUMA nodes or
    the number of links could be better, `unknown` where links cannot be read."""

    verdict: str
    reason: str
    worst: Link | None = None
    best: GpuSet | None = None


def judge(machine: GpuLinks, gpus: Sequence[int]) -> Judgement:
    """Judges the GPUs that a tensor-parallel group was given. ValueError for GPUs that the machine does not have."""
    chosen = sorted({*gpus})
    if strange := [gpu for gpu in chosen if gpu not in machine.gpus]:
        raise ValueError(f"GPU {strange[0]} is not there; the machine has {', '.join(map(str, machine.gpus))}")
    if len(chosen) < 2:
        return Judgement(verdict="good", reason="one GPU needs no link")
    links = [machine.link(one, other) for one, other in combinations(chosen, 2)]
    best = best_set(machine, len(chosen))
    if any(link is None for link in links) or best is None:
        return Judgement(verdict="unknown", reason="links between them cannot be read", best=best)
    worst = max(link for link in links if link is not None)
    nodes = _known_nodes(machine.numa.get(gpu) for gpu in chosen)
    named = ", ".join(map(str, best.gpus))
    if worst.kind != best.worst.kind:
        return Judgement(
            verdict="bad", reason=f"their worst link is {worst.label}; GPUs {named} have {best.worst.label}", worst=worst, best=best
        )
    if worst.rank > best.worst.rank:
        return Judgement(
            verdict="degraded",
            reason=f"their worst link is {worst.label}; GPUs {named} have {best.worst.label}",
            worst=worst,
            best=best,
        )
    if nodes > best.numa_nodes:
        return Judgement(
            verdict="degraded", reason=f"they lie on {nodes} NUMA nodes; GPUs {named} on {best.numa_nodes}", worst=worst, best=best
        )
    return Judgement(verdict="good", reason=f"no set of {len(chosen)} is nearer ({worst.label})", worst=worst, best=best)


def _exchangeable(machine: GpuLinks) -> list[tuple[int, ...]]:
    """The GPUs in groups whose members have the same NUMA node, the same links to all others and one link among themselves."""
    groups: list[list[int]] = []
    for gpu in machine.gpus:
        for group in groups:
            first = group[0]
            if machine.numa.get(first) != machine.numa.get(gpu):
                continue
            own = machine.link(first, gpu)
            same = all(
                machine.link(first, other) == machine.link(gpu, other) for other in machine.gpus if other not in (first, gpu)
            )
            # With a third member, the link among the first two must be the one to it; `same` has compared that.
            if same and (len(group) == 1 or machine.link(group[0], group[1]) == own):
                group.append(gpu)
                break
        else:
            groups.append([gpu])
    return [tuple(group) for group in groups]
