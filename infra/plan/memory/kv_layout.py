"""The layout of the KV cache for one split: page sizes, and which layers share a block table, as vLLM 0.33 decides them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import ceil, lcm

from infra.plan.architecture.partition import pipeline_stages
from infra.plan.architecture.precision import resolve_dtype
from infra.plan.architecture.types import Architecture
from infra.plan.memory.kv_cache import KvCacheSpec, LayerCache, LayerGroup
from infra.plan.memory.kv_entries import indexer_bytes, state_bytes, token_bytes

DEFAULT_BLOCK_SIZE = 16
MAMBA_PAGES_WITH_PREFIX_CACHING = 3
"""State pages that a request may hold at once with prefix caching: the current one, the next, and a checkpoint of the prefill."""
_GATED_DELTA_CHUNK = 64


@cache
def kv_cache_spec(
    architecture: Architecture,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    kv_cache_dtype: str = "auto",
    block_size: int | None = None,
    dtype: str | None = None,
    enable_prefix_caching: bool = True,
) -> KvCacheSpec:
    """The KV cache of one split.

    MLA caches are whole on every tensor-parallel rank. `kv_cache_dtype` as in vLLM ("auto": the model's dtype; packed formats of
    turboquant and the like are refused). ConfigError names an unknown dtype. Source: v1/core/kv_cache_planning.py and
    v1/kv_cache_interface.py of vLLM 0.33.0.
    """
    element_dtype = resolve_dtype(architecture, dtype) if kv_cache_dtype == "auto" else kv_cache_dtype
    asked = block_size or DEFAULT_BLOCK_SIZE
    token_sizes = {
        kind: token_bytes(architecture, kind, tensor_parallel_size, element_dtype)
        for kind in dict.fromkeys(architecture.attention)
        if kind not in ("linear", "mamba", "none")
    }
    state_sizes = {
        kind: state_bytes(architecture, kind, tensor_parallel_size, dtype)
        for kind in dict.fromkeys(architecture.attention)
        if kind in ("linear", "mamba")
    }
    size = _hybrid_block_size(asked, token_sizes, state_sizes, architecture, enable_prefix_caching)
    caches = {kind: _layer_cache(architecture, kind, size, token_sizes[kind]) for kind in token_sizes}
    largest = max((cache.page_bytes for cache in caches.values()), default=0)
    for kind, content in state_sizes.items():
        caches[kind] = LayerCache(kind="state", page_bytes=max(largest, content), block_tokens=size)
    caches = _one_page_size(caches)
    members: dict[LayerCache, list[int]] = {}
    for layer, kind in enumerate(architecture.attention):
        if kind in caches:
            members.setdefault(caches[kind], []).append(layer)
    groups = _groups(members, architecture, enable_prefix_caching)
    if architecture.encoder_decoder and "full" in caches:
        full = caches["full"]
        cross = LayerCache(
            kind="cross", page_bytes=full.page_bytes, block_tokens=size, window=architecture.encoder_positions or 1500
        )
        groups.append(
            LayerGroup(
                cache=cross, layers=tuple(range(architecture.layers)), page_bytes_of_layer=(full.page_bytes,) * architecture.layers
            )
        )
    return KvCacheSpec(
        block_size=size,
        groups=tuple(groups),
        stages=pipeline_stages(architecture.layers, pipeline_parallel_size),
    )


def _hybrid_block_size(
    asked: int, token_sizes: dict[str, int], state_sizes: dict[str, int], architecture: Architecture, prefix_caching: bool
) -> int:
    """The block size with state layers: so large that an attention page is no smaller than a state."""
    if not state_sizes or not token_sizes:
        return asked
    step = max(asked, DEFAULT_BLOCK_SIZE)
    if "mla" in token_sizes:
        step = max(step, 128)
    if prefix_caching and "linear" in state_sizes:
        step = lcm(step, _GATED_DELTA_CHUNK)
    token = max(token_sizes.values())
    return max(asked, step * ceil(max(state_sizes.values()) / (step * token)))


def _layer_cache(architecture: Architecture, kind: str, block_size: int, token_size: int) -> LayerCache:
    window = architecture.sliding_window if kind in ("sliding", "chunked") else None
    return LayerCache(
        kind="full" if kind == "mla" else kind, page_bytes=token_size * block_size, block_tokens=block_size, window=window
    )


def _one_page_size(caches: dict[str, LayerCache]) -> dict[str, LayerCache]:
    """Pages of one size over layers of different kinds: more tokens a block where it divides, padding where it does not."""
    largest = max((cache.page_bytes for cache in caches.values()), default=0)
    unified = {}
    for kind, layer_cache in caches.items():
        tokens = layer_cache.block_tokens
        if largest % layer_cache.page_bytes == 0:
            tokens *= largest // layer_cache.page_bytes
        unified[kind] = replace(layer_cache, page_bytes=largest, block_tokens=tokens)
    return unified


def _groups(members: dict[LayerCache, list[int]], architecture: Architecture, prefix_caching: bool) -> list[LayerGroup]:
    """Groups with equally many layers: as many as the rarest kind has, or as the most frequent one where the two are close."""
    if not members:
        return []
    counts = [len(layers) for layers in members.values()]
    size = min(counts)
    if max(counts) < size * 1.5:
        size = max(counts)
    pages = MAMBA_PAGES_WITH_PREFIX_CACHING if prefix_caching else 1
    groups = []
    for layer_cache, layers in members.items():
        number = ceil(len(layers) / size)
        for index in range(number):
            chosen = tuple(layers[index::number])
            groups.append(
                LayerGroup(
                    cache=layer_cache,
                    layers=chosen,
                    page_bytes_of_layer=tuple(_page_bytes(architecture, layer_cache, layer) for layer in chosen),
                    state_pages=pages if layer_cache.kind == "state" else 0,
                )
            )
    return groups


def _page_bytes(architecture: Architecture, cache: LayerCache, layer: int) -> int:
    """A page of one layer: one that shares another's indexer keeps no index of its own."""
    if layer in architecture.shared_index_layers:
        return cache.page_bytes - indexer_bytes(architecture) * cache.block_tokens
    return cache.page_bytes
