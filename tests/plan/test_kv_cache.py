"""The KV cache: bytes a token, groups, blocks a request and tokens a pool, as vLLM counts them."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.names import find_model
from infra.errors import ConfigError
from infra.plan.architecture.reading import architecture_of
from infra.plan.architecture.types import Architecture
from infra.plan.memory.kv_cache import in_flight_tokens
from infra.plan.memory.kv_layout import kv_cache_spec
from infra.units import GIB


def model(name: str) -> Architecture:
    return architecture_of(find_model(name))


@pytest.mark.parametrize(
    ("name", "tensor", "dtype", "bytes_per_token"),
    [
        ("Llama-3.1-8B-Instruct", 1, "auto", 131072),
        ("Llama-3.3-70B-Instruct", 1, "auto", 327680),
        ("Llama-3.3-70B-Instruct", 8, "auto", 40960),
        ("Llama-3.3-70B-Instruct", 16, "auto", 40960),
        ("Llama-3.3-70B-Instruct", 8, "fp8", 20480),
        ("DeepSeek-V3", 1, "auto", 70272),
        ("DeepSeek-V3", 8, "auto", 70272),
        ("DeepSeek-V3", 8, "fp8", 35136),
        ("gpt-oss-120b", 1, "auto", 73728),
        ("gemma-3-27b-it", 1, "auto", 507904),
        ("Qwen3-235B-A22B", 8, "auto", 48128),
    ],
)
def test_bytes_of_a_token_on_a_rank(name: str, tensor: int, dtype: str, bytes_per_token: int) -> None:
    assert kv_cache_spec(model(name), tensor_parallel_size=tensor, kv_cache_dtype=dtype).bytes_per_token == bytes_per_token


@pytest.mark.parametrize(("tensor", "gib"), [(1, 40), (2, 20), (4, 10), (8, 5), (16, 5)])
def test_a_full_context_of_a_70b_model_does_not_shrink_beyond_its_kv_heads(tensor: int, gib: float) -> None:
    spec = kv_cache_spec(model("Llama-3.3-70B-Instruct"), tensor_parallel_size=tensor)
    one_block = spec.bytes_per_block[0]
    assert spec.needed_bytes(131072, 0)[0] - one_block == gib * GIB


def test_pipeline_stages_divide_the_cache_and_the_poorest_stage_decides() -> None:
    spec = kv_cache_spec(model("DeepSeek-V3"), pipeline_parallel_size=2)
    assert spec.bytes_per_block == (31 * 576 * 2 * 16, 30 * 576 * 2 * 16)
    rich, poor = spec.capacity([10 * GIB, 10 * GIB], 4096, 0), spec.capacity([10 * GIB, GIB], 4096, 0)
    assert rich.blocks == 10 * GIB // spec.bytes_per_block[0]
    assert poor.blocks == GIB // spec.bytes_per_block[1]


def test_uniform_attention_counts_whole_blocks() -> None:
    spec = kv_cache_spec(model("Llama-3.1-8B-Instruct"))
    found = spec.capacity([50.28 * GIB], 16000, 0)
    assert found.blocks == int(50.28 * GIB) // (131072 * 16)
    assert found.max_concurrency == pytest.approx(found.blocks / 1000)
    assert found.tokens == found.blocks * 16


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("gpt-oss-20b", [("sliding", 12), ("full", 12)]),
        (
            "gemma-3-27b-it",
            [("sliding", 9), ("sliding", 9), ("sliding", 9), ("sliding", 9), ("sliding", 8), ("sliding", 8), ("full", 10)],
        ),
        ("Olmo-3-1025-7B", [("sliding", 8), ("sliding", 8), ("sliding", 8), ("full", 8)]),
        ("Llama-4-Scout-17B-16E-Instruct", [("chunked", 12), ("chunked", 12), ("chunked", 12), ("full", 12)]),
        ("Qwen3-Next-80B-A3B-Instruct", [("state", 12), ("state", 12), ("state", 12), ("full", 12)]),
        ("Llama-3.3-70B-Instruct", [("full", 80)]),
        ("DeepSeek-V3", [("full", 61)]),
        ("whisper-large-v3", [("full", 32), ("cross", 32)]),
    ],
)
def test_layers_are_grouped_as_vllm_groups_them(name: str, groups: list[tuple[str, int]]) -> None:
    spec = kv_cache_spec(model(name))
    assert [(group.cache.kind, len(group.layers)) for group in spec.groups] == groups
    assert {page for group in spec.groups for page in group.page_bytes_of_layer} == {spec.groups[0].cache.page_bytes}


def test_sliding_layers_stop_growing_with_the_context() -> None:
    spec = kv_cache_spec(model("gpt-oss-20b"))
    sliding, full = spec.groups
    assert sliding.blocks_per_request(131072, 8192) == ceil((127 + 8192) / 16) + 1
    assert sliding.blocks_per_request(4096, 8192) == 4096 // 16 + 1
    assert full.blocks_per_request(131072, 8192) == 8192
    assert spec.blocks_per_request(131072, 8192) == 8192 + ceil((127 + 8192) / 16) + 1


def test_state_layers_raise_the_block_size_until_a_page_holds_a_state() -> None:
    architecture = model("Qwen3-Next-80B-A3B-Instruct")
    spec = kv_cache_spec(architecture)
    state_bytes = (2 * 16 * 128 + 32 * 128) * 3 * 2 + 32 * 128 * 128 * 2
    token_bytes = 2 * 2 * 256 * 2
    assert spec.block_size % 64 == 0
    assert spec.block_size * token_bytes >= state_bytes > (spec.block_size - 64) * token_bytes
    assert [group.blocks_per_request(262144, 0) for group in spec.groups[:3]] == [3, 3, 3]
    without = kv_cache_spec(architecture, enable_prefix_caching=False)
    assert [group.blocks_per_request(262144, 0) for group in without.groups[:3]] == [1, 1, 1]


def test_layers_that_share_an_indexer_keep_no_index_of_their_own() -> None:
    spec = kv_cache_spec(model("GLM-5.2"), block_size=64)
    assert spec.bytes_per_token == 78 * 576 * 2 + 21 * 132
    assert spec.bytes_per_block == (64 * (78 * 576 * 2 + 21 * 132),)
    assert kv_cache_spec(model("GLM-5.2"), block_size=64, kv_cache_dtype="fp8").bytes_per_token == 78 * 656 + 21 * 132
    # a start on GB200 with fp8_e4m3 logged 50.62 GiB and 1,139,456 tokens
    logged = kv_cache_spec(model("GLM-5.2"), block_size=64, kv_cache_dtype="fp8_e4m3").capacity([50.62 * GIB], 65536, 0)
    assert logged.tokens == pytest.approx(1_139_456, rel=2e-4)


def test_in_flight_tokens_follow_the_steps_that_overlap() -> None:
    assert in_flight_tokens(8192) == 16384
    assert in_flight_tokens(8192, 4) == 5 * 8192
    assert in_flight_tokens(8192, 4, async_scheduling=False) == 4 * 8192


def test_an_unknown_cache_dtype_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"kvCacheDtype: is 'fp9'.*Known: auto, bfloat16"):
        kv_cache_spec(model("Llama-3.1-8B-Instruct"), kv_cache_dtype="fp9")


MODELS = ["Llama-3.1-8B-Instruct", "gpt-oss-20b", "DeepSeek-V2-Lite-Chat", "Qwen3-Next-80B-A3B-Instruct", "gemma-3-12b-it"]


@settings(deadline=None)
@given(st.sampled_from(MODELS), st.integers(0, 60 * GIB), st.sampled_from([16, 32, 64, 128]), st.sampled_from([2048, 8192]))
def test_the_largest_context_is_the_last_one_that_starts(name: str, free: int, block_size: int, batch: int) -> None:
    architecture = model(name)
    spec = kv_cache_spec(architecture, block_size=block_size)
    flight = in_flight_tokens(batch)
    longest = architecture.max_position_embeddings
    found = spec.largest_model_len([free], longest, flight)
    if found:
        assert spec.needed_bytes(found, flight)[0] <= free
    if found < longest:
        assert spec.needed_bytes(found + 1, flight)[0] > free


@settings(deadline=None)
@given(st.sampled_from(MODELS), st.integers(1, 60), st.sampled_from([1024, 8192, 32768]))
def test_more_memory_never_holds_fewer_tokens(name: str, gib: int, length: int) -> None:
    spec = kv_cache_spec(model(name))
    less, more = (spec.capacity([size * GIB], length, 16384) for size in (gib, gib + 1))
    assert more.blocks >= less.blocks and more.tokens >= less.tokens
