"""The weight matrices and vectors of one layer on one rank, as vLLM cuts them."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from infra.plan.architecture.partition import kv_heads_per_rank, round_up
from infra.plan.architecture.types import Architecture, LatentAttention


class Matrix(NamedTuple):
    """`copies` equal weight matrices of one rank; `module` is the checkpoint's name inside its layer; `expert`: a routed
    expert's."""

    module: str
    outputs: int
    inputs: int
    copies: int = 1
    quantizable: bool = True
    expert: bool = False


class Split(NamedTuple):
    """How one layer is cut: attention and dense MLP by `tensor`, experts by width (`expert_width`) or by number (`expert_count`).

    `counting`: the checkpoint's own parameters, without what vLLM makes of them while it loads.
    """

    tensor: int = 1
    expert_width: int = 1
    expert_count: int = 1
    rounding: tuple[int, int] | None = None
    counting: bool = False


WHOLE = Split(counting=True)


def layer_matrices(architecture: Architecture, layer: int, split: Split) -> list[Matrix]:
    """The weight matrices of one layer on one rank."""
    kind = architecture.attention[layer]
    if architecture.mla is not None:
        matrices = _latent_attention(architecture, architecture.mla, split, architecture.has_indexer(layer))
    elif kind == "linear":
        matrices = _linear_attention(architecture, split.tensor)
    elif kind == "mamba":
        matrices = _state_space(architecture, split.tensor)
    elif kind == "none":
        matrices = []
    else:
        matrices = _attention(architecture, kind, split)
    if architecture.encoder_decoder:
        matrices += [Matrix(m.module.replace("self_attn", "encoder_attn"), *m[1:]) for m in _attention(architecture, "full", split)]
    mlp = architecture.mlp[layer]
    if mlp == "dense":
        matrices += _dense(architecture, "mlp", ceil(architecture.intermediate / split.tensor))
    elif mlp == "moe":
        matrices += _experts(architecture, split)
    return matrices


def _attention(architecture: Architecture, kind: str, split: Split) -> list[Matrix]:
    hidden = architecture.hidden
    head_dim = architecture.head_dim_of(kind)
    value_dim = head_dim if architecture.v_head_dim == architecture.head_dim else architecture.v_head_dim
    heads = ceil(architecture.heads / split.tensor)
    kv_heads = kv_heads_per_rank(architecture.kv_heads_of(kind), split.tensor)
    matrices = [
        Matrix("self_attn.q_proj", heads * head_dim * (2 if architecture.output_gate else 1), hidden),
        Matrix("self_attn.k_proj", kv_heads * head_dim, hidden),
        Matrix("self_attn.o_proj", hidden, heads * value_dim),
    ]
    # where keys serve as values the checkpoint has them once, vLLM twice
    if not (split.counting and architecture.key_is_value and kind == "full"):
        matrices.append(Matrix("self_attn.v_proj", kv_heads * value_dim, hidden))
    return matrices


def _latent_attention(architecture: Architecture, mla: LatentAttention, split: Split, indexer: bool) -> list[Matrix]:
    hidden, heads = architecture.hidden, ceil(architecture.heads / split.tensor)
    query = heads * (mla.nope_head_dim + mla.rope_head_dim)
    matrices = (
        [Matrix("self_attn.q_proj", query, hidden)]
        if mla.q_lora_rank is None
        else [Matrix("self_attn.q_a_proj", mla.q_lora_rank, hidden), Matrix("self_attn.q_b_proj", query, mla.q_lora_rank)]
    )
    matrices += [
        Matrix("self_attn.kv_a_proj_with_mqa", mla.kv_lora_rank + mla.rope_head_dim, hidden),
        Matrix("self_attn.kv_b_proj", heads * (mla.nope_head_dim + mla.v_head_dim), mla.kv_lora_rank),
        Matrix("self_attn.o_proj", hidden, heads * mla.v_head_dim),
    ]
    if not split.counting:
        # decoding uses kv_b_proj absorbed into query and output; vLLM keeps both forms
        matrices.append(
            Matrix("self_attn.absorbed", heads * (mla.nope_head_dim + mla.v_head_dim), mla.kv_lora_rank, quantizable=False)
        )
    if indexer:
        matrices += [
            Matrix("self_attn.indexer.wq_b", mla.index_heads * mla.index_head_dim, mla.q_lora_rank or hidden),
            Matrix("self_attn.indexer.wk", mla.index_head_dim, hidden),
            Matrix("self_attn.indexer.weights_proj", mla.index_heads, hidden, quantizable=False),
        ]
    return matrices


def _linear_attention(architecture: Architecture, tensor: int) -> list[Matrix]:
    linear = architecture.linear
    if linear is None:
        return []
    keys = ceil(linear.key_heads * linear.key_head_dim / tensor)
    values = ceil(linear.value_heads * linear.value_head_dim / tensor)
    return [
        Matrix("linear_attn.in_proj_qkvz", 2 * keys + 2 * values, architecture.hidden),
        Matrix("linear_attn.in_proj_ba", 2 * ceil(linear.value_heads / tensor), architecture.hidden, quantizable=False),
        Matrix("linear_attn.conv1d", 2 * keys + values, linear.conv_kernel, quantizable=False),
        Matrix("linear_attn.out_proj", architecture.hidden, values),
    ]


def _state_space(architecture: Architecture, tensor: int) -> list[Matrix]:
    mamba = architecture.state_space
    if mamba is None:
        return []
    inner = ceil(mamba.inner / tensor)
    states = max(1, ceil(mamba.groups / tensor)) * mamba.state
    return [
        Matrix("mixer.in_proj", 2 * inner + 2 * states + ceil(mamba.heads / tensor), architecture.hidden),
        Matrix("mixer.conv1d", inner + 2 * states, mamba.conv_kernel, quantizable=False),
        Matrix("mixer.out_proj", architecture.hidden, inner),
    ]


def _dense(architecture: Architecture, prefix: str, width: int) -> list[Matrix]:
    matrices = [
        Matrix(f"{prefix}.up_proj", width, architecture.hidden),
        Matrix(f"{prefix}.down_proj", architecture.hidden, width),
    ]
    return [*matrices, Matrix(f"{prefix}.gate_proj", width, architecture.hidden)] if architecture.gated_mlp else matrices


def _experts(architecture: Architecture, split: Split) -> list[Matrix]:
    moe = architecture.moe
    if moe is None:
        return []
    hidden, width = architecture.hidden, ceil(moe.intermediate / split.expert_width)
    if split.rounding is not None:
        width, hidden = round_up(width, split.rounding[0]), round_up(hidden, split.rounding[1])
    count = ceil(moe.experts / split.expert_count)
    matrices = [
        Matrix("mlp.experts.up_proj", width, hidden, count * (2 if architecture.gated_mlp else 1), expert=True),
        Matrix("mlp.experts.down_proj", hidden, width, count, expert=True),
        Matrix("mlp.gate", moe.experts, architecture.hidden, quantizable=False),
    ]
    if moe.shared_intermediate:
        matrices += _dense(architecture, "mlp.shared_experts", ceil(moe.shared_intermediate / split.tensor))
    if moe.shared_gate:
        matrices.append(Matrix("mlp.shared_expert_gate", 1, architecture.hidden, quantizable=False))
    return matrices


def layer_vector_count(architecture: Architecture, layer: int, split: Split) -> int:
    """Values of one layer on one rank that are no matrix: norms, biases, attention sinks, state-space scalars."""
    hidden, tensor = architecture.hidden, split.tensor
    kind = architecture.attention[layer]
    norms = architecture.norms_per_layer + (1 if architecture.encoder_decoder else 0)
    total = norms * hidden * (2 if architecture.norm_has_bias else 1)
    if architecture.mla is not None:
        total += architecture.mla.kv_lora_rank + (architecture.mla.q_lora_rank or 0)
        total += 2 * architecture.mla.index_head_dim if architecture.has_indexer(layer) else 0
    elif kind == "linear" and architecture.linear is not None:
        total += 2 * ceil(architecture.linear.value_heads / tensor) + architecture.linear.value_head_dim
    elif kind == "mamba" and architecture.state_space is not None:
        total += _state_space_vectors(architecture, tensor)
    elif kind != "none":
        total += _attention_vectors(architecture, kind, tensor)
        if architecture.encoder_decoder:
            total += _attention_vectors(architecture, "full", tensor)
    mlp = architecture.mlp[layer]
    if mlp == "dense" and architecture.mlp_bias:
        total += hidden + ceil(architecture.intermediate / tensor) * (2 if architecture.gated_mlp else 1)
    if mlp == "moe" and architecture.moe is not None:
        total += _expert_vectors(architecture, split)
    return total


def _attention_vectors(architecture: Architecture, kind: str, tensor: int) -> int:
    head_dim = architecture.head_dim_of(kind)
    heads = ceil(architecture.heads / tensor)
    kv_heads = kv_heads_per_rank(architecture.kv_heads_of(kind), tensor)
    total = 0
    if architecture.qkv_bias:
        # Whisper's key projection has no bias
        keys = 0 if architecture.encoder_decoder else kv_heads * head_dim
        total += heads * head_dim + keys + kv_heads * head_dim
    if architecture.output_bias:
        total += architecture.hidden
    if architecture.qk_norm == "head":
        total += 2 * head_dim
    elif architecture.qk_norm == "full":
        total += (heads + kv_heads) * head_dim
    return total + (heads if architecture.attention_sinks else 0)


def _state_space_vectors(architecture: Architecture, tensor: int) -> int:
    mamba = architecture.state_space
    if mamba is None:
        return 0
    inner = ceil(mamba.inner / tensor)
    total = 3 * ceil(mamba.heads / tensor) + inner
    if mamba.conv_bias:
        total += inner + 2 * max(1, ceil(mamba.groups / tensor)) * mamba.state
    return total


def _expert_vectors(architecture: Architecture, split: Split) -> int:
    moe = architecture.moe
    if moe is None:
        return 0
    total = moe.experts if moe.router_bias else 0
    if moe.expert_bias:
        count, width = ceil(moe.experts / split.expert_count), ceil(moe.intermediate / split.expert_width)
        total += count * (2 * width + architecture.hidden)
    return total
