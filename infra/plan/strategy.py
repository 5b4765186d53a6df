"""How an update replaces the replicas of a model: with one more pod where every order leaves room for it, else one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infra.config.models import Strategy
from infra.plan.placement import NodeCapacity, blockable, spread
from infra.plan.pod_shape import PodShape
from infra.plan.startup import ENGINE_START_SECONDS, StartupBudget


@dataclass(frozen=True, kw_only=True)
class UpdateStrategy:
    """Replicas; with the reason."""

    max_surge: int
    max_unavailable: int
    reason: str


def replicas_at_a_time(given: Strategy | None) -> int:
    """How many replicas an update replaces at once."""
    return 1 if given is None else max(given.max_surge + given.max_unavailable, 1)


def surging(shapes: Sequence[PodShape], capacity: NodeCapacity, nodes: int) -> frozenset[int]:
    """Positions of the shapes of which one more pod finds room during an update, however the scheduler has placed all others, those of the other updates
    included; of the shapes for which that is left open."""
    chosen = {index for index, shape in enumerate(shapes) if shape.may_surge and shape.copies}
    before = without_room(shapes, capacity, nodes)
    while chosen:
        grown = [replace(shape, surge=1) if index in chosen else shape for index, shape in enumerate(shapes)]
        if without_room(grown, capacity, nodes) <= before - chosen:
            return frozenset(chosen)
        # Of many replicas one that is down for a while is missed the least.
        chosen.remove(max(chosen, key=lambda index: (shapes[index].copies, index)))
    return frozenset()


def without_room(shapes: Sequence[PodShape], capacity: NodeCapacity, nodes: int) -> frozenset[int]:
    """Positions of the shapes of which a pod may find no room while all updates have their extra pods."""
    grown = [replace(shape, copies=shape.copies + shape.surge if shape.copies else 0) for shape in shapes]
    unplaced = {index for index, _ in spread(grown, capacity, nodes).unplaced}
    return frozenset(unplaced.union(blockable(grown, capacity, nodes)))


def strategy_of(given: Strategy | None, shape: PodShape, startup: StartupBudget, *, replicas: int) -> UpdateStrategy:
    """`shape` as decided: its surge is what was found to have room."""
    if given is not None:
        sizes = f"maxSurge {given.max_surge}, maxUnavailable {given.max_unavailable}"
        return UpdateStrategy(max_surge=given.max_surge, max_unavailable=given.max_unavailable, reason=f"strategy {sizes}: given.")
    if shape.surge:
        reason = "every order leaves room for one more pod, so that an update starts a new pod before it ends an old one."
        return UpdateStrategy(max_surge=1, max_unavailable=0, reason=f"strategy maxSurge 1, maxUnavailable 0: {reason}")
    seconds = startup.load_seconds + ENGINE_START_SECONDS
    if not replicas:
        down = "no replica runs"
    elif replicas == 1:
        down = f"the only replica is down for about {seconds} s at each change, at most {startup.budget_seconds} s"
    else:
        down = f"one of {replicas} replicas after the other is down for about {seconds} s at each change, at most {startup.budget_seconds} s"
    reason = (
        f"not every order leaves room for another pod of {shape.gpus} GPUs, so that a new pod takes the slot of an old one; {down}."
    )
    return UpdateStrategy(max_surge=0, max_unavailable=1, reason=f"strategy maxSurge 0, maxUnavailable 1: {reason}")
