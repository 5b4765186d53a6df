"""Reads a model's config.json, in the catalog or inline, into the parts that decide memory and parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from infra.errors import ConfigError, Problem, did_you_mean
from infra.plan.architecture_types import (
    Architecture,
    AttentionKind,
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    StateSpace,
    VisionTower,
)
from infra.plan.quantization import DTYPE_BYTES, Quantization, quantization_from_config
from infra.plan.vision import vision_tower

__all__ = [
    "Architecture",
    "AttentionKind",
    "LatentAttention",
    "LinearAttention",
    "MixtureOfExperts",
    "StateSpace",
    "VisionTower",
    "architecture_of",
    "from_config_json",
]


# config.json's default where tie_word_embeddings is left out: Transformers' base class says true, these model classes say false
_UNTIED_BY_DEFAULT = frozenset(
    {
        "llama", "llama4", "llama4_text", "mistral", "mixtral", "ministral3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next",
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4", "glm4_moe", "glm_moe_dsa", "gpt_oss", "phi3", "olmo2", "olmo3", "mllama_text_model",
        "internlm2", "minimax_m2", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text", "nemotron_h", "ernie4_5_moe",
        "qwen3_5_text", "qwen3_5_moe_text", "falcon_h1", "bamba", "glm4_moe_lite", "exaone4",
    }
)  # fmt: skip
_QKV_BIAS_TYPES = frozenset({"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl_text"})
_HEAD_NORM_TYPES = frozenset(
    {
        "qwen3", "qwen3_moe", "qwen3_next", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5_text", "qwen3_5_moe_text", "gemma3", "gemma3_text",
        "gemma4", "gemma4_text", "exaone4", "hunyuan_v1_moe", "apertus",
    }
)  # fmt: skip
_FULL_NORM_TYPES = frozenset({"olmo2", "olmo3", "olmoe", "minimax_m2"})
_FOUR_NORM_TYPES = frozenset({"gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "glm4"})
_MLA_TYPES = frozenset(
    {
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite", "longcat_flash", "pangu_ultra_moe", "kimi_linear",
        "axk1", "minicpm3",
    }
)  # fmt: skip
_WIDTH_NAMES = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "feed_forward_hidden_size")
_WIDTH_NAMES_LLAMA4 = ("intermediate_size_mlp", "intermediate_size")  # intermediate_size is an expert's width there
_LEARNED_POSITIONS = {"opt": 2, "gpt2": 0, "gpt_bigcode": 0, "whisper": 0}
_UNGATED_TYPES = frozenset(
    {"opt", "gpt2", "gpt_bigcode", "gpt_neox", "falcon", "bloom", "phi", "starcoder2", "whisper", "nemotron", "nemotron_h"}
)
_LAYER_NORM_TYPES = frozenset(
    {"opt", "gpt2", "gpt_bigcode", "gpt_neox", "falcon", "bloom", "phi", "starcoder2", "whisper", "nemotron"}
)


class ConfigFields:
    """config.json's fields under their several names; a wrong type or an absent needed field becomes a Problem."""

    def __init__(self, values: Mapping[str, Any], path: str, problems: list[Problem]) -> None:
        self.values = values
        self.path = path
        self.problems = problems

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def integer(self, *names: str, default: int | None = None, required: bool = False, minimum: int = 0) -> int | None:
        for name in names:
            value = self.values.get(name)
            if isinstance(value, list) and value and all(item == value[0] for item in value):
                value = value[0]
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                self.problems.append(
                    Problem(
                        path=self._at(name),
                        code="InvalidValue",
                        message=f"is {value!r}; a whole number, as in config.json, is expected.",
                    )
                )
                return default
            if value < minimum:
                self.problems.append(
                    Problem(path=self._at(name), code="InvalidValue", message=f"is {value}; at least {minimum} is expected.")
                )
                return default
            return value
        if required:
            near = did_you_mean(names[0], self.values)
            self.problems.append(
                Problem(
                    path=self._at(names[0]),
                    code="MissingField",
                    message=f"is missing; the plan needs it from config.json ({' or '.join(names)}).{near}",
                )
            )
        return default

    def boolean(self, *names: str, default: bool = False) -> bool:
        for name in names:
            value = self.values.get(name)
            if isinstance(value, bool):
                return value
            if value is not None:
                self.problems.append(
                    Problem(path=self._at(name), code="InvalidValue", message=f"is {value!r}; true or false is expected.")
                )
                return default
        return default

    def sequence(self, name: str) -> Sequence[Any] | None:
        value = self.values.get(name)
        if value is None or (isinstance(value, Sequence) and not isinstance(value, str)):
            return value
        self.problems.append(Problem(path=self._at(name), code="InvalidValue", message=f"is {value!r}; a list is expected."))
        return None

    def mapping(self, *names: str) -> Mapping[str, Any] | None:
        for name in names:
            value = self.values.get(name)
            if isinstance(value, Mapping):
                return value
            if value is not None:
                self.problems.append(Problem(path=self._at(name), code="InvalidValue", message=f"is {value!r}; a map is expected."))
        return None


def from_config_json(
    raw: Mapping[str, Any],
    *,
    name: str = "",
    path: str = "",
    vision_parameters: int | None = None,
    no_pipeline_classes: frozenset[str] = frozenset(),
) -> Architecture:
    """The Architecture of a config.json (its own names, nested `text_config` and `quantization_config` included).

    `path` is where the map stands in the input ("models[0].modelConfig"). `vision_parameters` replaces the count of the vision tower.
    `no_pipeline_classes` are vLLM's classes without pipeline parallel. ConfigError lists all that is missing or wrong.
    """
    problems: list[Problem] = []
    if not isinstance(raw, Mapping):
        raise ConfigError(
            [Problem(path=path, code="InvalidValue", message=f"is {raw!r}; a map with config.json's fields is expected.")]
        )
    top = ConfigFields(raw, path, problems)
    nested = next(
        (key for key in ("text_config", "llm_config", "language_config", "decoder_config") if isinstance(raw.get(key), Mapping)),
        None,
    )
    text = ConfigFields({**_inherited(raw), **raw[nested]}, top._at(nested), problems) if nested else top
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

    layers = text.integer("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", required=True, minimum=1)
    hidden = text.integer("hidden_size", "n_embd", "d_model", "dim", required=True, minimum=1)
    heads = text.integer("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads", required=True, minimum=1)
    vocab = text.integer("vocab_size", required=True, minimum=1)
    if layers is None or hidden is None or heads is None or vocab is None:
        return None
    kv_heads = (
        text.integer(
            "num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "kv_n_heads", default=heads, minimum=1
        )
        or heads
    )
    if model_type in ("gpt_bigcode", "falcon") and text.boolean("multi_query") and not text.boolean("new_decoder_architecture"):
        kv_heads = 1
    head_dim = text.integer("head_dim", "hidden_size_per_head", "attention_head_dim", minimum=1)
    if head_dim is None:
        if hidden % heads:
            text.problems.append(
                Problem(
                    path=text._at("head_dim"),
                    code="MissingField",
                    message=f"is missing, and hidden_size {hidden} is not divisible by num_attention_heads {heads}; write head_dim.",
                )
            )
            return None
        head_dim = hidden // heads
    intermediate = text.integer(*_WIDTH_NAMES_LLAMA4 if model_type.startswith("llama4") else _WIDTH_NAMES)
    if intermediate is None:
        intermediate = 4 * hidden if model_type in _UNGATED_TYPES else None
    mla = _latent_attention(text, model_type)
    moe, mlp = _mixture(text, model_type, layers, intermediate)
    if intermediate is None and moe is None:
        text.integer("intermediate_size", required=True)
        return None
    linear = _linear_attention(text)
    state_space = _state_space(text, hidden)
    attention, mlp = _layer_kinds(text, model_type, layers, mla, linear, mlp)
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
        quantization = quantization_from_config(raw_quantization, top._at("quantization_config"), top.problems)
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
            Problem(
                path=top._at("torch_dtype"),
                code="InvalidValue",
                message=f"is {dtype!r}; one of {', '.join(DTYPE_BYTES)} is expected.",
            )
        )
        dtype = "bfloat16"
    encoder_layers = text.integer("encoder_layers", default=0) or 0
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
        v_head_dim=mla.v_head_dim if mla else text.integer("v_head_dim", default=head_dim, minimum=1) or head_dim,
        vocab=vocab,
        intermediate=intermediate or 0,
        attention=attention,
        mlp=mlp,
        moe=moe,
        mla=mla,
        linear=linear if "linear" in attention else None,
        state_space=state_space if "mamba" in attention else None,
        sliding_window=sliding,
        global_head_dim=global_head_dim,
        global_kv_heads=text.integer("num_global_key_value_heads", minimum=1),
        key_is_value=text.boolean("attention_k_eq_v"),
        gated_mlp=model_type not in _UNGATED_TYPES,
        tied_embeddings=text.boolean("tie_word_embeddings", default=model_type not in _UNTIED_BY_DEFAULT),
        qkv_bias=has_bias or model_type in _QKV_BIAS_TYPES,
        output_bias=has_bias and model_type not in ("glm4", "glm4_moe", *_QKV_BIAS_TYPES),
        mlp_bias=text.boolean(
            "mlp_bias", "use_bias", default=model_type in ("opt", "gpt2", "gpt_bigcode", "phi", "starcoder2", "whisper")
        ),
        lm_head_bias=text.boolean("lm_head_bias", default=model_type == "phi"),
        qk_norm=_query_key_norm(text, model_type),
        output_gate=text.boolean("attn_output_gate", default=model_type in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")),
        attention_sinks=model_type == "gpt_oss",
        norms_per_layer=4
        if model_type in _FOUR_NORM_TYPES
        else 1
        if model_type in ("cohere", "cohere2", "phi", "nemotron_h")
        else 2,
        norm_has_bias=model_type in _LAYER_NORM_TYPES,
        position_embeddings=_position_embeddings(text, model_type),
        vision=vision_tower(top.values, hidden, vision_parameters),
        mtp_layers=text.integer("num_nextn_predict_layers", "mtp_num_hidden_layers", default=1 if model_type == "qwen3_next" else 0)
        or 0,
        mtp_own_embeddings=text.integer("num_nextn_predict_layers") is not None,
        encoder_decoder=text.boolean("is_encoder_decoder", default=outer_type in ("whisper", "t5", "bart", "mbart")),
        encoder_layers=encoder_layers,
        encoder_intermediate=text.integer("encoder_ffn_dim", default=0) or 0,
        encoder_channels=text.integer("num_mel_bins", default=0) or 0,
        encoder_positions=text.integer("max_source_positions", default=0) or 0,
        max_position_embeddings=text.integer(
            "max_position_embeddings",
            "n_positions",
            "max_seq_len",
            "seq_length",
            "max_target_positions",
            "model_max_length",
            default=0,
        )
        or 0,
        state_dtype_bytes=_state_dtype_bytes(text, model_type),
        dtype=dtype,
        quantization=quantization,
        supports_pipeline_parallel=class_name not in no_pipeline_classes,
    )


def _state_dtype_bytes(text: ConfigFields, model_type: str) -> int | None:
    named = (
        text.values.get("mamba_ssm_dtype")
        or text.values.get("mamba_ssm_cache_dtype")
        or ("float32" if model_type == "nemotron_h" else None)
    )
    return DTYPE_BYTES.get(str(named)) if named else None


def _latent_attention(text: ConfigFields, model_type: str) -> LatentAttention | None:
    rank = text.integer("kv_lora_rank")
    if not rank or model_type not in _MLA_TYPES:
        return None
    nope = text.integer("qk_nope_head_dim", required=True, minimum=1)
    rope = text.integer("qk_rope_head_dim", required=True, minimum=1)
    value = text.integer("v_head_dim", required=True, minimum=1)
    if nope is None or rope is None or value is None:
        return None
    return LatentAttention(
        kv_lora_rank=rank,
        q_lora_rank=text.integer("q_lora_rank") or None,
        nope_head_dim=nope,
        rope_head_dim=rope,
        v_head_dim=value,
        index_heads=text.integer("index_n_heads", default=0) or 0,
        index_head_dim=text.integer("index_head_dim", default=0) or 0,
    )


def _mixture(
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
        shared = (text.integer("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0) or 0) * width
    if model_type.startswith("llama4"):
        shared = width
    moe = MixtureOfExperts(
        experts=experts,
        experts_per_token=text.integer(
            "num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_k", default=1, minimum=1
        )
        or 1,
        intermediate=width,
        shared_intermediate=shared,
        shared_gate=model_type in ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"),
        router_bias=model_type in ("gpt_oss", "deepseek_v3", "glm4_moe", "minimax_m2", "deepseek_v32", "kimi_k2"),
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
        step = text.integer("interleave_moe_layer_step", default=1, minimum=1) or 1
        return tuple("moe" if (layer + 1) % step == 0 else "dense" for layer in range(layers))
    dense_first = text.integer("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", default=0) or 0
    step = text.integer("moe_layer_freq", "decoder_sparse_step", "moe_layer_interval", default=1, minimum=1) or 1
    dense_listed = set(text.sequence("mlp_only_layers") or ())
    if text.values.get("decoder_sparse_step") is not None:
        return tuple("moe" if layer not in dense_listed and (layer + 1) % step == 0 else "dense" for layer in range(layers))
    return tuple(
        "moe" if layer >= dense_first and layer % step == 0 and layer not in dense_listed else "dense" for layer in range(layers)
    )


def _linear_attention(text: ConfigFields) -> LinearAttention | None:
    values = {
        name: text.integer(key, minimum=1)
        for name, key in (
            ("key_heads", "linear_num_key_heads"),
            ("value_heads", "linear_num_value_heads"),
            ("key_head_dim", "linear_key_head_dim"),
            ("value_head_dim", "linear_value_head_dim"),
            ("conv_kernel", "linear_conv_kernel_dim"),
        )
    }
    present = {name: value for name, value in values.items() if value is not None}
    return LinearAttention(**present) if len(present) == len(values) else None


def _state_space(text: ConfigFields, hidden: int) -> StateSpace | None:
    state = text.integer("mamba_d_state", "ssm_state_size", minimum=1)
    if state is None:
        return None
    head_dim = text.integer("mamba_d_head", "mamba_head_dim", minimum=1)
    heads = text.integer("mamba_n_heads", "mamba_num_heads", minimum=1)
    expand = text.integer("mamba_expand", "expand", default=2, minimum=1) or 2
    if head_dim is None and heads is not None:
        head_dim = expand * hidden // heads
    if heads is None or head_dim is None:
        return None
    return StateSpace(
        heads=heads,
        head_dim=head_dim,
        groups=text.integer("mamba_n_groups", "n_groups", default=1, minimum=1) or 1,
        state=state,
        conv_kernel=text.integer("mamba_d_conv", "conv_kernel", default=4, minimum=1) or 4,
        conv_bias=text.boolean("mamba_conv_bias", "use_conv_bias", default=True),
        proj_bias=text.boolean("mamba_proj_bias"),
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


def _layer_kinds(
    text: ConfigFields,
    model_type: str,
    layers: int,
    mla: LatentAttention | None,
    linear: LinearAttention | None,
    mlp: tuple[str, ...],
) -> tuple[tuple[AttentionKind, ...], tuple[str, ...]]:
    if mla is not None:
        return ("mla",) * layers, mlp
    pattern = text.values.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) == layers:
        kinds: dict[str, AttentionKind] = {"M": "mamba", "*": "full"}
        return tuple(kinds.get(sign, "none") for sign in pattern), tuple(
            "moe" if sign == "E" else "dense" if sign == "-" else "none" for sign in pattern
        )
    types = text.sequence("layer_types") or text.sequence("layers_block_type")
    if types is not None:
        unknown = sorted({str(kind) for kind in types} - set(_KIND_OF_LAYER_TYPE))
        if unknown or len(types) != layers:
            text.problems.append(
                Problem(
                    path=text._at("layer_types"),
                    code="InvalidValue",
                    message=f"names the kind {unknown[0]!r}; known are {', '.join(_KIND_OF_LAYER_TYPE)}."
                    if unknown
                    else f"has {len(types)} entries, but num_hidden_layers is {layers}.",
                )
            )
            return ("full",) * layers, mlp
        return tuple(_KIND_OF_LAYER_TYPE[str(kind)] for kind in types), mlp
    if linear is not None:
        interval = text.integer("full_attention_interval", default=4, minimum=1) or 4
        return tuple("full" if (layer + 1) % interval == 0 else "linear" for layer in range(layers)), mlp
    attention_indices = text.sequence("attn_layer_indices")
    if attention_indices is not None:
        return tuple("full" if layer in attention_indices else "mamba" for layer in range(layers)), mlp
    if model_type.startswith("llama4") and text.integer("attention_chunk_size"):
        every = text.integer("no_rope_layer_interval", default=4, minimum=1) or 4
        return tuple("full" if (layer + 1) % every == 0 else "chunked" for layer in range(layers)), mlp
    if text.integer("sliding_window"):
        if model_type.startswith(("gemma3", "gemma4")):
            every = text.integer("sliding_window_pattern", "_sliding_window_pattern", default=6, minimum=1) or 6
            return tuple("full" if (layer + 1) % every == 0 else "sliding" for layer in range(layers)), mlp
        if model_type == "gemma2":
            return tuple("sliding" if layer % 2 == 0 else "full" for layer in range(layers)), mlp
        if model_type == "gpt_oss":
            return tuple("sliding" if layer % 2 == 0 else "full" for layer in range(layers)), mlp
        if model_type in ("mistral", "mixtral", "phi3", "starcoder2"):
            return ("sliding",) * layers, mlp
        if model_type in ("cohere2",):
            every = text.integer("sliding_window_pattern", default=4, minimum=1) or 4
            return tuple("full" if (layer + 1) % every == 0 else "sliding" for layer in range(layers)), mlp
    return ("full",) * layers, mlp


def _query_key_norm(text: ConfigFields, model_type: str):
    if model_type in _FULL_NORM_TYPES:
        return "full"
    if model_type in _HEAD_NORM_TYPES or (model_type == "glm4_moe" and text.boolean("use_qk_norm")):
        return "head"
    return "none"


def _position_embeddings(text: ConfigFields, model_type: str) -> int:
    offset = _LEARNED_POSITIONS.get(model_type)
    if offset is None:
        return 0
    positions = text.integer("max_position_embeddings", "n_positions", "max_target_positions", default=0) or 0
    return positions + offset


@lru_cache(maxsize=4096)
def architecture_of(model: Any) -> Architecture:
    """The Architecture of a catalog Model (cached); what its publisher states of the vision tower is taken over."""
    from infra.catalog.load import classes_without_pipeline_parallel

    return from_config_json(
        model.config,
        name=model.id,
        vision_parameters=model.vision_parameters,
        no_pipeline_classes=classes_without_pipeline_parallel(),
    )
