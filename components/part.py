"""Any part of a stack as a component: its objects as resources, with the part's order, timeouts and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.apply import apply
from components.base import Component
from components.rolled_out import RolloutWaits
from infra.kinds import kind_of
from infra.observe.rollouts import WORKLOAD_KINDS
from infra.render.labels import DECLARED
from infra.render.manifest import Manifest, checksum
from infra.render.part import Object, Part

# The object itself says what it was declared as: so the provider waits until its own change is there, and no longer. Where it waits
# for a field that the object had before, what it reads may be of the time before, and stands in the state as the outcome.
# pulumi.com/skipAwait would skip the wait for its deletion too.
_WAIT_FOR, _DECLARED_PATH = "pulumi.com/waitFor", f"{{.metadata.annotations['{DECLARED}']}}"


@dataclass(frozen=True, kw_only=True)
class Declaring:
    """What all parts of a program share: the error hook, the waits for workloads, adopted objects, and the stack's secrets."""

    explain: pulumi.ErrorHook
    existing: pulumi.ResourceHook  # of patches: whether the object that they patch is there
    waits: RolloutWaits
    adopt: Sequence[str] = ()  # Kind/namespace/name of objects that this stack takes over
    secrets: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)  # `api-key`, `hub-token`


class PartComponent(Component):
    """Declares the children of a part in the order of their kinds; each waits for all that come before it."""

    def __init__(
        self,
        part: Part,
        declaring: Declaring,
        *,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(part.token, part.name, part.facts, after=after, opts=opts)
        self.declaring = declaring
        self.resources: list[pulumi.Resource] = []
        by_order: dict[int, list[pulumi.Resource]] = {}
        for child in part.children:
            order = kind_of(child.manifest).order
            before = [resource for earlier in by_order if earlier < order for resource in by_order[earlier]]
            resource = apply(
                part.resource_name(child),
                self.manifest_of(child),
                self._options(child, before),
                patch=child.patch,
                adopt=declaring.adopt,
            )
            by_order.setdefault(order, []).append(resource)
            self.resources.append(resource)
            self.declared(child, resource)
        self.register_outputs({**part.facts, **self.outputs()})

    def manifest_of(self, child: Object) -> Manifest:
        """The object as the engine gets it; the annotation by which the provider leaves the wait to the program is the engine's alone."""
        if child.wait is None or not child.wait.program:
            return child.manifest
        metadata = child.manifest["metadata"]
        declared = checksum(child.manifest)
        own = {DECLARED: declared, _WAIT_FOR: f"jsonpath={_DECLARED_PATH}={declared}"}
        annotations = {**metadata.get("annotations", {}), **own}
        return {**child.manifest, "metadata": {**metadata, "annotations": annotations}}

    def declared(self, child: Object, resource: pulumi.CustomResource) -> None:
        """Called for each object once its resource is there."""

    def outputs(self) -> Mapping[str, Any]:
        """Registered beside the facts."""
        return {}

    def _options(self, child: Object, before: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        options = self.child(after=before, retain_on_delete=child.retain or None)
        options.aliases = [pulumi.Alias(name=name) for name in child.earlier_names if name != child.resource_name] or None
        if child.patch:
            options.hooks = pulumi.ResourceHookBinding(
                before_create=[self.declaring.existing], before_update=[self.declaring.existing]
            )
        if child.released:
            options.ignore_changes = ["metadata"]
        if child.wait is not None:
            options.custom_timeouts = pulumi.CustomTimeouts(
                create=f"{child.wait.create_seconds}s",
                update=f"{child.wait.update_seconds}s",
                delete=f"{child.wait.delete_seconds}s",
            )
            if child.wait.explain:
                options.hooks = pulumi.ResourceHookBinding(on_error=[self.declaring.explain])
            elif kind_of(child.manifest).kind in WORKLOAD_KINDS:
                room = self.declaring.waits.room.hook
                options.hooks = pulumi.ResourceHookBinding(before_create=[room], before_update=[room])
        return options
