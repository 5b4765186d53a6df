"""What is required of a pool's nodes: the machine, the user's kubelet fields, and the pods that have to run, without any name."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from infra.catalog.types import NodeShape
from infra.config.pools import CoTenant
from infra.plan.pod_shape import PodShape


@dataclass(frozen=True, kw_only=True)
class PoolRequirements:
    """`nodes` equal machines of `shape` for `pods`. `user_kubelet` is the stack file's `kubelet:` as it stands there."""

    shape: NodeShape
    nodes: int
    kubernetes_version: str
    user_kubelet: Mapping[str, Any]
    pods: tuple[PodShape, ...]
    resource_name: str
    co_tenants: tuple[CoTenant, ...] = ()
    platform: str = "existing"

    @property
    def key(self) -> Hashable:
        """Equal for equal requirements; maps of Kubernetes as text."""
        pods = tuple(
            (replace(pod, init_containers=(), sidecars=()), _text([pod.init_containers, pod.sidecars])) for pod in self.pods
        )
        tenants = tuple(tenant.model_dump_json() for tenant in self.co_tenants)
        kubelet = _text(self.user_kubelet)
        return (self.shape, self.nodes, self.kubernetes_version, kubelet, pods, self.resource_name, tenants, self.platform)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
