"""`models`: what vLLM serves, on which pool, with what the user wants to decide himself."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from infra.config.base import (
    BytesPerSecond,
    CpuQuantity,
    DnsLabel,
    Environment,
    Image,
    JsonValue,
    MemoryQuantity,
    NonNegativeInt,
    PositiveInt,
    Utilization,
    Wire,
)
from infra.config.containers import Container


class Resources(Wire):
    """Requests and limits at once: a Guaranteed pod has them equal."""

    cpu: CpuQuantity | None = None
    memory: MemoryQuantity | None = None


class Storage(Wire):
    """Where the weights lie. An existing claim is never a resource of ours."""

    existing_claim: DnsLabel
    mount_path: str = "/models"
    model_path: str | None = None
    read_bytes_per_second: BytesPerSecond | None = None

    @model_validator(mode="after")
    def _paths(self) -> Storage:
        if not self.mount_path.startswith("/"):
            raise ValueError(f"mountPath is {self.mount_path!r}; it has to be absolute, for example /models")
        if self.model_path is not None and (self.model_path.startswith("/") or ".." in self.model_path.split("/")):
            raise ValueError(f"modelPath is {self.model_path!r}; it is relative to mountPath and stays below it")
        return self


class Strategy(Wire):
    max_surge: NonNegativeInt = 0
    max_unavailable: NonNegativeInt = 1

    @model_validator(mode="after")
    def _moves(self) -> Strategy:
        if self.max_surge == 0 and self.max_unavailable == 0:
            raise ValueError("maxSurge and maxUnavailable are both 0: no update could ever begin; set one of them to 1")
        return self


class Startup(Wire):
    budget_seconds: PositiveInt | None = None


class Model(Wire):
    name: DnsLabel
    node_pool: DnsLabel
    namespace: DnsLabel | None = None
    model: str | None = None
    model_config_json: dict[str, Any] | None = Field(default=None, alias="modelConfig")
    vllm_version: str | None = None
    replicas: PositiveInt = 1
    tensor_parallel_size: PositiveInt | None = None
    pipeline_parallel_size: PositiveInt | None = None
    data_parallel_size: PositiveInt | None = None
    enable_expert_parallel: bool = False
    objective: Literal["throughput", "latency"] = "throughput"
    gpu_memory_utilization: Utilization | None = None
    max_model_len: PositiveInt | None = None
    max_num_seqs: PositiveInt | None = None
    max_num_batched_tokens: PositiveInt | None = None
    block_size: PositiveInt | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    image: Image | None = None
    resources: Resources = Resources()
    shared_memory: MemoryQuantity | None = None
    storage: Storage
    pod_anti_affinity: Literal["required", "preferred", "none"] = "required"
    strategy: Strategy | None = None
    init_containers: tuple[Container, ...] = Field(default=(), strict=False)
    sidecars: tuple[Container, ...] = Field(default=(), strict=False)
    startup: Startup = Startup()
    progress_deadline_seconds: PositiveInt | None = None
    engine_args: dict[str, JsonValue] = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_source_of_facts(self) -> Model:
        if self.model is None and self.model_config_json is None:
            raise ValueError(
                "name the model (model: meta-llama/Meta-Llama-3-70B-Instruct), or give its config.json facts as modelConfig"
            )
        return self
