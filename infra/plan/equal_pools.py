"""Decides pools that are equal but for names once: a cluster of many pools has few kinds of them."""

from __future__ import annotations

from collections.abc import Hashable

from infra.plan.pool.decision import PoolDecision, Settlement, settle_pool
from infra.plan.pool.messages import PoolNames
from infra.plan.pool.requirements import PoolRequirements


class EqualPools:
    """decide_pool() for one plan, with a memory: names and paths come in where a pool's decision is worded."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Settlement] = {}

    def decide(self, requirements: PoolRequirements, names: PoolNames) -> PoolDecision:
        """As decide_pool(); raises PlanError with the paths of this pool and its models."""
        key = requirements.key
        if key not in self._known:
            self._known[key] = settle_pool(requirements)
        return self._known[key].worded(names)
