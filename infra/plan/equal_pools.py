"""Decides pools that are equal but for names once: a cluster of many pools has few kinds of them."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from infra.catalog.types import NodeShape
from infra.config.pools import CoTenant
from infra.diagnosis import Diagnosis
from infra.errors import PlanError
from infra.plan.placement import PodShape
from infra.plan.pool.decision import PoolDecision, decide_pool

# Stands for a name or a path in a decision, and is renamed afterwards. The simulated kubelet admits it as a pod's name, and nobody
# else has it.
_STAND_IN = re.compile(r"stand-in-5c81f7e2-(pool|name\d+|path\d+)-end")


def _stand_in(word: str) -> str:
    return f"stand-in-5c81f7e2-{word}-end"


class EqualPools:
    """decide_pool() for one plan, with a memory. Names and paths are replaced by stand-ins before and put back afterwards."""

    def __init__(self) -> None:
        self._known: dict[Hashable, PoolDecision | PlanError] = {}

    def decide(
        self,
        *,
        path: str,
        shape: NodeShape,
        nodes: int,
        kubernetes_version: str,
        user_kubelet: Mapping[str, Any],
        pods: Sequence[PodShape],
        resource_name: str,
        co_tenants: Sequence[CoTenant],
        platform: str,
    ) -> PoolDecision:
        """As decide_pool(); raises PlanError with the paths of this pool and its models."""
        words = {"pool": path}
        for index, pod in enumerate(pods):
            words |= {f"name{index}": pod.name, f"path{index}": pod.path}
        name_of = {pod.name: _stand_in(f"name{index}") for index, pod in enumerate(pods)}
        nameless = tuple(
            replace(
                pod,
                name=name_of[pod.name],
                path=_stand_in(f"path{index}"),
                repels=frozenset(name_of.get(n, n) for n in pod.repels),
            )
            for index, pod in enumerate(pods)
        )
        kubelet_text = json.dumps(user_kubelet, sort_keys=True, default=str)
        tenants = tuple(tenant.model_dump_json() for tenant in co_tenants)
        key = (shape, nodes, kubernetes_version, kubelet_text, tuple(map(_pod_key, nameless)), resource_name, tenants, platform)
        if key not in self._known:
            try:
                self._known[key] = decide_pool(
                    path=_stand_in("pool"),
                    shape=shape,
                    nodes=nodes,
                    kubernetes_version=kubernetes_version,
                    user_kubelet=user_kubelet,
                    pods=nameless,
                    resource_name=resource_name,
                    co_tenants=co_tenants,
                    platform=platform,
                )
            except PlanError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, PlanError):
            raise PlanError(_renamed_problem(problem, words) for problem in found.problems)
        return _renamed(found, pods, words)


def _pod_key(pod: PodShape) -> Hashable:
    """All that a decision can depend on; containers as text, since they are Kubernetes maps."""
    containers = json.dumps([pod.init_containers, pod.sidecars], sort_keys=True, default=str)
    return replace(pod, init_containers=(), sidecars=()), containers


def _renamed(decision: PoolDecision, pods: Sequence[PodShape], words: Mapping[str, str]) -> PoolDecision:
    def text(value: str) -> str:
        return _rename(value, words)

    return replace(
        decision,
        pods=tuple(
            replace(decided, name=pod.name, path=pod.path, repels=pod.repels)
            for decided, pod in zip(decision.pods, pods, strict=True)
        ),
        slots={text(name): slots for name, slots in decision.slots.items()},
        places={text(name): places for name, places in decision.places.items()},
        bindings={text(name): binding for name, binding in decision.bindings.items()},
        reasons=tuple(map(text, decision.reasons)),
        pod_reasons={text(name): tuple(map(text, reasons)) for name, reasons in decision.pod_reasons.items()},
        warnings=tuple(_renamed_problem(warning, words) for warning in decision.warnings),
    )


def _renamed_problem(problem: Diagnosis, words: Mapping[str, str]) -> Diagnosis:
    return replace(problem, path=_rename(problem.path, words), message=_rename(problem.message, words))


def _rename(text: str, words: Mapping[str, str]) -> str:
    return _STAND_IN.sub(lambda match: words[match[1]], text)
