"""Checks engine arguments and environment of a model before they reach a server that would exit with its usage text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from infra.catalog.engine_releases import EngineRelease, flag_spans, replaced_flags, variable_spans
from infra.catalog.vendors import vendors
from infra.config.models import Model
from infra.diagnosis import Diagnosis, did_you_mean, shown

# Flags that a field of the model decides: given twice, the plan and the server would disagree.
FIELD_OF_FLAG = {
    "tensor-parallel-size": "tensorParallelSize",
    "pipeline-parallel-size": "pipelineParallelSize",
    "data-parallel-size": "dataParallelSize",
    "enable-expert-parallel": "enableExpertParallel",
    "gpu-memory-utilization": "gpuMemoryUtilization",
    "device-memory-utilization": "gpuMemoryUtilization",
    "max-model-len": "maxModelLen",
    "max-num-seqs": "maxNumSeqs",
    "max-num-batched-tokens": "maxNumBatchedTokens",
    "block-size": "blockSize",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv-cache-dtype": "kvCacheDtype",
    "model": "model",
}
# Flags that follow from the placement or from the Service.
DECIDED_FLAGS = frozenset(
    {
        "port",
        "host",
        "numa-bind",
        "numa-bind-nodes",
        "numa-bind-cpus",
        "nnodes",
        "node-rank",
        "master-addr",
        "headless",
        "device-ids",
    }
)
SECRET_FLAGS = {"api-key": "numawise:apiKey", "hf-token": "numawise:hubToken"}
SECRET_VARIABLES = {
    "HF_TOKEN": "numawise:hubToken",
    "HUGGING_FACE_HUB_TOKEN": "numawise:hubToken",
    "VLLM_API_KEY": "numawise:apiKey",
}
_INSTEAD_OF_VARIABLE = {"VLLM_ATTENTION_BACKEND": "engineArgs attention-backend: NAME"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


def engine_problems(model: Model, path: str, release: EngineRelease, *, own_image: bool = False) -> Iterator[Diagnosis]:
    """Errors in `engineArgs`, `env` and the fields of a model that are flags. An `own_image` may know flags and variables that no release of vLLM does."""
    for name, value in model.engine_args.items():
        yield from _flag_problems(name, value, f"{path}.engineArgs.{name}", release, own_image=own_image)
    for name, value in model.env.items():
        yield from _variable_problems(name, value, f"{path}.env.{name}", release, own_image=own_image)
    yield from _field_problems(model, path, release)
    batched, sequences = model.max_num_batched_tokens, model.max_num_seqs
    if batched is not None and sequences is not None and batched < sequences:
        yield Diagnosis(
            path=f"{path}.maxNumBatchedTokens",
            code="BatchBelowSequences",
            message=f"is {batched}, below maxNumSeqs {sequences}: vLLM refuses that. Use at least {sequences}",
        )


def _field_problems(model: Model, path: str, release: EngineRelease) -> Iterator[Diagnosis]:
    """Fields that are given, whose flag this release does not have."""
    known = {FIELD_OF_FLAG[flag] for flag in FIELD_OF_FLAG if flag in release.flags}
    for flag, field in FIELD_OF_FLAG.items():
        if field not in known and _is_given(model, field):
            spans = flag_spans().of(flag)
            if spans:
                yield Diagnosis(
                    path=f"{path}.{field}",
                    code="UnknownFlag",
                    message=f"is --{flag}, which vLLM {release.version} does not have ({spans} do); leave it out",
                )


def _is_given(model: Model, field: str) -> bool:
    return any(
        info.alias == field and getattr(model, name) != info.get_default(call_default_factory=True)
        for name, info in type(model).model_fields.items()
    )


def engine_warnings(model: Model, path: str) -> Iterator[Diagnosis]:
    """What works, but probably not as meant."""
    for name in model.env:
        if name == "NCCL_P2P_DISABLE" and model.env[name] not in ("0", ""):
            yield Diagnosis.warning(
                path=f"{path}.env.{name}",
                code="PeerToPeerDisabled",
                message="turns NVLink and xGMI off for collectives; leave it out unless a fault of the machine needs it",
            )
        if name == "NCCL_NET_GDR_LEVEL":
            yield Diagnosis.warning(
                path=f"{path}.env.{name}",
                code="CollectiveOverride",
                message="overrides what the library finds by itself; leave it out unless the fabric's vendor asks for it",
            )


READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"
DEFAULT_READY_SECONDS = 600  # vLLM 0.14.0 to 0.33.0, envs.py; before, a constant of v1/engine/core_client.py


def engine_variables(
    model: Model, release: EngineRelease, data_parallel_size: int, startup_seconds: int
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment of the server beside what every pod has, and why.

    An API server that is a process beside the engine waits READY_TIMEOUT seconds for it (v1/engine/core_client.py): with data parallel or several
    API servers. A single one starts the engine itself and waits as long as it takes; its pods get no variable that would change nothing.
    """
    servers = model.engine_args.get("api-server-count", data_parallel_size)
    apart = data_parallel_size > 1 or (isinstance(servers, int) and servers > 1)
    if not apart or READY_TIMEOUT in model.env:
        return dict(model.env), ()
    who = f"data parallel {data_parallel_size}" if data_parallel_size > 1 else f"{servers} API servers"
    if READY_TIMEOUT in release.variables:
        reason = f"{READY_TIMEOUT} {startup_seconds}, the startup budget: with {who} vLLM gives its engines up after {DEFAULT_READY_SECONDS} s otherwise."
        return {READY_TIMEOUT: str(startup_seconds), **model.env}, (reason,)
    if startup_seconds <= DEFAULT_READY_SECONDS:
        return dict(model.env), ()
    reason = f"with {who} vLLM {release.version} gives its engines up after {DEFAULT_READY_SECONDS} s, and the startup budget is {startup_seconds} s: from 0.14 on that can be set."
    return dict(model.env), (reason,)


def _flag_problems(name: str, value: Any, path: str, release: EngineRelease, *, own_image: bool) -> Iterator[Diagnosis]:
    flag = name.lstrip("-").replace("_", "-")
    if name.startswith("-"):
        yield Diagnosis(path=path, code="FlagWithDashes", message=f"is written without dashes: {flag}")
    if flag in FIELD_OF_FLAG:
        yield Diagnosis(
            path=path, code="FlagOfField", message=f"is decided by a field of its own; write {FIELD_OF_FLAG[flag]}: {value}"
        )
    elif flag in SECRET_FLAGS:
        yield Diagnosis(
            path=path,
            code="SecretInClear",
            message=f"would stand in the state in clear; run pulumi config set --secret {SECRET_FLAGS[flag]}",
        )
    elif flag in DECIDED_FLAGS:
        yield Diagnosis(path=path, code="FlagOfPlacement", message="follows from the placement; leave it out")
    elif flag not in release.flags:
        yield from _unknown_flag(flag, path, release, own_image=own_image)
    elif value is False and flag in release.without_negation:
        yield Diagnosis(
            path=path,
            code="FlagWithoutNegation",
            message=f"is false, and vLLM {release.version} has no --no-{flag}; leave it out",
        )


def _unknown_flag(flag: str, path: str, release: EngineRelease, *, own_image: bool) -> Iterator[Diagnosis]:
    instead, spans = replaced_flags().get(flag), flag_spans().of(flag)
    if instead is not None and (not instead or instead.split(":")[0] in release.flags):
        remedy = f"write {instead}" if instead else "leave it out"
        yield Diagnosis(path=path, code="RemovedFlag", message=f"is no flag of vLLM {release.version}; {remedy}")
    elif spans:
        yield Diagnosis(
            path=path, code="UnknownFlag", message=f"is no flag of vLLM {release.version}, but of {spans}; leave it out"
        )
    elif not own_image:
        positive = flag.removeprefix("no-")
        remedy = f" Write {positive}: false." if positive in release.flags else did_you_mean(flag, release.flags)
        yield Diagnosis(
            path=path,
            code="UnknownFlag",
            message=f"is no flag of vLLM {release.version}; the server would exit with its usage text.{remedy}",
        )


def _variable_problems(name: str, value: str, path: str, release: EngineRelease, *, own_image: bool) -> Iterator[Diagnosis]:
    if name.startswith("VLLM_") and name not in release.variables:
        yield from _unread_variable(name, path, release, own_image=own_image)
    if not _VARIABLE.match(name):
        yield Diagnosis(path=path, code="InvalidValue", message="is no name of an environment variable; use letters, digits and _")
    if any(name in vendor.visibility_variables for vendor in vendors().values()):
        yield Diagnosis(
            path=path,
            code="DeviceVisibility",
            message="fights the device plugin, which decides what a container sees; leave it out",
        )
    if name in SECRET_VARIABLES:
        yield Diagnosis(
            path=path,
            code="SecretInClear",
            message=f"would stand in the state in clear; run pulumi config set --secret {SECRET_VARIABLES[name]}",
        )
    if name == "VLLM_PORT":
        yield Diagnosis(
            path=path, code="InternalPort", message="is vLLM's port between its own processes, not the API's; leave it out"
        )
    if name == "VLLM_HOST_IP":
        yield Diagnosis(
            path=path, code="FixedAddress", message="is each pod's own address and is set from status.podIP; leave it out"
        )
    if (
        name == "NCCL_SOCKET_IFNAME"
        and value.startswith("^")
        and any(not part.strip().startswith("^") for part in value.split(","))
    ):
        yield Diagnosis(
            path=path,
            code="InvalidValue",
            message=f"{shown(value)} excludes all of its names, also those without ^; write either names or ^name1,^name2",
        )


def _unread_variable(name: str, path: str, release: EngineRelease, *, own_image: bool) -> Iterator[Diagnosis]:
    spans, instead = variable_spans().of(name), _INSTEAD_OF_VARIABLE.get(name)
    remedy = (
        f"; write {instead}"
        if instead is not None and instead.split(":")[0].removeprefix("engineArgs ") in release.flags
        else "; leave it out"
    )
    if spans:
        yield Diagnosis(
            path=path,
            code="UnknownVariable",
            message=f"is not read by vLLM {release.version}, but by {spans}{remedy}",
        )
    elif not own_image:
        yield Diagnosis(
            path=path,
            code="UnknownVariable",
            message=f"is no variable that vLLM {release.version} reads; it would change nothing.{did_you_mean(name, release.variables)}",
        )
