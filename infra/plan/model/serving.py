"""One model: what it is, how it is split, what its pods ask for and how long they may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.catalog.types import Vendor
from infra.plan.memory.types import MemoryEstimate
from infra.plan.model.placement import PlacementPlan


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """What the model is called: in the stack, in the cluster, on the hub and to its clients."""

    name: str
    namespace: str
    node_pool: str
    model: str  # hub name, or the name given with modelConfig
    served_model_name: str


@dataclass(frozen=True, kw_only=True)
class ParallelismPlan:
    """How a replica is split over GPUs and pods."""

    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    enable_expert_parallel: bool
    pods_per_replica: int
    gpus_per_pod: int


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What the engine is told about the GPUs' memory, and what it is expected to take."""

    gpu_memory_utilization: float
    max_model_len: int
    block_size: int | None  # None: the engine's own choice
    estimate: MemoryEstimate


@dataclass(frozen=True, kw_only=True)
class ResourcesPlan:
    """What a pod asks of its node: requests = limits of the main container, and the containers beside it."""

    vendor: Vendor
    resource_name: str
    cpu: int  # whole CPUs
    memory_bytes: int
    shared_memory_bytes: int
    qos_class: Literal["Guaranteed", "Burstable", "BestEffort"]
    init_containers: tuple[Mapping[str, Any], ...] = ()  # Kubernetes containers, as are sidecars
    sidecars: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoragePlan:
    """Where the weights lie: a claim that exists, its mount and the model's folder in it."""

    existing_claim: str
    mount_path: str
    model_path: str | None


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """The server: image, version, and what it is started with beside the planned sizes."""

    image: str
    vllm_version: str
    args: Mapping[str, Any]  # further vLLM flags without dashes, the user's and those that the plan adds
    env: Mapping[str, str]
    storage: StoragePlan
    credentials_secret: str | None = None  # a Secret that exists, with api-key and hub-token or one of them; None: the stack's own


@dataclass(frozen=True, kw_only=True)
class TimesPlan:
    """How long a start and an update may take, in seconds."""

    startup_budget_seconds: int
    progress_deadline_seconds: int
    create_timeout_seconds: int
    update_timeout_seconds: int


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """One model and what is decided for it."""

    identity: ModelIdentity
    parallelism: ParallelismPlan
    memory: MemoryPlan
    resources: ResourcesPlan
    engine: EnginePlan
    placement: PlacementPlan
    times: TimesPlan
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def namespace(self) -> str:
        return self.identity.namespace

    @property
    def node_pool(self) -> str:
        return self.identity.node_pool
