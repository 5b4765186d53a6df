"""The program on one page: settings -> plan -> look at the cluster -> components -> exports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi

from components.engine_state import last_update
from components.hooks import explain_hook, node_exists_hook
from components.part import Declaring, PartComponent
from components.provider import provider, reach
from components.rolled_out import RolloutWaits
from components.room import Room
from components.serving import ServingComponent
from components.settings import Settings, load_settings
from infra.diagnosis import Diagnosis
from infra.errors import CheckError, NumawiseError
from infra.observe.check import Ownership, check
from infra.observe.client import Client
from infra.observe.look import observe
from infra.observe.managed_fields import fields_of_owner
from infra.observe.pool_nodes import Starved, lost_labels, selection, starved_models, with_selected_nodes, without_missing_nodes
from infra.observe.remembered import CLUSTER_OUTPUT, RELEASED_OUTPUT, Remembered, cluster_uid, rebuilt
from infra.observe.rollouts import look_at_rollouts
from infra.observe.room import RoomPlan, plan_room
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan
from infra.render.labels import FIELD_MANAGER, POOL, field_manager, owner
from infra.render.nodes import NodeResources
from infra.render.parts import keys_of, stack_parts
from infra.render.serving.earlier_forms import Kept, kept_workloads, with_kept
from infra.render.serving.model import endpoints, identities, workloads
from infra.report.plan import plan_as_json

ROOT = Path(__file__).resolve().parent.parent


def deploy() -> None:
    """Declares the stack. Whatever contradicts the input, the plan or the cluster ends the program in sentences, before anything is declared."""
    try:
        settings = load_settings()
        plan = plan_stack(settings.config)
        for warning in plan.warnings:
            pulumi.log.warn(str(warning))
        declare(settings, plan, look=look_at_cluster)
    except NumawiseError as error:
        count = len(error.problems)
        raise pulumi.RunError("\n".join([f"{count} problem{'s' if count > 1 else ''}:", *map(str, error.problems)])) from None


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one look at the cluster says for the declarations."""

    plan: ClusterPlan  # on the nodes that are there
    nodes: NodeResources = field(default_factory=NodeResources)
    starved: tuple[Starved, ...] = ()
    cluster_uid: str = ""
    room: RoomPlan = field(default_factory=lambda: RoomPlan(taking={}))
    kept: tuple[Kept, ...] = ()  # workloads that keep forms of an earlier release


def look_at_cluster(settings: Settings, plan: ClusterPlan, client: Client, before: Remembered) -> Found:
    """Logs what is odd in the cluster; CheckError where it contradicts the plan, or is another one than the state describes."""
    uid = cluster_uid(client)
    if another := tuple(rebuilt(before, uid, client)):
        raise CheckError(another)
    parts = stack_parts(plan, stack=settings.stack, secrets=settings.secrets)
    observation = observe(plan, client, keys_of(parts))
    bound = with_selected_nodes(plan, observation, pool_label=POOL)
    ownership = Ownership(
        labels=owner(settings.stack),
        node_annotation=(FIELD_MANAGER, field_manager(settings.stack)),
        adopt=settings.config.adopt,
    )
    warnings = check(bound, observation, ownership)
    lost = lost_labels(bound, observation, before.label_resources, pool_label=POOL)
    there_plan = without_missing_nodes(bound, observation, planned=plan)
    starved = starved_models(settings.config, bound, observation)
    undeclared = {name for one in starved for name in one.models}
    seen = look_at_rollouts(client, owner(settings.stack), pods=True)
    room = plan_room(
        there_plan,
        workloads(there_plan),
        seen,
        undeclared=[key for key, name in identities(there_plan).items() if name in undeclared],
    )
    for warning in (*selection(plan, bound, observation.nodes), *lost, *warnings, *room.warnings):
        pulumi.log.warn(str(warning))
    there = {node.name for node in observation.nodes}
    kept = kept_workloads(
        there_plan,
        stack_parts(there_plan, stack=settings.stack, secrets=settings.secrets),
        fields_of_owner(seen.workloads, ownership.labels),
        credentials=settings.credentials,
    )
    for one in kept:
        pulumi.log.info(str(one.why))
    return Found(
        plan=there_plan,
        nodes=NodeResources(
            earlier_names=before.label_resources,
            there=min(there, default=""),
            released=tuple(sorted(node for node in before.label_resources if node not in there and node not in before.released)),
        ),
        starved=starved,
        cluster_uid=uid,
        room=room,
        kept=kept,
    )


def declare(settings: Settings, plan: ClusterPlan, *, look: Callable[[Settings, ClusterPlan, Client, Remembered], Found]) -> None:
    """Declares every part of the stack, each after those that it names, and exports what others may rely on."""
    access = reach(settings.config.connection, root=ROOT)
    found = look(settings, plan, access.client, last_update())
    plan, client = found.plan, access.client.patient
    waits = RolloutWaits(client, owner(settings.stack), Room(found.room, owner(settings.stack), client))
    declaring = Declaring(
        explain=explain_hook(client),
        existing=node_exists_hook(client),
        waits=waits,
        adopt=settings.config.adopt,
        secrets=settings.secrets,
    )
    options = pulumi.ResourceOptions(providers=[provider(settings.stack, access)])
    serving = endpoints(plan)
    waiting = {name for starved in found.starved for name in starved.models}
    declared: dict[str, PartComponent] = {}
    answers: dict[str, pulumi.Input[dict[str, Any]]] = {}
    for part in with_kept(stack_parts(plan, stack=settings.stack, secrets=settings.secrets, nodes=found.nodes), found.kept):
        after = [resource for key in part.after for resource in declared[key].resources]
        if part.key not in serving:
            component = PartComponent(part, declaring, after=after, opts=options)
        elif part.name in waiting:
            continue
        else:
            component = ServingComponent(part, declaring, endpoint=serving[part.key], after=after, opts=options)
            answers[part.name] = component.endpoint
        declared[part.key] = component
    fail_after(declared.values(), [starved.why for starved in found.starved])

    waits.verdict()
    document = plan_as_json(plan, stack=settings.stack)
    pulumi.export("plan", document)
    pulumi.export("endpoints", answers)
    pulumi.export("models", {entry["name"]: entry for entry in document["models"]})
    pulumi.export("nodePools", {entry["name"]: entry for entry in document["nodePools"]})
    pulumi.export(CLUSTER_OUTPUT, {"uid": found.cluster_uid})
    pulumi.export(RELEASED_OUTPUT, list(found.nodes.released))


def fail_after(components: Iterable[PartComponent], problems: Sequence[Diagnosis]) -> None:
    """Ends the program with the problems once all that can be declared is: what is not declared then stays as it is, since a program that failed deletes
    nothing."""
    if not problems:
        return
    for problem in problems:
        pulumi.log.warn(str(problem))

    def fail(_: Any) -> None:
        raise pulumi.RunError("\n".join(map(str, problems)))

    pulumi.Output.all(*(resource.urn for component in components for resource in component.resources)).apply(fail)
