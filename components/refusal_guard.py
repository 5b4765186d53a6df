"""The guard against storms of refused pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.apply import apply
from components.base import Component
from infra.plan.model import ClusterPlan
from infra.render.guard import guarded_nodes, refusal_guard


@dataclass(frozen=True, kw_only=True)
class RefusalGuardArgs:
    plan: ClusterPlan
    explain: pulumi.ErrorHook


class RefusalGuard(Component):
    """A small Deployment that takes a node out of the models' reach while its kubelet refuses their pods."""

    def __init__(
        self,
        name: str,
        args: RefusalGuardArgs,
        *,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        facts = {"nodes": sorted(guarded_nodes(args.plan))}
        super().__init__("numawise:cluster:RefusalGuard", name, facts, after=after, opts=opts)
        self.resources: list[pulumi.Resource] = []
        for manifest in refusal_guard(args.plan):
            identity = manifest["metadata"]
            options = self.child(after=self.resources if manifest["kind"] == "Deployment" else ())
            if manifest["kind"] == "Deployment":
                options.custom_timeouts = pulumi.CustomTimeouts(create="15m", update="15m", delete="10m")
                options.hooks = pulumi.ResourceHookBinding(on_error=[args.explain])
            # Roles stand in every namespace that has models; all else is in the system namespace or in none.
            place = f"-{identity['namespace']}" if manifest["kind"] in ("Role", "RoleBinding") else ""
            self.resources.append(apply(f"{name}-{manifest['kind'].lower()}{place}", manifest, options, adopt=args.plan.adopt))
        self.register_outputs(facts)
