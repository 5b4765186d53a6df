"""What a model takes of a GPU and what is left for the KV cache, as a range, for one size and one version of vLLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import floor
from typing import Any

from infra.catalog.types import Accelerator
from infra.plan.architecture.types import Architecture
from infra.plan.memory.activation import profile_tokens
from infra.plan.memory.kv_cache import KvCacheSpec, KvCapacity, in_flight_tokens, kv_cache_spec
from infra.plan.memory.profile import EngineMemory, Span, engine_memory
from infra.plan.memory.stages import stage_memory, total_bytes_of
from infra.plan.memory.types import Check, MemoryEstimate, StageMemory, Tokens, Verdict
from infra.plan.memory.weights import resolve_dtype
from infra.units import GIB

__all__ = [
    "Check",
    "MemoryEstimate",
    "Span",
    "StageMemory",
    "Tokens",
    "Verdict",
    "block_size_refusal",
    "default_block_size",
    "estimate_memory",
    "options_of_engine_args",
]

# by max_model_len: AITER's unified attention prefers 64, short contexts waste less with 16
AMD_BLOCK_SIZES = ((32_768, 16), (65_536, 32), (None, 64))
DEFAULT_CONTEXT = 4096
BLOCK_STEP = 16
PADDED_LATENT_HEAD = 256


def options_of_engine_args(engine_args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of estimate_memory() that vLLM's flags (without dashes, as in a stack file's engineArgs) decide; values of a wrong type are left out."""
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


def default_block_size(architecture: Architecture, accelerator: Accelerator, max_model_len: int) -> int:
    """Tokens a block where none are given: 16 on NVIDIA (64 for MLA's kernels), on AMD 16, 32 or 64 by context."""
    if accelerator.vendor == "nvidia":
        return 64 if architecture.is_mla else 16
    return next(size for limit, size in AMD_BLOCK_SIZES if limit is None or max_model_len <= limit)


def block_size_refusal(architecture: Architecture, accelerator: Accelerator, block_size: int) -> str | None:
    """Why no attention backend takes this block size, with the nearest that one does; None where it works.

    Source: the backends' supported kernel block sizes in vLLM 0.33.0: multiples of 16; AITER's MLA takes any.
    """
    if block_size % BLOCK_STEP == 0 or (architecture.is_mla and accelerator.vendor == "amd"):
        return None
    near = max(BLOCK_STEP, round(block_size / BLOCK_STEP) * BLOCK_STEP)
    return f"is {block_size}; the attention backends take multiples of {BLOCK_STEP}. Use {near}."


@lru_cache(maxsize=65536)
def estimate_memory(
    architecture: Architecture,
    accelerator: Accelerator,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    gpu_memory_utilization: float | None = None,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    block_size: int | None = None,
    dtype: str | None = None,
    quantization: str | None = None,
    kv_cache_dtype: str | None = None,
    vllm_version: str | None = None,
    enforce_eager: bool = False,
    expert_parallel: bool = False,
    data_parallel_size: int = 1,
    linked: bool | None = None,
    cpu_offload_gib: float = 0.0,
    kv_cache_memory_bytes: int | None = None,
    enable_prefix_caching: bool = True,
) -> MemoryEstimate:
    """Memory of each rank and the verdict. What is None is vLLM's default for the version and the device.

    The sizes must be ones that vLLM accepts (infra.plan.parallelism.choice). `linked`: the tensor-parallel ranks reach each other over NVLink or xGMI; None takes the
    device's own fabric. `cpu_offload_gib` of each rank's weights stay in host memory (cpu_offload_gb); `kv_cache_memory_bytes` replaces the whole
    computation of the cache, utilisation included. PlanError where the device's memory is not known; ConfigError for a dtype or quantization that does not go with the model.
    """
    options = tuple((name, value) for name, value in locals().items() if name not in ("architecture", "accelerator"))
    engine = engine_memory(vllm_version)
    total_bytes = total_bytes_of(accelerator)
    utilization = engine.gpu_memory_utilization if gpu_memory_utilization is None else gpu_memory_utilization
    batch = engine.batch_size(accelerator)
    length = max_model_len or architecture.max_position_embeddings or DEFAULT_CONTEXT
    batched = max_num_batched_tokens or batch.max_num_batched_tokens
    sequences = min(max_num_seqs or batch.max_num_seqs, batched)
    dtype = resolve_dtype(architecture, dtype)
    cache = kv_cache_spec(
        architecture if engine.latent_cache or not architecture.is_mla else _without_latent_cache(architecture),
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        kv_cache_dtype=kv_cache_dtype or "auto",
        block_size=block_size or default_block_size(architecture, accelerator, length),
        dtype=dtype,
        enable_prefix_caching=enable_prefix_caching,
    )
    requested, stages = stage_memory(
        architecture,
        accelerator,
        engine,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        data_parallel_size=data_parallel_size,
        expert_parallel=expert_parallel,
        gpu_memory_utilization=utilization,
        tokens=profile_tokens(engine, architecture, batched, length),
        sequences=sequences,
        dtype=dtype,
        quantization=quantization,
        table_tokens=max(length, architecture.max_position_embeddings),
        enforce_eager=enforce_eager,
        linked=accelerator.fabric.is_fast if linked is None else linked,
        offload_bytes=round(cpu_offload_gib * GIB),
        fixed_cache_bytes=kv_cache_memory_bytes,
    )
    in_flight = in_flight_tokens(batched, pipeline_parallel_size)
    rooms = [[getattr(stage.available, end) for stage in stages] for end in ("low", "expected", "high")]
    low, expected, high = (cache.capacity(room, length, in_flight) for room in rooms)
    checks = [_cache_check(cache, rooms, length, in_flight, stages)]
    ranks = tensor_parallel_size * pipeline_parallel_size * data_parallel_size
    if kv_cache_memory_bytes is not None:
        checks.append(_fixed_cache_check(engine, accelerator, total_bytes, kv_cache_memory_bytes, stages))
    elif engine.engine == "V1":
        checks.append(_free_memory_check(engine, accelerator, total_bytes, utilization, ranks))
    if not enforce_eager:
        if engine.warm_up_outside_budget:
            checks.append(_warm_up_check(engine, architecture, accelerator, total_bytes, requested, stages))
        if engine.graphs_in_budget and (architecture.linear is not None or architecture.state_space is not None):
            checks.append(_state_check(sequences, low, high))
    return MemoryEstimate(
        architecture=architecture,
        accelerator=accelerator,
        engine=engine,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        data_parallel_size=data_parallel_size,
        expert_parallel=expert_parallel,
        gpu_memory_utilization=utilization,
        max_model_len=length,
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        in_flight_tokens=in_flight,
        total_bytes=total_bytes,
        requested=requested,
        stages=stages,
        cache=cache,
        blocks=Tokens(low=low.blocks, expected=expected.blocks, high=high.blocks),
        tokens=Tokens(low=_tokens(cache, low), expected=_tokens(cache, expected), high=_tokens(cache, high)),
        concurrency=Span(low=low.max_concurrency, expected=expected.max_concurrency, high=high.max_concurrency),
        checks=tuple(checks),
        options=options,
    )


@lru_cache(maxsize=64)
def _without_latent_cache(architecture: Architecture) -> Architecture:
    """The same model as vLLM before 0.7 cached it: keys and values of every head, padded to 256."""
    width = PADDED_LATENT_HEAD
    return replace(
        architecture,
        mla=None,
        attention=("full",) * architecture.layers,
        kv_heads=architecture.heads,
        head_dim=width,
        v_head_dim=width,
        global_head_dim=None,
        global_kv_heads=None,
    )


def _tokens(cache: KvCacheSpec, capacity: KvCapacity) -> int:
    if len(cache.groups) == 1 and cache.groups[0].cache.kind == "full":
        return capacity.blocks * cache.groups[0].cache.block_tokens
    return capacity.tokens


def _cache_check(
    cache: KvCacheSpec, rooms: Sequence[Sequence[float]], length: int, in_flight: int, stages: Sequence[StageMemory]
) -> Check:
    needed = cache.needed_bytes(length, in_flight)
    low, _, high = ([room >= max(need, 1) for room, need in zip(end, needed, strict=True)] for end in rooms)
    tightest = min(stages, key=lambda stage: stage.available.expected - needed[stage.stage])
    room, need = tightest.available, needed[tightest.stage]
    if room.high <= 0:
        failure = f"nothing is left for the KV cache: weights, activations and buffers exceed the budget by {-room.expected / GIB:.1f} GiB"
    else:
        failure = (
            f"one request of {length:,} tokens needs {need / GIB:.2f} GiB of KV cache; "
            f"{max(0.0, room.low) / GIB:.2f} to {room.high / GIB:.2f} GiB are left"
        )
    return Check(holds_low=all(low), holds_high=all(high), failure=failure)


def _free_memory_check(engine: EngineMemory, accelerator: Accelerator, total_bytes: int, utilization: float, ranks: int) -> Check:
    """vLLM stops at once where less is free than the budget: contexts and the driver have taken theirs before."""
    baseline = engine.baselines[accelerator.vendor].of(total_bytes)
    wanted = total_bytes * utilization
    taken = baseline.expected if ranks == 1 else baseline.high
    return Check(
        holds_low=wanted <= total_bytes - taken,
        holds_high=wanted <= total_bytes - baseline.low,
        failure=f"gpu_memory_utilization {utilization:g} asks for {wanted / GIB:.2f} GiB; about {(total_bytes - taken) / GIB:.2f} of"
        f" {total_bytes / GIB:.2f} GiB are free at start, so use at most {floor(100 * (total_bytes - taken) / total_bytes) / 100:.2f}",
    )


def _fixed_cache_check(
    engine: EngineMemory, accelerator: Accelerator, total_bytes: int, cache_bytes: int, stages: Sequence[StageMemory]
) -> Check:
    """A cache of given size must fit the device beside everything else; vLLM checks nothing, and runs out of memory."""
    free = total_bytes - engine.baselines[accelerator.vendor].of(total_bytes).expected
    taken = Span.maximum(*(stage.weights + stage.communication + stage.activation.peak + stage.graphs for stage in stages))
    return Check(
        holds_low=taken.high + cache_bytes <= free,
        holds_high=taken.low + cache_bytes <= free,
        failure=f"kv_cache_memory_bytes {cache_bytes / GIB:.2f} GiB and {taken.low / GIB:.2f} to {taken.high / GIB:.2f} GiB for the rest exceed the"
        f" {free / GIB:.2f} GiB that are free at start; use at most {max(0, floor(free - taken.high))}",
    )


def _warm_up_check(
    engine: EngineMemory,
    architecture: Architecture,
    accelerator: Accelerator,
    total_bytes: int,
    requested: Span,
    stages: Sequence[StageMemory],
) -> Check:
    """Versions that warm the sampler up after the cache is taken, with graphs beside the budget: both must find room outside it."""
    outside = total_bytes - requested.expected - engine.baselines[accelerator.vendor].of(total_bytes).expected
    layer = engine.captured_bytes_a_layer["moe" if architecture.is_moe else "dense"]
    needed = layer.expected * (architecture.layers // len(stages)) + stages[-1].activation.sampler.expected
    return Check(
        holds_low=needed <= outside,
        holds_high=True,
        failure=f"beside the budget {outside / GIB:.1f} GiB stay free; graphs and the sampler's warm-up take about {needed / GIB:.1f} GiB there in this"
        " version: lower gpu_memory_utilization or max_num_seqs",
    )


def _state_check(sequences: int, low: KvCapacity, high: KvCapacity) -> Check:
    """With full CUDA graphs every sequence needs a block for its state."""
    return Check(
        holds_low=sequences <= low.blocks,
        holds_high=sequences <= high.blocks,
        failure=f"max_num_seqs {sequences} exceeds the {low.blocks} to {high.blocks} cache blocks, and each sequence needs one for its state;"
        f" use max_num_seqs {max(1, low.blocks)}",
    )
