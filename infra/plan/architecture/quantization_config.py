"""config.json's `quantization_config`, in the forms that checkpoints have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.diagnosis import Diagnosis, did_you_mean, shown
from infra.plan.architecture.quantization import Quantization


def quantization_from_config(raw: Mapping[str, Any], path: str, problems: list[Diagnosis]) -> Quantization | None:
    """config.json's quantization_config in its real forms; what cannot be read is added to `problems`."""
    method = (
        str(raw.get("quant_method") or raw.get("quant_type") or _modelopt_method(raw) or "").lower().replace("_tensors", "-tensors")
    )
    ignored = _texts(raw, "ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "llm_int8_skip_modules")
    try:
        match method:
            case "fp8":
                return _fp8(raw, ignored)
            case "fbgemm_fp8":
                return Quantization(method=method, weight_bits=8, form="channel", ignored=ignored)
            case "compressed-tensors":
                return _compressed_tensors(raw, ignored)
            case "awq" | "awq_marlin" | "gptq" | "gptq_marlin" | "auto-round" | "intel/auto-round" | "auto_round":
                return _grouped_integer(raw, method, ignored)
            case "mxfp4" | "gpt_oss_mxfp4":
                return Quantization(
                    method="mxfp4", weight_bits=4, form="group", group_size=32, scale_bytes=1, experts_only=True, ignored=ignored
                )
            case "mxfp8" | "modelopt_mxfp8":
                return Quantization(method=method, weight_bits=8, form="group", group_size=32, scale_bytes=1, ignored=ignored)
            case "bitsandbytes":
                if raw.get("load_in_8bit"):
                    return Quantization(method=method, weight_bits=8, form="channel", scale_bytes=4, ignored=ignored)
                # double quantisation keeps an 8-bit scale a group and a 32-bit one for 256 groups
                scale_bytes = 1 + 4 / 256 if raw.get("bnb_4bit_use_double_quant") else 4
                return Quantization(
                    method=method, weight_bits=4, form="group", group_size=64, scale_bytes=scale_bytes, ignored=ignored
                )
            case "modelopt" | "modelopt_fp4" | "nvfp4":
                return _modelopt(raw, method, ignored)
            case "quark":
                return _quark(raw, ignored)
            case "":
                problems.append(
                    Diagnosis(
                        path=f"{path}.quant_method",
                        code="MissingField",
                        message="is missing; write the method as in config.json (fp8, awq, ...).",
                    )
                )
            case _:
                known = (
                    "fp8",
                    "fbgemm_fp8",
                    "compressed-tensors",
                    "awq",
                    "gptq",
                    "mxfp4",
                    "mxfp8",
                    "bitsandbytes",
                    "modelopt",
                    "modelopt_fp4",
                    "quark",
                    "auto-round",
                )
                problems.append(
                    Diagnosis(
                        path=f"{path}.quant_method",
                        code="UnknownQuantization",
                        message=f"{shown(method)} is not known here; its bytes a weight cannot be told."
                        f"{did_you_mean(method, known) or ' Known: ' + ', '.join(known) + '.'}",
                    )
                )
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
        problems.append(Diagnosis(path=path, code="InvalidValue", message=f"is not in the form of {method} checkpoints ({error})."))
    return None


def _texts(raw: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    found: list[str] = []
    for source in (raw, raw.get("quantization") or {}):
        for name in names:
            value = source.get(name) if isinstance(source, Mapping) else None
            if isinstance(value, list | tuple):
                found += [str(item) for item in value]
    return tuple(dict.fromkeys(found))


def _positive(*values: Any) -> tuple[int, ...]:
    sizes = tuple(int(value) for value in values)
    if any(size < 1 for size in sizes):
        raise ValueError(f"sizes {', '.join(map(str, sizes))} are not all positive")
    return sizes


def _fp8(raw: Mapping[str, Any], ignored: tuple[str, ...]) -> Quantization:
    block = raw.get("weight_block_size")
    if block is None:
        return Quantization(method="fp8", weight_bits=8, form="tensor", ignored=ignored)
    block_out, block_in = _positive(*block)
    return Quantization(method="fp8", weight_bits=8, form="block", block_out=block_out, block_in=block_in, ignored=ignored)


def _grouped_integer(raw: Mapping[str, Any], method: str, ignored: tuple[str, ...]) -> Quantization:
    bits = _positive(raw.get("bits") or raw.get("w_bit") or 4)[0]
    group = int(raw.get("group_size") or raw.get("q_group_size") or 128)
    asymmetric = bool(raw.get("zero_point", not raw.get("sym", True)))
    return Quantization(
        method=method,
        weight_bits=bits,
        form="group" if group > 0 else "channel",
        group_size=max(group, 0),
        scale_bytes=2,
        zero_point_bits=bits if asymmetric or method.startswith("gptq") else 0,
        quantizes_lm_head=bool(raw.get("lm_head", False)),
        ignored=ignored,
    )


def _compressed_tensors(raw: Mapping[str, Any], ignored: tuple[str, ...]) -> Quantization:
    groups = raw.get("config_groups") or {}
    if not groups:
        raise ValueError("config_groups is missing")
    weights = next(iter(groups.values()))["weights"]
    bits = _positive(weights.get("num_bits", 8))[0]
    strategy = str(weights.get("strategy") or ("group" if weights.get("group_size") else "tensor"))
    asymmetric = not weights.get("symmetric", True)
    experts_only = not any(
        "Linear" in str(target) for group in groups.values() for target in group.get("targets") or ["Linear"]
    ) and all("expert" in str(target) for group in groups.values() for target in group.get("targets") or ["Linear"])
    common = {"method": "compressed-tensors", "weight_bits": bits, "ignored": ignored, "experts_only": experts_only}
    if strategy == "block":
        block_out, block_in = _positive(*(weights.get("block_structure") or (128, 128)))
        return Quantization(form="block", block_out=block_out, block_in=block_in, **common)
    if strategy in ("group", "tensor_group"):
        group = _positive(weights.get("group_size") or (16 if strategy == "tensor_group" else 128))[0]
        floating = weights.get("type") == "float"
        return Quantization(
            form="group",
            group_size=group,
            scale_bytes=1 if floating and bits == 4 else 2,
            zero_point_bits=bits if asymmetric else 0,
            **common,
        )
    if strategy == "channel":
        return Quantization(form="channel", scale_bytes=4, **common)
    return Quantization(form="tensor", **common)


def _modelopt_method(raw: Mapping[str, Any]) -> str | None:
    inner = raw.get("quantization")
    return "modelopt" if isinstance(inner, Mapping) and inner.get("quant_algo") else None


def _modelopt(raw: Mapping[str, Any], method: str, ignored: tuple[str, ...]) -> Quantization:
    nested = raw.get("quantization")
    inner: Mapping[str, Any] = nested if isinstance(nested, Mapping) else raw
    algorithm = str(inner.get("quant_algo") or ("NVFP4" if method in ("modelopt_fp4", "nvfp4") else "FP8")).upper()
    if algorithm == "FP8":
        return Quantization(method="modelopt", weight_bits=8, form="tensor", ignored=ignored)
    if algorithm == "FP8_PER_CHANNEL_PER_TOKEN":
        return Quantization(method="modelopt", weight_bits=8, form="channel", ignored=ignored)
    if algorithm == "FP8_PB_WO":
        return Quantization(method="modelopt", weight_bits=8, form="block", block_out=128, block_in=128, ignored=ignored)
    if algorithm in ("NVFP4", "W4A16_NVFP4"):
        return Quantization(
            method="modelopt_fp4",
            weight_bits=4,
            form="group",
            group_size=_positive(inner.get("group_size") or 16)[0],
            scale_bytes=1,
            ignored=ignored,
        )
    if algorithm == "MXFP8":
        return Quantization(method="modelopt_mxfp8", weight_bits=8, form="group", group_size=32, scale_bytes=1, ignored=ignored)
    raise ValueError(f"quant_algo {algorithm} is not known here")


def _quark(raw: Mapping[str, Any], ignored: tuple[str, ...]) -> Quantization:
    weight = (raw.get("global_quant_config") or {}).get("weight") or {}
    if isinstance(weight, list):
        weight = weight[0]
    dtype = str(weight.get("dtype", ""))
    excluded = tuple(str(item) for item in raw.get("exclude") or ()) + ignored
    scheme = str(weight.get("qscheme", "per_tensor"))
    if dtype in ("fp4", "mx"):
        return Quantization(
            method="quark",
            weight_bits=4,
            form="group",
            group_size=_positive(weight.get("group_size") or 32)[0],
            scale_bytes=1,
            ignored=excluded,
        )
    if dtype.startswith("fp8") or dtype == "int8":
        return Quantization(
            method="quark", weight_bits=8, form="channel" if scheme == "per_channel" else "tensor", ignored=excluded
        )
    if dtype in ("int4", "uint4"):
        return Quantization(
            method="quark",
            weight_bits=4,
            form="group",
            group_size=_positive(weight.get("group_size") or 128)[0],
            scale_bytes=2,
            zero_point_bits=4 if dtype == "uint4" else 0,
            ignored=excluded,
        )
    raise ValueError(f"weight dtype {dtype or 'missing'} is not known here")
