"""`numawise:cluster`: the whole document that describes one cluster."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from infra.config.base import DnsLabel, DnsSubdomain, FieldError, Registry, Wire
from infra.config.models import Model
from infra.config.pools import MOST_NODES, NodePool
from infra.diagnosis import shown

KubernetesVersion = Literal["1.33", "1.34", "1.35", "1.36", "1.37"]
Sharing = Literal["managed", "existing"]


class StackOutput(Wire):
    """A kubeconfig that another stack exports."""

    stack: str
    output: str = "kubeconfig"

    def __str__(self) -> str:
        return f"output {self.output} of stack {self.stack}"


class Connection(Wire):
    """How the cluster is reached. The environment variable KUBECONFIG is never read."""

    kubeconfig: str | StackOutput
    context: str | None = None


class Namespace(Wire):
    """The namespace of the models; only with `create` is it a resource of ours."""

    name: DnsLabel
    create: bool = False
    pod_security: Literal["restricted", "baseline", "privileged"] = "restricted"


class SharedComponents(Wire):
    """Components that a cluster has once: `managed` by one stack, `existing` for the others."""

    node_feature_discovery: Sharing = "existing"


class Images(Wire):
    """Where the pods of the stack pull their images from."""

    mirror: Registry | None = Field(
        default=None,
        description="A registry, with a path where it has one, that holds every image of the stack under its own repository name: "
        "docker.io/vllm/vllm-openai:v1 is pulled as MIRROR/vllm/vllm-openai:v1.",
    )
    pull_secrets: tuple[DnsSubdomain, ...] = Field(
        default=(),
        strict=False,
        description="Secrets of type kubernetes.io/dockerconfigjson that exist in every namespace of the stack.",
    )


class Monitoring(Wire):
    enabled: bool = False


def _namespace(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class StackConfig(Wire):
    connection: Connection | None = None
    adopt: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Kind/namespace/name (Kind/name without namespace) of existing objects that this stack takes over, with the fields that others set.",
    )
    kubernetes_version: KubernetesVersion = "1.37"
    namespace: Annotated[Namespace, BeforeValidator(_namespace)]
    system_namespace: DnsLabel = "numawise-system"
    shared_components: SharedComponents = SharedComponents()
    images: Images = Images()
    node_pools: tuple[NodePool, ...] = Field(min_length=1, strict=False)
    models: tuple[Model, ...] = Field(default=(), strict=False)
    monitoring: Monitoring = Monitoring()

    @model_validator(mode="after")
    def _not_too_many_nodes(self) -> StackConfig:
        total = 0
        for index, pool in enumerate(self.node_pools):
            total += pool.nodes or len(pool.node_names)
            if total > MOST_NODES:
                raise FieldError(
                    f"nodePools[{index}].nodes", f"makes {total:,} nodes of the stack; at most {MOST_NODES:,} are planned together"
                )
        return self

    @field_validator("kubernetes_version", mode="before")
    @classmethod
    def _version_as_text(cls, value: Any) -> Any:
        if isinstance(value, float):
            raise ValueError(f'{value} is a number to YAML; write it in quotes: "{value}"')
        return value

    @field_validator("adopt")
    @classmethod
    def _adopted(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            if len(entry.split("/")) not in (2, 3):
                raise ValueError(f"{shown(entry)} names no object; write Kind/namespace/name, for example ConfigMap/inference/vllm")
        return value
