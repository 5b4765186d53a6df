"""What a model takes of a GPU and what is left for the KV cache, as a range, for one size and one version of vLLM."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from infra.catalog.types import Accelerator
from infra.plan.architecture.partition import ONE_GPU, ParallelSizes
from infra.plan.architecture.precision import resolve_dtype
from infra.plan.architecture.types import Architecture
from infra.plan.memory.activation import profile_tokens
from infra.plan.memory.block_size import default_block_size
from infra.plan.memory.checks import HIGHEST_PROMISED, cache_check, fixed_cache_check, free_memory_check, state_check, warm_up_check
from infra.plan.memory.kv_cache import KvCacheSpec, KvCapacity, in_flight_tokens
from infra.plan.memory.kv_layout import kv_cache_spec
from infra.plan.memory.options import ENGINE_DEFAULTS, EngineOptions, ProfileRun
from infra.plan.memory.profile import engine_memory
from infra.plan.memory.span import Span
from infra.plan.memory.stages import stage_memory, total_bytes_of
from infra.plan.memory.types import MemoryEstimate, Tokens
from infra.units import GIB

DEFAULT_CONTEXT = 4096
PADDED_LATENT_HEAD = 256


@cache
def estimate_memory(
    architecture: Architecture,
    accelerator: Accelerator,
    sizes: ParallelSizes = ONE_GPU,
    options: EngineOptions = ENGINE_DEFAULTS,
) -> MemoryEstimate:
    """Memory of each rank and the verdict.

    The sizes must be ones that vLLM accepts (infra.plan.parallelism.choice). The tensor-parallel ranks reach each other over the
    device's own fabric. PlanError where the device's memory is not known; ConfigError for a dtype or quantization that does not go
    with the model.
    """
    engine = engine_memory(options.vllm_version)
    total_bytes = total_bytes_of(accelerator)
    utilization = engine.gpu_memory_utilization if options.gpu_memory_utilization is None else options.gpu_memory_utilization
    batch = engine.batch_size(accelerator)
    length = options.max_model_len or architecture.max_position_embeddings or DEFAULT_CONTEXT
    batched = options.max_num_batched_tokens or batch.max_num_batched_tokens
    sequences = min(options.max_num_seqs or batch.max_num_seqs, batched)
    dtype = resolve_dtype(architecture, options.dtype)
    cache = kv_cache_spec(
        architecture if engine.latent_cache or not architecture.is_mla else _without_latent_cache(architecture),
        tensor_parallel_size=sizes.tensor_parallel_size,
        pipeline_parallel_size=sizes.pipeline_parallel_size,
        kv_cache_dtype=options.kv_cache_dtype or "auto",
        block_size=options.block_size or default_block_size(architecture, accelerator, length),
        dtype=dtype,
        enable_prefix_caching=options.enable_prefix_caching,
    )
    run = ProfileRun(
        tokens=profile_tokens(engine, architecture, batched, length),
        sequences=sequences,
        table_tokens=max(length, architecture.max_position_embeddings),
        dtype=dtype,
        quantization=options.quantization,
        gpu_memory_utilization=utilization,
        enforce_eager=options.enforce_eager,
        offload_bytes=round(options.cpu_offload_gib * GIB),
        fixed_cache_bytes=options.kv_cache_memory_bytes,
    )
    requested, stages = stage_memory(architecture, accelerator, engine, sizes, run)
    in_flight = in_flight_tokens(batched, sizes.pipeline_parallel_size)
    rooms = [[getattr(stage.available, end) for stage in stages] for end in ("low", "expected", "high")]
    low, expected, high = (cache.capacity(room, length, in_flight) for room in rooms)
    checks = [cache_check(cache, length, in_flight, stages)]
    if options.kv_cache_memory_bytes is not None:
        checks.append(fixed_cache_check(engine, accelerator, options.kv_cache_memory_bytes, stages))
    elif engine.engine == "V1" or utilization > HIGHEST_PROMISED:
        checks.append(free_memory_check(engine, accelerator, utilization, sizes.gpus))
    if not options.enforce_eager:
        if engine.warm_up_outside_budget:
            checks.append(warm_up_check(engine, architecture, accelerator, requested, stages))
        if engine.graphs_in_budget and (architecture.linear is not None or architecture.state_space is not None):
            checks.append(state_check(sequences, low, high))
    return MemoryEstimate(
        architecture=architecture,
        accelerator=accelerator,
        engine=engine,
        sizes=sizes,
        options=options,
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
    )


@cache
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
