"""Reads a model's config.json, in the catalog or inline, into the parts that decide memory and parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from infra.catalog.load import classes_without_pipeline_parallel
from infra.catalog.types import Model
from infra.diagnosis import Diagnosis, shown
from infra.errors import ConfigError
from infra.plan.architecture.attention_variants import latent_attention, linear_attention, state_dtype_bytes, state_space
from infra.plan.architecture.families import (
    FOUR_NORM_TYPES,
    FULL_NORM_TYPES,
    HEAD_NORM_TYPES,
    LAYER_NORM_TYPES,
    LEARNED_POSITIONS,
    QKV_BIAS_TYPES,
    UNGATED_TYPES,
    UNTIED_BY_DEFAULT,
    WIDTH_NAMES,
    WIDTH_NAMES_LLAMA4,
)
from infra.plan.architecture.fields import LARGEST_LAYER_COUNT, ConfigFields
from infra.plan.architecture.layer_kinds import layer_kinds, mixture
from infra.plan.architecture.quantization import DTYPE_BYTES, Quantization
from infra.plan.architecture.quantization_config import quantization_from_config
from infra.plan.architecture.types import Architecture
from infra.plan.architecture.vision import vision_tower


def from_config_json(
    raw: Mapping[str, Any],
    *,
    name: str = "",
    path: str = "",
    vision_parameters: int | None = None,
    no_pipeline_classes: frozenset[str] = frozenset(),
) -> Architecture:
    """The Architecture of a config.json (its own names, nested `text_config` and `quantization_config` included).

    `path` is where the map stands in the input ("models[0].modelConfig"). `vision_parameters` replaces the count of the vision
    tower. `no_pipeline_classes` are vLLM's classes without pipeline parallel. ConfigError lists all that is missing or wrong.
    """
    problems: list[Diagnosis] = []
    if not isinstance(raw, Mapping):
        raise ConfigError(
            [Diagnosis(path=path, code="InvalidValue", message=f"is {shown(raw)}; a map with config.json's fields is expected.")]
        )
    top = ConfigFields(raw, path, problems)
    nested = next(
        (key for key in ("text_config", "llm_config", "language_config", "decoder_config") if isinstance(raw.get(key), Mapping)),
        None,
    )
    text = ConfigFields({**_inherited(raw), **raw[nested]}, top.at(nested), problems) if nested else top
    architecture = _read(top, text, name, vision_parameters, no_pipeline_classes)
    if problems or architecture is None:
        raise ConfigError(problems)
    return architecture


def _inherited(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: raw[key] for key in ("tie_word_embeddings", "torch_dtype", "dtype", "vocab_size") if raw.get(key) is not None}


def _read(
    top: ConfigFields, text: ConfigFields, name: str, vision_parameters: int | None, no_pipeline_classes: frozenset[str]
) -> Architecture | None:
    model_type = str(text.values.get("model_type") or top.values.get("model_type") or "llama")
    outer_type = str(top.values.get("model_type") or model_type)
    classes = top.sequence("architectures") or ()
    class_name = str(classes[0]) if classes else None

    layers = text.integer(
        "num_hidden_layers",
        "n_layer",
        "num_layers",
        "n_layers",
        "decoder_layers",
        required=True,
        minimum=1,
        maximum=LARGEST_LAYER_COUNT,
    )
    hidden = text.integer("hidden_size", "n_embd", "d_model", "dim", required=True, minimum=1)
    heads = text.integer("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads", required=True, minimum=1)
    vocab = text.integer("vocab_size", required=True, minimum=1)
    if layers is None or hidden is None or heads is None or vocab is None:
        return None
    kv_heads = text.integer(
        "num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "kv_n_heads", default=heads, minimum=1
    )
    if model_type in ("gpt_bigcode", "falcon") and text.boolean("multi_query") and not text.boolean("new_decoder_architecture"):
        kv_heads = 1
    head_dim = text.integer("head_dim", "hidden_size_per_head", "attention_head_dim", minimum=1)
    if head_dim is None:
        if hidden % heads:
            text.problems.append(
                Diagnosis(
                    path=text.at("head_dim"),
                    code="MissingField",
                    message=f"is missing, and hidden_size {hidden} is not divisible by num_attention_heads {heads}; write head_dim.",
                )
            )
            return None
        head_dim = hidden // heads
    intermediate = text.integer(*WIDTH_NAMES_LLAMA4 if model_type.startswith("llama4") else WIDTH_NAMES)
    if intermediate is None:
        intermediate = 4 * hidden if model_type in UNGATED_TYPES else None
    mla = latent_attention(text, model_type)
    moe, mlp = mixture(text, model_type, layers, intermediate)
    if intermediate is None and moe is None:
        text.integer("intermediate_size", required=True)
        return None
    linear = linear_attention(text)
    mamba = state_space(text, hidden)
    attention, mlp = layer_kinds(text, model_type, layers, mla, linear, mlp)
    sliding = text.integer("sliding_window", "attention_chunk_size")
    if model_type in ("qwen2", "qwen3", "qwen2_vl", "qwen2_5_vl") and not text.boolean("use_sliding_window"):
        sliding = None
    if not {"sliding", "chunked"} & set(attention):
        sliding = None
    has_bias = text.boolean(
        "attention_bias",
        "use_bias",
        "use_qkv_bias",
        "bias",
        default=model_type in ("opt", "gpt2", "gpt_bigcode", "phi", "starcoder2"),
    )
    raw_quantization = top.mapping("quantization_config", "compression_config") or text.mapping(
        "quantization_config", "compression_config"
    )
    quantization: Quantization | None = None
    if raw_quantization is not None:
        quantization = quantization_from_config(raw_quantization, top.at("quantization_config"), top.problems)
    dtype = str(
        text.values.get("torch_dtype")
        or text.values.get("dtype")
        or top.values.get("torch_dtype")
        or top.values.get("dtype")
        or "bfloat16"
    )
    dtype = dtype.removeprefix("torch.")
    if dtype not in DTYPE_BYTES:
        top.problems.append(
            Diagnosis(
                path=top.at("torch_dtype"),
                code="InvalidValue",
                message=f"is {shown(dtype)}; one of {', '.join(DTYPE_BYTES)} is expected.",
            )
        )
        dtype = "bfloat16"
    encoder_layers = text.integer("encoder_layers", default=0, maximum=LARGEST_LAYER_COUNT)
    global_head_dim = text.integer("global_head_dim", minimum=1)
    return Architecture(
        name=name or str(top.values.get("_name_or_path") or model_type),
        model_type=model_type,
        class_name=class_name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=1 if model_type == "mamba" else kv_heads,
        head_dim=head_dim,
        v_head_dim=mla.v_head_dim if mla else text.integer("v_head_dim", default=head_dim, minimum=1),
        vocab=vocab,
        intermediate=intermediate or 0,
        attention=attention,
        mlp=mlp,
        moe=moe,
        mla=mla,
        shared_index_layers=frozenset(layer for layer, kind in enumerate(text.sequence("indexer_types") or ()) if kind == "shared"),
        linear=linear if "linear" in attention else None,
        state_space=mamba if "mamba" in attention else None,
        sliding_window=sliding,
        global_head_dim=global_head_dim,
        global_kv_heads=text.integer("num_global_key_value_heads", minimum=1),
        key_is_value=text.boolean("attention_k_eq_v"),
        gated_mlp=model_type not in UNGATED_TYPES,
        tied_embeddings=text.boolean("tie_word_embeddings", default=model_type not in UNTIED_BY_DEFAULT),
        qkv_bias=has_bias or model_type in QKV_BIAS_TYPES,
        output_bias=has_bias and model_type not in ("glm4", "glm4_moe", *QKV_BIAS_TYPES),
        mlp_bias=text.boolean(
            "mlp_bias", "use_bias", default=model_type in ("opt", "gpt2", "gpt_bigcode", "phi", "starcoder2", "whisper")
        ),
        lm_head_bias=text.boolean("lm_head_bias", default=model_type == "phi"),
        qk_norm=_query_key_norm(text, model_type),
        output_gate=text.boolean("attn_output_gate", default=model_type in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")),
        attention_sinks=model_type == "gpt_oss",
        norms_per_layer=4
        if model_type in FOUR_NORM_TYPES
        else 1
        if model_type in ("cohere", "cohere2", "phi", "nemotron_h")
        else 2,
        norm_has_bias=model_type in LAYER_NORM_TYPES,
        position_embeddings=_position_embeddings(text, model_type),
        vision=vision_tower(top, hidden, vision_parameters),
        mtp_layers=text.integer(
            "num_nextn_predict_layers", "mtp_num_hidden_layers", default=1 if model_type == "qwen3_next" else 0
        ),
        mtp_own_embeddings=text.integer("num_nextn_predict_layers") is not None and model_type != "glm_moe_dsa",
        encoder_decoder=text.boolean("is_encoder_decoder", default=outer_type in ("whisper", "t5", "bart", "mbart")),
        encoder_layers=encoder_layers,
        encoder_intermediate=text.integer("encoder_ffn_dim", default=0),
        encoder_channels=text.integer("num_mel_bins", default=0),
        encoder_positions=text.integer("max_source_positions", default=0),
        max_position_embeddings=text.integer(
            "max_position_embeddings",
            "n_positions",
            "max_seq_len",
            "seq_length",
            "max_target_positions",
            "model_max_length",
            default=0,
        ),
        state_dtype_bytes=state_dtype_bytes(text, model_type),
        dtype=dtype,
        quantization=quantization,
        supports_pipeline_parallel=class_name not in no_pipeline_classes,
    )


def _query_key_norm(text: ConfigFields, model_type: str):
    if model_type in FULL_NORM_TYPES:
        return "full"
    if model_type in HEAD_NORM_TYPES or (model_type == "glm4_moe" and text.boolean("use_qk_norm")):
        return "head"
    return "none"


def _position_embeddings(text: ConfigFields, model_type: str) -> int:
    offset = LEARNED_POSITIONS.get(model_type)
    if offset is None:
        return 0
    positions = text.integer("max_position_embeddings", "n_positions", "max_target_positions", default=0)
    return positions + offset


@cache
def architecture_of(model: Model) -> Architecture:
    """The Architecture of a catalog Model (cached); what its publisher states of the vision tower is taken over."""
    return from_config_json(
        model.config,
        name=model.id,
        vision_parameters=model.vision_parameters,
        no_pipeline_classes=classes_without_pipeline_parallel(),
    )
