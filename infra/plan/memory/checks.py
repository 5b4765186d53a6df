"""The conditions of a start, each judged at the low and at the high end of the range."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from infra.catalog.types import Accelerator
from infra.plan.architecture.types import Architecture
from infra.plan.memory.kv_cache import KvCacheSpec, KvCapacity
from infra.plan.memory.profile import EngineMemory
from infra.plan.memory.span import Span
from infra.plan.memory.stages import total_bytes_of
from infra.plan.memory.types import Check, StageMemory
from infra.units import GIB


def cache_check(cache: KvCacheSpec, max_model_len: int, in_flight_tokens: int, stages: Sequence[StageMemory]) -> Check:
    """The cache must hold one request of full length, on every stage; a stage without any cache must load at least."""
    needed = cache.needed_bytes(max_model_len, in_flight_tokens)
    tightest = min(stages, key=lambda stage: stage.available.expected - needed[stage.stage])
    room, need = tightest.available, needed[tightest.stage]
    if room.high <= 0:
        failure = f"nothing is left for the KV cache: weights, activations and buffers exceed the budget by {-room.expected / GIB:.1f} GiB"
    else:
        failure = (
            f"one request of {max_model_len:,} tokens needs {need / GIB:.2f} GiB of KV cache; "
            f"{max(0.0, room.low) / GIB:.2f} to {room.high / GIB:.2f} GiB are left"
        )
    return Check(
        holds_low=all(stage.available.low >= max(needed[stage.stage], 1) for stage in stages),
        holds_high=all(stage.available.high >= max(needed[stage.stage], 1) for stage in stages),
        failure=failure,
    )


HIGHEST_PROMISED = 0.98  # utilisation; above it, driver and contexts of other versions and cards have taken what a start asks for


def free_memory_check(engine: EngineMemory, accelerator: Accelerator, utilization: float, ranks: int) -> Check:
    """vLLM stops at once where less is free than the budget: contexts and the driver have taken theirs before."""
    total_bytes = total_bytes_of(accelerator)
    baseline = engine.baselines[accelerator.vendor].of(total_bytes)
    wanted = total_bytes * utilization
    taken = baseline.expected if ranks == 1 else baseline.high
    highest = min(HIGHEST_PROMISED, floor(100 * (total_bytes - taken) / total_bytes) / 100)
    return Check(
        holds_low=wanted <= total_bytes - taken and utilization <= HIGHEST_PROMISED,
        holds_high=wanted <= total_bytes - baseline.low,
        failure=f"gpu_memory_utilization {utilization:g} asks for {wanted / GIB:.2f} GiB; about {(total_bytes - taken) / GIB:.2f} of"
        f" {total_bytes / GIB:.2f} GiB are free at start"
        + (f", and above {HIGHEST_PROMISED} nothing is promised" if utilization > HIGHEST_PROMISED else "")
        + f"; use at most {highest:.2f}",
    )


def fixed_cache_check(engine: EngineMemory, accelerator: Accelerator, cache_bytes: int, stages: Sequence[StageMemory]) -> Check:
    """A cache of given size must fit the device beside everything else; vLLM checks nothing, and runs out of memory."""
    total_bytes = total_bytes_of(accelerator)
    free = total_bytes - engine.baselines[accelerator.vendor].of(total_bytes).expected
    taken = Span.maximum(*(stage.weights + stage.communication + stage.activation.peak + stage.graphs for stage in stages))
    return Check(
        holds_low=taken.high + cache_bytes <= free,
        holds_high=taken.low + cache_bytes <= free,
        failure=f"kv_cache_memory_bytes {cache_bytes / GIB:.2f} GiB and {taken.low / GIB:.2f} to {taken.high / GIB:.2f} GiB for the rest exceed the"
        f" {free / GIB:.2f} GiB that are free at start; use at most {max(0, floor(free - taken.high))}",
    )


def warm_up_check(
    engine: EngineMemory,
    architecture: Architecture,
    accelerator: Accelerator,
    requested: Span,
    stages: Sequence[StageMemory],
) -> Check:
    """Versions that warm the sampler up after the cache is taken, with graphs beside the budget: both must find room outside it."""
    total_bytes = total_bytes_of(accelerator)
    outside = total_bytes - requested.expected - engine.baselines[accelerator.vendor].of(total_bytes).expected
    layer = engine.captured_bytes_a_layer["moe" if architecture.is_moe else "dense"]
    needed = layer.expected * (architecture.layers // len(stages)) + stages[-1].activation.sampler.expected
    return Check(
        holds_low=needed <= outside,
        holds_high=True,
        failure=f"beside the budget {outside / GIB:.1f} GiB stay free; graphs and the sampler's warm-up take about {needed / GIB:.1f} GiB there in this"
        " version: lower gpu_memory_utilization or max_num_seqs",
    )


def state_check(sequences: int, low: KvCapacity, high: KvCapacity) -> Check:
    """With full CUDA graphs every sequence needs a block for its state."""
    return Check(
        holds_low=sequences <= low.blocks,
        holds_high=sequences <= high.blocks,
        failure=f"max_num_seqs {sequences} exceeds the {low.blocks} to {high.blocks} cache blocks, and each sequence needs one for its state;"
        f" use max_num_seqs {max(1, low.blocks)}",
    )
