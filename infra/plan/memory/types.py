"""What a memory estimate holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from infra.catalog.types import Accelerator
from infra.plan.architecture.partition import ParallelSizes
from infra.plan.architecture.types import Architecture
from infra.plan.memory.activation import ActivationPeak
from infra.plan.memory.kv_cache import KvCacheSpec
from infra.plan.memory.options import EngineOptions
from infra.plan.memory.profile import EngineMemory
from infra.plan.memory.span import Span

Verdict = Literal["fits", "marginal", "refused"]


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Whole tokens, or blocks, at the low end, as expected and at the high end."""

    low: int
    expected: int
    high: int


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """The fullest rank of one pipeline stage, bytes a GPU. `available` may be negative: then the model does not even load with its
    surroundings."""

    stage: int
    weights: Span
    communication: Span
    activation: ActivationPeak
    graphs: Span
    available: Span


@dataclass(frozen=True, kw_only=True)
class Check:
    """One condition of a start, at the low and at the high end of the range; `failure` says with both numbers what does not
    hold."""

    holds_low: bool
    holds_high: bool
    failure: str


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Where a GPU's memory goes, on the pipeline stage with the least room; `available`, `tokens` and `concurrency` are ranges.

    `requested` is what vLLM may use: torch's total memory x gpu_memory_utilization. `in_flight_tokens` are scheduled but not
    settled (sliding windows hold them too). `options` are those that were asked for, without vLLM's defaults. The verdict is `fits`
    where every check holds at the low end, `refused` where one fails even at the high end, else `marginal`.
    """

    architecture: Architecture
    accelerator: Accelerator
    engine: EngineMemory
    sizes: ParallelSizes
    options: EngineOptions
    gpu_memory_utilization: float
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    in_flight_tokens: int
    total_bytes: int
    requested: Span
    stages: tuple[StageMemory, ...]
    cache: KvCacheSpec
    blocks: Tokens
    tokens: Tokens
    concurrency: Span
    checks: tuple[Check, ...]

    @cached_property
    def verdict(self) -> Verdict:
        if all(check.holds_low for check in self.checks):
            return "fits"
        return "marginal" if all(check.holds_high for check in self.checks) else "refused"

    @property
    def vllm_version(self) -> str:
        """The version that was asked for; where none was, the newest that is known."""
        return (self.options.vllm_version or self.engine.version).strip().removeprefix("v")

    @property
    def fits(self) -> bool:
        return self.verdict == "fits"

    @cached_property
    def fullest(self) -> StageMemory:
        """The stage whose room holds the fewest blocks."""
        sizes = self.cache.bytes_per_block
        return min(self.stages, key=lambda stage: stage.available.expected / (sizes[stage.stage] or 1))

    @property
    def available(self) -> Span:
        """Bytes for the KV cache on the fullest rank; negative where there is none."""
        return self.fullest.available

    @property
    def weights_bytes(self) -> int:
        return round(self.fullest.weights.expected)

    @property
    def kv_bytes_per_token(self) -> int:
        """One token on the fullest rank while every layer keeps it."""
        return round(self.cache.bytes_per_token)

    @property
    def block_size(self) -> int:
        return self.cache.block_size

    @cached_property
    def needed_bytes(self) -> int:
        """Cache of one request of max_model_len tokens, on the stage with the most layers."""
        return max(self.cache.needed_bytes(self.max_model_len, self.in_flight_tokens))

    @cached_property
    def largest_max_model_len(self) -> int:
        """The longest context that starts at the low end, at most what the model was made for; 0 where none does."""
        longest = self.architecture.max_position_embeddings or self.max_model_len
        return self.cache.largest_model_len([stage.available.low for stage in self.stages], longest, self.in_flight_tokens)
