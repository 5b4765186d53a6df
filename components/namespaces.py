"""The namespaces that are ours."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.apply import apply
from components.base import Component
from infra.plan.model import ClusterPlan
from infra.render.namespaces import namespaces


@dataclass(frozen=True, kw_only=True)
class NamespacesArgs:
    plan: ClusterPlan


class Namespaces(Component):
    """The system namespace, and the models' where the stack file says `create: true`. They outlive the stack: claims may lie in them."""

    def __init__(self, name: str, args: NamespacesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        manifests = namespaces(args.plan)
        facts = {"namespaces": [manifest["metadata"]["name"] for manifest in manifests]}
        super().__init__("numawise:cluster:Namespaces", name, facts, opts=opts)
        self.namespaces = [
            apply(f"{name}-{manifest['metadata']['name']}", manifest, self.child(retain_on_delete=True), adopt=args.plan.adopt)
            for manifest in manifests
        ]
        self.register_outputs(facts)
