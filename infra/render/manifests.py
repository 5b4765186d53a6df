"""All objects of a stack in apply order: what the engine creates, and kubectl would take."""

from __future__ import annotations

from collections.abc import Iterable

from infra.plan.model import ClusterPlan
from infra.render.device_plugins import device_plugin
from infra.render.guard import refusal_guard
from infra.render.manifest import Manifest
from infra.render.namespaces import namespaces
from infra.render.vllm import vllm


def manifests(plan: ClusterPlan, *, secrets: Iterable[str] = ()) -> tuple[Manifest, ...]:
    """Namespaces, device plugins, the guard, models. Labels of existing nodes are patches and stand in render.nodes.

    `secrets`: which of `api-key` and `hub-token` the stack holds; the Secret itself is never rendered.
    """
    secrets = tuple(secrets)
    return (
        *namespaces(plan),
        *(manifest for pool in plan.node_pools for manifest in device_plugin(plan, pool)),
        *refusal_guard(plan),
        *(manifest for model in plan.models for manifest in vllm(plan, model, secrets=secrets)),
    )
