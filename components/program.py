"""The program on one page: settings -> plan -> look at the cluster -> components -> exports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pulumi

from components.device_plugin import DevicePlugin, DevicePluginArgs
from components.hooks import explain_hook
from components.namespaces import Namespaces, NamespacesArgs
from components.node_pool import NodePool, NodePoolArgs
from components.provider import provider, reach
from components.refusal_guard import RefusalGuard, RefusalGuardArgs
from components.settings import Settings, load_settings
from components.vllm import VllmDeployment, VllmDeploymentArgs
from infra.errors import NumawiseError
from infra.observe.check import Ownership, check
from infra.observe.client import Client
from infra.observe.look import keys_of, observe
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan
from infra.render.labels import FIELD_MANAGER, field_manager, owner
from infra.render.manifests import manifests
from infra.render.names import identity
from infra.report.plan import plan_as_json

ROOT = Path(__file__).resolve().parent.parent


def deploy() -> None:
    """Declares the stack. Whatever contradicts the input, the plan or the cluster ends the program in sentences, before anything is declared."""
    try:
        settings = load_settings()
        plan = plan_stack(settings.config, stack=settings.stack)
        for warning in plan.warnings:
            pulumi.log.warn(str(warning))
        declare(settings, plan, look=lambda client: look_at_cluster(settings, plan, client))
    except NumawiseError as error:
        count = len(error.problems)
        raise pulumi.RunError("\n".join([f"{count} problem{'s' if count > 1 else ''}:", *map(str, error.problems)])) from None


def look_at_cluster(settings: Settings, plan: ClusterPlan, client: Client) -> None:
    """Logs what is odd in the cluster; CheckError where it contradicts the plan."""
    observation = observe(plan, client, keys_of(manifests(plan, secrets=settings.secrets)))
    ownership = Ownership(labels=owner(plan.stack), node_annotation=(FIELD_MANAGER, field_manager(plan.stack)))
    for warning in check(plan, observation, ownership):
        pulumi.log.warn(str(warning))


def declare(settings: Settings, plan: ClusterPlan, *, look: Callable[[Client], None]) -> None:
    access = reach(plan.connection, root=ROOT, look=look)
    explain = explain_hook(access.client)
    options = pulumi.ResourceOptions(providers=[provider(plan.stack, access)])

    spaces = Namespaces("namespaces", NamespacesArgs(plan=plan), opts=options)
    guard = RefusalGuard("guard", RefusalGuardArgs(plan=plan, explain=explain), after=spaces.namespaces, opts=options)
    ready: dict[str, list[pulumi.Resource]] = {}
    for pool in plan.node_pools:
        nodes = NodePool(pool.name, NodePoolArgs(stack=plan.stack, pool=pool), opts=options)
        plugin = DevicePlugin(
            pool.name,
            DevicePluginArgs(plan=plan, pool=pool, explain=explain),
            after=[*spaces.namespaces, *nodes.labels],
            opts=options,
        )
        ready[pool.name] = [*nodes.labels, *plugin.resources]

    models = {
        (name := identity(plan, model)): VllmDeployment(
            name,
            VllmDeploymentArgs(plan=plan, model=model, explain=explain, client=access.client, secrets=settings.secrets),
            after=[*spaces.namespaces, *guard.resources, *ready[model.node_pool]],
            opts=options,
        )
        for model in plan.models
    }

    document = plan_as_json(plan)
    pulumi.export("plan", document)
    pulumi.export("endpoints", {name: component.endpoint for name, component in models.items()})
    pulumi.export("models", dict(zip(models, document["models"], strict=True)))
    pulumi.export("nodePools", {entry["name"]: entry for entry in document["nodePools"]})
