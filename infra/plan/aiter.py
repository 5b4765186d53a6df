"""AITER, AMD's kernels for vLLM: off by vLLM's own default, and what to know about it by class of model."""

from __future__ import annotations

from collections.abc import Mapping

from infra.catalog.engine_releases import EngineRelease
from infra.catalog.types import Accelerator
from infra.plan.architecture.types import Architecture

SWITCH = "VLLM_ROCM_USE_AITER"
ARCHITECTURES = ("gfx942", "gfx950")  # what AITER is built for


def uses_aiter(env: Mapping[str, str]) -> bool:
    """True where the stack file turns it on; vLLM reads true and 1."""
    return env.get(SWITCH, "").lower() in ("1", "true")


def aiter_reasons(
    architecture: Architecture, accelerator: Accelerator, release: EngineRelease, env: Mapping[str, str]
) -> tuple[str, ...]:
    """Whether AITER is on and why, for a device that it is built for; docs/decisions/0007-aiter-stays-off.md has the sources."""
    if accelerator.architecture not in ARCHITECTURES or SWITCH not in release.variables:
        return ()
    if SWITCH in env:
        return (f"AITER {'on' if uses_aiter(env) else 'off'}: {SWITCH} is given.",)
    if architecture.is_mla:
        why = "its latent attention was fast, but wrong in several releases: compare answers before you turn it on"
    elif architecture.is_moe:
        why = "its fused experts are what makes it worth it, 1.7 times and more in public measurements with FP8: measure, and compare answers"
    else:
        why = "for a dense model it changes little"
    return (f"AITER off, vLLM's default: {why} (env: {{{SWITCH}: '1'}}).",)
