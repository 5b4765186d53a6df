"""The whole decision for one stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infra.diagnosis import Diagnosis
from infra.plan.model.pool import PoolPlan
from infra.plan.model.serving import ModelPlan


@dataclass(frozen=True, kw_only=True)
class NamespacePlan:
    """The models' namespace; only with `create` is it an object of ours."""

    name: str
    create: bool
    pod_security: Literal["restricted", "baseline", "privileged"]


@dataclass(frozen=True, kw_only=True)
class ImagesPlan:
    """Images of our own pods, as they are pulled, and the Secrets with which every pod of the stack pulls."""

    guard: str
    node_reader: str
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """The whole decision for one stack. Whose stack it is, how the cluster is reached and what is adopted travel apart from it."""

    kubernetes_version: str
    namespace: NamespacePlan
    system_namespace: str
    images: ImagesPlan
    node_pools: tuple[PoolPlan, ...]
    models: tuple[ModelPlan, ...]
    warnings: tuple[Diagnosis, ...] = ()

    def pool(self, name: str) -> PoolPlan:
        """The pool with this name; StopIteration where there is none."""
        return next(pool for pool in self.node_pools if pool.name == name)

    def models_of(self, pool: str) -> tuple[ModelPlan, ...]:
        return tuple(model for model in self.models if model.node_pool == pool)
