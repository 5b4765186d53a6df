"""Bytes of tokens and states, block sizes and groups of layers, counted by hand: 2 KV heads of 3 values, latents of 8 + 2."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from infra.plan.architecture.types import Architecture
from infra.plan.memory.kv_cache import KvCacheSpec, LayerCache, LayerGroup, in_flight_tokens
from infra.plan.memory.kv_entries import state_bytes, token_bytes
from infra.plan.memory.kv_layout import kv_cache_spec
from tests.plan.small import LATENT, MAMBA, small

INDEXED = replace(LATENT, index_heads=2, index_head_dim=128)
WIDE: dict[str, Any] = {"global_head_dim": 12, "global_kv_heads": 1}


@pytest.mark.parametrize(
    ("architecture", "kind", "tensor", "dtype", "size"),
    [
        (small(), "full", 1, "bfloat16", 24),
        (small(), "full", 2, "bfloat16", 12),
        (small(), "full", 4, "bfloat16", 12),
        (small(), "full", 1, "float32", 48),
        (small(), "full", 1, "fp8", 12),
        (small(), "full", 1, "fp8_per_token_head", 2 * (6 + 2 * 4)),
        (small(), "full", 1, "int8_per_token_head", 2 * (6 + 2 * 4)),
        (small(), "full", 1, "int4_per_token_head", 2 * (3 + 2 * 8)),
        (small(), "full", 1, "nvfp4", 7),  # 12 values of 4 bits and a sixteenth of a byte: 6.75
        (small(v_head_dim=5), "full", 1, "bfloat16", 32),
        (small(**WIDE), "full", 1, "bfloat16", 48),
        (small(**WIDE), "sliding", 1, "bfloat16", 24),
        (small("mla"), "mla", 1, "bfloat16", 20),
        (small("mla"), "mla", 4, "bfloat16", 20),
        (small("mla"), "mla", 1, "fp8", 10),
        (small("mla"), "mla", 1, "fp8_ds_mla", 656),
        (small("mla", mla=INDEXED), "mla", 1, "bfloat16", 20 + 132),
        (small("mla", mla=INDEXED), "mla", 1, "fp8", 656 + 132),
        (small("mla", mla=INDEXED), "mla", 1, "fp8_e4m3", 10 + 132),
        (small("mla", mla=replace(INDEXED, index_head_dim=256)), "mla", 1, "bfloat16", 20 + 264),
    ],
)  # fmt: skip
def test_bytes_of_a_token(architecture: Architecture, kind: str, tensor: int, dtype: str, size: int) -> None:
    assert token_bytes(architecture, kind, tensor, dtype) == size


@pytest.mark.parametrize(
    ("architecture", "tensor", "dtype", "size"),
    [
        # delta net: a convolution over 32 values keeps 3 of them, the state has 4 x 5 x 3
        (small("linear"), 1, None, 2 * (96 + 60)),
        (small("linear"), 1, "float32", 4 * (96 + 60)),
        (small("linear", state_dtype_bytes=4), 1, None, 2 * 96 + 4 * 60),
        (small("linear"), 3, None, 2 * (11 * 3 + 2 * 15)),
        # Mamba: 12 inner values and 2 groups of 2 x 5
        (small("mamba"), 1, None, 2 * (32 * 3 + 60)),
        (small("mamba"), 2, None, 2 * (16 * 3 + 30)),
        (small("mamba"), 3, None, 2 * (14 * 3 + 30)),  # a third group to divide
        (small("mamba"), 4, None, 2 * (13 * 3 + 15)),
        (small("mamba", state_dtype_bytes=4), 4, "float16", 2 * 39 + 4 * 15),
        (small("mamba", state_space=replace(MAMBA, conv_kernel=1)), 1, None, 2 * 60),
    ],
)
def test_bytes_of_a_state(architecture: Architecture, tensor: int, dtype: str | None, size: int) -> None:
    assert state_bytes(architecture, architecture.attention[0], tensor, dtype) == size


def group(kind: str, block_tokens: int, window: int | None = None, **changes: Any) -> LayerGroup:
    cache = LayerCache(kind=kind, page_bytes=10, block_tokens=block_tokens, window=window)
    return LayerGroup(**{"cache": cache, "layers": (0,), "page_bytes_of_layer": (10,), **changes})


@pytest.mark.parametrize(
    ("layers", "length", "in_flight", "blocks"),
    [
        (group("full", 16), 32, 8, 2),
        (group("full", 16), 33, 8, 3),
        (group("sliding", 4, window=9), 100, 8, 4 + 1),
        (group("sliding", 4, window=10), 100, 8, 5 + 1),
        (group("sliding", 4, window=9), 12, 8, 3 + 1),
        (group("sliding", 4), 100, 8, 2 + 1),
        (group("chunked", 4, window=8), 100, 8, 4),
        (group("chunked", 4, window=9), 100, 8, 5),
        (group("chunked", 4, window=9), 12, 8, 3),
        (group("chunked", 4), 100, 8, 2),
        (group("state", 4, state_pages=3), 100, 8, 3),
        (group("cross", 16, window=1500), 100, 8, 94),
        (group("cross", 16), 100, 8, 0),
    ],
)
def test_blocks_of_a_request(layers: LayerGroup, length: int, in_flight: int, blocks: int) -> None:
    assert layers.blocks_per_request(length, in_flight) == blocks


def shape(spec: KvCacheSpec) -> list[tuple[str, int, int, tuple[int, ...]]]:
    """Kind, bytes of a page, tokens of a block and layers of each group."""
    return [(g.cache.kind, g.cache.page_bytes, g.cache.block_tokens, g.layers) for g in spec.groups]


@pytest.mark.parametrize(
    ("architecture", "groups"),
    [
        (small(), [("full", 384, 16, (0, 1))]),
        (small("mla"), [("full", 320, 16, (0, 1))]),
        (small("none"), []),
        (small(("full", "sliding")), [("full", 384, 16, (0,)), ("sliding", 384, 16, (1,))]),
        (small(("sliding", "full"), **WIDE), [("sliding", 768, 32, (0,)), ("full", 768, 16, (1,))]),
        (small(("sliding", "full"), global_head_dim=9, global_kv_heads=1), [("sliding", 576, 16, (0,)), ("full", 576, 16, (1,))]),
        (small(("sliding", "full"), global_head_dim=15, global_kv_heads=1), [("sliding", 960, 16, (0,)), ("full", 960, 16, (1,))]),
        (small(("full", "none", "full")), [("full", 384, 16, (0, 2))]),
        (small(("full", "sliding", "sliding", "sliding", "full")),
         [("full", 384, 16, (0, 4)), ("sliding", 384, 16, (1, 3)), ("sliding", 384, 16, (2,))]),
        (small(("full",) * 3 + ("sliding",) * 4), [("full", 384, 16, (0, 1, 2)), ("sliding", 384, 16, (3, 4, 5, 6))]),
        (small(encoder_decoder=True, encoder_positions=7), [("full", 384, 16, (0, 1)), ("cross", 384, 16, (0, 1))]),
    ],
)  # fmt: skip
def test_groups(architecture: Architecture, groups: list[tuple[str, int, int, tuple[int, ...]]]) -> None:
    assert shape(kv_cache_spec(architecture)) == groups


def test_windows_belong_to_layers_that_have_one() -> None:
    spec = kv_cache_spec(small(("full", "sliding", "chunked")))
    assert [g.cache.window for g in spec.groups] == [None, 16, 16]
    windows = [kv_cache_spec(small(encoder_decoder=True, encoder_positions=n)).groups[1].cache.window for n in (7, 0)]
    assert windows == [7, 1500]


@pytest.mark.parametrize(
    ("architecture", "asked", "prefix_caching", "size"),
    [
        (small(), None, True, 16),
        (small(), 8, True, 8),
        (small("mamba"), 8, True, 8),  # no layer keeps tokens
        (small(("mamba", "full")), None, True, 16),  # 16 x 24 hold the 312 of a state
        (small(("mamba", "full"), kv_heads=1, head_dim=1, v_head_dim=1), None, True, 80),  # 4 bytes a token
        (small(("mamba", "full"), kv_heads=1, head_dim=1, v_head_dim=1), 8, True, 80),
        (small(("mamba", "full"), kv_heads=1, head_dim=1, v_head_dim=1), 20, True, 80),
        (small(("mamba", "full"), kv_heads=1, head_dim=1, v_head_dim=1), 60, True, 120),
        (small(("mamba", "full"), kv_heads=1, head_dim=1, v_head_dim=1), 200, True, 200),
        (small(("linear", "full")), None, True, 64),
        (small(("linear", "full")), 48, True, 192),
        (small(("linear", "full")), None, False, 16),
        (small(("mamba", "mla")), None, True, 128),
        (small(("linear", "mla")), 96, False, 128),
    ],
)
def test_block_sizes_beside_states(architecture: Architecture, asked: int | None, prefix_caching: bool, size: int) -> None:
    spec = kv_cache_spec(architecture, block_size=asked, enable_prefix_caching=prefix_caching)
    assert spec.block_size == size
    assert {g.cache.block_tokens for g in spec.groups} == {size}


def test_a_state_takes_a_page_of_its_own_kind() -> None:
    both, alone = kv_cache_spec(small(("mamba", "full"))), kv_cache_spec(small("mamba"))
    assert shape(both) == [("full", 384, 16, (1,)), ("state", 384, 16, (0,))] or shape(both) == [
        ("state", 384, 16, (0,)),
        ("full", 384, 16, (1,)),
    ]
    assert shape(alone) == [("state", 312, 16, (0, 1))]
    assert [g.state_pages for g in both.groups if g.cache.kind == "state"] == [3]
    assert [g.state_pages for g in both.groups if g.cache.kind == "full"] == [0]
    assert [g.state_pages for g in kv_cache_spec(small(encoder_decoder=True)).groups] == [0, 0]
    assert kv_cache_spec(small("mamba"), enable_prefix_caching=False).groups[0].state_pages == 1


def test_layers_that_share_an_indexer_have_smaller_pages() -> None:
    spec = kv_cache_spec(small("mla", mla=INDEXED, shared_index_layers=frozenset({1})))
    assert spec.groups[0].page_bytes_of_layer == (16 * 152, 16 * 20)


def test_sums_over_stages() -> None:
    spec = kv_cache_spec(small(("full", "full", "full", "sliding"), **WIDE), pipeline_parallel_size=2)
    # stages of two layers; three full layers of 768 bytes against one sliding: three groups of one layer each
    assert spec.stages == ((0, 2), (2, 4))
    assert [g.layers for g in spec.groups] == [(0,), (1,), (2,), (3,)]
    assert spec.bytes_per_block == (768, 768)
    assert spec.bytes_per_token == 48 + 48
    assert spec.blocks_per_request(64, 0) == 3 * 4 + (1 + 1)
    assert spec.needed_bytes(64, 0) == (15 * 768, 15 * 768)
    found = spec.capacity([28 * 768 + 767, 30 * 768], 64, 0)
    assert (found.blocks, found.max_concurrency, found.tokens) == (28, 2.0, 128)
    assert spec.capacity([-1.0, 10**6], 64, 0).blocks == 0
    assert spec.largest_model_len([15 * 768, 10**6], 1000, 0) == 64
    assert spec.largest_model_len([15 * 768 - 1, 10**6], 1000, 0) == 48
    assert spec.largest_model_len([10**9, 10**9], 1000, 0) == 1000
    assert spec.largest_model_len([0, 0], 1000, 0) == 0


def test_a_token_of_a_decoder_counts_without_states_and_encoder() -> None:
    assert kv_cache_spec(small(encoder_decoder=True, encoder_positions=7)).bytes_per_token == 48
    assert kv_cache_spec(small(("mamba", "full"))).bytes_per_token == 24
    uneven = kv_cache_spec(small(("full", "full", "full")), pipeline_parallel_size=2)
    assert (uneven.bytes_per_token, uneven.bytes_per_block) == (48, (768, 384))


def test_a_model_without_any_cache_is_not_limited_by_it() -> None:
    spec = kv_cache_spec(small("none"))
    found = spec.capacity([1000.0], 64, 0)
    assert (found.blocks, found.tokens, found.max_concurrency) == (1, 0, inf)
    assert spec.largest_model_len([1000.0], 64, 0) == 64 and spec.needed_bytes(64, 0) == (0,)


def test_tokens_in_flight() -> None:
    assert [in_flight_tokens(100, stages) for stages in (1, 2)] == [200, 300]
    assert in_flight_tokens(100, 1, async_scheduling=False) == 100
