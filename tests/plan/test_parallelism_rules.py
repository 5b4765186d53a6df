"""The sizes that vLLM accepts, and the rule, both numbers and the way out of each refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.names import find_model
from infra.plan.architecture.quantization import Quantization
from infra.plan.architecture.reading import architecture_of
from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.rules import (
    expert_parallel_refusal,
    pipeline_parallel_refusals,
    quantization_warning,
    tensor_parallel_refusals,
    valid_tensor_parallel_sizes,
)
from tests.plan.small import DELTA_NET, EXPERTS, MAMBA, small


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
    found = {refusal.rule: refusal.sentence for refusal in tensor_parallel_refusals(model(name), size)}
    assert message in found[rule]


def test_more_ranks_than_kv_heads_must_be_a_multiple_of_them() -> None:
    architecture = replace(model("Llama-3.1-8B-Instruct"), kv_heads=4, heads=48, intermediate=48 * 128, vocab=48 * 64)
    assert 8 in valid_tensor_parallel_sizes(architecture, None, 16)
    [refusal] = [r for r in tensor_parallel_refusals(architecture, 6) if r.rule == "KvHeads"]
    assert "4 KV heads; to repeat them, 6 would have to be a multiple of 4" in refusal.sentence


def test_quantisation_groups_are_not_cut() -> None:
    awq = replace(model("Qwen2.5-32B-Instruct-AWQ"), intermediate=29568)  # the width of the 72B model
    [refusal] = tensor_parallel_refusals(awq, 8)
    assert refusal.rule == "QuantizationGroup"
    assert "groups of 128: its MLP width 29568 over 8 ranks is 3696" in refusal.sentence


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
    assert refusal.rule == "PipelineParallelUnsupported" and "WhisperForConditionalGeneration" in refusal.sentence
    [refusal] = pipeline_parallel_refusals(model("DeepSeek-V3"), 100)
    assert refusal.sentence.endswith("has 61 layers, fewer than 100 stages. Use 61.")


def test_expert_parallel_needs_experts() -> None:
    refusal = expert_parallel_refusal(model("Llama-3.1-8B-Instruct"))
    assert refusal is not None and "has 0 experts" in refusal.sentence
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


PLAIN = small(("full",) * 2, name="plain", heads=8, kv_heads=4, head_dim=32, v_head_dim=32, intermediate=512, vocab=1024)
MIXED = replace(PLAIN, mlp=("dense", "moe"), moe=replace(EXPERTS, intermediate=256, shared_intermediate=192))
LATENT_HEADS = small("mla", name="latent", heads=8, intermediate=512, vocab=1024)
DELTA = small(
    ("linear", "full"), heads=48, kv_heads=48, intermediate=48, vocab=3072, linear=replace(DELTA_NET, key_heads=6, value_heads=16)
)
STATES = small(
    ("mamba", "full"), heads=48, kv_heads=48, intermediate=48, vocab=3072, state_space=replace(MAMBA, heads=6, groups=16)
)


def blocks(size: int, **changes: Any) -> Quantization:
    return Quantization(**{"method": "fp8", "weight_bits": 8, "form": "block", "block_out": size, "block_in": size, **changes})


def groups(size: int, **changes: Any) -> Quantization:
    return Quantization(**{"method": "awq", "weight_bits": 4, "form": "group", "group_size": size, **changes})


@pytest.mark.parametrize(
    ("architecture", "size", "rules"),
    [
        (PLAIN, 8, []),  # four KV heads twice
        (PLAIN, 16, ["AttentionHeads"]),
        (replace(PLAIN, heads=12), 6, ["KvHeads", "Vocabulary", "MlpWidth"]),
        (replace(PLAIN, kv_heads=8, global_kv_heads=3), 2, ["KvHeads"]),
        (replace(PLAIN, attention=("sliding", "sliding"), global_kv_heads=3), 2, []),
        (replace(PLAIN, intermediate=510), 4, ["MlpWidth"]),
        (replace(PLAIN, mlp=("none", "none"), intermediate=510), 4, []),
        (replace(PLAIN, vocab=65), 8, []),  # padded to 128
        (replace(PLAIN, heads=24, kv_heads=24, intermediate=24, vocab=64), 3, ["Vocabulary"]),
        (LATENT_HEADS, 8, []),  # no KV heads to cut
        (DELTA, 2, []),
        (DELTA, 4, ["LinearAttentionHeads"]),  # six key heads
        (DELTA, 3, ["LinearAttentionHeads"]),  # sixteen value heads
        (DELTA, 12, ["LinearAttentionHeads", "LinearAttentionHeads"]),
        (STATES, 2, []),
        (STATES, 4, ["MambaHeads"]),
        (STATES, 3, ["MambaGroups"]),
        (replace(STATES, state_space=replace(MAMBA, heads=6, groups=1)), 3, []),
        (replace(STATES, state_space=replace(MAMBA, heads=6, groups=2)), 3, ["MambaGroups"]),
        (MIXED, 8, []),
        (replace(MIXED, moe=replace(EXPERTS, intermediate=252)), 8, ["ExpertWidth"]),
        (replace(MIXED, moe=replace(EXPERTS, intermediate=256, shared_intermediate=4)), 8, ["SharedExpertWidth"]),
        (replace(MIXED, mlp=("dense", "dense"), moe=replace(EXPERTS, intermediate=1)), 8, []),
        # blocks of 64: MLP 512, query and output 256, shared expert 192, expert 256; keys 128 whole heads at least
        (replace(PLAIN, quantization=blocks(64)), 2, []),
        (replace(PLAIN, quantization=blocks(64)), 4, ["Fp8BlockWidth"]),  # one KV head of 32
        (replace(PLAIN, kv_heads=8, quantization=blocks(64)), 4, []),
        (replace(PLAIN, kv_heads=8, quantization=blocks(64)), 8, ["Fp8BlockWidth"] * 3),  # query, output and keys of 32
        (
            replace(PLAIN, kv_heads=8, output_gate=True, quantization=blocks(64)),
            8,
            ["Fp8BlockWidth"] * 2,
        ),  # the query is twice as wide
        (replace(PLAIN, kv_heads=8, head_dim=64, v_head_dim=64, quantization=blocks(128)), 8, ["Fp8BlockWidth"] * 4),
        (replace(PLAIN, intermediate=96, quantization=blocks(64)), 1, []),
        (replace(PLAIN, intermediate=96, quantization=blocks(64)), 2, ["Fp8BlockWidth"]),
        (replace(PLAIN, quantization=blocks(64, online=True)), 8, []),
        (replace(MIXED, quantization=blocks(64)), 1, []),
        (replace(MIXED, quantization=blocks(64)), 2, ["Fp8BlockWidth"]),  # 96 of the shared expert
        (replace(MIXED, moe=replace(EXPERTS, intermediate=96), quantization=blocks(64)), 1, ["Fp8BlockWidth"]),
        (
            replace(LATENT_HEADS, quantization=blocks(12)),
            4,
            ["Fp8BlockWidth"] * 2,
        ),  # 512 / 4 and 8 x 3 / 4; the query 8 x 6 / 4 is whole
        # groups of 64 inputs
        (replace(PLAIN, quantization=groups(64)), 4, []),
        (replace(PLAIN, quantization=groups(64)), 8, ["QuantizationGroup"]),  # the output 256 / 8
        (replace(PLAIN, intermediate=256, quantization=groups(64)), 8, ["QuantizationGroup"] * 2),
        (replace(MIXED, quantization=groups(64)), 8, ["QuantizationGroup"] * 2),  # output and expert
        (replace(PLAIN, intermediate=96, quantization=groups(64)), 1, []),
        (replace(PLAIN, intermediate=256, quantization=groups(64, method="mxfp4")), 8, []),
        (replace(PLAIN, intermediate=256, quantization=groups(64, online=True)), 8, []),
    ],
)
def test_rules_that_a_size_breaks(architecture: Architecture, size: int, rules: list[str]) -> None:
    assert [refusal.rule for refusal in tensor_parallel_refusals(architecture, size)] == rules


def test_experts_that_are_spread_have_no_width_to_cut() -> None:
    narrow = replace(MIXED, moe=replace(EXPERTS, intermediate=2))
    assert [r.rule for r in tensor_parallel_refusals(narrow, 2, data_parallel_size=2)] == ["ExpertWidth"]
    assert tensor_parallel_refusals(narrow, 2, data_parallel_size=2, expert_parallel=True) == ()
    fine = replace(MIXED, moe=replace(EXPERTS, intermediate=128), quantization=blocks(64))
    assert tensor_parallel_refusals(fine, 2) == () and tensor_parallel_refusals(fine, 1, data_parallel_size=2) == ()
    assert [r.rule for r in tensor_parallel_refusals(fine, 2, data_parallel_size=2)] == ["Fp8BlockWidth"]
    assert tensor_parallel_refusals(fine, 2, data_parallel_size=2, expert_parallel=True) == ()


@pytest.mark.parametrize(
    ("architecture", "size", "remedy"),
    [
        (PLAIN, 3, "not divisible by 3. Use 1 or 2 or 4."),
        (PLAIN, 16, "not divisible by 16. Use 4 or 8."),
        (replace(PLAIN, heads=1, kv_heads=1), 2, "not divisible by 2. Use 1."),
        (replace(MIXED, moe=replace(EXPERTS, intermediate=2)), 4, "not divisible by 4. Use 1 or 2, or keep 4 with enableExpertParallel: true."),
        (replace(MIXED, mlp=("moe", "moe"), moe=replace(EXPERTS, intermediate=96), quantization=blocks(64)), 1,
         "not a multiple of 64. Keep 1 with enableExpertParallel: true. No size works as it is."),
        # sizes up to 64 are looked at, or up to the asked one, and up to 4096 at most
        (replace(PLAIN, heads=65, kv_heads=65, intermediate=65, vocab=65 * 64), 3, "not divisible by 3. Use 1 or 5."),
        (replace(PLAIN, heads=65, kv_heads=65, intermediate=65, vocab=65 * 64), 14, "not divisible by 14. Use 5 or 13."),
        (replace(PLAIN, heads=64, kv_heads=64, intermediate=64, vocab=64), 63, "not divisible by 63. Use 16 or 32 or 64."),
        (replace(PLAIN, heads=64, kv_heads=64), 3, "not divisible by 3. Use 1 or 2 or 4."),
        (replace(PLAIN, heads=67, kv_heads=67, intermediate=67, vocab=67 * 64), 2, "not divisible by 2. Use 1."),
        (replace(PLAIN, heads=67, kv_heads=67, intermediate=67, vocab=67 * 64), 68, "not divisible by 68. Use 1 or 67."),
        (replace(PLAIN, heads=4097, kv_heads=4097, intermediate=4097, vocab=4097 * 64), 5000, "not divisible by 5000. Use 17 or 241."),
    ],
)  # fmt: skip
def test_the_nearest_sizes_that_work(architecture: Architecture, size: int, remedy: str) -> None:
    assert tensor_parallel_refusals(architecture, size)[0].sentence.endswith(remedy)


@pytest.mark.parametrize(
    ("intermediate", "size", "vendor", "padded"),
    [
        (512, 2, "nvidia", None),
        (256, 2, "nvidia", None),
        (256, 2, "amd", "128 is rounded up to 256: 100 % more"),
        (255, 2, "nvidia", None),  # 127.5 values are 128 already
        (300, 2, "nvidia", "150 is rounded up to 256: 71 % more"),
        (300, 1, "nvidia", None),
    ],
)
def test_padding_of_mxfp4_experts(intermediate: int, size: int, vendor: str, padded: str | None) -> None:
    mxfp4 = groups(32, method="mxfp4")
    model = replace(MIXED, moe=replace(EXPERTS, intermediate=intermediate), quantization=mxfp4)
    warning = quantization_warning(model, size, vendor=vendor)
    assert warning is None if padded is None else warning is not None and padded in warning
    assert quantization_warning(replace(model, quantization=groups(32)), size, vendor=vendor) is None
    assert quantization_warning(replace(model, quantization=None), size, vendor=vendor, quantization="mxfp4") == warning


def test_stages_up_to_the_layers() -> None:
    assert pipeline_parallel_refusals(PLAIN, 2) == ()
    assert [refusal.rule for refusal in pipeline_parallel_refusals(PLAIN, 3)] == ["Layers"]
    without = replace(PLAIN, supports_pipeline_parallel=False)
    assert pipeline_parallel_refusals(without, 1) == ()
    assert [refusal.rule for refusal in pipeline_parallel_refusals(without, 3)] == ["Layers", "PipelineParallelUnsupported"]


def test_all_sizes_up_to_a_bound() -> None:
    assert valid_tensor_parallel_sizes(PLAIN) == (1, 2, 4, 8)
    assert valid_tensor_parallel_sizes(PLAIN, max_size=7) == (1, 2, 4) and valid_tensor_parallel_sizes(PLAIN, max_size=0) == ()
    assert valid_tensor_parallel_sizes(PLAIN, max_size=1) == (1,)
