"""What a token costs in the KV cache on each rank, and how many tokens a pool of blocks holds, as vLLM 0.33 counts them.

vLLM cuts the cache into blocks of `block_size` tokens. Layers that keep the same share one group and one block table. All groups draw blocks from one pool,
so a request takes the sum of what each group needs, and a block is as large as the group with the largest pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, lcm

from infra.diagnosis import Diagnosis, did_you_mean
from infra.errors import ConfigError
from infra.plan.architecture.types import Architecture
from infra.plan.memory.weights import kv_heads_per_rank, pipeline_stages, resolve_dtype

DEFAULT_BLOCK_SIZE = 16
MAMBA_PAGES_WITH_PREFIX_CACHING = 3
"""State pages that a request may hold at once with prefix caching: the current one, the next, and a checkpoint of the prefill."""
_GATED_DELTA_CHUNK = 64
_SPARSE_MLA_FP8_BYTES = 656

_ELEMENT_BYTES = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "float32": 4.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "fp8_ds_mla": 1.0,
}
_PER_TOKEN_HEAD_SCALE_BYTES = {"fp8_per_token_head": (1.0, 4), "int8_per_token_head": (1.0, 4), "int4_per_token_head": (0.5, 8)}
_NVFP4_BYTES = 0.5 + 1 / 16


@dataclass(frozen=True, kw_only=True)
class LayerCache:
    """What one layer keeps on one rank.

    `kind`: "full" (every token), "sliding" and "chunked" (the last `window` tokens and those in flight), "state" (pages of constant size), or "cross" (the
    encoder's tokens, `window` of them). `page_bytes` is one block of the layer, `block_tokens` the tokens in it.
    """

    kind: str
    page_bytes: int
    block_tokens: int
    window: int | None = None


@dataclass(frozen=True, kw_only=True)
class LayerGroup:
    """Layers with one block table. `layers` are indices into the model; `cache` describes each of them; `state_pages` pages a request for states."""

    cache: LayerCache
    layers: tuple[int, ...]
    page_bytes_of_layer: tuple[int, ...]
    state_pages: int = 1

    def blocks_per_request(self, max_model_len: int, in_flight_tokens: int) -> int:
        """Blocks that one request of max_model_len tokens may hold at once."""
        cache = self.cache
        if cache.kind == "state":
            return self.state_pages
        if cache.kind == "cross":
            return ceil((cache.window or 0) / cache.block_tokens)
        if cache.kind == "sliding":
            return ceil(min((cache.window or 1) - 1 + in_flight_tokens, max_model_len) / cache.block_tokens) + 1
        if cache.kind == "chunked":
            return ceil(min((cache.window or 0) + in_flight_tokens, max_model_len) / cache.block_tokens)
        return ceil(max_model_len / cache.block_tokens)


@dataclass(frozen=True, kw_only=True)
class KvCapacity:
    """What a pool holds: `tokens` and `max_concurrency` are what vLLM logs as KV cache size and maximum concurrency."""

    blocks: int
    tokens: int
    max_concurrency: float


@dataclass(frozen=True, kw_only=True)
class KvCacheSpec:
    """The layout of the KV cache for one split. `block_size` may be larger than asked for where state layers need it.

    `stages` are the first and end layer of each pipeline stage; sizes are those of one rank of it.
    """

    block_size: int
    groups: tuple[LayerGroup, ...]
    stages: tuple[tuple[int, int], ...]

    @cached_property
    def bytes_per_block(self) -> tuple[int, ...]:
        """Bytes of one block of the pool on each stage; 0 where a stage has no layer with a cache."""
        return tuple(max((_group_bytes(group, start, end) for group in self.groups), default=0) for start, end in self.stages)

    @cached_property
    def bytes_per_token(self) -> float:
        """Bytes of one token on the fullest rank while every layer still keeps it (short contexts); states not counted."""
        return max(
            sum(
                page / group.cache.block_tokens
                for group in self.groups
                if group.cache.kind not in ("state", "cross")
                for layer, page in zip(group.layers, group.page_bytes_of_layer, strict=True)
                if start <= layer < end
            )
            for start, end in self.stages
        )

    def blocks_per_request(self, max_model_len: int, in_flight_tokens: int) -> int:
        """Blocks that one request of max_model_len tokens needs; `in_flight_tokens` see `in_flight_tokens()`."""
        return sum(group.blocks_per_request(max_model_len, in_flight_tokens) for group in self.groups)

    def needed_bytes(self, max_model_len: int, in_flight_tokens: int) -> tuple[int, ...]:
        """Bytes on each stage that vLLM wants for one request of max_model_len tokens before it starts, its null block included."""
        blocks = self.blocks_per_request(max_model_len, in_flight_tokens) + 1
        return tuple(size * blocks for size in self.bytes_per_block)

    def capacity(self, available_bytes: Sequence[float], max_model_len: int, in_flight_tokens: int) -> KvCapacity:
        """What fits into `available_bytes` (one value a stage); the stage with the fewest blocks decides for all."""
        blocks = min(
            (max(0, int(free)) // size for free, size in zip(available_bytes, self.bytes_per_block, strict=True) if size), default=1
        )
        needed = self.blocks_per_request(max_model_len, in_flight_tokens)
        concurrency = blocks / needed if needed else float("inf")
        return KvCapacity(blocks=blocks, tokens=int(concurrency * max_model_len) if needed else 0, max_concurrency=concurrency)

    def largest_model_len(self, available_bytes: Sequence[float], longest: int, in_flight_tokens: int) -> int:
        """The largest max_model_len up to `longest` that vLLM starts with in `available_bytes`; 0 where not one token fits."""
        blocks = (
            min(
                (max(0, int(free)) // size for free, size in zip(available_bytes, self.bytes_per_block, strict=True) if size),
                default=1,
            )
            - 1
        )
        low, high = 0, longest
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_per_request(middle, in_flight_tokens) <= blocks:
                low = middle
            else:
                high = middle - 1
        return low


def in_flight_tokens(max_num_batched_tokens: int, pipeline_parallel_size: int = 1, async_scheduling: bool = True) -> int:
    """Tokens that are scheduled but not settled: a batch for each step that may run at once."""
    steps = pipeline_parallel_size + 1 if async_scheduling else pipeline_parallel_size
    return steps * max_num_batched_tokens


@lru_cache(maxsize=8192)
def kv_cache_spec(
    architecture: Architecture,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    kv_cache_dtype: str = "auto",
    block_size: int | None = None,
    dtype: str | None = None,
    enable_prefix_caching: bool = True,
    layer_partition: tuple[int, ...] | None = None,
) -> KvCacheSpec:
    """The KV cache of one split.

    MLA caches are whole on every tensor-parallel rank. `kv_cache_dtype` as in vLLM ("auto": the model's dtype; packed formats of turboquant and the like are
    refused). ConfigError names an unknown dtype. Source: v1/core/kv_cache_planning.py and v1/kv_cache_interface.py of vLLM 0.33.0.
    """
    element_dtype = resolve_dtype(architecture, dtype) if kv_cache_dtype == "auto" else kv_cache_dtype
    asked = block_size or DEFAULT_BLOCK_SIZE
    token_bytes = {
        kind: _token_bytes(architecture, kind, tensor_parallel_size, element_dtype)
        for kind in dict.fromkeys(architecture.attention)
        if kind not in ("linear", "mamba", "none")
    }
    state_bytes = {
        kind: _state_bytes(architecture, kind, tensor_parallel_size, dtype)
        for kind in dict.fromkeys(architecture.attention)
        if kind in ("linear", "mamba")
    }
    size = _hybrid_block_size(asked, token_bytes, state_bytes, architecture, enable_prefix_caching)
    caches = {kind: _layer_cache(architecture, kind, size, token_bytes) for kind in token_bytes}
    largest = max((cache.page_bytes for cache in caches.values()), default=0)
    for kind, content in state_bytes.items():
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
        stages=pipeline_stages(architecture.layers, pipeline_parallel_size, layer_partition),
    )


def _group_bytes(group: LayerGroup, start: int, end: int) -> int:
    return sum(page for layer, page in zip(group.layers, group.page_bytes_of_layer, strict=True) if start <= layer < end)


def _token_bytes(architecture: Architecture, kind: str, tensor_parallel_size: int, dtype: str) -> int:
    """Bytes of one token in one layer on one rank."""
    if kind == "mla" and architecture.mla is not None:
        mla = architecture.mla
        width = mla.kv_lora_rank + mla.rope_head_dim
        indexer = _indexer_bytes(architecture)
        if dtype == "fp8_ds_mla" or (mla.has_indexer and dtype == "fp8"):  # "fp8" is FlashMLA's name for it
            return _SPARSE_MLA_FP8_BYTES + indexer
        return ceil(width * _element_bytes(dtype)) + indexer
    head_dim = architecture.head_dim_of(kind)
    value_dim = head_dim if architecture.v_head_dim == architecture.head_dim else architecture.v_head_dim
    heads = kv_heads_per_rank(architecture.kv_heads_of(kind), tensor_parallel_size)
    if dtype in _PER_TOKEN_HEAD_SCALE_BYTES:
        element, scales = _PER_TOKEN_HEAD_SCALE_BYTES[dtype]
        return ceil(heads * ((head_dim + value_dim) * element + scales * 2))
    return ceil(heads * (head_dim + value_dim) * _element_bytes(dtype))


def _indexer_bytes(architecture: Architecture) -> int:
    """Bytes of one token in an indexer's cache: 8-bit keys, and a scale for 128 of them."""
    mla = architecture.mla
    return mla.index_head_dim + mla.index_head_dim // 128 * 4 if mla is not None and mla.has_indexer else 0


def _element_bytes(dtype: str) -> float:
    if dtype in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[dtype]
    if dtype in ("nvfp4", "nvfp4_4over6"):
        return _NVFP4_BYTES
    known = ["auto", *_ELEMENT_BYTES, *_PER_TOKEN_HEAD_SCALE_BYTES, "nvfp4"]
    raise ConfigError(
        [
            Diagnosis(
                path="kvCacheDtype",
                code="UnknownKvCacheDtype",
                message=f"is {dtype!r}; the size of its entries is not known here.{did_you_mean(dtype, known)} Known: {', '.join(known)}.",
            )
        ]
    )


def _state_bytes(architecture: Architecture, kind: str, tensor_parallel_size: int, dtype: str | None) -> int:
    """Bytes of the state of one request in one layer on one rank: the convolution's last inputs and the recurrent state."""
    element = 4 if resolve_dtype(architecture, dtype).startswith("float32") else 2
    recurrent = architecture.state_dtype_bytes or element
    if kind == "linear" and architecture.linear is not None:
        linear = architecture.linear
        width = 2 * linear.key_heads * linear.key_head_dim + linear.value_heads * linear.value_head_dim
        convolution = ceil(width / tensor_parallel_size) * (linear.conv_kernel - 1)
        state = ceil(linear.value_heads / tensor_parallel_size) * linear.value_head_dim * linear.key_head_dim
        return convolution * element + state * recurrent
    mamba = architecture.state_space
    if mamba is None:
        return 0
    extra = 0 if mamba.groups % tensor_parallel_size == 0 else tensor_parallel_size - mamba.groups
    width = mamba.inner + 2 * (mamba.groups + extra) * mamba.state
    convolution = ceil(width / tensor_parallel_size) * (mamba.conv_kernel - 1)
    return convolution * element + ceil(mamba.heads / tensor_parallel_size) * mamba.head_dim * mamba.state * recurrent


def _hybrid_block_size(
    asked: int, token_bytes: dict[str, int], state_bytes: dict[str, int], architecture: Architecture, prefix_caching: bool
) -> int:
    """The block size with state layers: so large that an attention page is no smaller than a state."""
    if not state_bytes or not token_bytes:
        return asked
    step = max(asked, DEFAULT_BLOCK_SIZE)
    if "mla" in token_bytes:
        step = max(step, 128)
    if prefix_caching and "linear" in state_bytes:
        step = lcm(step, _GATED_DELTA_CHUNK)
    token = max(token_bytes.values())
    return max(asked, step * ceil(max(state_bytes.values()) / (step * token)))


def _layer_cache(architecture: Architecture, kind: str, block_size: int, token_bytes: dict[str, int]) -> LayerCache:
    window = architecture.sliding_window if kind in ("sliding", "chunked") else None
    return LayerCache(
        kind="full" if kind == "mla" else kind, page_bytes=token_bytes[kind] * block_size, block_tokens=block_size, window=window
    )


def _one_page_size(caches: dict[str, LayerCache]) -> dict[str, LayerCache]:
    """Pages of one size over layers of different kinds: more tokens a block where it divides, padding where it does not."""
    largest = max((cache.page_bytes for cache in caches.values()), default=0)
    unified = {}
    for kind, cache in caches.items():
        tokens = cache.block_tokens
        if cache.kind != "state" and cache.page_bytes and largest % cache.page_bytes == 0:
            tokens *= largest // cache.page_bytes
        unified[kind] = LayerCache(kind=cache.kind, page_bytes=largest, block_tokens=tokens, window=cache.window)
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
    for cache, layers in members.items():
        number = ceil(len(layers) / size)
        for index in range(number):
            chosen = tuple(layers[index::number])
            groups.append(
                LayerGroup(
                    cache=cache,
                    layers=chosen,
                    page_bytes_of_layer=tuple(_page_bytes(architecture, cache, layer) for layer in chosen),
                    state_pages=pages if cache.kind == "state" else 1,
                )
            )
    return groups


def _page_bytes(architecture: Architecture, cache: LayerCache, layer: int) -> int:
    """A page of one layer: one that shares another's indexer keeps no index of its own."""
    if layer in architecture.shared_index_layers:
        return cache.page_bytes - _indexer_bytes(architecture) * cache.block_tokens
    return cache.page_bytes
