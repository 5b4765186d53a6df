"""The options of fit as they are read: numbers at their limits, a file's values and the options that win over them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.cli.fit import FitRequest, add_arguments, read_request
from infra.cli.fit_file import ModelFile, read_model_file
from infra.errors import ConfigError, NumawiseError, PlanError

MODEL = ("--model", "Llama-3.1-8B-Instruct", "--gpu", "l40s")
CONFIG = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
}


def request(*arguments: str) -> FitRequest:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return read_request(parser.parse_args(arguments))


def problems(*arguments: str) -> dict[str, str]:
    with pytest.raises(NumawiseError) as caught:
        request(*arguments)
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("2.0", 2),
        ("32k", 32_000),
        ("32K", 32_768),
        ("1.5k", 1500),
        ("2m", 2_000_000),
        ("2M", 2 * 2**20),
        ("3g", 3_000_000_000),
        ("3G", 3 * 2**30),
        (str(2**61), 2**61),
    ],
)
def test_whole_numbers_have_vllms_multiples(text: str, number: int) -> None:
    assert request(*MODEL, "--max-model-len", text).options.max_model_len == number


@pytest.mark.parametrize("text", ["0", "-1", "0.5", "1.5", "x", "", "k", "nan", "inf", str(2**62), "1e300", "1_000k2"])
def test_what_is_no_whole_number_above_0_is_refused(text: str) -> None:
    assert problems(*MODEL, "--max-num-seqs", text) == {"--max-num-seqs": f"is {text!r}; a whole number of at least 1 is expected."}


@pytest.mark.parametrize("text", ["x", "nan", "inf", "-inf"])
def test_what_is_no_number_is_refused(text: str) -> None:
    assert problems(*MODEL, f"--gpu-memory-utilization={text}") == {
        "--gpu-memory-utilization": f"is {text!r}; a number is expected."
    }


@pytest.mark.parametrize(("share", "valid"), [("0", False), ("0.001", True), ("1", True), ("1.001", False)])
def test_the_share_of_memory_is_above_0_and_at_most_1(share: str, valid: bool) -> None:
    if valid:
        assert request(*MODEL, "--gpu-memory-utilization", share).options.gpu_memory_utilization == float(share)
    else:
        assert set(problems(*MODEL, "--gpu-memory-utilization", share)) == {"--gpu-memory-utilization"}


@pytest.mark.parametrize(("batched", "valid"), [("64", True), ("65", True), ("63", False)])
def test_a_batch_has_a_token_for_each_sequence(batched: str, valid: bool) -> None:
    arguments = (*MODEL, "--max-num-seqs", "64", "--max-num-batched-tokens", batched)
    if valid:
        assert request(*arguments).options.max_num_batched_tokens == int(batched)
    else:
        assert problems(*arguments)["--max-num-batched-tokens"].endswith("use at least 64.")


@pytest.mark.parametrize(
    ("gib", "valid"), [("0", False), ("1e-300", False), ("0.49", False), ("0.5", True), ("99999", True), ("100000", False)]
)
def test_the_gpus_memory_may_be_given(gib: str, valid: bool) -> None:
    if valid:
        assert request(*MODEL, "--gpu-memory-gib", gib).accelerator.memory.torch_gib == float(gib)
    else:
        assert set(problems(*MODEL, "--gpu-memory-gib", gib)) == {"--gpu-memory-gib"}


def test_an_unknown_gpu_needs_vendor_and_memory() -> None:
    given = ("--model", "Llama-3.1-8B-Instruct", "--gpu", "a-card-of-ours")
    both = request(*given, "--gpu-memory-gib", "24", "--gpu-vendor", "amd").accelerator
    assert (both.id, both.vendor, both.resource_name, both.fabric.kind) == ("a-card-of-ours", "amd", "amd.com/gpu", "pcie")
    for one in (("--gpu-memory-gib", "24"), ("--gpu-vendor", "amd")):
        assert "--gpu-memory-gib 23.6" in problems(*given, *one)["--gpu"]
    assert request(*MODEL).accelerator.memory != request(*MODEL, "--gpu-memory-gib", "24").accelerator.memory


def test_vendor_and_memory_alone_are_a_gpu() -> None:
    given = ("--model", "Llama-3.1-8B-Instruct")
    both = request(*given, "--gpu-memory-gib", "191.7", "--gpu-vendor", "amd").accelerator
    assert (both.id, both.vendor, both.memory.torch_gib) == ("amd GPU of 191.7 GiB", "amd", 191.7)
    assert "beside --gpu-memory-gib" in problems(*given, "--gpu-memory-gib", "24")["--gpu-vendor"]
    assert "beside --gpu-vendor" in problems(*given, "--gpu-vendor", "amd")["--gpu-memory-gib"]
    assert problems(*MODEL, "--gpu-vendor", "amd") == {"--gpu-vendor": "is amd, but l40s is nvidia's; leave one of them out."}


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.34.0", "is 0.34.0, whose memory is not known; known are 0.1.0-0.6.6, 0.7.0-0.7.3, 0.8.0-0.8.3, "),
        ("0.0.1", "whose memory is not known"),
        ("9" * 5000, "... (5,000 characters) is no vLLM version"),
        ("latest", "'latest' is no vLLM version"),
    ],
)
def test_versions_that_nothing_is_known_of(version: str, message: str) -> None:
    assert message in problems(*MODEL, "--vllm-version", version)["--vllm-version"]


def test_a_stack_file_says_the_version(tmp_path: Path) -> None:
    model = {"name": "m", "model": "Llama-3.1-8B-Instruct"}
    for given, version in (({"vllmVersion": "0.19.0"}, "0.19.0"), ({"image": "vllm/vllm-openai:v0.8.5"}, "0.8.5"), ({}, None)):
        file = tmp_path / "stack.yaml"
        file.write_text(yaml.safe_dump({"models": [{**model, **given}]}))
        assert request("--config", str(file), "--gpu", "l40s").options.vllm_version == version
        assert request("--config", str(file), "--gpu", "l40s", "--vllm-version", "0.20.0").options.vllm_version == "0.20.0"


def test_what_is_missing_is_told_all_at_once() -> None:
    assert set(problems()) == {"--model", "--gpu"}
    assert set(problems("--tp", "0", "--dtype", "auto")) == {"--model", "--gpu", "--tp"}


def test_only_refused_sizes_are_errors_of_the_plan() -> None:
    for arguments, kind in (((*MODEL, "--tp", "3"), PlanError), ((*MODEL, "--tp", "3", "--max-num-seqs", "0"), ConfigError)):
        with pytest.raises(kind) as caught:
            request(*arguments)
        assert type(caught.value) is kind
    assert problems(*MODEL, "--tp", "3")["--tp"].endswith("Valid tensor parallel sizes: 1, 2, 4, 8.")
    assert "--pp" in problems(*MODEL, "--pp", "64")
    assert "--enable-expert-parallel" in problems(*MODEL, "--enable-expert-parallel")


def write(tmp_path: Path, document: Any, name: str = "model.yaml") -> str:
    file = tmp_path / name
    file.write_text(json.dumps(document))
    return str(file)


SIZES = {
    "tensorParallelSize": 2,
    "pipelineParallelSize": 1,
    "maxModelLen": 4096,
    "maxNumSeqs": 8,
    "maxNumBatchedTokens": 2048,
    "blockSize": 16,
    "dtype": "bfloat16",
    "quantization": "fp8",
    "kvCacheDtype": "fp8",
    "gpuMemoryUtilization": 1,
    "enableExpertParallel": True,
}
READ = {
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 1,
    "max_model_len": 4096,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 2048,
    "block_size": 16,
    "dtype": "bfloat16",
    "quantization": "fp8",
    "kv_cache_dtype": "fp8",
    "gpu_memory_utilization": 1.0,
    "expert_parallel": True,
}


def test_a_map_gives_all_sizes_and_the_gpu(tmp_path: Path) -> None:
    assert read_model_file(write(tmp_path, {"modelConfig": CONFIG, "name": "mine", "gpu": "l40s", **SIZES}), None) == ModelFile(
        name="mine", config=CONFIG, options=READ, gpu="l40s"
    )
    assert read_model_file(write(tmp_path, {"modelConfig": CONFIG, "sku": "l4"}), "other") == ModelFile(
        name="other", config=CONFIG, gpu="l4"
    )
    assert read_model_file(write(tmp_path, {"modelConfig": CONFIG}), None).name == "model"


def test_options_win_over_the_files_values(tmp_path: Path) -> None:
    del (sizes := dict(SIZES))["enableExpertParallel"]
    file = write(tmp_path, {"modelConfig": CONFIG, "gpu": "l40s", **sizes})
    found = request("--config", file)
    values = {**vars(found.sizes), **vars(found.options)}
    assert {name: value for name, value in values.items() if name in READ} == {**READ, "expert_parallel": False}
    given = (
        "--tp",
        "4",
        "--dtype",
        "float16",
        "--kv-cache-dtype",
        "auto",
        "--gpu",
        "h100-sxm5-80gb",
    )
    won = request("--config", file, *given)
    assert (won.sizes.tensor_parallel_size, won.options.dtype, won.options.kv_cache_dtype) == (4, "float16", "auto")
    assert won.accelerator.id == "h100-sxm5-80gb"


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("maxModelLen", 0, "is 0; a whole number of at least 1 is expected."),
        ("maxModelLen", True, "is True; a whole number of at least 1 is expected."),
        ("maxModelLen", 1.5, "is 1.5; a whole number of at least 1 is expected."),
        ("gpuMemoryUtilization", 0, "is 0; more than 0 and at most 1 is expected, for example 0.9."),
        ("gpuMemoryUtilization", 1.01, "is 1.01; more than 0 and at most 1 is expected, for example 0.9."),
        ("gpuMemoryUtilization", True, "is True; more than 0 and at most 1 is expected, for example 0.9."),
        ("gpuMemoryUtilization", "x", "is 'x'; more than 0 and at most 1 is expected, for example 0.9."),
        ("modelConfig", 3, "is a number; a map with config.json's fields is expected."),
    ],
)
def test_a_files_wrong_value_is_told_with_its_path(tmp_path: Path, key: str, value: Any, sentence: str) -> None:
    file = write(tmp_path, {"modelConfig": CONFIG, key: value})
    with pytest.raises(ConfigError) as caught:
        read_model_file(file, None)
    (problem,) = caught.value.problems
    assert problem.path == f"{file}.{key}"
    assert problem.message == sentence or key == "modelConfig"
    assert read_model_file(write(tmp_path, {"modelConfig": CONFIG, "maxModelLen": 1}), None).options == {"max_model_len": 1}


POOLS = [{"name": "a", "nodeShape": "dgx-h100"}, {"name": "b", "topology": {"sku": "l40s"}}, {"name": "c"}, 3]


def cluster(*models: Any, **more: Any) -> dict[str, Any]:
    return {"nodePools": POOLS, "models": list(models), **more}


ONE = {"name": "one", "model": "Llama-3.1-8B-Instruct", "nodePool": "a", "maxModelLen": 2048}
TWO = {"name": "two", "model": "Qwen/Qwen3-8B", "nodePool": "b"}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: inner,
        lambda inner: {"numawise:cluster": inner},
        lambda inner: {"config": {"numawise:cluster": inner, "x": 1}, "encryptionsalt": "v1"},
    ],
)
def test_a_stack_files_only_model_is_taken_with_its_pools_gpu(tmp_path: Path, wrap: Any) -> None:
    found = read_model_file(write(tmp_path, wrap(cluster(ONE))), None)
    assert found == ModelFile(name="Llama-3.1-8B-Instruct", config=None, options={"max_model_len": 2048}, gpu="h100-sxm5-80gb")


@pytest.mark.parametrize(
    ("wanted", "name", "gpu"),
    [
        ("one", "Llama-3.1-8B-Instruct", "h100-sxm5-80gb"),
        ("two", "Qwen/Qwen3-8B", "l40s"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "l40s"),
    ],
)
def test_of_several_models_one_is_chosen_by_name(tmp_path: Path, wanted: str, name: str, gpu: str) -> None:
    found = read_model_file(write(tmp_path, cluster(ONE, TWO, 3)), wanted)
    assert (found.name, found.gpu) == (name, gpu)


@pytest.mark.parametrize("pool", ["c", "nowhere", None])
def test_a_pool_without_a_shape_names_no_gpu(tmp_path: Path, pool: str | None) -> None:
    assert read_model_file(write(tmp_path, cluster({**ONE, "nodePool": pool})), None).gpu is None
    assert read_model_file(write(tmp_path, {"models": [{**ONE, "nodePool": pool}]}), None).gpu is None


@pytest.mark.parametrize(
    ("document", "wanted", "path", "sentence"),
    [
        (cluster(ONE, TWO), None, ".models", "has one, two; choose one with --model NAME."),
        (cluster(ONE), "onne", ".models", "has one; choose one with --model NAME. Did you mean 'one'?"),
        (cluster(), None, ".models", "has no models; choose one with --model NAME."),
        ({"modelconfig": {}}, None, ".modelConfig", "Did you mean 'modelconfig'?"),
        ([], None, "", "a config.json or a map with modelConfig is expected."),
    ],
)
def test_a_file_without_the_model_is_told_what_it_has(
    tmp_path: Path, document: Any, wanted: str | None, path: str, sentence: str
) -> None:
    file = write(tmp_path, document)
    with pytest.raises(ConfigError) as caught:
        read_model_file(file, wanted)
    (problem,) = caught.value.problems
    assert problem.path == file + path
    assert problem.message.endswith(sentence)


@pytest.mark.parametrize("sign", ["hidden_size", "text_config", "model_type"])
def test_a_config_json_is_known_by_any_of_its_signs(tmp_path: Path, sign: str) -> None:
    document = {sign: 1, "other": 2}
    assert read_model_file(write(tmp_path, document, "config.json"), None) == ModelFile(name="config", config=document)
    assert read_model_file(write(tmp_path, document, "config.json"), "mine").name == "mine"
