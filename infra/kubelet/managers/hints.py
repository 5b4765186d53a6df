"""Topology hints: which sets of NUMA nodes could hold a request, and which of them are preferred.

A set of NUMA nodes is a mask (bit i for the node at position i). A provider's hints are a set of masks, and that is again an
int: bit m for mask m. The kubelet enumerates the same masks one by one; intersections and minima here are single operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

from infra.kubelet.faults import KubeletHangs

_WIDEST_SPACE = 20


class ResourceHints(NamedTuple):
    """Masks that can hold the request, and those of them that are preferred. Both 0: the request cannot be satisfied."""

    possible: int
    preferred: int


UNSATISFIABLE = ResourceHints(0, 0)

# What a provider says: hints per resource (None: that resource has no preference), or None where it has no preference at all.
ProviderHints = dict[str, ResourceHints | None]


class MaskSpace:
    """All masks over `count` NUMA nodes, grouped by how many nodes they hold."""

    __slots__ = ("_submasks", "by_count", "count", "full", "singles")

    def __init__(self, count: int) -> None:
        if count > _WIDEST_SPACE:
            raise KubeletHangs(
                f"the kubelet would enumerate 2^{count} sets of NUMA nodes; merge NUMA nodes in the firmware (NPS1, SNC off)"
            )
        self.count = count
        self.full = (1 << count) - 1
        # Binary digits, since setting a bit of an int copies all of it.
        texts = [bytearray(b"0") * (1 << count) for _ in range(count + 1)]
        for mask in range(1, 1 << count):
            texts[mask.bit_count()][-1 - mask] = ord("1")
        self.by_count = [int(text, 2) for text in texts]
        self.singles = self.by_count[1] if count else 0
        self._submasks: dict[int, int] = {}

    def submasks(self, mask: int) -> int:
        """All masks inside `mask`, the empty one included."""
        known = self._submasks.get(mask)
        if known is None:
            known = 1
            for position in positions(mask):
                known |= known << (1 << position)
            self._submasks[mask] = known
        return known

    def touching(self, mask: int) -> int:
        """All masks that share a node with `mask`."""
        return ((1 << (1 << self.count)) - 1) & ~self.submasks(self.full & ~mask)

    def supersets(self, mask: int) -> int:
        """All masks that hold `mask`."""
        return self.submasks(self.full & ~mask) << mask

    def narrowest(self, masks: int) -> int:
        """How many nodes the smallest of `masks` holds; 0 where there is none."""
        for size in range(1, self.count + 1):
            if masks & self.by_count[size]:
                return size
        return 0


@cache
def mask_space(count: int) -> MaskSpace:
    return MaskSpace(count)


@lru_cache(maxsize=200_000)
def masks_with_at_least(amounts: tuple[int, ...], wanted: int) -> int:
    """The masks whose nodes together have at least `wanted`; `amounts` per node. Sums wrap at 2^64 as the kubelet's do."""
    if len(amounts) > _WIDEST_SPACE:
        return mask_space(len(amounts)).full  # raises: too many sets of NUMA nodes
    sums = [0]
    for amount in amounts:
        sums += [total + amount for total in sums]
    if sum(amounts) >= 2**64:
        sums = [total % 2**64 for total in sums]
    sums.reverse()
    return int("".join(["1" if total >= wanted else "0" for total in sums]), 2) & ~1


@lru_cache(maxsize=50_000)
def masks_with_devices(groups: tuple[tuple[int, int], ...], count: int, wanted: int) -> int:
    """The masks that reach at least `wanted` devices; `groups` are (mask of a device's nodes, how many such devices)."""
    singles = [0] * count
    for nodes, devices in groups:
        if nodes.bit_count() > 1:
            break
        if nodes:
            singles[nodes.bit_length() - 1] += devices
    else:
        return masks_with_at_least(tuple(singles), wanted)
    mask_space(count)  # refuses too many nodes
    found = 0
    for mask in range(1, 1 << count):
        if sum(devices for nodes, devices in groups if nodes & mask) >= wanted:
            found |= 1 << mask
    return found


def positions(mask: int) -> list[int]:
    """The positions of the bits that are set, in order."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


def masks_of(masks: int) -> list[int]:
    """The masks of a set of masks, in order."""
    return positions(masks)


def intersections(space: MaskSpace, hints: Iterable[int]) -> int:
    """All masks that arise by intersecting one mask of each set (the empty mask included, where it arises).

    Sets of masks are multiplied under "and": with superset counts the product is element by element, and Moebius inversion
    brings it back. That is n * 2^n steps for n nodes instead of the kubelet's walk over every combination, (2^n)^providers.
    """
    sets = list(hints)
    size = 1 << space.count
    product: list[int] | None = None
    small = [masks_of(masks) for masks in sets]
    steps = 1
    for members in small:
        steps *= len(members)
    if steps <= 4 * size * max(space.count, 1):
        reached = {space.full}
        for members in small:
            reached = {a & b for a in reached for b in members}
        return sum(1 << mask for mask in reached)
    for members in small:
        counts = [0] * size
        for mask in members:
            counts[mask] = 1
        _superset_sums(counts, space.count, 1)
        product = counts if product is None else [a * b for a, b in zip(product, counts, strict=True)]
    assert product is not None
    _superset_sums(product, space.count, -1)
    return int("".join(["1" if n else "0" for n in reversed(product)]), 2)


def _superset_sums(values: list[int], count: int, sign: int) -> None:
    for position in range(count):
        step = 1 << position
        for base in range(0, 1 << count, 2 * step):
            for mask in range(base, base + step):
                values[mask] += sign * values[mask + step]
