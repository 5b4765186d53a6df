"""The dtype and the quantisation in effect: the checkpoint's own, or what --dtype and --quantization say."""

from __future__ import annotations

from infra.catalog.load import engine_facts
from infra.diagnosis import Diagnosis, shown
from infra.errors import ConfigError
from infra.plan.architecture.quantization import DTYPE_BYTES, Quantization, quantization_named
from infra.plan.architecture.types import Architecture


def resolve_quantization(architecture: Architecture, name: str | None) -> Quantization | None:
    """The quantisation in effect: the checkpoint's own, or --quantization NAME on a full-precision one; ConfigError on a
    conflict."""
    own = architecture.quantization
    if name is None:
        return own
    if own is not None:
        accepted = engine_facts().quantization_overrides.get(own.method, (own.method,))
        if name.lower() in accepted:
            return own
        raise ConfigError(
            [
                Diagnosis(
                    path="quantization",
                    code="QuantizationMismatch",
                    message=f"is {name}, but {architecture.name} is a checkpoint quantised by {own.method}, and vLLM refuses any other method than"
                    f" {', '.join(accepted)} for it; leave quantization out.",
                )
            ]
        )
    try:
        return quantization_named(name)
    except ValueError as error:
        raise ConfigError([Diagnosis(path="quantization", code="UnknownQuantization", message=f"{error}.")]) from None


def resolve_dtype(architecture: Architecture, name: str | None) -> str:
    """The dtype in effect: --dtype, or with "auto" the checkpoint's (float32 becomes float16, as vLLM does it)."""
    if name is None or name == "auto":
        return "float16" if architecture.dtype in ("float32", "float") else architecture.dtype
    if name not in DTYPE_BYTES:
        raise ConfigError(
            [
                Diagnosis(
                    path="dtype",
                    code="UnknownDtype",
                    message=f"is {shown(name)}; one of auto, {', '.join(DTYPE_BYTES)} is expected.",
                )
            ]
        )
    return name
