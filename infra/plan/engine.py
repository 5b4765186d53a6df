"""Checks engine arguments and environment of a model before they reach a server that would exit with its usage text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from infra.catalog.entries import DATA
from infra.catalog.reading import parse_yaml
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
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class EngineFlags:
    """The flags of one vLLM version, without dashes; `replaced` maps flags that are gone to what to write instead."""

    version: str
    flags: frozenset[str]
    replaced: Mapping[str, str]


@cache
def engine_flags() -> EngineFlags:
    """The flags of the pinned vLLM."""
    document = parse_yaml((DATA / "vllm_flags.yaml").read_bytes(), "vllm_flags.yaml")
    return EngineFlags(version=document["version"], flags=frozenset(document["flags"]), replaced=document["replaced"])


def engine_problems(model: Model, path: str) -> Iterator[Diagnosis]:
    """Errors in `engineArgs` and `env` of a model."""
    for name, value in model.engine_args.items():
        yield from _flag_problems(name, value, f"{path}.engineArgs.{name}", own_image=model.image is not None)
    for name, value in model.env.items():
        yield from _variable_problems(name, value, f"{path}.env.{name}")


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


def _flag_problems(name: str, value: Any, path: str, *, own_image: bool) -> Iterator[Diagnosis]:
    known = engine_flags()
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
    elif flag in known.replaced:
        instead = known.replaced[flag]
        yield Diagnosis(
            path=path,
            code="RemovedFlag",
            message=f"is no flag of vLLM {known.version}; " + (f"write {instead}" if instead else "leave it out"),
        )
    elif flag not in known.flags and not own_image:
        positive = flag.removeprefix("no-")
        remedy = f" Write {positive}: false." if positive in known.flags else did_you_mean(flag, known.flags)
        yield Diagnosis(
            path=path,
            code="UnknownFlag",
            message=f"is no flag of vLLM {known.version}; the server would exit with its usage text.{remedy}",
        )


def _variable_problems(name: str, value: str, path: str) -> Iterator[Diagnosis]:
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
