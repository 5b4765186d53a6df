"""The conditions of a start at, just below and just above their bounds; the verdict, and the sentences about an estimate."""

from __future__ import annotations

from dataclasses import replace
from math import nextafter
from typing import Any

import pytest

from infra.plan.memory.activation import ActivationPeak
from infra.plan.memory.block_size import block_size_refusal, default_block_size, stated_block_size
from infra.plan.memory.checks import cache_check, fixed_cache_check, free_memory_check, state_check, warm_up_check
from infra.plan.memory.kv_cache import KvCapacity
from infra.plan.memory.kv_layout import kv_cache_spec
from infra.plan.memory.options import options_of_engine_args
from infra.plan.memory.profile import engine_memory
from infra.plan.memory.reasons import memory_reasons
from infra.plan.memory.span import NOTHING, Span
from infra.plan.memory.types import Check, MemoryEstimate, StageMemory
from infra.units import GIB
from tests.plan.estimates import estimate_of
from tests.plan.small import LATENT, device, small

ENGINE = engine_memory(None)
GPU = device(torch_gib=100)
USED = ENGINE.baselines["nvidia"].of(100 * GIB)  # 0.4 to 0.8 to 2 GiB


def stage(available: Span, index: int = 0, taken: Span = NOTHING, sampler: float = 0) -> StageMemory:
    peak = ActivationPeak(peak=NOTHING, phase="sampler", layers=NOTHING, sampler=Span.exact(sampler), vision=NOTHING)
    return StageMemory(stage=index, weights=taken, communication=NOTHING, activation=peak, graphs=NOTHING, available=available)


def span(low: float, high: float) -> Span:
    return Span(low=low, expected=(low + high) / 2, high=high)


# 33 tokens are three blocks of 2 x 384 bytes, and the null block
NEED = 4 * 768


@pytest.mark.parametrize(
    ("low", "high", "holds_low", "holds_high"),
    [(NEED, NEED, True, True), (NEED - 1, NEED, False, True), (NEED - 1, NEED - 1, False, False)],
)
def test_the_cache_must_hold_one_request(low: float, high: float, holds_low: bool, holds_high: bool) -> None:
    check = cache_check(kv_cache_spec(small()), 33, 0, [stage(span(low, high))])
    assert (check.holds_low, check.holds_high) == (holds_low, holds_high)


def test_every_stage_must_hold_its_part_and_the_tightest_is_told() -> None:
    spec = kv_cache_spec(small(), pipeline_parallel_size=2)
    rich, poor = stage(span(GIB, 2 * GIB)), stage(span(NEED // 2 - 1, NEED // 2), index=1)
    check = cache_check(spec, 33, 0, [rich, poor])
    assert not check.holds_low and check.holds_high
    assert check.failure == "one request of 33 tokens needs 0.00 GiB of KV cache; 0.00 to 0.00 GiB are left"
    assert cache_check(spec, 33, 0, [rich, replace(rich, stage=1)]).holds_low
    broken = stage(span(-3 * GIB, -GIB), index=1)
    assert "exceed the budget by 2.0 GiB" in cache_check(spec, 33, 0, [rich, broken]).failure
    full = stage(span(-3 * GIB, 0), index=1)
    assert "exceed the budget by 1.5 GiB" in cache_check(spec, 33, 0, [rich, full]).failure
    almost = stage(span(-3 * GIB, 1), index=1)
    assert "0.00 to 0.00 GiB are left" in cache_check(spec, 33, 0, [rich, almost]).failure


@pytest.mark.parametrize(("room", "holds"), [(0, False), (0.5, False), (1, True)])
def test_a_model_without_cache_must_load_at_least(room: float, holds: bool) -> None:
    check = cache_check(kv_cache_spec(small("none")), 33, 0, [stage(Span.exact(room))])
    assert (check.holds_low, check.holds_high) == (holds, holds)


@pytest.mark.parametrize(
    ("utilization", "ranks", "holds_low", "holds_high"),
    [
        (0.98, 1, True, True),
        (nextafter(0.98, 1), 1, False, True),
        (0.992, 1, False, True),
        (0.996, 1, False, True),
        (nextafter(0.996, 1), 1, False, False),
        (0.98, 2, True, True),
        (nextafter(0.98, 1), 2, False, True),
        (0.996, 2, False, True),
    ],
)
def test_the_budget_must_be_free_at_start(utilization: float, ranks: int, holds_low: bool, holds_high: bool) -> None:
    check = free_memory_check(ENGINE, GPU, utilization, ranks)
    assert (check.holds_low, check.holds_high) == (holds_low, holds_high)


def test_what_to_ask_for_instead_is_told() -> None:
    one, two = (free_memory_check(ENGINE, GPU, 0.999, ranks).failure for ranks in (1, 2))
    assert one == (
        "gpu_memory_utilization 0.999 asks for 99.90 GiB; about 99.20 of 100.00 GiB are free at start, and above 0.98 nothing is promised; use at most 0.98"
    )
    assert "about 98.00 of 100.00 GiB are free at start, and above 0.98 nothing is promised; use at most 0.98" in two
    small = device("l40s", torch_gib=5.0)
    told = free_memory_check(ENGINE, small, 0.95, 1)
    assert not told.holds_low and told.failure.endswith("about 4.55 of 5.00 GiB are free at start; use at most 0.91")
    assert free_memory_check(ENGINE, small, 0.91, 1).holds_low


FREE = 100 * GIB - round(0.8 * GIB)


@pytest.mark.parametrize(
    ("cache", "holds_low", "holds_high"),
    [(60 * GIB, True, True), (79 * GIB, False, True), (90 * GIB, False, False)],
)
def test_a_cache_of_given_size_must_fit_beside_the_rest(cache: int, holds_low: bool, holds_high: bool) -> None:
    stages = [stage(NOTHING, taken=span(10 * GIB, 30 * GIB)), stage(NOTHING, taken=span(1, 2))]
    check = fixed_cache_check(ENGINE, GPU, cache, stages)
    assert (check.holds_low, check.holds_high) == (holds_low, holds_high)


def test_a_cache_of_given_size_may_take_all_that_is_free() -> None:
    free = 100 * GIB - USED.expected
    exact = stage(NOTHING, taken=Span.exact(free - 40 * GIB))
    at, above = (fixed_cache_check(ENGINE, GPU, 40 * GIB + more, [exact]) for more in (0, 1))
    assert (at.holds_low, at.holds_high, above.holds_low, above.holds_high) == (True, True, False, False)
    assert above.failure == (
        f"kv_cache_memory_bytes 40.00 GiB and 59.20 to 59.20 GiB for the rest exceed the 99.20 GiB that are free at start; use at most {40 * GIB}"
    )
    assert fixed_cache_check(ENGINE, GPU, 1, [stage(NOTHING, taken=Span.exact(100 * GIB))]).failure.endswith("use at most 0")


def test_graphs_and_the_sampler_find_room_beside_the_budget() -> None:
    requested = Span.exact(90 * GIB)
    outside = 100 * GIB - 90 * GIB - USED.expected
    for kind, mlp in (("dense", "dense"), ("moe", "moe")):
        model = small(("full",) * 5, mlp)
        graphs = ENGINE.captured_bytes_a_layer[kind].expected * 2  # five layers in two stages
        for more, holds in ((0.0, True), (1.0, False)):
            stages = [stage(NOTHING, sampler=10**12), stage(NOTHING, index=1, sampler=outside - graphs + more)]
            check = warm_up_check(ENGINE, model, GPU, requested, stages)
            assert (check.holds_low, check.holds_high) == (holds, True)
            assert check.failure.startswith(
                "beside the budget 9.2 GiB stay free; graphs and the sampler's warm-up take about 9.2 GiB"
            )


@pytest.mark.parametrize(
    ("sequences", "holds_low", "holds_high"), [(8, True, True), (9, False, True), (12, False, True), (13, False, False)]
)
def test_each_sequence_needs_a_block_for_its_state(sequences: int, holds_low: bool, holds_high: bool) -> None:
    low, high = (KvCapacity(blocks=blocks, tokens=0, max_concurrency=1) for blocks in (8, 12))
    check = state_check(sequences, low, high)
    assert (check.holds_low, check.holds_high) == (holds_low, holds_high)
    assert check.failure.endswith(
        f"max_num_seqs {sequences} exceeds the 8 to 12 cache blocks, and each sequence needs one for its state; use max_num_seqs 8"
    )
    assert state_check(1, replace(low, blocks=0), high).failure.endswith("use max_num_seqs 1")


@pytest.mark.parametrize(
    ("kind", "name", "size", "nearest"),
    [
        ("full", "l40s", 16, None),
        ("full", "l40s", 48, None),
        ("full", "l40s", 17, 16),
        ("full", "l40s", 24, 32),
        ("full", "l40s", 1, 16),
        ("full", "l40s", 40, 32),
        ("full", "mi300x", 17, 16),
        ("mla", "l40s", 17, 16),
        ("mla", "mi300x", 17, None),
        ("mla", "mi300x", 16, None),
    ],
)
def test_block_sizes_that_no_backend_takes(kind: str, name: str, size: int, nearest: int | None) -> None:
    refusal = block_size_refusal(small(kind), device(name, torch_gib=1), size)
    assert (refusal and refusal.sentence) == (nearest and f"is {size}; the attention backends take multiples of 16. Use {nearest}.")


@pytest.mark.parametrize(
    ("kind", "name", "length", "size"),
    [
        ("full", "l40s", 10**6, 16),
        ("mla", "l40s", 1, 64),
        ("full", "mi300x", 32_768, 16),
        ("full", "mi300x", 32_769, 32),
        ("mla", "mi300x", 65_536, 32),
        ("full", "mi300x", 65_537, 64),
    ],
)
def test_block_sizes_where_none_is_given(kind: str, name: str, length: int, size: int) -> None:
    assert default_block_size(small(kind), device(name, torch_gib=1), length) == size


@pytest.mark.parametrize(
    ("name", "given", "stated"), [("l40s", None, None), ("l40s", 32, 32), ("mi300x", None, 64), ("mi300x", 16, 16)]
)
def test_a_block_size_is_stated_where_given_and_on_amd(name: str, given: int | None, stated: int | None) -> None:
    assert stated_block_size(device(name, torch_gib=1), given=given, expected=64) == stated
    assert stated_block_size(device(name, torch_gib=1), given=given, expected=64, aiter=True) == given


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ({"cpu-offload-gb": 2.5}, {"cpu_offload_gib": 2.5}),
        ({"cpu-offload-gb": 1}, {"cpu_offload_gib": 1.0}),
        ({"cpu-offload-gb": 0}, {}),
        ({"cpu-offload-gb": -1}, {}),
        ({"cpu-offload-gb": True}, {}),
        ({"kv-cache-memory-bytes": 1}, {"kv_cache_memory_bytes": 1}),
        ({"kv-cache-memory-bytes": 0}, {}),
        ({"kv-cache-memory-bytes": True}, {}),
        ({"kv-cache-memory-bytes": 1.5}, {}),
        ({"enforce-eager": False}, {}),
        ({"enable-prefix-caching": True}, {}),
    ],
)
def test_flags_of_a_wrong_type_say_nothing(flags: dict[str, Any], options: dict[str, Any]) -> None:
    assert options_of_engine_args(flags) == options


def tiny(
    kind: str | tuple[str, ...] = "full", mlp: str = "dense", gib: float = 100.0, name: str = "h100-sxm5-80gb", **arguments: Any
) -> MemoryEstimate:
    return estimate_of(small(kind, mlp), device(name, torch_gib=gib), **arguments)


def test_what_is_not_given_is_the_models_or_vllms() -> None:
    found = tiny(gib=1.0)
    assert (found.max_model_len, found.max_num_batched_tokens, found.max_num_seqs) == (64, 2048, 256)
    assert (found.gpu_memory_utilization, found.block_size, found.in_flight_tokens) == (0.92, 16, 4096)
    unnamed = replace(small(), max_position_embeddings=0)
    assert estimate_of(unnamed, GPU).max_model_len == 4096
    assert estimate_of(unnamed, GPU).largest_max_model_len == 4096
    given = tiny(max_model_len=32, max_num_batched_tokens=8, max_num_seqs=9, block_size=32, gpu_memory_utilization=0.5)
    assert (given.max_model_len, given.max_num_batched_tokens, given.max_num_seqs) == (32, 8, 8)
    assert (given.gpu_memory_utilization, given.block_size, given.in_flight_tokens) == (0.5, 32, 16)
    # the rotary table is as long as the longer of the two
    longer, plain = tiny(max_model_len=128), tiny(max_model_len=32)
    assert longer.weights_bytes - plain.weights_bytes == 64 * 3 * 2 and plain.weights_bytes == found.weights_bytes


def test_a_latent_model_before_0_7_caches_padded_heads() -> None:
    old, new = (tiny("mla", vllm_version=version) for version in ("0.6.6", "0.7.0"))
    assert old.kv_bytes_per_token == 2 * 4 * 2 * 256 * 2
    assert new.kv_bytes_per_token == 2 * (LATENT.kv_lora_rank + LATENT.rope_head_dim) * 2


def test_blocks_and_tokens_of_uniform_attention_are_whole_blocks() -> None:
    found = tiny()
    blocks = int(found.available.expected) // (2 * 24 * 16)
    assert (found.blocks.expected, found.tokens.expected) == (blocks, blocks * 16)
    assert found.concurrency.expected == blocks / 4
    uneven = tiny(max_model_len=60)
    assert uneven.tokens.expected == uneven.blocks.expected * 16 and uneven.concurrency.expected == uneven.blocks.expected / 4
    mixed = tiny("sliding")
    assert mixed.tokens.expected == int(mixed.concurrency.expected * 64)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({}, 2),
        ({"vllm_version": "0.6.6"}, 1),  # V0 compares nothing with what is free
        ({"kv_cache_memory_bytes": 10**6}, 2),
        ({"vllm_version": "0.6.6", "kv_cache_memory_bytes": 10**6}, 2),
        ({"vllm_version": "0.18.0"}, 3),  # the sampler warms up beside the budget
        ({"vllm_version": "0.18.0", "enforce_eager": True}, 2),
        ({"kind": "mamba"}, 3),
        ({"kind": "linear"}, 3),
        ({"kind": "mamba", "enforce_eager": True}, 2),
        ({"kind": "mamba", "vllm_version": "0.16.0"}, 2),
    ],
)
def test_which_conditions_a_version_has(arguments: dict[str, Any], count: int) -> None:
    assert len(tiny(**arguments).checks) == count


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([(True, True), (True, True)], "fits"),
        ([(True, True), (False, True)], "marginal"),
        ([(False, True), (False, False)], "refused"),
        ([(False, False)], "refused"),
    ],
)
def test_the_verdict(checks: list[tuple[bool, bool]], verdict: str) -> None:
    found = replace(tiny(), checks=tuple(Check(holds_low=low, holds_high=high, failure="no") for low, high in checks))
    assert found.verdict == verdict and found.fits is (verdict == "fits")
    assert memory_reasons(found)[0].startswith(verdict)


def test_the_stage_with_the_fewest_blocks_decides() -> None:
    found = tiny(pipeline_parallel_size=2)
    poor = replace(found.stages[1], available=Span.exact(10**6))
    assert replace(found, stages=(found.stages[0], poor)).fullest is poor
    assert replace(found, stages=(replace(poor, stage=0), found.stages[1])).available == Span.exact(10**6)
    assert found.needed_bytes == 5 * 384 and found.sizes.gpus == 2
    half = tiny(("none", "full"), pipeline_parallel_size=2)
    rooms = (replace(half.stages[0], available=Span.exact(100)), replace(half.stages[1], available=Span.exact(80 * 384)))
    assert replace(half, stages=rooms).fullest is rooms[1], "a stage without cache counts its bytes"
    empty = tiny("none")
    assert empty.fullest is empty.stages[0] and empty.needed_bytes == 0


def sentence(estimate: MemoryEstimate, start: str) -> str:
    return next(reason for reason in memory_reasons(estimate) if reason.startswith(start))


def test_sentences_about_the_parts() -> None:
    found = tiny()
    assert memory_reasons(found)[0].startswith("fits: one request of 64 tokens needs 0.00 GiB of KV cache, and at least 9")
    assert (
        sentence(found, "budget") == "budget 92.00 GiB: 100.00 GiB that torch sees on h100-sxm5-80gb x gpu_memory_utilization 0.92."
    )
    assert sentence(found, "weights").endswith("bfloat16, the fullest of 1 rank.")
    assert sentence(tiny(tensor_parallel_size=2), "weights").endswith("the fullest of 2 ranks.")
    assert sentence(tiny(pipeline_parallel_size=2), "weights").endswith("the fullest of 2 ranks.")
    assert sentence(tiny(cpu_offload_gib=0.5), "weights").endswith("rank, 0.5 GiB of it in host memory.")
    assert ": float16, the" in sentence(tiny(dtype="float16"), "weights") and ": fp8, the" in sentence(
        tiny(quantization="fp8"), "weights"
    )
    assert "the sampler with the logits of 1,024 sequences over 100 tokens" in sentence(found, "activations")
    assert "8,192 batched tokens in the widest layer" in sentence(tiny(max_num_seqs=1), "activations")
    assert sentence(found, "outside").endswith("runtime and workspaces.")
    assert sentence(tiny(tensor_parallel_size=2), "outside").endswith("and the collective library's buffers.")
    assert sentence(found, "graphs").endswith("vLLM 0.33.0 takes its estimate off the budget.")
    assert sentence(tiny(enforce_eager=True), "graphs") == "graphs 0 GiB: enforce_eager captures none."
    assert (
        sentence(tiny(vllm_version="0.16.0"), "graphs")
        == "graphs are not in the budget of vLLM 0.16.0; they take memory beside it."
    )


def test_sentences_about_the_cache() -> None:
    assert sentence(tiny(), "KV cache") == "KV cache 0.046875 KiB a token and GPU, blocks of 16 tokens."
    assert sentence(tiny(tensor_parallel_size=2), "KV cache").endswith("blocks of 16 tokens.")
    assert sentence(tiny(tensor_parallel_size=4), "KV cache").endswith("; with 2 KV heads no more than 2 ranks shrink it.")
    assert sentence(tiny("mla"), "KV cache").endswith("blocks of 64 tokens.")
    assert sentence(tiny("mla", tensor_parallel_size=2), "KV cache").endswith(
        "; every tensor-parallel rank keeps the latent whole."
    )
    assert not any("rope scaling" in reason for reason in memory_reasons(tiny(max_model_len=64)))
    assert any(reason.startswith("65 tokens are more than the 64 of") for reason in memory_reasons(tiny(max_model_len=65)))
    assert sentence(tiny(), "measured").startswith(
        "measured error of the available cache over 44 real starts: median 0.3 %, nine in ten within 2.7 %"
    )


def test_the_largest_context_is_named_where_only_the_cache_fails() -> None:
    shorter = tiny(kv_cache_memory_bytes=4 * 768)
    assert shorter.largest_max_model_len == 48
    assert "the largest max_model_len that starts for certain is 48." in memory_reasons(shorter)
    named = "the largest max_model_len that starts"
    assert not any(named in reason for reason in memory_reasons(tiny()))
    assert not any(named in reason for reason in memory_reasons(tiny(kv_cache_memory_bytes=768))), "not one token fits"
    other = replace(shorter, checks=(*shorter.checks[:1], Check(holds_low=False, holds_high=True, failure="no")))
    assert not any(named in reason for reason in memory_reasons(other))


def test_sentences_about_links() -> None:
    def links(name: str, ranks: int) -> list[str]:
        return [reason for reason in memory_reasons(tiny(name=name, tensor_parallel_size=ranks)) if f"{ranks} " in reason[:3]]

    assert links("h100-sxm5-80gb", 8) == [] == links("l40s", 2)
    [across] = links("h100-sxm5-80gb", 9)
    assert "are more than the 8 GPUs" in across and "tensor parallel 8 x pipeline parallel 2 does not" in across
    assert "tensor parallel 8 x pipeline parallel 2 " in links("h100-sxm5-80gb", 16)[0]
    [pcie] = links("l40s", 3)
    assert pcie.startswith("3 ranks over PCIe: vLLM turns its custom all-reduce off above 2")
    assert "more than the 8 GPUs" in links("l40s", 9)[0]
    assert links("gb200", 9) == [] and "more than the 72 GPUs" in links("gb200", 73)[0]
