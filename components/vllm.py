"""A model served by vLLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes.apps.v1 import Deployment

from components.apply import apply
from components.base import Component
from components.rolled_out import when_rolled_out
from infra.observe.client import Client
from infra.plan.model import ClusterPlan, ModelPlan
from infra.render.labels import CREDENTIALS_CHECKSUM
from infra.render.manifest import checksum
from infra.render.vllm import credentials_metadata, endpoint, pod_templates, vllm
from infra.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class VllmDeploymentArgs:
    plan: ClusterPlan
    model: ModelPlan
    explain: pulumi.ErrorHook
    client: Callable[[], Client | None]
    secrets: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)  # `api-key`, `hub-token`


class VllmDeployment(Component):
    """A Deployment with its Service and what belongs to it; `endpoint` says where it answers."""

    def __init__(
        self,
        name: str,
        args: VllmDeploymentArgs,
        *,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        model = args.model
        facts: dict[str, Any] = {
            "model": model.model,
            "image": model.image,
            "replicas": model.replicas,
            "tensorParallelSize": model.tensor_parallel_size,
            "pipelineParallelSize": model.pipeline_parallel_size,
            "gpusPerPod": model.gpus_per_pod,
            "maxModelLen": model.max_model_len,
            "gpuMemoryUtilization": model.gpu_memory_utilization,
            "resources": {"cpu": str(model.cpu), "memory": format_bytes(model.memory_bytes)},
            "numaNodes": sorted({",".join(map(str, slot.numa_nodes)) for group in model.slots for slot in group.slots}),
        }
        super().__init__("numawise:serving:VllmDeployment", name, facts, after=after, opts=opts)
        before: list[pulumi.Resource] = []
        if args.secrets:
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": credentials_metadata(args.plan, model),
                "stringData": dict(args.secrets),
            }
            before.append(apply(f"{name}-secret", secret, self.child(), adopt=args.plan.adopt))
        served: Any = endpoint(model)
        timeouts = {"create": f"{model.create_timeout_seconds}s", "update": f"{model.update_timeout_seconds}s"}
        for manifest in vllm(args.plan, model, secrets=args.secrets):
            options = self.child(after=before)
            workload = manifest["kind"] in ("Deployment", "LeaderWorkerSet")
            if workload or manifest["kind"] == "Service":
                options.custom_timeouts = pulumi.CustomTimeouts(**timeouts, delete="10m")
            if workload:
                options.hooks = pulumi.ResourceHookBinding(on_error=[args.explain])
                if args.secrets:
                    for template in pod_templates(manifest):
                        template["metadata"]["annotations"][CREDENTIALS_CHECKSUM] = pulumi.Output.all(**args.secrets).apply(
                            checksum
                        )
            if manifest["kind"] == "LeaderWorkerSet":
                # The provider knows no readiness of other groups' kinds; this condition is true once all groups serve.
                manifest["metadata"]["annotations"] = {"pulumi.com/waitFor": "condition=Available"}
            resource = apply(f"{name}-{manifest['kind'].lower()}", manifest, options, adopt=args.plan.adopt)
            # What the pods read comes before them; the Service after, since the provider waits for its endpoints.
            if workload or manifest["kind"] in ("ServiceAccount", "ConfigMap"):
                before.append(resource)
            if isinstance(resource, Deployment):
                served = when_rolled_out(
                    resource, manifest, served, client=args.client, timeout_seconds=model.update_timeout_seconds
                )
        self.endpoint = served
        self.register_outputs({**facts, "endpoint": endpoint(model)})
