"""python -m infra fit: the document's form, exit status, and what wrong input is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.__main__ import main

LLAMA_70B = {
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "intermediate_size": 28672,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
}


def fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    status = main(["fit", *arguments, "--format", "json"])
    output = capsys.readouterr()
    return status, json.loads(output.out)


def messages(document: dict) -> dict[str, str]:
    return {error["path"]: error["message"] for error in document["errors"]}


def test_the_answer_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = fit(
        capsys, "--model", "Llama-3.3-70B-Instruct", "--gpu", "h100-sxm5-80gb", "--tp", "4", "--max-model-len", "32768"
    )
    assert status == 0
    assert document["verdict"] == "fits" and document["fits"] is True
    assert document["weightsGib"] == pytest.approx(32.9, abs=0.1)
    assert document["kvBytesPerTokenPerGpu"] == 80 * 2 * 2 * 128 * 2
    for key in ("availableKvGib", "kvTokens", "maxConcurrency"):
        assert document[key]["low"] < document[key]["expected"] < document[key]["high"]
    assert document["kvTokens"]["low"] == pytest.approx(
        document["availableKvGib"]["low"] * 2**30 / document["kvBytesPerTokenPerGpu"], abs=200
    )
    assert document["maxConcurrency"]["low"] == pytest.approx(document["kvTokens"]["low"] / 32768, abs=0.01)
    assert document["largestMaxModelLen"] == 131072
    assert document["validTensorParallelSizes"] == [1, 2, 4, 8]
    assert all(reason.endswith(".") for reason in document["reasons"])


def test_what_does_not_fit_ends_with_status_1_and_says_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = fit(capsys, "--model", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "NVIDIA H100 80GB HBM3")
    assert status == 1
    assert document["verdict"] == "refused" and document["fits"] is False
    assert document["availableKvGib"]["high"] < 0 and document["kvTokens"]["high"] == 0
    text = " ".join(document["reasons"])
    assert "exceed the budget by 63." in text
    assert "the smallest size that fits is 3 GPUs" in text and "without pipeline parallel the smallest is 4 GPUs" in text


def test_a_context_that_is_too_long_is_told_the_longest_one(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "--model",
        "Qwen/Qwen3-32B",
        "--gpu",
        "h100-sxm5-80gb",
        "--gpu-memory-utilization",
        "0.9",
        "--vllm-version",
        "0.11.0",
    )
    status, document = fit(capsys, *arguments, "--max-model-len", "32000")
    assert status == 1 and document["verdict"] == "refused"
    longest = document["largestMaxModelLen"]
    assert f"the largest max_model_len that starts for certain is {longest:,}." in document["reasons"]
    assert fit(capsys, *arguments, "--max-model-len", str(longest))[0] == 0
    assert fit(capsys, *arguments, "--max-model-len", str(longest + 200))[0] == 1


@pytest.mark.parametrize(
    ("model", "tp", "valid"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", "8", [1, 2, 4]),
        ("microsoft/phi-4", "4", [1, 2]),
        ("Qwen/Qwen3-14B", "5", [1, 2, 4, 8]),
        ("meta-llama/Llama-3.3-70B-Instruct", "3", [1, 2, 4, 8]),
    ],
)
def test_a_size_that_vllm_refuses_is_wrong_input_and_names_the_valid_ones(
    capsys: pytest.CaptureFixture[str], model: str, tp: str, valid: list[int]
) -> None:
    status, document = fit(capsys, "--model", model, "--gpu", "mi300x", "--tp", tp)
    assert status == 2
    assert f"Valid tensor parallel sizes: {', '.join(map(str, valid))}." in messages(document)["--tp"]


def test_expert_parallel_makes_the_refused_size_possible(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = fit(
        capsys, "--model", "Qwen/Qwen3-235B-A22B-FP8", "--gpu", "mi300x", "--tp", "8", "--enable-expert-parallel"
    )
    assert status == 0 and document["validTensorParallelSizes"] == [1, 2, 4, 8]


def test_everything_wrong_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = fit(
        capsys,
        "--model",
        "Llama-3.1-8B-Instruct",
        "--gpu",
        "nosuch",
        "--tp",
        "3",
        "--pp",
        "33",
        "--max-model-len",
        "x",
        "--gpu-memory-utilization",
        "2",
    )
    assert status == 2
    assert set(messages(document)) == {"--gpu", "--tp", "--pp", "--max-model-len", "--gpu-memory-utilization"}


def test_an_ambiguous_gpu_lists_the_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = fit(capsys, "--model", "Llama-3.1-8B-Instruct", "--gpu", "H100")
    assert status == 2
    assert all(name in messages(document)["--gpu"] for name in ("h100-sxm5-80gb", "h100-pcie-80gb", "h100-nvl-94gb"))


def test_an_unknown_model_gets_the_nearest_name_and_the_way_to_give_its_facts(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = fit(capsys, "--model", "Llama-3.3-70B-Instuct", "--gpu", "mi300x")
    assert status == 2
    assert "Llama-3.3-70B-Instruct" in messages(document)["--model"] and "modelConfig" in messages(document)["--model"]


def test_a_gpu_whose_memory_is_not_known_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = fit(capsys, "--model", "Llama-3.1-8B-Instruct", "--gpu", "gb300")
    assert status == 2
    assert "--gpu-memory-gib" in messages(document)["--gpu"]
    assert fit(capsys, "--model", "Llama-3.1-8B-Instruct", "--gpu", "gb300", "--gpu-memory-gib", "277")[0] == 0


def test_a_gpu_that_the_catalog_does_not_know_is_given_inline(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model", "Llama-3.1-8B-Instruct", "--gpu", "NVIDIA GeForce RTX 3080", "--max-model-len", "8192")
    assert fit(capsys, *arguments)[0] == 2
    status, document = fit(capsys, *arguments, "--gpu-memory-gib", "23.58", "--gpu-vendor", "nvidia")
    assert status == 0 and document["totalGib"] == 23.58


@pytest.mark.parametrize("form", ["config.json", "modelConfig", "stack file"])
def test_a_model_is_given_by_its_config(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    document: dict = LLAMA_70B
    if form == "modelConfig":
        document = {"modelConfig": LLAMA_70B}
    elif form == "stack file":
        document = {"config": {"numawise:cluster": {"models": [{"name": "mine", "modelConfig": LLAMA_70B}]}}}
    file = tmp_path / "model.json"
    file.write_text(json.dumps(document))
    status, document = fit(capsys, "--config", str(file), "--gpu", "mi300x", "--tp", "4", "--max-model-len", "8192")
    assert status == 0
    assert document["weightsGib"] == pytest.approx(32.9, abs=0.1)
    assert document["kvBytesPerTokenPerGpu"] == 81920


def test_sizes_of_the_file_count_and_the_command_line_wins(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(
        json.dumps(
            {"modelConfig": LLAMA_70B, "gpu": "mi300x", "tensorParallelSize": 4, "maxModelLen": 8192, "gpuMemoryUtilization": 0.9}
        )
    )
    _, document = fit(capsys, "--config", str(file))
    assert (document["tensorParallelSize"], document["maxModelLen"], document["gpuMemoryUtilization"]) == (4, 8192, 0.9)
    _, document = fit(capsys, "--config", str(file), "--tp", "2")
    assert document["tensorParallelSize"] == 2


def test_a_model_of_a_stack_file_is_asked_on_its_own_pool(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pools = [{"name": "a", "nodeShape": "dgx-h100"}, {"name": "b", "topology": {"sku": "mi300x"}}]
    listed = [{"name": n, "nodePool": p, "model": "Qwen/Qwen3-8B", "maxModelLen": 8192} for n, p in (("one", "a"), ("two", "b"))]
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(json.dumps({"config": {"numawise:cluster": {"nodePools": pools, "models": listed}}}))
    assert fit(capsys, "--config", str(file), "--model", "one")[1]["gpu"] == "h100-sxm5-80gb"
    assert fit(capsys, "--config", str(file), "--model", "two")[1]["gpu"] == "mi300x"
    status, document = fit(capsys, "--config", str(file))
    assert status == 2 and "has one, two; choose one with --model" in messages(document)[f"{file}.models"]


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ("modelConfig: {hidden_size: 12}", "modelConfig.num_hidden_layers"),
        ("modelConfig: 3", "{file}.modelConfig"),
        ("tensorParallelSize: 3", "{file}.modelConfig"),
        ("[1, 2]", "{file}"),
        ("models: []", "{file}.models"),
        ("modelConfig: {}\ntensorParallelSize: zero", "{file}.tensorParallelSize"),
    ],
)
def test_a_file_without_the_facts_is_wrong_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, path: str
) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(content)
    status, document = fit(capsys, "--config", str(file), "--gpu", "l4")
    assert status == 2
    assert path.replace("{file}", str(file)) in messages(document)


def test_amd_cards_get_the_same_answer_with_blocks_by_context(capsys: pytest.CaptureFixture[str]) -> None:
    for length, block in (("8192", 16), ("65536", 32), ("131072", 64)):
        status, document = fit(
            capsys, "--model", "Llama-3.3-70B-Instruct", "--gpu", "MI300X", "--tp", "2", "--max-model-len", length
        )
        assert status == 0 and document["blockSize"] == block
        assert document["nonTorchGib"]["expected"] >= 1


def test_the_default_utilisation_is_that_of_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model", "Qwen/Qwen3-8B", "--gpu", "l40s")
    assert fit(capsys, *arguments)[1]["gpuMemoryUtilization"] == 0.92
    assert fit(capsys, *arguments, "--vllm-version", "0.16.0")[1]["gpuMemoryUtilization"] == 0.9


def test_more_than_the_free_memory_is_not_promised(capsys: pytest.CaptureFixture[str]) -> None:
    status, document = fit(capsys, "--model", "Qwen/Qwen3-8B", "--gpu", "l40s", "--gpu-memory-utilization", "1.0")
    assert status == 1 and "free at start, and above 0.98 nothing is promised; use at most 0.98" in document["reasons"][0]


def test_lengths_are_read_as_vllm_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model", "Qwen/Qwen3-8B", "--gpu", "l40s", "--max-model-len")
    assert fit(capsys, *arguments, "32K")[1]["maxModelLen"] == 32768
    assert fit(capsys, *arguments, "32k")[1]["maxModelLen"] == 32000


def test_the_table_shows_verdict_bars_and_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["fit", "--model", "Llama-3.3-70B-Instruct", "--gpu", "h100-sxm5-80gb", "--tp", "4", "--max-model-len", "32768"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("meta-llama/Llama-3.3-70B-Instruct on h100-sxm5-80gb, tensor parallel 4")
    assert lines[2].startswith("  FITS  ")
    bars = [line for line in lines if line.endswith("#")]
    assert [line.split("  ")[1] for line in bars] == [
        "weights",
        "activations",
        "outside torch",
        "graphs",
        "KV cache",
        "beside the budget",
    ]
    total = sum(float(line.rstrip("# ").split()[-1]) for line in bars)
    assert total == pytest.approx(79.10, abs=0.05)


def test_what_is_missing_is_drawn_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--model", "Llama-3.3-70B-Instruct", "--gpu", "h100-sxm5-80gb"]) == 1
    output = capsys.readouterr().out
    assert "  DOES NOT FIT  " in output and "  missing " in output and "!!!!" in output


@pytest.mark.parametrize(
    ("model", "gpu", "size", "status"),
    [
        ("Qwen/Qwen3-8B", "l40s", "24", 2),
        ("Qwen/Qwen3-8B", "l40s", "128", 0),
        ("Qwen/Qwen3-8B", "mi300x", "7", 2),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", "h100-sxm5-80gb", "1", 2),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", "mi300x", "1", 0),
    ],
)
def test_a_block_size_that_no_backend_takes_is_wrong_input(
    capsys: pytest.CaptureFixture[str], model: str, gpu: str, size: str, status: int
) -> None:
    found, document = fit(capsys, "--model", model, "--gpu", gpu, "--block-size", size, "--max-model-len", "4096")
    assert found == status
    assert status == 0 or "--block-size" in messages(document)


def test_what_the_answer_rests_on_without_being_sure_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fit", "--model", "llama-3.1-8b-instruct", "--gpu", "h100-pcie-80gb"]
    assert main(arguments) in (0, 1)
    assert "warning: --gpu: memory.torchGib of h100-pcie-80gb is not verified in the catalog" in capsys.readouterr().out
    main([*arguments, "--format", "json"])
    [warning] = json.loads(capsys.readouterr().out)["warnings"]
    assert (warning["path"], warning["code"]) == ("--gpu", "UnverifiedFacts")
    main([*arguments, "--gpu-memory-gib", "79.1", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["warnings"] == []
    main(["fit", "--model", "MiniMaxAI/MiniMax-M2", "--gpu", "h200-sxm-141gb", "--tp", "4", "--format", "json"])
    assert [warning["path"] for warning in json.loads(capsys.readouterr().out)["warnings"]] == ["--model"]
