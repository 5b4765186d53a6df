"""The program on one page: settings -> plan -> look at the cluster -> components -> exports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi

from components.hooks import explain_hook
from components.part import Declaring, PartComponent
from components.provider import provider, reach
from components.rolled_out import RolloutWaits
from components.serving import ServingComponent
from components.settings import Settings, load_settings
from infra.errors import NumawiseError
from infra.observe.check import Ownership, check
from infra.observe.client import Client
from infra.observe.look import observe
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan
from infra.render.labels import FIELD_MANAGER, field_manager, owner
from infra.render.parts import keys_of, stack_parts
from infra.render.serving.model import endpoints
from infra.report.plan import plan_as_json

ROOT = Path(__file__).resolve().parent.parent


def deploy() -> None:
    """Declares the stack. Whatever contradicts the input, the plan or the cluster ends the program in sentences, before anything is declared."""
    try:
        settings = load_settings()
        plan = plan_stack(settings.config)
        for warning in plan.warnings:
            pulumi.log.warn(str(warning))
        declare(settings, plan, look=lambda client: look_at_cluster(settings, plan, client))
    except NumawiseError as error:
        count = len(error.problems)
        raise pulumi.RunError("\n".join([f"{count} problem{'s' if count > 1 else ''}:", *map(str, error.problems)])) from None


def look_at_cluster(settings: Settings, plan: ClusterPlan, client: Client) -> None:
    """Logs what is odd in the cluster; CheckError where it contradicts the plan."""
    parts = stack_parts(plan, stack=settings.stack, secrets=settings.secrets)
    observation = observe(plan, client, keys_of(parts))
    ownership = Ownership(
        labels=owner(settings.stack),
        node_annotation=(FIELD_MANAGER, field_manager(settings.stack)),
        adopt=settings.config.adopt,
    )
    for warning in check(plan, observation, ownership):
        pulumi.log.warn(str(warning))


def declare(settings: Settings, plan: ClusterPlan, *, look: Callable[[Client], None]) -> None:
    """Declares every part of the stack, each after those that it names, and exports what others may rely on."""
    access = reach(settings.config.connection, root=ROOT, look=look)
    waits = RolloutWaits(access.client, owner(settings.stack))
    declaring = Declaring(explain=explain_hook(access.client), waits=waits, adopt=settings.config.adopt, secrets=settings.secrets)
    options = pulumi.ResourceOptions(providers=[provider(settings.stack, access)])
    serving = endpoints(plan)
    declared: dict[str, PartComponent] = {}
    answers: dict[str, pulumi.Input[dict[str, Any]]] = {}
    for part in stack_parts(plan, stack=settings.stack, secrets=settings.secrets):
        after = [resource for key in part.after for resource in declared[key].resources]
        if part.key in serving:
            component = ServingComponent(part, declaring, endpoint=serving[part.key], after=after, opts=options)
            answers[part.name] = component.endpoint
        else:
            component = PartComponent(part, declaring, after=after, opts=options)
        declared[part.key] = component

    waits.verdict()
    document = plan_as_json(plan, stack=settings.stack)
    pulumi.export("plan", document)
    pulumi.export("endpoints", answers)
    pulumi.export("models", dict(zip(answers, document["models"], strict=True)))
    pulumi.export("nodePools", {entry["name"]: entry for entry in document["nodePools"]})
