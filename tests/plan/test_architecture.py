"""config.json in its real forms, read into an Architecture; what is wrong with one, all at once."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.load import models
from infra.catalog.names import find_model
from infra.errors import ConfigError, NumawiseError
from infra.plan.architecture.reading import architecture_of, from_config_json
from infra.plan.memory.kv_layout import kv_cache_spec
from infra.plan.memory.weights import weights_bytes_per_rank
from infra.units import GIB

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


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
