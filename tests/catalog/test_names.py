"""Names: catalog ids, driver names, node labels, common names; ambiguous and unknown ones."""

from __future__ import annotations

import re
import time

import pytest

from infra.catalog.load import accelerators, models, shapes
from infra.catalog.names import accelerator_of, find_accelerator, find_model, find_shape
from infra.catalog.quantized_builds import marks_of
from infra.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100-sxm5-80gb", "h100-sxm5-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("nvidia h100 80gb hbm3", "h100-sxm5-80gb"),
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm5-80gb"),
        ("H100 80GB", "h100-sxm5-80gb"),
        ("H100 80 GB", "h100-sxm5-80gb"),
        ("H100 SXM5 80GB", "h100-sxm5-80gb"),
        ("10de:2330", "h100-sxm5-80gb"),
        ("H100 PCIe", "h100-pcie-80gb"),
        ("H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA-H100", "h100-sxm5-94gb"),
        ("H200", "h200-sxm-141gb"),
        ("NVIDIA-H200-141GB-HBM3", "h200-sxm-141gb"),
        ("A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("B200", "b200-sxm"),
        ("GB200", "gb200"),
        ("NVIDIA-B300-SXM6-AC", "b300-sxm6"),
        ("L4", "l4"),
        ("l40s", "l40s"),
        ("A10G", "a10g"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-blackwell-server"),
        ("MI300X", "mi300x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("AMD_Instinct_MI300X_VF", "mi300x"),
        ("MI325X", "mi325x"),
        ("MI250X", "mi250x-gcd"),
        ("Instinct_MI210", "mi210"),
        ("mi355x", "mi355x"),
        ("MI210 64GB", "mi210"),
        ("NVIDIA Tesla L4 GPU", "l4"),
        ("L4 24 GiB", "l4"),
        ("B300 288 gb", "b300-sxm6"),
        ("RTX PRO 6000 Blackwell Server 96 GB", "rtx-pro-6000-blackwell-server"),
    ],
)
def test_an_accelerator_is_found_by_any_of_its_names(name: str, expected: str) -> None:
    assert find_accelerator(name).id == expected


def test_every_id_driver_name_and_label_leads_to_its_own_accelerator() -> None:
    for accelerator in accelerators().values():
        for name in (accelerator.id, accelerator.driver_name, *accelerator.label_values, *accelerator.aliases):
            assert find_accelerator(name).id == accelerator.id, name


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("H100", ["h100-sxm5-80gb", "h100-pcie-80gb", "h100-nvl-94gb"]),
        ("A100", ["a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb"]),
        ("A100 80GB", ["a100-sxm4-80gb", "a100-pcie-80gb"]),
        ("RTX PRO 6000", ["rtx-pro-6000-blackwell-server", "rtx-pro-6000-blackwell-ws"]),
    ],
)
def test_an_ambiguous_name_lists_its_candidates(name: str, candidates: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        find_accelerator(name, "nodePools[0].topology.sku")
    [problem] = error.value.problems
    assert problem.code == "AmbiguousAccelerator" and problem.path == "nodePools[0].topology.sku"
    assert all(candidate in problem.message for candidate in candidates)


def test_an_unknown_accelerator_names_the_nearest_and_all() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'l40' or 'l40s'") as error:
        find_accelerator("L40t")
    assert "mi355x" in str(error.value)
    with pytest.raises(ConfigError, match="no accelerator is called"):
        find_accelerator("  ")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("RTX 3090", "rtx-3090"), ("4090", "rtx-4090"), ("NVIDIA GeForce RTX 5090", "rtx-5090"), ("A10", "a10"), ("A10G", "a10g"),
        ("A30", "a30"), ("A40", "a40"), ("A6000", "rtx-a6000"), ("NVIDIA-RTX-A6000", "rtx-a6000"), ("T4", "t4"), ("Tesla-T4", "t4"),
        ("V100 SXM2 32GB", "v100-sxm2-32gb"), ("GH200 96GB", "gh200"), ("H20", "h20"), ("H20-3e", "h20-3e"), ("DGX Spark", "gb10"),
        ("L40", "l40"), ("L40S", "l40s"), ("GH200 120GB (96GB HBM)", "gh200"), ("AMD Radeon gfx1100 48GB", "radeon-pro-w7900"),
    ],
)  # fmt: skip
def test_cards_that_many_people_have_are_known_by_their_common_names(name: str, expected: str) -> None:
    accelerator = find_accelerator(name)
    assert accelerator.id == expected
    assert accelerator.memory.torch_gib is not None


@pytest.mark.parametrize("label", ["NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "NVIDIA-H100-80GB-HBM3-SHARED"])
def test_the_label_of_a_slice_is_no_whole_device(label: str) -> None:
    with pytest.raises(ConfigError, match=r"MIG slice or of a time-sliced device; the plan places whole devices. Write 'NVIDIA-"):
        find_accelerator(label)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dgx-h100", "dgx-h100"),
        ("DGX H100", "dgx-h100"),
        ("p5.48xlarge", "aws-p5.48xlarge"),
        ("AWS p5.48xlarge", "aws-p5.48xlarge"),
        ("Standard_ND96isr_H100_v5", "azure-nd96isr_h100_v5"),
        ("BM.GPU.MI300X.8", "oci-bm.gpu.mi300x.8"),
        ("a3-ultragpu-8g", "gcp-a3-ultragpu-8g"),
        ("dgx-b200", "dgx-b200-class"),
    ],
)
def test_a_shape_is_found_by_id_and_instance_type(name: str, expected: str) -> None:
    assert find_shape(name).id == expected


def test_no_two_shapes_share_a_name() -> None:
    seen: dict[str, str] = {}
    for shape in shapes().values():
        for name in {shape.id.lower(), *(alias.lower() for alias in shape.aliases)}:
            assert seen.setdefault(name, shape.id) == shape.id, name


def test_an_unknown_shape_says_how_to_give_the_facts_inline() -> None:
    with pytest.raises(ConfigError, match=r"no node shape is called 'dgx-h1000'.*'dgx-h100'.*`topology:`"):
        find_shape("dgx-h1000")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Meta-Llama-3-70B-Instruct", "meta-llama/Meta-Llama-3-70B-Instruct"),
        ("META-LLAMA/LLAMA-3.3-70B-INSTRUCT", "meta-llama/Llama-3.3-70B-Instruct"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
        ("qwen3-235b-a22b-fp8", "Qwen/Qwen3-235B-A22B-FP8"),
    ],
)
def test_a_model_is_found_with_and_without_its_organisation(name: str, expected: str) -> None:
    assert find_model(name).id == expected


def test_every_model_is_found_by_every_name_of_its_own() -> None:
    for model in models().values():
        for name in (model.id, *model.aliases, model.id.upper()):
            assert find_model(name).id == model.id, name


def test_an_unknown_model_names_the_nearest_and_modelconfig() -> None:
    with pytest.raises(ConfigError, match=r"called 'Llama-3.1-9B-Instruct'.*Llama-3.1-8B-Instruct.*`modelConfig:`"):
        find_model("Llama-3.1-9B-Instruct")


def test_a_partition_and_a_virtual_function_have_their_own_memory() -> None:
    partition = accelerator_of(find_shape("mi300x-8-cpx-nps4"))
    assert partition.id == "mi300x" and partition.memory.torch_gib == 24.0
    assert accelerator_of(find_shape("Standard_ND96isr_MI300X_v5")).memory.torch_gib == 191.69
    assert accelerator_of(find_shape("intel-2s56c-mi300x")).memory.torch_gib == 191.98


def test_the_catalog_of_a_fit_loads_in_less_than_a_tenth_of_a_second() -> None:
    """Accelerators and models by the C loader; the time of this process, so that a busy machine does not matter."""
    spent = []
    for _ in range(5):
        accelerators.cache_clear()
        models.cache_clear()
        started = time.process_time()
        assert accelerators() and models()
        spent.append(time.process_time() - started)
    assert min(spent) < 0.1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deepseek-v2-5", "deepseek-ai/DeepSeek-V2.5"),
        ("llama 3.1 8b instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("DeepSeek-R1-Distill-Qwen-14B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"),
        ("Qwen2.5-1.5B", "Qwen/Qwen2.5-1.5B-Instruct"),
        ("Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-3B-Instruct"),
        ("Qwen3-Embedding-8B", "Qwen/Qwen3-Embedding-8B"),
    ],
)
def test_names_are_found_however_their_words_are_joined(name: str, expected: str) -> None:
    assert find_model(name).id == expected


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-8B-GGUF", "DeepSeek-R1-AWQ2-FP8", "Qwen3-235B-A22B-FP4X", "Llama-3.1-8B-Instruct-int3", "gpt-oss-20b-FP8"]
)
def test_a_hint_never_leads_to_weights_that_are_stored_otherwise(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        find_model(name)
    [problem] = error.value.problems
    hint = problem.message.partition("Did you mean")[2].partition("?")[0]
    for offered in re.findall(r"'([^']+)'", hint):
        assert marks_of(offered) == marks_of(name)


def test_the_beginning_of_a_name_is_answered_with_what_begins_so() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'Qwen/Qwen3-Next-80B-A3B-Instruct'"):
        find_model("qwen3-next")
