"""Weight quantisation as vLLM's --quantization names it, and what a weight matrix costs in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import Literal

from infra.diagnosis import did_you_mean, shown

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}

Form = Literal["tensor", "channel", "block", "group"]


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """How linear weights are stored.

    `method` is vLLM's name. `weight_bits` is the payload; scales of `scale_bytes` each come by `form`: one a tensor, one an output
    channel, one a block of `block_out` x `block_in`, or one for `group_size` inputs of an output (`zero_point_bits` with each).
    `experts_only`: only the routed experts (gpt-oss). `ignored` are the checkpoint's patterns of modules left in its dtype;
    `lm_head` and embeddings are left unless `quantizes_lm_head`. `online`: a full-precision checkpoint quantised while it is
    loaded.
    """

    method: str
    weight_bits: float
    form: Form
    scale_bytes: float = 4
    group_size: int = 0
    block_out: int = 0
    block_in: int = 0
    zero_point_bits: float = 0
    experts_only: bool = False
    quantizes_lm_head: bool = False
    ignored: tuple[str, ...] = ()
    online: bool = False

    @property
    def name(self) -> str:
        """The short form for people: `fp8 (128x128 blocks)`."""
        if self.form == "block":
            return f"{self.method} ({self.block_out}x{self.block_in} blocks)"
        return f"{self.method} (groups of {self.group_size})" if self.form == "group" and self.group_size > 0 else self.method

    @cached_property
    def names_layers(self) -> bool:
        """True where `ignored` singles out layers by number."""
        return any(re.search(r"\d", text) for text in self.ignored)

    @cached_property
    def _patterns(self) -> tuple[frozenset[str], tuple[re.Pattern[str], ...], tuple[str, ...], tuple[str, ...]]:
        exact, regexes, globs, parts = set(), [], [], []
        for text in self.ignored:
            if text.startswith("re:"):
                try:
                    regexes.append(re.compile(text[3:]))
                except re.error:
                    continue
            elif "*" in text:
                globs.append(text)
            elif ".layers." in text:
                exact.add(text.removeprefix("model.language_model.").removeprefix("language_model.model.").removeprefix("model."))
            else:
                parts.append(text)
        return frozenset(exact), tuple(regexes), tuple(globs), tuple(parts)

    def ignores(self, module: str) -> bool:
        """True where the module (`model.layers.0.self_attn.q_proj`, the checkpoint's name) stays in the checkpoint's dtype."""
        exact, regexes, globs, parts = self._patterns
        if any(
            prefix in exact for prefix in accumulate(module.removeprefix("model.").split("."), lambda path, name: f"{path}.{name}")
        ):
            return True
        dotted = f".{module}."
        return (
            any(f".{part.strip('.')}." in dotted for part in parts)
            or any(pattern.match(module) for pattern in regexes)
            or any(fnmatchcase(module, glob) or fnmatchcase(module, glob + ".*") for glob in globs)
        )

    def matrix_bytes(self, out_features: int, in_features: int) -> int:
        """Bytes of one weight matrix of this size, scales included."""
        weights = out_features * in_features * self.weight_bits / 8
        if self.form == "tensor":
            scales = self.scale_bytes
        elif self.form == "channel":
            scales = out_features * self.scale_bytes
        elif self.form == "block":
            scales = ceil(out_features / self.block_out) * ceil(in_features / self.block_in) * self.scale_bytes
        else:
            groups = ceil(in_features / self.group_size) if self.group_size > 0 else 1
            scales = out_features * groups * (self.scale_bytes + self.zero_point_bits / 8)
        return ceil(weights + scales)


_FP8_TENSOR = Quantization(method="fp8", weight_bits=8, form="tensor", online=True)

_ONLINE: dict[str, Quantization] = {
    "fp8": _FP8_TENSOR,
    "fp8_per_tensor": _FP8_TENSOR,
    "fp8_per_block": Quantization(method="fp8", weight_bits=8, form="block", block_out=128, block_in=128, online=True),
    "fp8_per_channel": Quantization(method="fp8", weight_bits=8, form="channel", online=True),
    "mxfp8": Quantization(method="mxfp8", weight_bits=8, form="group", group_size=32, scale_bytes=1, online=True),
    "mxfp4": Quantization(method="mxfp4", weight_bits=4, form="group", group_size=32, scale_bytes=1, online=True),
    "experts_int8": Quantization(method="experts_int8", weight_bits=8, form="channel", experts_only=True, online=True),
    "int8_per_channel_weight_only": Quantization(method="int8", weight_bits=8, form="channel", experts_only=True, online=True),
    "nvfp4_per_token": Quantization(
        method="nvfp4", weight_bits=4, form="group", group_size=16, scale_bytes=1, experts_only=True, online=True
    ),
}
NEEDS_QUANTIZED_CHECKPOINT = frozenset(
    {
        "awq", "awq_marlin", "auto_awq", "gptq", "gptq_marlin", "auto_gptq", "compressed-tensors", "modelopt", "modelopt_fp4", "modelopt_mxfp8",
        "modelopt_mixed", "quark", "torchao", "inc", "moe_wna16", "gpt_oss_mxfp4", "humming", "fbgemm_fp8", "deepseek_v4_fp8",
    }
)  # fmt: skip
UNQUANTIZED_NAMES = frozenset({"none", "bf16", "bfloat16", "fp16", "float16", "auto"})


def quantization_named(name: str) -> Quantization | None:
    """What --quantization NAME does to a full-precision checkpoint; ValueError where it needs a quantised one or vLLM has no such
    method."""
    key = name.lower()
    if key in UNQUANTIZED_NAMES:
        return None
    if key in _ONLINE:
        return _ONLINE[key]
    if key in NEEDS_QUANTIZED_CHECKPOINT:
        raise ValueError(
            f"{name} needs a checkpoint that is quantised so (quantization_config in its config.json); name that model instead"
        )
    raise ValueError(f"{shown(name)} is no quantisation of vLLM 0.33.{did_you_mean(name, [*_ONLINE, *NEEDS_QUANTIZED_CHECKPOINT])}")
