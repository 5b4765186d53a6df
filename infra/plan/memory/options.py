"""vLLM's options that decide memory, and what a start-up makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """vLLM's options under its own names; what is None is its default for the version and the device.

    `cpu_offload_gib` of each rank's weights stay in host memory (cpu_offload_gb). `kv_cache_memory_bytes` replaces the whole
    computation of the cache, utilisation included.
    """

    vllm_version: str | None = None
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    kv_cache_memory_bytes: int | None = None
    cpu_offload_gib: float = 0.0
    enforce_eager: bool = False
    enable_prefix_caching: bool = True


ENGINE_DEFAULTS = EngineOptions()


@dataclass(frozen=True, kw_only=True)
class ProfileRun:
    """What decides the memory of a start-up before its cache: the batch of the profile run, with all defaults filled in.

    `tokens` and `sequences` are that batch; `table_tokens` the positions of the rotary table. `offload_bytes` of each rank's
    weights stay in host memory; `fixed_cache_bytes` is the cache whatever is left (kv_cache_memory_bytes).
    """

    tokens: int
    sequences: int
    table_tokens: int
    dtype: str
    quantization: str | None
    gpu_memory_utilization: float
    enforce_eager: bool
    offload_bytes: int = 0
    fixed_cache_bytes: int | None = None


def options_of_engine_args(engine_args: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of EngineOptions that vLLM's flags (without dashes, as in a stack file's engineArgs) decide; values of a wrong
    type are left out."""
    options: dict[str, Any] = {}
    offload, cache = engine_args.get("cpu-offload-gb"), engine_args.get("kv-cache-memory-bytes")
    if isinstance(offload, int | float) and not isinstance(offload, bool) and offload > 0:
        options["cpu_offload_gib"] = float(offload)
    if isinstance(cache, int) and not isinstance(cache, bool) and cache > 0:
        options["kv_cache_memory_bytes"] = cache
    if engine_args.get("enforce-eager") is True:
        options["enforce_eager"] = True
    if engine_args.get("enable-prefix-caching") is False:
        options["enable_prefix_caching"] = False
    return options
