"""The main container of a vLLM pod: command line, environment, probes, resources."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from infra.catalog.engine_releases import engine_release
from infra.plan.model import ModelPlan
from infra.render import names
from infra.units import format_bytes

PRE_STOP_SECONDS = 10  # until load balancers have taken the pod out
DRAIN_SECONDS = 90  # for requests in flight
GRACE_SECONDS = PRE_STOP_SECONDS + DRAIN_SECONDS + 20
_CACHE = "/cache"
_PROBE_PERIOD_SECONDS = 10


def vllm_command(model: ModelPlan) -> list[str]:
    """`vllm serve` with every planned number as an explicit flag, then the further engine arguments by name."""
    storage = model.engine.storage
    path = f"{storage.mount_path.rstrip('/')}/{storage.model_path}" if storage.model_path else storage.mount_path
    arguments: dict[str, Any] = {
        "served-model-name": model.identity.served_model_name,
        "port": names.HTTP_PORT,
        "tensor-parallel-size": model.parallelism.tensor_parallel_size,
        "pipeline-parallel-size": model.parallelism.pipeline_parallel_size,
        "gpu-memory-utilization": model.memory.gpu_memory_utilization,
        "max-model-len": model.memory.max_model_len,
    }
    if model.parallelism.data_parallel_size > 1:
        arguments["data-parallel-size"] = model.parallelism.data_parallel_size
    if model.parallelism.enable_expert_parallel:
        arguments["enable-expert-parallel"] = True
    if model.memory.block_size is not None:
        arguments["block-size"] = model.memory.block_size
    if model.parallelism.gpus_per_pod > 1:
        arguments["distributed-executor-backend"] = "mp"
    if "shutdown-timeout" in engine_release(model.engine.vllm_version).flags:
        arguments["shutdown-timeout"] = DRAIN_SECONDS
    further = {key.lstrip("-").replace("_", "-"): value for key, value in model.engine.args.items()}
    arguments = {key: value for key, value in arguments.items() if key not in further}
    flags = [*arguments.items(), *sorted(further.items())]
    return ["vllm", "serve", path, *(word for key, value in flags for word in flag(key, value))]


def flag(name: str, value: Any) -> list[str]:
    """One vLLM flag: true -> --x, false -> --no-x, a list -> its values after --x, a map -> JSON; nothing for null."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, Mapping):
        return [f"--{name}", json.dumps(value, sort_keys=True, separators=(",", ":"))]
    if isinstance(value, list | tuple):
        return [f"--{name}", *map(_word, value)]
    return [f"--{name}", _word(value)]


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"{value:g}" if isinstance(value, float) and value == round(value, 6) else str(value)


def environment(model: ModelPlan, secrets: Iterable[str]) -> list[dict[str, Any]]:
    """The container's environment. No device-visibility variable is ever set: the device plugin decides, and a second one fights it."""
    values: dict[str, str] = {
        "HOME": _CACHE,
        # A user id without a name in the image: what asks for the user's name takes these.
        "USER": "vllm",
        "LOGNAME": "vllm",
        "XDG_CACHE_HOME": _CACHE,
        "HF_HOME": f"{_CACHE}/huggingface",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": f"{_CACHE}/vllm",
        "TRITON_CACHE_DIR": f"{_CACHE}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{_CACHE}/torchinductor",
        "VLLM_NO_USAGE_STATS": "1",
        "NCCL_DEBUG": "WARN",
        "NUMAWISE_PLAN": f"{names.GATE_MOUNT}/plan.json",
    }
    if model.resources.vendor == "nvidia":
        # The gate and NVML count GPUs by PCI address; CUDA has to as well, or rank 0 is another GPU than the gate thinks.
        values["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if model.placement.rank_binding is not None:
        values["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # vLLM binds only workers that it spawns
    values |= model.engine.env
    entries: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    if "VLLM_HOST_IP" not in values:
        entries.append({"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}})
    for variable, key in (("VLLM_API_KEY", "api-key"), ("HF_TOKEN", "hub-token")):
        if model.engine.credentials_secret is not None:
            # Which of the two keys it has is its owner's business; check() says what is missing.
            reference = {"name": model.engine.credentials_secret, "key": key, "optional": True}
            entries.append({"name": variable, "valueFrom": {"secretKeyRef": reference}})
        elif key in secrets:
            entries.append(
                {"name": variable, "valueFrom": {"secretKeyRef": {"name": names.credentials(model), "key": key}}},
            )
    return entries


def main_container(model: ModelPlan, secrets: Iterable[str]) -> dict[str, Any]:
    return {
        "name": names.MAIN_CONTAINER,
        "image": model.engine.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", f"{names.GATE_MOUNT}/gate.py"],
        "args": vllm_command(model),
        "env": environment(model, secrets),
        "ports": [{"name": "http", "containerPort": names.HTTP_PORT, "protocol": "TCP"}],
        "resources": equal_resources(
            {
                "cpu": str(model.resources.cpu),
                "memory": format_bytes(model.resources.memory_bytes),
                model.resources.resource_name: str(model.parallelism.gpus_per_pod),
            }
        ),
        **probes(model.times.startup_budget_seconds),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "securityContext": dict(restricted_container()),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": names.MODELS_VOLUME, "mountPath": model.engine.storage.mount_path, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "cache", "mountPath": _CACHE},
            {"name": "gate", "mountPath": names.GATE_MOUNT, "readOnly": True},
        ],
    }


def equal_resources(amounts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Requests = limits: with it in every container a pod is Guaranteed."""
    return {"requests": dict(amounts), "limits": dict(amounts)}


def restricted_container() -> dict[str, Any]:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def probes(startup_budget_seconds: int) -> dict[str, Any]:
    """Startup waits for the weights; liveness begins after it, and a busy server that answers late is not killed for it."""
    health = {"httpGet": {"path": "/health", "port": "http"}}
    return {
        "startupProbe": {
            **health,
            "periodSeconds": _PROBE_PERIOD_SECONDS,
            "timeoutSeconds": 5,
            "failureThreshold": -(-startup_budget_seconds // _PROBE_PERIOD_SECONDS),
        },
        "readinessProbe": {"httpGet": dict(health["httpGet"]), "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {"httpGet": dict(health["httpGet"]), "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
    }
