"""Which kind of attention and of MLP each layer of a model has."""

from __future__ import annotations

from infra.diagnosis import shown
from infra.plan.architecture.fields import ConfigFields
from infra.plan.architecture.types import AttentionKind, LatentAttention, LinearAttention, MixtureOfExperts


def mixture(
    text: ConfigFields, model_type: str, layers: int, intermediate: int | None
) -> tuple[MixtureOfExperts | None, tuple[str, ...]]:
    experts = text.integer("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    if not experts or (model_type.startswith("gemma4") and not text.boolean("enable_moe_block", default=True)):
        return None, ("dense",) * layers
    width = text.integer("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size", minimum=1)
    if width is None:
        width = text.integer("intermediate_size") if model_type.startswith("llama4") else intermediate
    if width is None:
        text.integer("moe_intermediate_size", "intermediate_size", required=True)
        return None, ("dense",) * layers
    shared = text.integer("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
    if shared is None:
        shared = (text.integer("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0)) * width
    if model_type.startswith("llama4"):
        shared = width
    elif model_type.startswith("gemma4"):
        shared = intermediate or 0  # the dense MLP runs beside the experts
    moe = MixtureOfExperts(
        experts=experts,
        experts_per_token=text.integer(
            "num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_k", default=1, minimum=1
        ),
        intermediate=width,
        shared_intermediate=shared,
        shared_gate=model_type in ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"),
        router_bias=model_type in ("gpt_oss", "deepseek_v3", "glm4_moe", "minimax_m2", "deepseek_v32", "kimi_k2", "glm_moe_dsa"),
        expert_bias=model_type == "gpt_oss",
    )
    return moe, _mixture_layers(text, model_type, layers)


def _mixture_layers(text: ConfigFields, model_type: str, layers: int) -> tuple[str, ...]:
    explicit = text.sequence("moe_layers")
    if explicit is not None and all(isinstance(layer, int) for layer in explicit):
        return tuple("moe" if layer in explicit else "dense" for layer in range(layers))
    types = text.sequence("mlp_layer_types")
    if types is not None and len(types) == layers:
        return tuple("moe" if kind == "sparse" else "dense" for kind in types)
    if model_type.startswith("llama4"):
        step = text.integer("interleave_moe_layer_step", default=1, minimum=1)
        return tuple("moe" if (layer + 1) % step == 0 else "dense" for layer in range(layers))
    dense_first = text.integer("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", default=0)
    step = text.integer("moe_layer_freq", "decoder_sparse_step", "moe_layer_interval", default=1, minimum=1)
    dense_listed = {layer for layer in text.sequence("mlp_only_layers") or () if isinstance(layer, int)}
    if text.values.get("decoder_sparse_step") is not None:
        return tuple("moe" if layer not in dense_listed and (layer + 1) % step == 0 else "dense" for layer in range(layers))
    return tuple(
        "moe" if layer >= dense_first and layer % step == 0 and layer not in dense_listed else "dense" for layer in range(layers)
    )


_KIND_OF_LAYER_TYPE: dict[str, AttentionKind] = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
}


def layer_kinds(
    text: ConfigFields,
    model_type: str,
    layers: int,
    mla: LatentAttention | None,
    linear: LinearAttention | None,
    mlp: tuple[str, ...],
) -> tuple[tuple[AttentionKind, ...], tuple[str, ...]]:
    """Kind of attention and of MLP ("dense", "moe", "none") of each layer."""
    if mla is not None:
        return _same("mla", layers), mlp
    pattern = text.values.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) == layers:
        signs: dict[str, AttentionKind] = {"M": "mamba", "*": "full"}
        widths = {"E": "moe", "-": "dense"}
        attention: list[AttentionKind] = [signs.get(sign, "none") for sign in pattern]
        return tuple(attention), tuple(widths.get(sign, "none") for sign in pattern)
    types = text.sequence("layer_types") or text.sequence("layers_block_type")
    if types is not None:
        return _named_kinds(text, [str(kind) for kind in types], layers), mlp
    return _regular_kinds(text, model_type, layers, linear), mlp


def _named_kinds(text: ConfigFields, types: list[str], layers: int) -> tuple[AttentionKind, ...]:
    unknown = sorted(set(types) - set(_KIND_OF_LAYER_TYPE))
    if unknown:
        text.problem("layer_types", f"names the kind {shown(unknown[0])}; known are {', '.join(_KIND_OF_LAYER_TYPE)}.")
    elif len(types) != layers:
        text.problem("layer_types", f"has {len(types)} entries, but num_hidden_layers is {layers}.")
    else:
        return tuple(_KIND_OF_LAYER_TYPE[kind] for kind in types)
    return _same("full", layers)


def _regular_kinds(text: ConfigFields, model_type: str, layers: int, linear: LinearAttention | None) -> tuple[AttentionKind, ...]:
    if linear is not None:
        return _full_every(layers, text.integer("full_attention_interval", default=4, minimum=1), "linear")
    indices = text.sequence("attn_layer_indices")
    if indices is not None:
        mixed: list[AttentionKind] = ["full" if layer in indices else "mamba" for layer in range(layers)]
        return tuple(mixed)
    if model_type.startswith("llama4") and text.integer("attention_chunk_size"):
        return _full_every(layers, text.integer("no_rope_layer_interval", default=4, minimum=1), "chunked")
    if text.integer("sliding_window"):
        if model_type.startswith(("gemma3", "gemma4")):
            return _full_every(
                layers, text.integer("sliding_window_pattern", "_sliding_window_pattern", default=6, minimum=1), "sliding"
            )
        if model_type == "cohere2":
            return _full_every(layers, text.integer("sliding_window_pattern", default=4, minimum=1), "sliding")
        if model_type in ("gemma2", "gpt_oss"):
            return _full_every(layers, 2, "sliding")
        if model_type in ("mistral", "mixtral", "phi3", "starcoder2"):
            return _same("sliding", layers)
    return _same("full", layers)


def _full_every(layers: int, interval: int, otherwise: AttentionKind) -> tuple[AttentionKind, ...]:
    kinds: list[AttentionKind] = ["full" if (layer + 1) % interval == 0 else otherwise for layer in range(layers)]
    return tuple(kinds)


def _same(kind: AttentionKind, layers: int) -> tuple[AttentionKind, ...]:
    return (kind,) * layers
