"""Parameter counts against what is published, and the bytes on each rank against what vLLM logged."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.load import models
from infra.catalog.names import find_model
from infra.errors import ConfigError
from infra.plan.architecture.partition import pipeline_stages
from infra.plan.architecture.reading import architecture_of
from infra.plan.architecture.types import Architecture
from infra.plan.memory.weights import (
    count_active_parameters,
    count_mtp_parameters,
    count_parameters,
    weights_bytes_per_rank,
)
from infra.units import GIB


def model(name: str) -> Architecture:
    return architecture_of(find_model(name))


@pytest.mark.parametrize("name", models())
def test_the_count_is_the_published_one(name: str) -> None:
    entry = models()[name]
    published = entry.published_parameters
    assert published is not None
    architecture = architecture_of(entry)
    counted = count_parameters(architecture)
    if published.counts == "with MTP":
        counted += count_mtp_parameters(architecture)
    assert counted == pytest.approx(published.count, rel=published.tolerance)


def test_most_counts_are_exact() -> None:
    exact = [
        name
        for name, entry in models().items()
        if entry.published_parameters is not None
        and count_parameters(architecture_of(entry))
        + (count_mtp_parameters(architecture_of(entry)) if entry.published_parameters.counts == "with MTP" else 0)
        == entry.published_parameters.count
    ]
    assert len(exact) >= len(models()) - 6


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("DeepSeek-V3", 37.6),
        ("Qwen3-235B-A22B", 22.2),
        ("gpt-oss-120b", 5.75),
        ("Mixtral-8x7B-Instruct-v0.1", 12.9),
        ("Qwen3-30B-A3B", 3.35),
    ],
)
def test_active_parameters(name: str, billions: float) -> None:
    assert count_active_parameters(model(name)) == pytest.approx(billions * 1e9, rel=0.01)


LOGGED = [  # "Model loading took ... GiB" of real starts: model, tensor, pipeline, options, GiB
    ("Qwen/Qwen3-32B", 1, 1, {}, 61.03),
    ("Qwen/Qwen3-32B", 2, 1, {}, 30.59),
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 1, {}, 14.99),
    ("meta-llama/Llama-3.1-8B-Instruct", 2, 1, {}, 7.51),
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 4, {}, 4.26),
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 1, {"dtype": "float32"}, 29.98),
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 1, {"quantization": "fp8"}, 8.49),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", 1, 1, {}, 8.49),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 1, 1, {}, 67.72),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 4, 1, {}, 16.96),
    ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", 2, 1, {}, 33.88),
    ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", 1, 1, {}, 37.09),
    ("Qwen/Qwen2.5-7B-Instruct", 4, 1, {}, 3.55),
    ("Qwen/Qwen3-14B", 1, 1, {}, 27.52),
    ("Qwen/Qwen3-8B-FP8", 1, 1, {}, 8.80),
    ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 1, 1, {}, 44.76),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 2, 1, {}, 74.28),
    ("deepseek-ai/DeepSeek-R1", 8, 1, {}, 79.739),
    ("deepseek-ai/DeepSeek-V2.5", 8, 2, {}, 28.48),
    ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", 8, 1, {"expert_parallel": True}, 27.72),
    ("openai/gpt-oss-120b", 1, 1, {}, 65.9651),
]


@pytest.mark.parametrize(("name", "tensor", "pipeline", "options", "logged_gib"), LOGGED)
def test_bytes_of_the_fullest_rank_are_what_vllm_logged(
    name: str, tensor: int, pipeline: int, options: dict[str, object], logged_gib: float
) -> None:
    sizes = weights_bytes_per_rank(model(name), tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, **options)  # type: ignore[arg-type]
    assert len(sizes) == pipeline
    assert max(sizes) / GIB == pytest.approx(logged_gib, rel=0.01)


@pytest.mark.parametrize(
    ("layers", "stages", "counts"),
    [
        (80, 4, [20, 20, 20, 20]),
        (61, 2, [31, 30]),
        (94, 4, [23, 24, 24, 23]),
        (7, 3, [2, 3, 2]),
        (5, 4, [1, 1, 2, 1]),
        (11, 4, [3, 3, 3, 2]),
    ],
)
def test_stages_are_cut_as_vllm_cuts_them(layers: int, stages: int, counts: list[int]) -> None:
    assert [end - start for start, end in pipeline_stages(layers, stages)] == counts


def test_a_partition_by_hand_must_add_up() -> None:
    assert pipeline_stages(10, 2, (4, 6)) == ((0, 4), (4, 10))
    with pytest.raises(ValueError, match="gives 9 layers to 2 stages; 10 layers in 2 stages are expected"):
        pipeline_stages(10, 2, (4, 5))


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 32))
def test_stages_partition_the_layers_and_differ_by_one(layers: int, stages: int) -> None:
    if stages > layers:
        return
    cut = pipeline_stages(layers, stages)
    assert cut[0][0] == 0 and cut[-1][1] == layers
    assert all(left[1] == right[0] for left, right in pairwise(cut))
    counts = [end - start for start, end in cut]
    assert max(counts) - min(counts) <= 1 and counts[-1] == min(counts)


@pytest.mark.parametrize("name", ["Llama-3.3-70B-Instruct", "Qwen3-235B-A22B", "DeepSeek-V3", "gemma-3-27b-it"])
def test_the_stages_together_hold_the_model(name: str) -> None:
    architecture = model(name)
    whole, cut = weights_bytes_per_rank(architecture), weights_bytes_per_rank(architecture, pipeline_parallel_size=4)
    tied_copy = architecture.vocab * architecture.hidden * 2 if architecture.tied_embeddings else 0
    assert sum(cut) == pytest.approx(sum(whole) + tied_copy, rel=1e-3)


def test_kv_heads_are_repeated_where_there_are_more_ranks_than_heads() -> None:
    architecture = model("Qwen3-30B-A3B")  # 4 KV heads
    sixteen = weights_bytes_per_rank(architecture, tensor_parallel_size=16)[0]
    repeated = 2 * architecture.layers * (1 - 4 / 16) * architecture.head_dim * architecture.hidden * 2
    whole = weights_bytes_per_rank(architecture)[0]
    assert sixteen == pytest.approx(whole / 16 + repeated, rel=0.02)


def test_expert_parallel_spreads_experts_over_all_ranks_of_the_group() -> None:
    architecture = model("DeepSeek-V3")
    by_width = weights_bytes_per_rank(architecture, tensor_parallel_size=8)[0]
    by_number = weights_bytes_per_rank(architecture, tensor_parallel_size=8, expert_parallel=True)[0]
    assert by_number == pytest.approx(by_width, rel=0.01)
    spread = weights_bytes_per_rank(architecture, tensor_parallel_size=1, data_parallel_size=8, expert_parallel=True)[0]
    assert by_number < spread < 1.35 * by_number  # attention is whole on each data-parallel rank


def test_mxfp4_experts_are_padded_on_each_rank() -> None:
    architecture = model("gpt-oss-120b")
    whole, eight = (weights_bytes_per_rank(architecture, tensor_parallel_size=size)[0] for size in (1, 8))
    # 2880 is rounded up to 2944 on one rank, 360 to 384 on each of eight; the hidden size 2880 to 3072
    padding = architecture.layers * 128 * 3 * (8 * 384 - 2944) * 3072 * 17 / 32
    replicated = 7 * architecture.layers * 128 * 2880 * 2 * 2  # routers, and the biases of down_proj
    assert 8 * eight == pytest.approx(whole + padding + replicated, rel=2e-3)
    assert weights_bytes_per_rank(architecture, tensor_parallel_size=8, vendor="amd")[0] > eight


def test_a_quantisation_that_does_not_go_with_the_checkpoint_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"quantization: is awq, but Qwen/Qwen3-8B-FP8 is a checkpoint quantised by fp8"):
        weights_bytes_per_rank(model("Qwen3-8B-FP8"), quantization="awq")
    with pytest.raises(ConfigError, match="awq needs a checkpoint that is quantised so"):
        weights_bytes_per_rank(model("Qwen3-8B"), quantization="awq")
    with pytest.raises(ConfigError, match=r"'fp9' is no quantisation of vLLM 0.33"):
        weights_bytes_per_rank(model("Qwen3-8B"), quantization="fp9")
    with pytest.raises(ConfigError, match="dtype: is 'float8'"):
        weights_bytes_per_rank(model("Qwen3-8B"), dtype="float8")
    assert weights_bytes_per_rank(model("Qwen3-8B-FP8"), quantization="fp8") == weights_bytes_per_rank(model("Qwen3-8B-FP8"))


@settings(deadline=None)
@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["Llama-3.1-8B-Instruct", "Qwen3-30B-A3B", "DeepSeek-V2-Lite-Chat", "gemma-3-12b-it"]),
)
def test_more_ranks_never_need_more_bytes_each(tensor: int, name: str) -> None:
    architecture = model(name)
    sizes = weights_bytes_per_rank(architecture, tensor_parallel_size=tensor)[0]
    assert sizes * tensor >= weights_bytes_per_rank(architecture)[0] * 0.999
    assert sizes <= weights_bytes_per_rank(architecture)[0]
