"""The parts of a model that decide memory and parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from infra.plan.architecture.quantization import DTYPE_BYTES, Quantization

AttentionKind = Literal["full", "sliding", "chunked", "mla", "linear", "mamba", "none"]


@dataclass(frozen=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts of a layer. `intermediate` is one expert's width, `shared_intermediate` that of all shared experts
    together."""

    experts: int
    experts_per_token: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): the cache holds kv_lora_rank + rope_head_dim values a token and layer, on every
    rank."""

    kv_lora_rank: int
    q_lora_rank: int | None
    nope_head_dim: int
    rope_head_dim: int
    v_head_dim: int
    index_heads: int = 0
    index_head_dim: int = 0

    @property
    def has_indexer(self) -> bool:
        """True for sparse attention with an indexer of its own (DeepSeek V3.2, GLM-5)."""
        return self.index_heads > 0


@dataclass(frozen=True, kw_only=True)
class LinearAttention:
    """Gated delta-net layers (Qwen3-Next, Qwen3.5): a state of constant size a request instead of a cache by token."""

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int


@dataclass(frozen=True, kw_only=True)
class StateSpace:
    """Mamba-2 layers (Nemotron-H, Granite 4, Bamba): heads x head_dim inner width, `groups` B/C groups, `state` values a
    channel."""

    heads: int
    head_dim: int
    groups: int
    state: int
    conv_kernel: int
    conv_bias: bool = True

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim


@dataclass(frozen=True, kw_only=True)
class VisionTower:
    """The vision encoder and its projector.

    `parameters` are all of theirs: a published count, or one from the widths.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    parameters: int


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The text model, layer by layer, with what hangs on it. All widths are of the whole model, before any split.

    `attention` and `mlp` have one entry a layer: the kind of attention, and "dense", "moe" or "none". `sliding_window` counts
    tokens (also the chunk of "chunked" layers). `global_head_dim` / `global_kv_heads` are those of full layers where they differ
    from the sliding ones (Gemma 4). `shared_index_layers` use the indexer of a layer before them (GLM-5.2). `dtype` is the
    checkpoint's ("bfloat16"); `state_dtype_bytes` of recurrent states where the config names another. `supports_pipeline_parallel`
    follows the class in vLLM 0.33.
    """

    name: str
    model_type: str
    class_name: str | None
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    vocab: int
    intermediate: int
    attention: tuple[AttentionKind, ...]
    mlp: tuple[str, ...]
    moe: MixtureOfExperts | None = None
    mla: LatentAttention | None = None
    shared_index_layers: frozenset[int] = frozenset()
    linear: LinearAttention | None = None
    state_space: StateSpace | None = None
    sliding_window: int | None = None
    global_head_dim: int | None = None
    global_kv_heads: int | None = None
    key_is_value: bool = False
    gated_mlp: bool = True
    tied_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    output_gate: bool = False
    attention_sinks: bool = False
    norms_per_layer: int = 2
    norm_has_bias: bool = False
    position_embeddings: int = 0
    vision: VisionTower | None = None
    mtp_layers: int = 0
    mtp_own_embeddings: bool = False
    encoder_decoder: bool = False
    encoder_layers: int = 0
    encoder_intermediate: int = 0
    encoder_channels: int = 0
    encoder_positions: int = 0
    max_position_embeddings: int = 0
    state_dtype_bytes: int | None = None
    dtype: str = "bfloat16"
    quantization: Quantization | None = None
    supports_pipeline_parallel: bool = True

    def __hash__(self) -> int:
        # architectures are keys of caches: the kinds of all layers would be hashed each time
        return hash((self.name, self.model_type, self.layers, self.hidden, self.heads, self.vocab, self.dtype))

    @cached_property
    def routed_experts(self) -> MixtureOfExperts | None:
        """The experts, where a layer has them."""
        return self.moe if "moe" in self.mlp else None

    @cached_property
    def is_moe(self) -> bool:
        return self.routed_experts is not None

    @cached_property
    def is_mla(self) -> bool:
        return self.mla is not None

    @cached_property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    def has_indexer(self, layer: int) -> bool:
        """True where the layer has a sparse-attention indexer of its own."""
        return self.mla is not None and self.mla.has_indexer and layer not in self.shared_index_layers

    def head_dim_of(self, kind: str) -> int:
        return self.global_head_dim if kind == "full" and self.global_head_dim else self.head_dim

    def kv_heads_of(self, kind: str) -> int:
        return self.global_kv_heads if kind == "full" and self.global_kv_heads else self.kv_heads
