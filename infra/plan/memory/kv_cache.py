"""What a token costs in the KV cache on each rank, and how many tokens a pool of blocks holds, as vLLM 0.33 counts them.

vLLM cuts the cache into blocks of `block_size` tokens. Layers that keep the same share one group and one block table. All groups
draw blocks from one pool, so a request takes the sum of what each group needs, and a block is as large as the group with the
largest pages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil


@dataclass(frozen=True, kw_only=True)
class LayerCache:
    """What one layer keeps on one rank.

    `kind`: "full" (every token), "sliding" and "chunked" (the last `window` tokens and those in flight), "state" (pages of constant
    size), or "cross" (the encoder's tokens, `window` of them). `page_bytes` is one block of the layer, `block_tokens` the tokens in
    it.
    """

    kind: str
    page_bytes: int
    block_tokens: int
    window: int | None = None


@dataclass(frozen=True, kw_only=True)
class LayerGroup:
    """Layers with one block table. `layers` are indices into the model; `cache` describes each of them; `state_pages` pages a
    request for states."""

    cache: LayerCache
    layers: tuple[int, ...]
    page_bytes_of_layer: tuple[int, ...]
    state_pages: int = 0

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

    def blocks(self, available_bytes: Sequence[float]) -> int:
        """Blocks of the pool in `available_bytes` (one value a stage): the stage with the fewest decides for all. 1 for a model
        without any cache."""
        return min(
            (max(0, int(free)) // size for free, size in zip(available_bytes, self.bytes_per_block, strict=True) if size), default=1
        )

    def capacity(self, available_bytes: Sequence[float], max_model_len: int, in_flight_tokens: int) -> KvCapacity:
        """What fits into `available_bytes` (one value a stage)."""
        blocks = self.blocks(available_bytes)
        needed = self.blocks_per_request(max_model_len, in_flight_tokens)
        concurrency = blocks / needed if needed else float("inf")
        return KvCapacity(blocks=blocks, tokens=int(concurrency * max_model_len) if needed else 0, max_concurrency=concurrency)

    def largest_model_len(self, available_bytes: Sequence[float], longest: int, in_flight_tokens: int) -> int:
        """The largest max_model_len up to `longest` that vLLM starts with in `available_bytes`; 0 where not one token fits."""
        blocks = self.blocks(available_bytes) - 1
        return bisect_right(range(1, longest + 1), blocks, key=lambda length: self.blocks_per_request(length, in_flight_tokens))


def in_flight_tokens(max_num_batched_tokens: int, pipeline_parallel_size: int = 1, async_scheduling: bool = True) -> int:
    """Tokens that are scheduled but not settled: a batch for each step that may run at once."""
    steps = pipeline_parallel_size + 1 if async_scheduling else pipeline_parallel_size
    return steps * max_num_batched_tokens


def _group_bytes(group: LayerGroup, start: int, end: int) -> int:
    return sum(page for layer, page in zip(group.layers, group.page_bytes_of_layer, strict=True) if start <= layer < end)
