"""THE list of what a stack consists of: what is declared, rendered to files and looked for in the cluster before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from infra.kinds import ObjectKey, key_of
from infra.plan.model import ClusterPlan
from infra.render.device_plugins import device_plugin_part
from infra.render.guard import guard_part
from infra.render.manifest import Manifest
from infra.render.namespaces import namespaces_part
from infra.render.nodes import NodeResources, node_pool_part
from infra.render.part import Object, Part
from infra.render.serving.model import model_part


def stack_parts(
    plan: ClusterPlan, *, stack: str, secrets: Iterable[str] = (), nodes: NodeResources | None = None
) -> tuple[Part, ...]:
    """All parts, each after those that it names. `secrets`: which of `api-key` and `hub-token` the stack holds; `nodes`: what the state holds of labels."""
    keys, nodes = tuple(secrets), nodes or NodeResources()
    return (
        namespaces_part(plan, stack=stack),
        guard_part(plan, stack=stack),
        *(
            part
            for index, pool in enumerate(plan.node_pools)
            for part in (
                node_pool_part(pool, stack=stack, nodes=nodes if index == 0 else replace(nodes, released=())),
                device_plugin_part(plan, pool, stack=stack),
            )
        ),
        *(model_part(plan, model, stack=stack, secrets=keys) for model in plan.models),
    )


def objects_of(parts: Iterable[Part]) -> tuple[Object, ...]:
    return tuple(child for part in parts for child in part.children)


def keys_of(parts: Iterable[Part]) -> tuple[ObjectKey, ...]:
    """The identities of all objects that are ours: of each, check() finds out whether it exists already and whose it is."""
    return tuple(key_of(child.manifest) for child in objects_of(parts) if not child.patch)


def manifests_of(parts: Iterable[Part]) -> tuple[Manifest, ...]:
    """What kubectl would take: without patches of others' objects, and without Secrets, whose values are the engine's."""
    return tuple(child.manifest for child in objects_of(parts) if not child.patch and not child.secret_keys)
