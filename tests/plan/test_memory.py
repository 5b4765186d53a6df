"""What a GPU's memory goes to, and the verdict."""

from __future__ import annotations

import json
import time

import pytest

from infra.catalog.engine_releases import version_key
from infra.catalog.load import accelerators, models
from infra.catalog.names import find_accelerator, find_model, with_memory
from infra.catalog.types import AcceleratorMemory
from infra.errors import ConfigError, PlanError
from infra.plan.architecture.reading import architecture_of
from infra.plan.memory.block_size import default_block_size
from infra.plan.memory.options import options_of_engine_args
from infra.plan.memory.profile import engine_memory
from infra.plan.memory.reasons import memory_reasons
from infra.plan.memory.span import Span
from infra.plan.parallelism.fitting import fitting_sizes, smallest_fit, valid_sizes, with_size
from infra.report.fit import memory_as_json
from infra.units import GIB
from tests.plan.estimates import estimate_of

H100 = find_accelerator("h100-sxm5-80gb")
MI300X = find_accelerator("mi300x")
L40S = find_accelerator("l40s")


def model(name: str):
    return architecture_of(find_model(name))


LLAMA_70B, LLAMA_8B = model("Llama-3.3-70B-Instruct"), model("Llama-3.1-8B-Instruct")


def known_gpus():
    return [item for item in accelerators().values() if item.memory.total_bytes is not None]


@pytest.mark.parametrize(("tp", "gib"), [(1, 40), (2, 20), (4, 10), (8, 5), (16, 5)])
def test_a_full_context_needs_less_of_each_rank_until_the_kv_heads_are_used_up(tp: int, gib: int) -> None:
    estimate = estimate_of(LLAMA_70B, MI300X, tensor_parallel_size=tp, max_model_len=131072, block_size=16)
    assert estimate.kv_bytes_per_token * 131072 == gib * GIB
    halved = estimate_of(LLAMA_70B, MI300X, tensor_parallel_size=tp, pipeline_parallel_size=2, max_model_len=131072, block_size=16)
    assert halved.kv_bytes_per_token * 131072 == gib * GIB // 2


def test_the_parts_add_up_to_the_budget() -> None:
    estimate = estimate_of(LLAMA_8B, H100, max_model_len=8192)
    stage = estimate.fullest
    parts = stage.weights.expected + stage.communication.expected + stage.activation.peak.expected + stage.graphs.expected
    assert parts + estimate.available.expected == pytest.approx(estimate.requested.expected)
    assert estimate.requested.expected == pytest.approx(79.10 * GIB * 0.92)


@pytest.mark.parametrize("name", sorted(models()))
def test_every_model_of_the_catalog_has_an_ordered_range_on_every_gpu(name: str) -> None:
    architecture = model(name)
    for accelerator in known_gpus():
        estimate = estimate_of(
            architecture, accelerator, max_model_len=4096 if architecture.max_position_embeddings >= 4096 else None
        )
        for span in (
            estimate.available,
            estimate.concurrency,
            estimate.requested,
            estimate.fullest.weights,
            estimate.fullest.activation.peak,
        ):
            assert span.low <= span.expected <= span.high
        assert estimate.tokens.low <= estimate.tokens.expected <= estimate.tokens.high
        assert estimate.fits == (estimate.verdict == "fits")
        assert json.loads(json.dumps(memory_as_json(estimate), allow_nan=False))["fits"] is estimate.fits
        if estimate.fits:
            assert estimate.available.low >= estimate.needed_bytes > 0
            assert estimate.largest_max_model_len >= min(estimate.max_model_len, architecture.max_position_embeddings or 10**9)


@pytest.mark.parametrize(
    "name", ["Llama-3.3-70B-Instruct", "DeepSeek-R1", "Qwen3-Next-80B-A3B-Instruct", "gpt-oss-120b", "gemma-3-27b-it"]
)
def test_more_of_the_budget_never_leaves_less_room(name: str) -> None:
    architecture, room = model(name), -float("inf")
    for percent in range(50, 99, 4):
        estimate = estimate_of(architecture, MI300X, tensor_parallel_size=4, gpu_memory_utilization=percent / 100)
        assert estimate.available.low >= room
        room = estimate.available.low


def test_more_sequences_and_larger_batches_never_leave_more_room() -> None:
    sizes = [(64, 2048), (256, 2048), (256, 8192), (1024, 8192), (1024, 65536)]
    rooms = [estimate_of(LLAMA_8B, H100, max_num_seqs=s, max_num_batched_tokens=b).available.expected for s, b in sizes]
    assert rooms == sorted(rooms, reverse=True)


def test_the_largest_context_is_the_boundary_of_the_verdict() -> None:
    for utilization in (0.86, 0.88, 0.90):
        estimate = estimate_of(
            model("Qwen3-32B"), H100, gpu_memory_utilization=utilization, vllm_version="0.19.0", max_model_len=40960
        )
        longest = estimate.largest_max_model_len
        assert 0 < longest < 40960
        at = estimate_of(model("Qwen3-32B"), H100, gpu_memory_utilization=utilization, vllm_version="0.19.0", max_model_len=longest)
        above = estimate_of(
            model("Qwen3-32B"), H100, gpu_memory_utilization=utilization, vllm_version="0.19.0", max_model_len=longest + 1
        )
        assert at.fits and not above.fits


def test_tensor_parallel_does_not_shrink_a_latent_cache() -> None:
    sizes = {
        tp: estimate_of(model("DeepSeek-R1"), MI300X, tensor_parallel_size=tp, block_size=16).kv_bytes_per_token for tp in (1, 4, 8)
    }
    assert set(sizes.values()) == {70272}


def test_the_logits_are_whole_on_every_rank() -> None:
    peaks = [estimate_of(LLAMA_8B, H100, tensor_parallel_size=tp).fullest.activation for tp in (1, 2, 4, 8)]
    assert {peak.phase for peak in peaks} == {"sampler"}
    assert len({peak.sampler for peak in peaks}) == 1


def test_only_the_last_stage_samples_and_the_fullest_stage_decides() -> None:
    estimate = estimate_of(LLAMA_8B, H100, pipeline_parallel_size=4, vllm_version="0.19.0")
    assert [stage.activation.sampler.expected > 0 for stage in estimate.stages] == [False, False, False, True]
    assert estimate.fullest.stage == 3
    assert estimate.blocks.expected == min(
        int(stage.available.expected) // size for stage, size in zip(estimate.stages, estimate.cache.bytes_per_block, strict=True)
    )


def test_versions_differ_as_their_source_does() -> None:
    sorting, triton, current = (
        estimate_of(LLAMA_8B, H100, gpu_memory_utilization=0.9, vllm_version=v) for v in ("0.16.0", "0.17.0", "0.33.0")
    )
    assert sorting.fullest.activation.peak.expected > 2.4 * triton.fullest.activation.peak.expected
    assert triton.fullest.graphs.expected == 0 < current.fullest.graphs.expected
    assert estimate_of(LLAMA_8B, H100, enforce_eager=True).fullest.graphs.expected == 0


def test_a_version_between_two_known_ones_counts_as_the_earlier() -> None:
    assert engine_memory("0.16.1.dev0+g89a77b108").since == "0.12.0"
    assert engine_memory("v0.10.1.1").since == "0.9.0"
    assert engine_memory("0.50.0").since == engine_memory(None).since
    assert engine_memory("0.6.6.post2").engine == "V0"
    assert version_key("0.14.0rc2.dev348+gdcd80206b") == (0, 14, 0, 0)
    with pytest.raises(ConfigError, match="'latest' is no vLLM version"):
        engine_memory("latest")


@pytest.mark.parametrize(
    ("gpu", "version", "batched", "sequences"),
    [
        ("h100-sxm5-80gb", "0.11.0", 8192, 1024),
        ("a100-sxm4-80gb", "0.11.0", 2048, 256),
        ("l40s", "0.33.0", 2048, 256),
        ("mi300x", "0.20.0", 8192, 1024),
        ("mi300x", "0.33.0", 16384, 1024),
        ("h200-sxm-141gb", "0.33.0", 8192, 1024),
    ],
)
def test_default_batch_sizes_follow_version_and_device(gpu: str, version: str, batched: int, sequences: int) -> None:
    estimate = estimate_of(LLAMA_8B, find_accelerator(gpu), vllm_version=version)
    assert (estimate.max_num_batched_tokens, estimate.max_num_seqs) == (batched, sequences)


def test_sequences_are_at_most_the_batched_tokens() -> None:
    assert estimate_of(LLAMA_8B, H100, max_num_batched_tokens=512).max_num_seqs == 512


def test_v0_profiles_the_whole_prompt_up_to_32k() -> None:
    rooms = {
        length: estimate_of(LLAMA_8B, L40S, vllm_version="0.6.4", max_model_len=length).available.expected
        for length in (8192, 32768, 32769)
    }
    assert rooms[32768] < rooms[8192] < rooms[32769]


def test_block_sizes_by_vendor_and_context() -> None:
    assert default_block_size(LLAMA_8B, H100, 131072) == 16
    assert default_block_size(model("DeepSeek-R1"), H100, 131072) == 64
    assert [default_block_size(LLAMA_8B, MI300X, length) for length in (4096, 32768, 32769, 65536, 131072)] == [16, 16, 32, 32, 64]


def test_a_device_whose_memory_nobody_printed_is_an_error() -> None:
    with pytest.raises(PlanError, match="not known"):
        estimate_of(LLAMA_8B, with_memory(H100, AcceleratorMemory(marketing_gb=80)))


def test_a_virtual_function_of_amd_widens_the_range_downwards() -> None:
    estimate = estimate_of(LLAMA_8B, MI300X)
    assert estimate.requested.low < 191.69 * GIB * 0.92 < estimate.requested.expected < 192 * GIB * 0.92


def test_hybrid_models_need_a_state_block_for_each_sequence() -> None:
    architecture = model("Qwen3.8-27B")
    tight = estimate_of(
        architecture, L40S, tensor_parallel_size=2, max_model_len=32768, max_num_seqs=2048, max_num_batched_tokens=2048
    )
    assert tight.verdict == "refused" and "cache blocks, and each sequence needs one for its state" in memory_reasons(tight)[0]
    assert estimate_of(architecture, L40S, tensor_parallel_size=2, max_model_len=32768, max_num_seqs=16).fits


def test_the_sampler_of_0_19_must_find_room_beside_the_budget() -> None:
    tight, loose = (
        estimate_of(model("gpt-oss-20b"), H100, gpu_memory_utilization=u, vllm_version="0.19.0", max_model_len=8192)
        for u in (0.95, 0.90)
    )
    assert tight.verdict == "marginal" and "beside the budget" in memory_reasons(tight)[0]
    assert loose.fits


def test_expert_parallel_spreads_whole_experts() -> None:
    architecture = model("Qwen/Qwen3-235B-A22B-FP8")
    estimate = estimate_of(architecture, MI300X, tensor_parallel_size=8, expert_parallel=True)
    assert valid_sizes(estimate) == (1, 2, 4, 8)
    assert estimate.weights_bytes < 30 * GIB


def test_the_smallest_size_is_the_smallest() -> None:
    for name, accelerator in (("Llama-3.3-70B-Instruct", H100), ("gpt-oss-120b", L40S), ("DeepSeek-R1", MI300X)):
        asked = estimate_of(model(name), accelerator, max_model_len=8192)
        smallest = smallest_fit(asked)
        assert smallest is not None and smallest.fits
        for tensor in valid_sizes(asked):
            for pipeline in range(1, 9):
                if tensor * pipeline < smallest.sizes.gpus:
                    assert not with_size(asked, tensor, pipeline).fits
        counts = [size.sizes.gpus for size in fitting_sizes(asked)]
        assert counts == sorted(counts)


def test_reasons_begin_with_the_verdict_and_name_the_numbers() -> None:
    estimate = estimate_of(LLAMA_8B, H100, max_model_len=8192)
    assert memory_reasons(estimate)[0].startswith("fits: one request of 8,192 tokens needs 1.00 GiB")
    starts = [reason.split()[0] for reason in memory_reasons(estimate)]
    assert starts == ["fits:", "budget", "weights", "activations", "outside", "graphs", "KV", "measured"]
    longer = estimate_of(model("Qwen3-32B"), H100, tensor_parallel_size=4, max_model_len=131072)
    assert any("rope scaling" in reason for reason in memory_reasons(longer))


def test_spans_add_end_by_end() -> None:
    total = Span(low=1, expected=2, high=4) + Span.exact(1).scaled(3)
    assert total == Span(low=4, expected=5, high=7)
    assert Span.maximum(total, Span(low=0, expected=6, high=6)) == Span(low=4, expected=6, high=7)


def test_a_thousand_estimates_cost_less_than_a_second() -> None:
    architectures = [model(name) for name in sorted(models())[:20]]
    for architecture in architectures:
        estimate_of(architecture, H100)
    begin = time.process_time()
    for index in range(1000):
        estimate_of(architectures[index % 20], H100, max_model_len=1024 + index)
    assert time.process_time() - begin < 1.0


def test_offloaded_weights_leave_their_room_to_the_cache() -> None:
    plain, offloading = (estimate_of(LLAMA_70B, H100, tensor_parallel_size=2, cpu_offload_gib=gib) for gib in (0, 20))
    assert offloading.available.expected - plain.available.expected == pytest.approx(20 * GIB)
    assert any("20 GiB of it in host memory" in reason for reason in memory_reasons(offloading))


def test_a_cache_of_given_size_replaces_the_computation_and_must_fit_the_device() -> None:
    given = estimate_of(LLAMA_8B, H100, kv_cache_memory_bytes=40 * GIB, max_model_len=8192)
    assert given.fits and given.tokens.low == given.tokens.high == 40 * GIB // 131072
    assert given.available.expected == 40 * GIB
    assert estimate_of(LLAMA_8B, H100, kv_cache_memory_bytes=80 * GIB, max_model_len=8192).verdict == "refused"


def test_engine_arguments_become_options() -> None:
    flags = {
        "cpu-offload-gb": 10,
        "kv-cache-memory-bytes": 5 * GIB,
        "enforce-eager": True,
        "enable-prefix-caching": False,
        "seed": 1,
    }
    assert options_of_engine_args(flags) == {
        "cpu_offload_gib": 10.0,
        "kv_cache_memory_bytes": 5 * GIB,
        "enforce_eager": True,
        "enable_prefix_caching": False,
    }
    assert options_of_engine_args({"cpu-offload-gb": "many", "enforce-eager": "yes"}) == {}


def test_reasons_say_what_the_links_mean() -> None:
    across = estimate_of(LLAMA_70B, H100, tensor_parallel_size=16, max_model_len=8192)
    assert any("tensor parallel 8 x pipeline parallel 2 does not" in reason for reason in memory_reasons(across))
    pcie = estimate_of(LLAMA_70B, L40S, tensor_parallel_size=4, max_model_len=8192)
    assert any("custom all-reduce off above 2" in reason for reason in memory_reasons(pcie))
    assert not any("all-reduce" in reason for reason in memory_reasons(estimate_of(LLAMA_70B, L40S, tensor_parallel_size=2)))


@pytest.mark.parametrize(
    ("version", "gpu", "tokens", "sequences"),
    [
        ("0.8.0", "h100-sxm5-80gb", 8192, 1024),
        ("0.8.3", "a100-sxm4-80gb", 2048, 1024),
        ("0.8.3", "l40s", 2048, 1024),
        ("0.8.4", "l40s", 2048, 256),
        ("0.8.5", "mi300x", 2048, 256),
        ("0.8.5", "h100-sxm5-80gb", 8192, 1024),
        ("0.9.0", "mi300x", 8192, 1024),
        ("0.9.0", "a100-sxm4-80gb", 2048, 256),
        ("0.7.3", "h100-sxm5-80gb", 2048, 256),
        ("0.33.0", "b200-180gb", 16384, 1024),
    ],
)
def test_the_batch_of_each_version(version: str, gpu: str, tokens: int, sequences: int) -> None:
    batch = engine_memory(version).batch_size(find_accelerator(gpu))
    assert (batch.max_num_batched_tokens, batch.max_num_seqs) == (tokens, sequences)


@pytest.mark.parametrize("version", ["0.8.2", "v0.9.1", "0.16.0", "0.33.0"])
def test_reasons_name_the_version_that_was_asked_for(version: str) -> None:
    asked = version.removeprefix("v")
    said = [reason for reason in memory_reasons(estimate_of(LLAMA_8B, H100, vllm_version=version)) if "vLLM 0." in reason]
    assert said and all(f"vLLM {asked}" in reason for reason in said)


@pytest.mark.parametrize("version", ["0.6.6", "0.8.5", "0.19.0", "0.33.0"])
def test_nothing_is_promised_above_98_percent(version: str) -> None:
    for utilization, verdict in ((0.99, "marginal"), (0.981, "marginal")):
        estimate = estimate_of(
            LLAMA_8B, find_accelerator("mi300x"), vllm_version=version, gpu_memory_utilization=utilization, max_model_len=4096
        )
        assert estimate.verdict == verdict and "use at most 0.98" in memory_reasons(estimate)[0]
