"""Bytes of quantised weights, the forms of quantization_config, and which modules a checkpoint leaves alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.errors import ConfigError
from infra.plan.architecture.precision import resolve_dtype, resolve_quantization
from infra.plan.architecture.quantization import Quantization, quantization_named
from tests.plan.small import SMALL, read


def form(kind: str, bits: float = 8, **changes: Any) -> Quantization:
    return Quantization(**{"method": "fp8", "weight_bits": bits, "form": kind, **changes})


def tensor(method: str, **changes: Any) -> Quantization:
    return form("tensor", **{"method": method, **changes})


def channel(method: str, **changes: Any) -> Quantization:
    return form("channel", **{"method": method, **changes})


def block(method: str, out: int = 128, inner: int = 128, **changes: Any) -> Quantization:
    return form("block", **{"method": method, "block_out": out, "block_in": inner, **changes})


def group(method: str, bits: int, size: int, scale_bytes: float, **changes: Any) -> Quantization:
    return form("group", bits, **{"method": method, "group_size": size, "scale_bytes": scale_bytes, **changes})


@pytest.mark.parametrize(
    ("quantization", "outputs", "inputs", "size"),
    [
        (form("tensor"), 10, 6, 60 + 4),
        (form("channel"), 10, 6, 60 + 10 * 4),
        (form("block", block_out=128, block_in=64), 128, 64, 8192 + 4),
        (form("block", block_out=128, block_in=64), 129, 65, 8385 + 2 * 2 * 4),
        (form("group", 4, group_size=64, scale_bytes=2), 10, 64, 320 + 10 * 2),
        (form("group", 4, group_size=64, scale_bytes=2), 10, 65, 325 + 10 * 2 * 2),
        (form("group", 4, group_size=64, scale_bytes=2, zero_point_bits=4), 10, 64, 320 + 25),  # half a byte more a group
        (form("group", 4, group_size=0, scale_bytes=2), 10, 64, 320 + 10 * 2),  # one group: the whole row
        (form("group", 4, group_size=1, scale_bytes=1), 2, 3, 3 + 6),
        (form("channel", 4), 3, 3, 5 + 12),  # half bytes are rounded up once
    ],
)
def test_bytes_of_a_matrix(quantization: Quantization, outputs: int, inputs: int, size: int) -> None:
    assert quantization.matrix_bytes(outputs, inputs) == size


@pytest.mark.parametrize(
    ("quantization", "name"),
    [
        (tensor("fp8"), "fp8"),
        (block("fp8", 128, 64), "fp8 (128x64 blocks)"),
        (group("awq", 4, 128, 2), "awq (groups of 128)"),
        (group("awq", 4, 1, 2), "awq (groups of 1)"),
        (group("awq", 4, 0, 2), "awq"),
        (channel("gptq", group_size=64), "gptq"),
    ],
)
def test_short_names(quantization: Quantization, name: str) -> None:
    assert quantization.name == name


FP8 = tensor("fp8", online=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fp8", FP8),
        ("FP8", FP8),
        ("fp8_per_tensor", FP8),
        ("fp8_per_block", block("fp8", online=True)),
        ("fp8_per_channel", channel("fp8", online=True)),
        ("mxfp8", group("mxfp8", 8, 32, 1, online=True)),
        ("mxfp4", group("mxfp4", 4, 32, 1, online=True)),
        ("experts_int8", channel("experts_int8", experts_only=True, online=True)),
        ("int8_per_channel_weight_only", channel("int8", experts_only=True, online=True)),
        ("nvfp4_per_token", group("nvfp4", 4, 16, 1, experts_only=True, online=True)),
        ("none", None),
        ("bfloat16", None),
    ],
)
def test_what_vllm_quantises_while_it_loads(name: str, expected: Quantization | None) -> None:
    assert quantization_named(name) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"quant_method": "fp8"}, tensor("fp8")),
        ({"quant_type": "fp8"}, tensor("fp8")),
        ({"quant_method": "fp8", "weight_block_size": [64, 128]}, block("fp8", 64, 128)),
        ({"quant_method": "fp8", "weight_block_size": [1, 1]}, block("fp8", 1, 1)),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, channel("fbgemm_fp8", ignored=("lm_head",))),
        ({"quant_method": "awq"}, group("awq", 4, 128, 2)),
        ({"quant_method": "awq", "zero_point": True, "bits": 8, "group_size": 64}, group("awq", 8, 64, 2, zero_point_bits=8)),
        ({"quant_method": "awq", "w_bit": 3, "q_group_size": 32}, group("awq", 3, 32, 2)),
        ({"quant_method": "auto-round", "sym": False}, group("auto-round", 4, 128, 2, zero_point_bits=4)),
        ({"quant_method": "auto-round", "sym": True, "group_size": 1}, group("auto-round", 4, 1, 2)),
        ({"quant_method": "gptq", "sym": True}, group("gptq", 4, 128, 2, zero_point_bits=4)),
        ({"quant_method": "gptq", "group_size": -1}, form("channel", 4, method="gptq", scale_bytes=2, zero_point_bits=4)),
        ({"quant_method": "gptq", "lm_head": True}, group("gptq", 4, 128, 2, zero_point_bits=4, quantizes_lm_head=True)),
        ({"quant_method": "mxfp4"}, group("mxfp4", 4, 32, 1, experts_only=True)),
        ({"quant_method": "gpt_oss_mxfp4"}, group("mxfp4", 4, 32, 1, experts_only=True)),
        ({"quant_method": "mxfp8"}, group("mxfp8", 8, 32, 1)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, channel("bitsandbytes")),
        ({"quant_method": "bitsandbytes"}, group("bitsandbytes", 4, 64, 4)),
        ({"quant_method": "bitsandbytes", "bnb_4bit_use_double_quant": True}, group("bitsandbytes", 4, 64, 1 + 1 / 64)),
        ({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}, tensor("modelopt", ignored=("lm_head",))),
        ({"quant_method": "modelopt"}, tensor("modelopt")),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, channel("modelopt")),
        ({"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"}, block("modelopt")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, group("modelopt_fp4", 4, 32, 1)),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, group("modelopt_fp4", 4, 16, 1)),
        ({"quant_method": "nvfp4"}, group("modelopt_fp4", 4, 16, 1)),
        ({"quant_method": "modelopt_fp4"}, group("modelopt_fp4", 4, 16, 1)),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, group("modelopt_mxfp8", 8, 32, 1)),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, tensor("quark")),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int8", "qscheme": "per_channel"}}}, channel("quark")),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, group("quark", 4, 32, 1)),
        ({"quant_method": "quark", "global_quant_config": {"weight": [{"dtype": "mx", "group_size": 16}]}}, group("quark", 4, 16, 1)),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int4"}}, "exclude": ["a"], "ignore": ["b"]},
         group("quark", 4, 128, 2, ignored=("a", "b"))),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "uint4", "group_size": 64}}},
         group("quark", 4, 64, 2, zero_point_bits=4)),
    ],
)  # fmt: skip
def test_forms_of_quantization_config(raw: dict[str, Any], expected: Quantization) -> None:
    assert read(quantization_config=raw).quantization == expected


def packed(*, targets: list[str] | None = None, **weights: Any) -> dict[str, Any]:
    config = {"weights": weights} if targets is None else {"weights": weights, "targets": targets}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": config}}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (packed(), tensor("compressed-tensors")),
        (packed(num_bits=8, strategy="tensor"), tensor("compressed-tensors")),
        (packed(num_bits=8, strategy="channel"), channel("compressed-tensors")),
        (packed(num_bits=8, strategy="block"), block("compressed-tensors")),
        (packed(num_bits=8, strategy="block", block_structure=[64, 32]), block("compressed-tensors", 64, 32)),
        (packed(num_bits=4, group_size=32), group("compressed-tensors", 4, 32, 2)),
        (packed(num_bits=4, strategy="group"), group("compressed-tensors", 4, 128, 2)),
        (packed(num_bits=4, strategy="group", symmetric=False), group("compressed-tensors", 4, 128, 2, zero_point_bits=4)),
        (packed(num_bits=4, strategy="tensor_group", type="float"), group("compressed-tensors", 4, 16, 1)),
        (packed(num_bits=8, strategy="group", type="float"), group("compressed-tensors", 8, 128, 2)),
        (packed(num_bits=8, strategy="channel", targets=["Linear"]), channel("compressed-tensors")),
        (packed(num_bits=8, strategy="channel", targets=["re:.*experts.*"]), channel("compressed-tensors", experts_only=True)),
        (packed(num_bits=8, strategy="channel", targets=["re:.*experts.*", "Linear"]), channel("compressed-tensors")),
        (packed(num_bits=8, strategy="channel", targets=["re:.*mlp.*"]), channel("compressed-tensors")),
        (packed(num_bits=8, strategy="channel", targets=["re:.*experts.*", "re:.*mlp.*"]), channel("compressed-tensors")),
    ],
)
def test_forms_of_compressed_tensors(raw: dict[str, Any], expected: Quantization) -> None:
    assert read(quantization_config=raw).quantization == expected
    assert read(quantization_config=raw | {"quant_method": "compressed_tensors"}).quantization == expected


def test_lists_of_ignored_modules_come_together_each_once() -> None:
    raw = {"quant_method": "fp8", "ignore": ["a", "b"], "ignored_layers": ("b", 3), "quantization": {"exclude_modules": ["c"]}}
    quantization = read(quantization_config=raw).quantization
    assert quantization is not None and quantization.ignored == ("a", "b", "3", "c")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"quant_method": "modelopt", "quant_algo": "INT2"}, "quant_algo INT2 is not known here"),
        ({"quant_method": "quark"}, "weight dtype missing is not known here"),
        ({"quant_method": "awq", "bits": -4}, "sizes -4 are not all positive"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {}}},
            "is not in the form of compressed-tensors checkpoints",
        ),
        ({"quant_method": "zip"}, "'zip' is not known here; its bytes a weight cannot be told. Known: fp8, fbgemm_fp8, "),
        ({"quantization": {"exclude_modules": []}}, "quant_method: is missing"),
    ],
)
def test_a_form_that_is_not_known_is_told(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match="quantization_config") as error:
        read(quantization_config=raw)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("ignored", "module", "expected"),
    [
        ("model.layers.3.mlp", "model.layers.3.mlp.up_proj", True),
        ("model.language_model.layers.3.mlp", "model.layers.3.mlp.up_proj", True),
        ("language_model.model.layers.3.mlp", "model.layers.3.mlp.up_proj", True),
        ("model.layers.3.mlp.up_proj", "model.layers.3.mlp.up_proj", True),
        ("model.layers.3.mlp.up_proj", "model.layers.3.mlp.up", False),
        ("model.layers.3.mlp.up", "model.layers.3.mlp.up_proj", False),
        ("re:model.layers.1.*", "model.layers.12.mlp.up_proj", True),
        ("re:layers.1.*", "model.layers.12.mlp.up_proj", False),
        ("re:(", "model.layers.12.mlp.up_proj", False),
        ("*.mlp.up_proj", "model.layers.0.mlp.up_proj", True),
        ("*.mlp", "model.layers.0.mlp.up_proj", True),
        ("*.ml", "model.layers.0.mlp.up_proj", False),
        (".mlp.", "model.layers.0.mlp.up_proj", True),
        ("model.layers.0", "model.layers.0", True),
    ],
)
def test_modules_that_are_ignored(ignored: str, module: str, expected: bool) -> None:
    assert tensor("fp8", ignored=(ignored,)).ignores(module) is expected
    assert tensor("fp8", ignored=("model.layers.7.other", "nothing", ignored)).ignores(module) is expected


def test_patterns_that_single_out_layers() -> None:
    assert tensor("fp8", ignored=("lm_head", "model.layers.3.mlp")).names_layers
    assert not tensor("fp8", ignored=("lm_head", "re:.*mlp.*")).names_layers


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ("awq", "awq_marlin"),
        ("awq", "AWQ"),
        ("gptq", "gptq_marlin"),
        ("mxfp4", "gpt_oss_mxfp4"),
        ("modelopt_fp4", "nvfp4"),
        ("quark", "quark"),
    ],
)
def test_one_method_has_several_names(own: str, asked: str) -> None:
    named = form("channel", method=own)
    assert resolve_quantization(replace(SMALL, quantization=named), asked) is named


@pytest.mark.parametrize(("own", "asked"), [("awq", "gptq"), ("gptq", "awq_marlin"), ("mxfp4", "nvfp4"), ("fp8", "fp8_per_block")])
def test_another_method_than_the_checkpoints_is_refused(own: str, asked: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"is {asked}, but small is a checkpoint quantised by {own}, and vLLM refuses any other method than .*{own}",
    ):
        resolve_quantization(replace(SMALL, quantization=form("channel", method=own)), asked)


@pytest.mark.parametrize(
    ("own", "asked", "dtype"),
    [
        ("bfloat16", None, "bfloat16"),
        ("float32", None, "float16"),
        ("float", "auto", "float16"),
        ("float16", "auto", "float16"),
        ("bfloat16", "float32", "float32"),
        ("float32", "half", "half"),
    ],
)
def test_the_dtype_in_effect(own: str, asked: str | None, dtype: str) -> None:
    assert resolve_dtype(read(torch_dtype=own), asked) == dtype
