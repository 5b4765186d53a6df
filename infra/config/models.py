"""`models`: what vLLM serves, on which pool, with what the user wants to decide himself."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from infra.config.base import (
    BytesPerSecond,
    CpuQuantity,
    DnsLabel,
    DnsSubdomain,
    Environment,
    FieldError,
    Image,
    MemoryQuantity,
    NonNegativeInt,
    PositiveInt,
    Utilization,
    Wire,
)
from infra.config.containers import Container
from infra.diagnosis import shown
from infra.units import parse_quantity


class Resources(Wire):
    """Requests and limits at once: a Guaranteed pod has them equal."""

    cpu: CpuQuantity | None = None
    memory: MemoryQuantity | None = None

    @model_validator(mode="after")
    def _something(self) -> Resources:
        for field, value in (("cpu", self.cpu), ("memory", self.memory)):
            if value is not None and parse_quantity(value) == 0:
                raise FieldError(
                    field, f"is {value}; a pod without {field} cannot serve. Give more, or leave it out and it is decided"
                )
        return self


class Storage(Wire):
    """Where the weights lie. An existing claim is never a resource of ours."""

    existing_claim: DnsLabel
    mount_path: str = "/models"
    model_path: str | None = None
    read_bytes_per_second: BytesPerSecond | None = None

    @model_validator(mode="after")
    def _paths(self) -> Storage:
        if problem := _mount_path_problem(self.mount_path):
            raise FieldError("mountPath", problem)
        if self.model_path is not None and (self.model_path.startswith("/") or ".." in self.model_path.split("/")):
            raise FieldError("modelPath", f"is {shown(self.model_path)}; it is relative to mountPath and stays below it")
        if self.model_path is not None and not _is_path(self.model_path):
            raise FieldError(
                "modelPath", f"is {shown(self.model_path)}; a path of at most 4,096 characters that can be printed is expected"
            )
        return self


class Credentials(Wire):
    """A Secret that exists, instead of the stack's own numawise:apiKey and numawise:hubToken."""

    existing_secret: DnsSubdomain = Field(
        description="A Secret in the model's namespace with the keys api-key (what clients have to send) and hub-token, or one of them. "
        "Pods read it when they start: a changed value needs a restart."
    )


# What weights would hide from the container: its programs and settings, the kernel's files, and what the pod mounts itself.
_TAKEN = (
    "/bin",
    "/boot",
    "/cache",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/opt/rocm",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/var/run",
)


def _is_path(path: str) -> bool:
    return 0 < len(path) <= 4096 and path.isprintable()


def _mount_path_problem(path: str) -> str:
    """Why weights cannot be mounted there; empty where they can."""
    if not path.startswith("/"):
        return f"is {shown(path)}; it has to be absolute, for example /models"
    if ":" in path or not _is_path(path):
        return f"is {shown(path)}; Kubernetes takes a path without : of at most 4,096 characters that can be printed"
    steps = path.rstrip("/").split("/")[1:]
    if not steps or {"", ".", ".."} & set(steps):
        return f"is {shown(path)}; write a folder without empty steps, . and .., for example /models"
    for taken in _TAKEN:
        if f"/{'/'.join(steps)}/".startswith(f"{taken}/") or taken.startswith(f"/{'/'.join(steps)}/"):
            return f"is {shown(path)}; {taken} of the container is not to be hidden. Use a folder of its own, for example /models"
    return ""


class Strategy(Wire):
    max_surge: NonNegativeInt = 0
    max_unavailable: NonNegativeInt = 1

    @model_validator(mode="after")
    def _moves(self) -> Strategy:
        if self.max_surge == 0 and self.max_unavailable == 0:
            raise FieldError("maxUnavailable", "and maxSurge are both 0: no update could ever begin; set one of them to 1")
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
    replicas: NonNegativeInt = 1  # 0: described and planned, holding no GPUs
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
    credentials: Credentials | None = None
    pod_anti_affinity: Literal["required", "preferred", "none"] = "required"
    strategy: Strategy | None = None
    init_containers: tuple[Container, ...] = Field(default=(), strict=False)
    sidecars: tuple[Container, ...] = Field(default=(), strict=False)
    startup: Startup = Startup()
    progress_deadline_seconds: PositiveInt | None = None
    engine_args: dict[str, Any] = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_source_of_facts(self) -> Model:
        if self.model is None and self.model_config_json is None:
            raise FieldError(
                "model",
                "is missing: name the model (model: meta-llama/Meta-Llama-3-70B-Instruct), or give its config.json facts as modelConfig",
            )
        return self
