"""Counts a model's parameters and the bytes of weights on each rank, for a split by tensor, pipeline, expert and data parallel.

The split is vLLM 0.33's: columns of q, k, v, gate and up, rows of o and down; KV heads repeated where there are fewer than ranks;
the vocabulary padded to a multiple of 64 and then split; norms and routers whole on every rank; the embedding on the first pipeline
stage, the head on the last.
"""

from __future__ import annotations

from functools import cache
from math import ceil

from infra.plan.architecture.partition import MXFP4_ROUNDING, padded_vocabulary, pipeline_stages
from infra.plan.architecture.precision import resolve_dtype, resolve_quantization
from infra.plan.architecture.quantization import DTYPE_BYTES, Quantization
from infra.plan.architecture.types import Architecture
from infra.plan.memory.layer_weights import WHOLE, Split, layer_matrices, layer_vector_count


def count_parameters(architecture: Architecture) -> int:
    """All parameters, each tensor once: text model, embeddings (a tied head counts once), vision tower, encoder."""
    total = sum(_layer_count(architecture, layer) for layer in range(architecture.layers))
    total += _embedding_count(architecture) + _final_norm(architecture)
    if not architecture.tied_embeddings:
        total += architecture.vocab * architecture.hidden
    if architecture.lm_head_bias:
        total += architecture.vocab
    return total + _encoder_count(architecture) + (architecture.vision.parameters if architecture.vision else 0)


def count_mtp_parameters(architecture: Architecture) -> int:
    """Parameters of the checkpoint's multi-token-prediction layers: a decoder layer each, a projection of two hidden states, norms.

    DeepSeek's and GLM-4.5's bring a copy of the embedding and of the head.
    """
    if not architecture.mtp_layers:
        return 0
    hidden = architecture.hidden
    last_full = max(
        (
            i
            for i, kind in enumerate(architecture.attention)
            if kind in ("full", "mla") and i not in architecture.shared_index_layers
        ),
        default=architecture.layers - 1,
    )
    extra = 2 * hidden * hidden + 3 * hidden + (2 * architecture.vocab * hidden if architecture.mtp_own_embeddings else 0)
    return architecture.mtp_layers * (_layer_count(architecture, last_full) + extra)


def count_active_parameters(architecture: Architecture) -> int:
    """Parameters that one token passes through: experts_per_token of the routed experts, everything else."""
    moe = architecture.moe
    if moe is None:
        return count_parameters(architecture)
    idle = moe.experts - moe.experts_per_token
    per_expert = 3 if architecture.gated_mlp else 2
    return (
        count_parameters(architecture) - architecture.mlp.count("moe") * idle * per_expert * architecture.hidden * moe.intermediate
    )


@cache
def weights_bytes_per_rank(
    architecture: Architecture,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    data_parallel_size: int = 1,
    expert_parallel: bool = False,
    quantization: str | None = None,
    dtype: str | None = None,
    vendor: str = "nvidia",
) -> tuple[int, ...]:
    """Bytes of weights on the fullest rank of each pipeline stage.

    `quantization` is --quantization (a checkpoint's own stands in the architecture); `dtype` --dtype, or "auto".
    `data_parallel_size` matters to experts only: they are spread over all ranks of the group. `vendor` decides how MXFP4 experts
    are padded. ConfigError where quantization or dtype do not go with the model.
    """
    chosen = resolve_quantization(architecture, quantization)
    element = DTYPE_BYTES[resolve_dtype(architecture, dtype)]
    ranks = tensor_parallel_size * data_parallel_size
    split = Split(
        tensor=tensor_parallel_size,
        expert_width=1 if expert_parallel else ranks,
        expert_count=ranks if expert_parallel else 1,
        rounding=MXFP4_ROUNDING.get(vendor) if chosen is not None and chosen.method == "mxfp4" else None,
    )
    ignored = _ignored_modules(architecture, chosen)
    layer_bytes: dict[tuple[str, str, bool, frozenset[str]], int] = {}
    sizes = []
    for start, end in pipeline_stages(architecture.layers, pipeline_parallel_size):
        total = 0
        for layer in range(start, end):
            key = (architecture.attention[layer], architecture.mlp[layer], architecture.has_indexer(layer), ignored[layer])
            if key not in layer_bytes:
                layer_bytes[key] = _layer_bytes(architecture, layer, split, chosen, ignored[layer], element)
            total += layer_bytes[key]
        sizes.append(total)
    table = _padded_vocab(architecture, tensor_parallel_size) * architecture.hidden
    sizes[0] += table * element + (architecture.position_embeddings * architecture.hidden + _embedding_norm(architecture)) * element
    if not architecture.tied_embeddings or pipeline_parallel_size > 1:
        sizes[-1] += _head_bytes(architecture, tensor_parallel_size, chosen, element)
    sizes[-1] += _final_norm(architecture) * element
    if architecture.vision is not None:
        sizes[0] += ceil(architecture.vision.parameters / _vision_split(architecture, tensor_parallel_size)) * element
    if architecture.encoder_decoder:
        sizes[0] += ceil(_encoder_count(architecture) / tensor_parallel_size) * element
    return tuple(sizes)


@cache
def _ignored_modules(architecture: Architecture, quantization: Quantization | None) -> tuple[frozenset[str], ...]:
    """Per layer the modules that the quantisation leaves alone."""
    nothing = (frozenset(),) * architecture.layers
    if quantization is None or not quantization.ignored:
        return nothing
    per_layer: list[frozenset[str]] = []
    by_kind: dict[tuple[str, str], frozenset[str]] = {}
    for layer in range(architecture.layers):
        kind = (architecture.attention[layer], architecture.mlp[layer])
        if kind in by_kind and not quantization.names_layers:
            per_layer.append(by_kind[kind])
            continue
        modules = {matrix.module for matrix in layer_matrices(architecture, layer, WHOLE)}
        ignored = frozenset(
            module
            for module in modules
            if any(quantization.ignores(f"model.layers.{layer}.{name}") for name in _checkpoint_names(module))
        )
        by_kind[kind] = ignored
        per_layer.append(ignored)
    return tuple(per_layer)


def _checkpoint_names(module: str) -> tuple[str, ...]:
    if module.startswith("mlp.experts."):
        return (module, "mlp.experts", "mlp.experts.0." + module.removeprefix("mlp.experts."), "block_sparse_moe.experts")
    return (module,)


def _layer_bytes(
    architecture: Architecture, layer: int, split: Split, quantization: Quantization | None, ignored: frozenset[str], element: int
) -> int:
    total = layer_vector_count(architecture, layer, split) * element
    for matrix in layer_matrices(architecture, layer, split):
        quantized = (
            quantization is not None
            and matrix.quantizable
            and matrix.module not in ignored
            and (matrix.expert or not quantization.experts_only)
        )
        if quantized and quantization is not None:
            total += quantization.matrix_bytes(matrix.outputs, matrix.inputs) * matrix.copies
        else:
            total += matrix.outputs * matrix.inputs * matrix.copies * element
    return total


def _layer_count(architecture: Architecture, layer: int) -> int:
    matrices = layer_matrices(architecture, layer, WHOLE)
    return layer_vector_count(architecture, layer, WHOLE) + sum(m.outputs * m.inputs * m.copies for m in matrices)


def _embedding_count(architecture: Architecture) -> int:
    return (architecture.vocab + architecture.position_embeddings) * architecture.hidden + _embedding_norm(architecture)


def _embedding_norm(architecture: Architecture) -> int:
    return 2 * architecture.hidden if architecture.model_type == "bloom" else 0


def _final_norm(architecture: Architecture) -> int:
    return architecture.hidden * (2 if architecture.norm_has_bias else 1)


def _padded_vocab(architecture: Architecture, tensor: int) -> int:
    return ceil(padded_vocabulary(architecture.vocab) / tensor)


def _head_bytes(architecture: Architecture, tensor: int, quantization: Quantization | None, element: int) -> int:
    rows = _padded_vocab(architecture, tensor)
    bias = rows * element if architecture.lm_head_bias else 0
    if quantization is not None and quantization.quantizes_lm_head:
        return quantization.matrix_bytes(rows, architecture.hidden) + bias
    return rows * architecture.hidden * element + bias


def _vision_split(architecture: Architecture, tensor: int) -> int:
    vision = architecture.vision
    return tensor if vision is not None and vision.heads % tensor == 0 else 1


def _encoder_count(architecture: Architecture) -> int:
    """Whisper's encoder: two convolutions, positions, and layers of attention and MLP."""
    if not architecture.encoder_decoder:
        return 0
    hidden, inner = architecture.hidden, architecture.encoder_intermediate or architecture.intermediate
    layer = 4 * hidden * hidden + 3 * hidden + 2 * hidden * inner + inner + hidden + 4 * hidden
    convolutions = hidden * architecture.encoder_channels * 3 + hidden + hidden * hidden * 3 + hidden
    return architecture.encoder_layers * layer + convolutions + architecture.encoder_positions * hidden + 2 * hidden
