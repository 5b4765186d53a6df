"""config.json in its real forms, read into an Architecture; what is wrong with one, all at once."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.load import models
from infra.catalog.names import find_model
from infra.errors import ConfigError, NumawiseError
from infra.plan.architecture.reading import architecture_of, from_config_json
from infra.plan.architecture.types import Architecture, LatentAttention, MixtureOfExperts
from infra.plan.memory.kv_layout import kv_cache_spec
from infra.plan.memory.weights import weights_bytes_per_rank
from infra.units import GIB
from tests.plan.small import LLAMA, read


def test_the_fields_of_a_plain_model_are_read() -> None:
    model = from_config_json(LLAMA, name="m")
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim) == (32, 4096, 32, 8, 128)
    assert model.attention == ("full",) * 32 and model.mlp == ("dense",) * 32
    assert not model.tied_embeddings and not model.is_moe


def test_a_catalog_model_is_read_once() -> None:
    model = find_model("Llama-3.3-70B-Instruct")
    assert architecture_of(model) is architecture_of(model)
    assert not architecture_of(find_model("whisper-large-v3")).supports_pipeline_parallel
    assert architecture_of(model).supports_pipeline_parallel


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8", 8, "block")),
        ({"quant_method": "fp8", "activation_scheme": "static"}, ("fp8", 8, "tensor")),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, ("awq", 4, "group")),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, ("gptq", 8, "channel")),
        ({"quant_method": "mxfp4"}, ("mxfp4", 4, "group")),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("bitsandbytes", 4, "group")),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ("bitsandbytes", 8, "channel")),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, ("modelopt", 8, "tensor")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, ("modelopt_fp4", 4, "group")),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, ("quark", 4, "group")),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
            },
            ("compressed-tensors", 8, "channel"),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "strategy": "group", "group_size": 128}}},
            },
            ("compressed-tensors", 4, "group"),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "strategy": "block", "block_structure": [128, 128]}}},
            },
            ("compressed-tensors", 8, "block"),
        ),
    ],
)
def test_quantisation_is_read_in_its_real_forms(quantization: dict[str, Any], expected: tuple[str, float, str]) -> None:
    read = from_config_json({**LLAMA, "quantization_config": quantization}, name="m").quantization
    assert read is not None and (read.method, read.weight_bits, read.form) == expected


@pytest.mark.parametrize(
    ("ignored", "module", "expected"),
    [
        ("lm_head", "lm_head", True),
        ("lm_head", "model.layers.0.mlp.up_proj", False),
        ("re:.*self_attn.*", "model.layers.7.self_attn.q_proj", True),
        ("model.layers.*.self_attn", "model.layers.7.self_attn.q_proj", True),
        ("model.layers.*.self_attn", "model.layers.7.mlp.up_proj", False),
        ("model.layers.3.mlp.gate", "model.layers.3.mlp.gate", True),
        ("model.layers.3", "model.layers.3.mlp.up_proj", True),
        ("model.layers.3", "model.layers.30.mlp.up_proj", False),
        ("self_attn", "model.layers.0.self_attn.o_proj", True),
        ("attn", "model.layers.0.self_attn.o_proj", False),
    ],
)
def test_ignored_modules_match_as_the_checkpoints_mean_it(ignored: str, module: str, expected: bool) -> None:
    quantization = from_config_json(
        {**LLAMA, "quantization_config": {"quant_method": "fp8", "ignored_layers": [ignored]}}, name="m"
    ).quantization
    assert quantization is not None and quantization.ignores(module) is expected


def test_nested_text_configs_are_found_and_inherit_what_stands_outside() -> None:
    text = {key: value for key, value in LLAMA.items() if key not in ("architectures", "torch_dtype")}
    outer = {
        "model_type": "mistral3",
        "architectures": ["Mistral3ForConditionalGeneration"],
        "torch_dtype": "float16",
        "tie_word_embeddings": True,
    }
    model = from_config_json({**outer, "text_config": {**text, "model_type": "mistral"}}, name="m")
    assert model.layers == 32 and model.dtype == "float16" and model.tied_embeddings
    assert model.class_name == "Mistral3ForConditionalGeneration"


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("gpt-oss-20b", {"sliding": 12, "full": 12}),
        ("gemma-3-27b-it", {"sliding": 52, "full": 10}),
        ("Llama-4-Scout-17B-16E-Instruct", {"chunked": 36, "full": 12}),
        ("Qwen3-Next-80B-A3B-Instruct", {"linear": 36, "full": 12}),
        ("DeepSeek-V3", {"mla": 61}),
        ("NVIDIA-Nemotron-Nano-9B-v2", {"mamba": 27, "full": 4, "none": 25}),
        ("Qwen2.5-72B-Instruct", {"full": 80}),
    ],
)
def test_the_kinds_of_attention_of_hybrid_models(name: str, counts: dict[str, int]) -> None:
    model = architecture_of(find_model(name))
    assert {kind: model.attention.count(kind) for kind in set(model.attention)} == counts


@pytest.mark.parametrize(
    ("name", "dense", "moe"), [("DeepSeek-V3", 3, 58), ("Llama-4-Maverick-17B-128E-Instruct", 24, 24), ("Qwen3-30B-A3B", 0, 48)]
)
def test_which_layers_have_experts(name: str, dense: int, moe: int) -> None:
    model = architecture_of(find_model(name))
    assert (model.mlp.count("dense"), model.mlp.count("moe")) == (dense, moe)


def test_all_that_is_missing_comes_at_once_with_config_json_names() -> None:
    with pytest.raises(ConfigError) as error:
        from_config_json({"model_type": "llama", "hiden_size": 4096, "num_hidden_layers": "32"}, path="models[0].modelConfig")
    problems = {problem.path: problem.message for problem in error.value.problems}
    assert "Did you mean 'hiden_size'" in problems["models[0].modelConfig.hidden_size"]
    assert "is '32'; a whole number" in problems["models[0].modelConfig.num_hidden_layers"]
    assert {"models[0].modelConfig.num_attention_heads", "models[0].modelConfig.vocab_size"} <= set(problems)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 30}, "hidden_size 4096 is not divisible by num_attention_heads 30; write head_dim"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: is 0; a number from 1 to 4096"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: is 1000000000; a number from 1 to 4096"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}}, "sizes 0, 128 are not all positive"),
        ({"vision_config": {"depth": "27"}}, "vision_config.depth: is '27'; a whole number"),
        ({"hidden_size": True}, "hidden_size: is True; a whole number"),
        ({"torch_dtype": "int3"}, "torch_dtype: is 'int3'; one of bfloat16"),
        ({"intermediate_size": None}, "intermediate_size: is missing"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: is 'yes'; true or false"),
        ({"layer_types": ["full_attention"]}, "has 1 entries, but num_hidden_layers is 32"),
        ({"layer_types": ["holographic"] * 32}, "names the kind 'holographic'"),
        ({"quantization_config": {"quant_method": "awg"}}, "'awg' is not known here"),
        ({"quantization_config": {"bits": 4}}, "quant_method: is missing"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "not in the form of compressed-tensors checkpoints"),
        ({"quantization_config": 4}, "quantization_config: is 4; a map"),
    ],
)
def test_a_wrong_config_is_one_clear_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_config_json({**LLAMA, **change}, path="modelConfig")
    assert message in str(error.value)


def test_a_config_that_is_no_map_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a map with config\.json's fields is expected"):
        from_config_json("config.json", path="modelConfig")  # type: ignore[arg-type]


JUNK: list[Any] = [
    None,
    0,
    -1,
    1,
    2.5,
    "x",
    "",
    True,
    [],
    {},
    [1],
    ["a"],
    {"a": 1},
    10**12,
    "4",
    float("nan"),
    [None],
    [[1]],
    {"quant_method": "fp8"},
]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(models())),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(JUNK)), min_size=1, max_size=3),
    st.booleans(),
)
def test_no_config_leads_to_a_traceback(name: str, changes: list[tuple[int, Any]], nested: bool) -> None:
    config = copy.deepcopy(dict(models()[name].config))
    target = config["text_config"] if nested and "text_config" in config else config
    for position, value in changes:
        key = sorted(target)[position % len(target)]
        target[key] = value
    try:
        read = from_config_json(config, name="m", path="modelConfig")
        weights_bytes_per_rank(read, tensor_parallel_size=2)
        kv_cache_spec(read, tensor_parallel_size=2).capacity([GIB], 1000, 100)
    except NumawiseError as error:
        assert error.problems and all(problem.message for problem in error.problems)


@pytest.mark.parametrize(
    ("changes", "heads", "kv_heads", "head_dim"),
    [
        ({}, 32, 8, 128),
        ({"num_key_value_heads": None}, 32, 32, 128),
        ({"num_key_value_heads": None, "multi_query_group_num": 2}, 32, 2, 128),
        ({"head_dim": 64}, 32, 8, 64),
        ({"num_attention_heads": None, "n_head": 16}, 16, 8, 256),
        ({"model_type": "falcon", "multi_query": True}, 32, 1, 128),
        ({"model_type": "falcon", "multi_query": True, "new_decoder_architecture": True}, 32, 8, 128),
        ({"model_type": "gpt_bigcode", "multi_query": True}, 32, 1, 128),
        ({"model_type": "gpt_bigcode", "multi_query": False}, 32, 8, 128),
        ({"multi_query": True}, 32, 8, 128),
        ({"model_type": "mamba"}, 32, 1, 128),
    ],
)
def test_heads(changes: dict[str, Any], heads: int, kv_heads: int, head_dim: int) -> None:
    model = read(**changes)
    assert (model.heads, model.kv_heads, model.head_dim) == (heads, kv_heads, head_dim)


def test_widths_where_layers_differ() -> None:
    model = read(model_type="gemma4_text", sliding_window=8, global_head_dim=512, num_global_key_value_heads=2, v_head_dim=64)
    assert (model.head_dim_of("full"), model.head_dim_of("sliding")) == (512, 128)
    assert (model.kv_heads_of("full"), model.kv_heads_of("sliding")) == (2, 8)
    assert model.v_head_dim == 64 and read().v_head_dim == 128
    assert (read().head_dim_of("full"), read().kv_heads_of("full")) == (128, 8)


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        ({"model_type": "llama4_text", "intermediate_size_mlp": 16384, "intermediate_size": 8192}, 16384),
        ({"model_type": "llama4_text", "intermediate_size": 8192}, 8192),
        ({"model_type": "gpt2", "intermediate_size": None}, 4 * 4096),
        ({"model_type": "gpt2", "intermediate_size": None, "n_inner": 5000}, 5000),
        ({"intermediate_size": None, "num_experts": 8, "moe_intermediate_size": 96}, 0),
    ],
)
def test_the_width_of_the_mlp(changes: dict[str, Any], width: int) -> None:
    assert read(**changes).intermediate == width


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 4096),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, 8192),
        ({"sliding_window": 4096}, None),
        ({"model_type": "qwen2", "sliding_window": 8, "layer_types": ["sliding_attention"] * 32}, None),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "layer_types": ["sliding_attention"] * 32}, 8),
        ({"model_type": "gpt_oss", "sliding_window": 128}, 128),
    ],
)
def test_the_window(changes: dict[str, Any], window: int | None) -> None:
    assert read(**changes).sliding_window == window


FLAGS = (
    "gated_mlp",
    "tied_embeddings",
    "qkv_bias",
    "output_bias",
    "mlp_bias",
    "lm_head_bias",
    "output_gate",
    "attention_sinks",
    "norm_has_bias",
)


@pytest.mark.parametrize(
    ("changes", "true"),
    [
        ({}, {"gated_mlp"}),
        ({"tie_word_embeddings": True}, {"gated_mlp", "tied_embeddings"}),
        ({"attention_bias": True}, {"gated_mlp", "qkv_bias", "output_bias"}),
        ({"mlp_bias": True}, {"gated_mlp", "mlp_bias"}),
        ({"use_bias": True}, {"gated_mlp", "qkv_bias", "output_bias", "mlp_bias"}),
        ({"model_type": "qwen2"}, {"gated_mlp", "qkv_bias"}),
        ({"model_type": "qwen2", "attention_bias": True}, {"gated_mlp", "qkv_bias"}),
        ({"model_type": "glm4_moe", "attention_bias": True}, {"gated_mlp", "qkv_bias"}),
        ({"model_type": "qwen3_next"}, {"gated_mlp", "output_gate"}),
        ({"model_type": "gpt_oss"}, {"gated_mlp", "attention_sinks"}),
        ({"model_type": "gemma3_text"}, {"gated_mlp", "tied_embeddings"}),
        ({"model_type": "phi"}, {"tied_embeddings", "qkv_bias", "output_bias", "mlp_bias", "lm_head_bias", "norm_has_bias"}),
        ({"model_type": "starcoder2", "tie_word_embeddings": False}, {"qkv_bias", "output_bias", "mlp_bias", "norm_has_bias"}),
        ({"model_type": "whisper", "tie_word_embeddings": False}, {"mlp_bias", "norm_has_bias"}),
        ({"model_type": "nemotron_h"}, set()),
    ],
)
def test_what_a_model_type_has(changes: dict[str, Any], true: set[str]) -> None:
    model = read(**changes)
    assert {flag for flag in FLAGS if getattr(model, flag)} == true


@pytest.mark.parametrize(
    ("model_type", "norms", "query_key_norm"),
    [
        ("llama", 2, "none"),
        ("gemma3_text", 4, "head"),
        ("glm4", 4, "none"),
        ("cohere2", 1, "none"),
        ("qwen3", 2, "head"),
        ("olmo2", 2, "full"),
    ],
)
def test_norms(model_type: str, norms: int, query_key_norm: str) -> None:
    model = read(model_type=model_type)
    assert (model.norms_per_layer, model.qk_norm) == (norms, query_key_norm)


def test_a_norm_that_only_some_checkpoints_have() -> None:
    assert read(model_type="glm4_moe", use_qk_norm=True).qk_norm == "head"
    assert read(model_type="glm4_moe").qk_norm == "none" and read(use_qk_norm=True).qk_norm == "none"


@pytest.mark.parametrize(
    ("changes", "learned", "longest"),
    [
        ({}, 0, 131072),
        ({"max_position_embeddings": None}, 0, 0),
        ({"max_position_embeddings": None, "seq_length": 32768}, 0, 32768),
        ({"model_type": "opt", "max_position_embeddings": 2048}, 2050, 2048),  # positions begin at 2
        ({"model_type": "gpt2", "max_position_embeddings": None, "n_positions": 1024}, 1024, 1024),
        ({"model_type": "gpt_bigcode", "max_position_embeddings": None, "n_positions": 8192}, 8192, 8192),
        ({"model_type": "whisper", "max_position_embeddings": None, "max_target_positions": 448}, 448, 448),
        ({"model_type": "opt", "max_position_embeddings": None}, 2, 0),
    ],
)
def test_positions(changes: dict[str, Any], learned: int, longest: int) -> None:
    model = read(**changes)
    assert (model.position_embeddings, model.max_position_embeddings) == (learned, longest)


@pytest.mark.parametrize(
    ("changes", "layers", "own"),
    [
        ({}, 0, False),
        ({"num_nextn_predict_layers": 1}, 1, True),
        ({"num_nextn_predict_layers": 0}, 0, True),
        ({"model_type": "glm_moe_dsa", "num_nextn_predict_layers": 1}, 1, False),
        ({"mtp_num_hidden_layers": 2}, 2, False),
        ({"model_type": "qwen3_next"}, 1, False),
    ],
)
def test_layers_of_multi_token_prediction(changes: dict[str, Any], layers: int, own: bool) -> None:
    model = read(**changes)
    assert (model.mtp_layers, model.mtp_own_embeddings) == (layers, own)


def test_encoders() -> None:
    sizes = {"encoder_layers": 3, "encoder_ffn_dim": 5, "num_mel_bins": 7, "max_source_positions": 9}
    model = read(model_type="whisper", **sizes)
    assert model.encoder_decoder and not read().encoder_decoder and read(is_encoder_decoder=True).encoder_decoder
    assert (model.encoder_layers, model.encoder_intermediate, model.encoder_channels, model.encoder_positions) == (3, 5, 7, 9)
    plain = read()
    assert (plain.encoder_layers, plain.encoder_intermediate, plain.encoder_channels, plain.encoder_positions) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "dtype", "size"),
    [
        ({}, "bfloat16", 2),
        ({"torch_dtype": None}, "bfloat16", 2),
        ({"torch_dtype": None, "dtype": "float16"}, "float16", 2),
        ({"torch_dtype": "torch.float32"}, "float32", 4),
    ],
)
def test_the_dtype_of_a_checkpoint(changes: dict[str, Any], dtype: str, size: int) -> None:
    model = read(**changes)
    assert (model.dtype, model.dtype_bytes) == (dtype, size)


def test_the_outer_quantisation_goes_before_the_inner_one() -> None:
    text = {key: value for key, value in LLAMA.items() if key != "architectures"}
    fp8, awq = {"quant_method": "fp8"}, {"quant_method": "awq"}
    both = from_config_json({"text_config": {**text, "quantization_config": awq}, "quantization_config": fp8})
    inner = from_config_json({"text_config": {**text, "quantization_config": awq}})
    older = from_config_json({**text, "compression_config": awq})
    methods = [model.quantization.method for model in (both, inner, older) if model.quantization is not None]
    assert methods == ["fp8", "awq", "awq"]


def test_names_and_classes() -> None:
    assert from_config_json({**LLAMA, "_name_or_path": "org/model"}).name == "org/model"
    assert from_config_json(LLAMA).name == "llama"
    untyped = {key: value for key, value in LLAMA.items() if key not in ("model_type", "architectures")}
    assert (from_config_json(untyped).model_type, from_config_json(untyped).class_name) == ("llama", None)
    assert not from_config_json(LLAMA, no_pipeline_classes=frozenset({"LlamaForCausalLM"})).supports_pipeline_parallel
    assert from_config_json(LLAMA, no_pipeline_classes=frozenset({"T5"})).supports_pipeline_parallel


def test_experts_count_only_where_a_layer_has_them() -> None:
    experts = {"num_experts": 8, "moe_intermediate_size": 96}
    assert read(**experts).is_moe and not read(**experts, moe_layers=[]).is_moe and not read().is_moe
    assert read(**experts, moe_layers=[]).moe is not None


@pytest.mark.parametrize(
    "field",
    [
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "vocab_size",
        "intermediate_size",
        "num_key_value_heads",
        "head_dim",
    ],
)
def test_a_size_of_nothing_is_refused(field: str) -> None:
    if field != "intermediate_size":
        with pytest.raises(ConfigError, match=f"{field}: is 0; a number from 1"):
            read(**{field: 0})
    assert (
        read(num_hidden_layers=1, hidden_size=1, num_attention_heads=1, vocab_size=1, num_key_value_heads=1, head_dim=1).layers == 1
    )


def test_layers_up_to_the_largest_count_are_read() -> None:
    assert read(num_hidden_layers=4096).layers == 4096
    with pytest.raises(ConfigError, match="is 4097; a number from 1 to 4096"):
        read(num_hidden_layers=4097)


def test_a_part_that_is_not_named_is_not_there() -> None:
    """Numbers of an Architecture where nothing is said: none but the two norms of a layer."""
    numbers = {
        f"{part.__name__}.{field.name}": field.default
        for part in (Architecture, MixtureOfExperts, LatentAttention)
        for field in fields(part)
        if type(field.default) is int and field.default
    }
    assert numbers == {"Architecture.norms_per_layer": 2}
