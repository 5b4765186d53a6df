"""A known base and a known scheme are enough; what was not read is said."""

from __future__ import annotations

import pytest

from infra.catalog.confidence import model_warnings
from infra.catalog.names import find_model
from infra.catalog.quantized_builds import marks_of, schemes
from infra.errors import ConfigError
from infra.plan.architecture.reading import architecture_of

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"


def test_the_file_of_schemes_is_what_it_has_to_be() -> None:
    assert schemes().problems() == []


@pytest.mark.parametrize(
    ("name", "method", "bits"),
    [
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "compressed-tensors", 4),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w8a16", "compressed-tensors", 8),
        ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8", "compressed-tensors", 8),
        ("RedHatAI/Qwen2.5-7B-Instruct-fp8-dynamic", "compressed-tensors", 8),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "awq", 4),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "awq", 4),
        ("cyankiwi/gemma-4-31B-it-AWQ-4bit", "awq", 4),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "gptq", 4),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "gptq", 8),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "modelopt", 8),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "modelopt_fp4", 4),
        ("amd/Llama-3.3-70B-Instruct-FP8-KV", "quark", 8),
        ("Qwen/Qwen3-4B-FP8", "fp8", 8),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "bitsandbytes", 4),
        ("llama-3.3-70b-instruct-awq", "awq", 4),
    ],
)
def test_a_build_is_its_base_in_the_schemes_weights(name: str, method: str, bits: int) -> None:
    build = find_model(name)
    architecture = architecture_of(build)
    assert build.id == name
    assert architecture.quantization is not None
    assert (architecture.quantization.method, architecture.quantization.weight_bits) == (method, bits)


def test_it_says_that_its_own_config_was_not_read_and_how_to_read_it() -> None:
    (warning,) = model_warnings(find_model("Qwen/Qwen2.5-72B-Instruct-AWQ"), "models[0].model")
    assert warning.path == "models[0].model"
    assert "config.quantization_config of Qwen/Qwen2.5-72B-Instruct-AWQ is not verified" in warning.message
    assert "fit --config config.json" in warning.message


def test_an_entry_of_the_catalog_counts_before_a_scheme() -> None:
    assert find_model("Qwen/Qwen2.5-32B-Instruct-AWQ").unverified == ()


@pytest.mark.parametrize(
    "name", ["unknown-AWQ", "-AWQ", "AWQ", "openai/gpt-oss-20b-AWQ", "Qwen/Qwen3-8B-FP8-AWQ", "Qwen/Qwen3-8B-GGUF"]
)
def test_what_has_no_known_unquantised_base_stays_unknown(name: str) -> None:
    with pytest.raises(ConfigError, match="no model of the catalog is called"):
        find_model(name)


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("Qwen/Qwen3-8B", set()),
        ("Qwen/Qwen3-30B-A3B", set()),
        ("google/gemma-3-4b-it", set()),
        ("Qwen/Qwen3-8B-FP8", {"fp8"}),
        ("x/Llama-AWQ-INT4", {"awq", "int4"}),
        ("x/Qwen3-8B-GGUF", {"gguf"}),
        ("x/m-quantized.w8a8", {"w8a8"}),
        ("x/m-MXFP4", {"mxfp4"}),
    ],
)
def test_marks_are_the_words_that_tell_how_weights_are_stored(name: str, marks: set[str]) -> None:
    assert marks_of(name) == marks
