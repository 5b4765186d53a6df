"""The sizes that vLLM accepts, and the rule, both numbers and the way out of each refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.names import find_model
from infra.plan.architecture.reading import architecture_of
from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.rules import (
    expert_parallel_refusal,
    pipeline_parallel_refusals,
    quantization_warning,
    tensor_parallel_refusals,
    valid_tensor_parallel_sizes,
)


def model(name: str) -> Architecture:
    return architecture_of(find_model(name))


@pytest.mark.parametrize(
    ("name", "quantization", "valid"),
    [
        ("Llama-3.1-8B-Instruct", None, (1, 2, 4, 8, 16, 32)),
        ("Llama-3.3-70B-Instruct", "fp8", (1, 2, 4, 8, 16, 32)),
        ("Llama-3.1-405B-Instruct", None, (1, 2, 4, 8, 16, 32)),
        ("Llama-4-Scout-17B-16E-Instruct", None, (1, 2, 4, 8)),
        ("Llama-4-Maverick-17B-128E-Instruct", "fp8", (1, 2, 4, 8)),
        ("Qwen2.5-72B-Instruct", "fp8", (1, 2, 4, 8, 16, 32)),
        ("Qwen2.5-7B-Instruct", None, (1, 2, 4)),
        ("Qwen3-30B-A3B", None, (1, 2, 4, 8, 16, 32)),
        ("Qwen3-30B-A3B-FP8", None, (1, 2)),
        ("Qwen3-235B-A22B", None, (1, 2, 4, 8, 16, 32)),
        ("Qwen3-235B-A22B-FP8", None, (1, 2, 4)),
        ("DeepSeek-V3", None, (1, 2, 4, 8, 16)),
        ("Kimi-K2-Instruct", None, (1, 2, 4, 8, 16)),
        ("gpt-oss-20b", None, (1, 2, 4, 8, 16, 32)),
        ("GLM-4.5", "fp8", (1, 2, 4, 8, 16, 32)),
        ("phi-4", None, (1, 2)),
        ("gemma-3-27b-it", None, (1, 2, 4, 8, 16, 32)),
        ("Mixtral-8x22B-Instruct-v0.1", None, (1, 2, 4, 8, 16)),
        ("whisper-large-v3", None, (1, 2, 4)),
        ("Qwen3-Next-80B-A3B-Instruct", None, (1, 2, 4, 8, 16)),
    ],
)
def test_valid_tensor_parallel_sizes(name: str, quantization: str | None, valid: tuple[int, ...]) -> None:
    assert valid_tensor_parallel_sizes(model(name), quantization, 32) == valid


@pytest.mark.parametrize(
    ("name", "size", "rule", "message"),
    [
        ("Qwen2.5-7B-Instruct", 8, "AttentionHeads", "28 attention heads, not divisible by 8. Use 2 or 4."),
        ("phi-4", 4, "KvHeads", "10 KV heads, not divisible by 4. Use 1 or 2."),
        ("phi-4", 20, "Vocabulary", "100352 tokens, padded to 100352, not divisible by 20"),
        ("Llama-3.3-70B-Instruct", 3, "AttentionHeads", "64 attention heads, not divisible by 3. Use 1 or 2 or 4."),
        (
            "Qwen3-235B-A22B-FP8",
            8,
            "Fp8BlockWidth",
            "1536 over 8 ranks is 192, not a multiple of 128. Use 2 or 4, or keep 8 with enableExpertParallel: true.",
        ),
        ("Qwen3-30B-A3B-FP8", 4, "Fp8BlockWidth", "768 over 4 ranks is 192, not a multiple of 128. Use 1 or 2, or keep 4"),
        ("Qwen3-Next-80B-A3B-Instruct", 32, "LinearAttentionHeads", "16 linear-attention key heads, not divisible by 32"),
        ("NVIDIA-Nemotron-Nano-9B-v2", 16, "MambaGroups", "8 Mamba groups, not divisible by 16"),
        ("Mixtral-8x7B-Instruct-v0.1", 6, "AttentionHeads", "32 attention heads, not divisible by 6"),
    ],
)
def test_a_refusal_names_its_rule_both_numbers_and_the_nearest_sizes(name: str, size: int, rule: str, message: str) -> None:
    found = {refusal.rule: refusal.message for refusal in tensor_parallel_refusals(model(name), size)}
    assert message in found[rule]


def test_more_ranks_than_kv_heads_must_be_a_multiple_of_them() -> None:
    architecture = replace(model("Llama-3.1-8B-Instruct"), kv_heads=4, heads=48, intermediate=48 * 128, vocab=48 * 64)
    assert 8 in valid_tensor_parallel_sizes(architecture, None, 16)
    [refusal] = [r for r in tensor_parallel_refusals(architecture, 6) if r.rule == "KvHeads"]
    assert "4 KV heads; to repeat them, 6 would have to be a multiple of 4" in refusal.message


def test_quantisation_groups_are_not_cut() -> None:
    awq = replace(model("Qwen2.5-32B-Instruct-AWQ"), intermediate=29568)  # the width of the 72B model
    [refusal] = tensor_parallel_refusals(awq, 8)
    assert refusal.rule == "QuantizationGroup"
    assert "groups of 128: its MLP width 29568 over 8 ranks is 3696" in refusal.message


def test_the_width_of_an_fp8_block_model_is_checked_without_tensor_parallel_too() -> None:
    moe = model("Qwen3-30B-A3B-FP8")
    assert moe.moe is not None
    narrow = replace(moe, moe=replace(moe.moe, intermediate=320))
    assert valid_tensor_parallel_sizes(narrow, None, 4) == ()
    assert valid_tensor_parallel_sizes(narrow, None, 4, expert_parallel=True) == (1, 2, 4)


def test_data_parallel_cuts_experts_further_unless_they_are_spread() -> None:
    moe = model("Qwen3-30B-A3B-FP8")
    assert valid_tensor_parallel_sizes(moe, None, 8, data_parallel_size=2) == (1,)
    assert valid_tensor_parallel_sizes(moe, None, 8, data_parallel_size=2, expert_parallel=True) == (1, 2, 4, 8)


def test_pipeline_parallel_needs_a_class_that_has_it_and_a_layer_a_stage() -> None:
    assert pipeline_parallel_refusals(model("DeepSeek-V3"), 2) == ()  # 61 layers: uneven is fine
    assert pipeline_parallel_refusals(model("whisper-large-v3"), 1) == ()
    [refusal] = pipeline_parallel_refusals(model("whisper-large-v3"), 2)
    assert refusal.rule == "PipelineParallelUnsupported" and "WhisperForConditionalGeneration" in refusal.message
    [refusal] = pipeline_parallel_refusals(model("DeepSeek-V3"), 100)
    assert refusal.message.endswith("has 61 layers, fewer than 100 stages. Use 61 at most.")


def test_expert_parallel_needs_experts() -> None:
    refusal = expert_parallel_refusal(model("Llama-3.1-8B-Instruct"))
    assert refusal is not None and "has 0 experts" in refusal.message
    assert expert_parallel_refusal(model("gpt-oss-20b")) is None


def test_mxfp4_is_never_refused_but_its_padding_is_told() -> None:
    warning = quantization_warning(model("gpt-oss-120b"), 8)
    assert warning == "each rank's MXFP4 expert width 360 is rounded up to 384: 7 % more memory for the experts"
    assert quantization_warning(model("gpt-oss-120b"), 1) is None
    amd = quantization_warning(model("gpt-oss-120b"), 4, vendor="amd")
    assert amd is not None and "720 is rounded up to 768" in amd
    assert quantization_warning(model("Llama-3.1-8B-Instruct"), 8) is None


@settings(deadline=None)
@given(
    st.integers(1, 96),
    st.integers(1, 24),
    st.integers(1, 64),
    st.integers(1, 32),
    st.sampled_from([64, 96, 128]),
    st.integers(1, 40),
)
def test_what_is_valid_divides_evenly(kv_heads: int, group: int, width: int, size: int, head_dim: int, vocab: int) -> None:
    heads = kv_heads * group
    architecture = replace(
        model("Llama-3.1-8B-Instruct"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        intermediate=width * 64,
        vocab=vocab * 100,
    )
    accepted = not tensor_parallel_refusals(architecture, size)
    padded = -(-vocab * 100 // 64) * 64
    kv_fits = kv_heads % size == 0 if size <= kv_heads else size % kv_heads == 0
    assert accepted == (heads % size == 0 and kv_fits and (width * 64) % size == 0 and padded % size == 0)
