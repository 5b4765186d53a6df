"""Which pods can come to stand on one node: what the scheduler may do with the planned pods, whatever it prefers.

Nodes of a pool are equal, so that a plan groups them: the cost depends on the kinds of pods, never on the number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.plan.pod_shape import PodShape
from infra.units import format_millicpu

Load = tuple[int, ...]  # pods on one node, one count per pod shape

_MOST_LOADS = 5_000
_MOST_BLOCKING_STEPS = 20_000


@dataclass(frozen=True, kw_only=True)
class NodeCapacity:
    """What is left for the planned pods on every node, after the co-tenants and DaemonSets."""

    millicpu: int
    memory_bytes: int
    gpus: int
    pods: int

    def holds(self, shapes: Sequence[PodShape], load: Load) -> bool:
        return self.shortfall(shapes, load) is None

    def shortfall(self, shapes: Sequence[PodShape], load: Load) -> tuple[str, int, int] | None:
        """The first resource of which a load needs more than there is: (name, needed, there), or None."""
        for name, there, sizes in (
            ("GPUs", self.gpus, [shape.gpus for shape in shapes]),
            ("CPU", self.millicpu, [shape.requests[0] for shape in shapes]),
            ("memory", self.memory_bytes, [shape.requests[1] for shape in shapes]),
            ("pods", self.pods, [1] * len(shapes)),
        ):
            needed = sum(count * size for count, size in zip(load, sizes, strict=True))
            if needed > there:
                return name, needed, there
        return None


@dataclass(frozen=True)
class Placement:
    """One way to place all pods: groups of equal nodes (number of nodes, load), and what found no room (shape index, pods)."""

    groups: tuple[tuple[int, Load], ...]
    unplaced: tuple[tuple[int, int], ...] = ()


def tolerates(shapes: Sequence[PodShape], load: Load) -> bool:
    """Whether required anti-affinity, which keeps the copies of one shape apart, lets these pods stand on one node."""
    return all(count <= 1 or shape.anti_affinity != "required" for count, shape in zip(load, shapes, strict=True))


def maximal_loads(shapes: Sequence[PodShape], capacity: NodeCapacity) -> tuple[Load, ...]:
    """Every fullest set of planned pods that the scheduler could put on one node; every other one is part of one of these.

    Bounded by resources, required anti-affinity and the number of pods that can exist (copies, surge, standby), not by the number of nodes.
    """
    limits = [shape.copies + shape.surge + shape.standby for shape in shapes]
    loads: set[Load] = set()
    for load in _loads(shapes, capacity, limits):
        larger = (_plus(load, index) for index in range(len(shapes)) if load[index] < limits[index])
        if not any(capacity.holds(shapes, more) and tolerates(shapes, more) for more in larger):
            loads.add(load)
    return tuple(sorted(loads, reverse=True))


def _loads(shapes: Sequence[PodShape], capacity: NodeCapacity, limits: Sequence[int]) -> Iterator[Load]:
    seen: set[Load] = set()
    stack: list[Load] = [(0,) * len(shapes)]
    while stack:
        load = stack.pop()
        if load in seen:
            continue
        seen.add(load)
        if len(seen) > _MOST_LOADS:
            raise TooManyLoads(len(shapes))
        yield load
        for index in range(len(shapes)):
            more = _plus(load, index)
            if more[index] <= limits[index] and more not in seen and capacity.holds(shapes, more) and tolerates(shapes, more):
                stack.append(more)


class TooManyLoads(Exception):
    """More mixtures of pods on one node than can be looked at; `args[0]` is the number of pod shapes."""


def _plus(load: Load, index: int, pods: int = 1) -> Load:
    return (*load[:index], load[index] + pods, *load[index + 1 :])


def spread(shapes: Sequence[PodShape], capacity: NodeCapacity, nodes: int) -> Placement:
    """The pods over `nodes` equal nodes as a scheduler that prefers free nodes would: the largest first, evenly."""
    groups: dict[Load, int] = {(0,) * len(shapes): nodes}
    unplaced: list[tuple[int, int]] = []
    for index in sorted(range(len(shapes)), key=lambda i: (-shapes[i].gpus, i)):
        remaining = shapes[index].copies
        while remaining:
            room = [
                load
                for load in groups
                if capacity.holds(shapes, _plus(load, index)) and tolerates(shapes, _plus(load, index)) and groups[load]
            ]
            if not room:
                unplaced.append((index, remaining))
                break
            emptiest = min(room, key=lambda load: (_gpus(shapes, load), load))
            moved = min(remaining, groups[emptiest])
            groups[emptiest] -= moved
            if not groups[emptiest]:
                del groups[emptiest]
            filled = _plus(emptiest, index)
            groups[filled] = groups.get(filled, 0) + moved
            remaining -= moved
    ordered = sorted(groups.items(), key=lambda item: (-_gpus(shapes, item[0]), item[0]))
    return Placement(groups=tuple((count, load) for load, count in ordered), unplaced=tuple(sorted(unplaced)))


def _gpus(shapes: Sequence[PodShape], load: Load) -> int:
    return sum(count * shape.gpus for count, shape in zip(load, shapes, strict=True))


def blockable(shapes: Sequence[PodShape], capacity: NodeCapacity, nodes: int) -> tuple[int, ...]:
    """Shapes of which a pod may stay Pending for good, though `spread` finds room for all: the others can take a part of every node.

    With one shape this never happens. Where the search would take too long a shape counts as blockable.
    """
    if len(shapes) < 2:
        return ()
    return tuple(index for index in range(len(shapes)) if shapes[index].copies and _can_be_blocked(shapes, capacity, nodes, index))


def _can_be_blocked(shapes: Sequence[PodShape], capacity: NodeCapacity, nodes: int, index: int) -> bool:
    available = [shape.copies - (1 if other == index else 0) for other, shape in enumerate(shapes)]
    if nodes > sum(available):
        return False
    try:
        loads = list(_loads(shapes, capacity, available))
    except TooManyLoads:
        return True
    blocking = [
        load for load in loads if not (capacity.holds(shapes, _plus(load, index)) and tolerates(shapes, _plus(load, index)))
    ]
    least = [load for load in blocking if not any(other != load and _within(other, load) for other in blocking)]
    budget = [_MOST_BLOCKING_STEPS]
    return _cover(least, available, nodes, budget)


def _within(small: Load, large: Load) -> bool:
    return all(a <= b for a, b in zip(small, large, strict=True))


_MOST_KINDS = 256  # of loads: one step of the search each, and what is not searched is not ruled out


def _cover(kinds: Sequence[Load], available: Sequence[int], nodes: int, budget: list[int]) -> bool:
    """Whether `nodes` nodes can each get one of `kinds` out of the available pods."""
    if nodes <= 0:
        return True
    if not kinds:
        return False
    if len(kinds) > _MOST_KINDS:
        return True
    budget[0] -= 1
    if budget[0] < 0:
        return True
    first, rest = kinds[0], kinds[1:]
    most = min(nodes, *(there // need for there, need in zip(available, first, strict=True) if need))
    for count in reversed(range(most + 1)):
        left = [there - count * need for there, need in zip(available, first, strict=True)]
        if _cover(rest, left, nodes - count, budget):
            return True
        if budget[0] < 0:
            return True
    return False


def amount(resource: str, value: int) -> str:
    """A number of a resource as people read it."""
    if resource == "memory":
        return f"{value / 2**30:.1f} GiB"
    return format_millicpu(value) if resource == "CPU" else str(value)
