"""A model served by vLLM: a part whose Secret and whose wait only the engine can make."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from components.part import Declaring, PartComponent
from infra.kinds import key_of
from infra.observe.rollouts import WORKLOAD_KINDS
from infra.render.labels import CREDENTIALS_CHECKSUM
from infra.render.manifest import Manifest, checksum
from infra.render.part import Object, Part
from infra.render.serving.model import pod_templates


class ServingComponent(PartComponent):
    """`endpoint` says where the model answers, once every replica of its newest template is ready."""

    def __init__(
        self,
        part: Part,
        declaring: Declaring,
        *,
        endpoint: Mapping[str, Any],
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        self._answers = endpoint
        self.endpoint: Any = endpoint
        super().__init__(part, declaring, after=after, opts=opts)

    def manifest_of(self, child: Object) -> Manifest:
        manifest, secrets = super().manifest_of(child), self.declaring.secrets
        if child.secret_keys:
            return {**manifest, "stringData": {key: secrets[key] for key in child.secret_keys}}
        templates = pod_templates(manifest)
        if not secrets or not templates:
            return manifest
        # Pods read a Secret when they start: a new one restarts them.
        manifest = copy.deepcopy(manifest)
        for template in pod_templates(manifest):
            template["metadata"].setdefault("annotations", {})[CREDENTIALS_CHECKSUM] = pulumi.Output.all(**secrets).apply(checksum)
        return manifest

    def declared(self, child: Object, resource: pulumi.CustomResource) -> None:
        key = key_of(child.manifest)
        if child.wait is not None and key.kind in WORKLOAD_KINDS:
            seconds = child.wait.update_seconds
            self.endpoint = self.declaring.waits.when_ready(resource, key, self._answers, timeout_seconds=seconds)

    def outputs(self) -> Mapping[str, Any]:
        return {"endpoint": self._answers}
