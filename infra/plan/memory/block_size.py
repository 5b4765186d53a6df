"""Tokens a block of the KV cache: the device's default, and what the attention backends take."""

from __future__ import annotations

from infra.catalog.types import Accelerator
from infra.diagnosis import Diagnosis
from infra.offers import Offer
from infra.plan.architecture.types import Architecture

# by max_model_len: AITER's unified attention prefers 64, short contexts waste less with 16
AMD_BLOCK_SIZES = ((32_768, 16), (65_536, 32), (None, 64))
BLOCK_STEP = 16


def default_block_size(architecture: Architecture, accelerator: Accelerator, max_model_len: int) -> int:
    """Tokens a block where none are given: 16 on NVIDIA (64 for MLA's kernels), on AMD 16, 32 or 64 by context."""
    if accelerator.vendor == "nvidia":
        return 64 if architecture.is_mla else 16
    return next(size for limit, size in AMD_BLOCK_SIZES if limit is None or max_model_len <= limit)


def stated_block_size(accelerator: Accelerator, *, given: int | None, expected: int, aiter: bool = False) -> int | None:
    """What the server is told with --block-size; None where its attention backend chooses. `expected` is the estimate's.

    A stated size rules out every backend that does not take it, and vLLM warns where one of those would have been the better: on NVIDIA
    only what is given is stated. On AMD the size follows the context; vLLM's own backends there take multiples of 16,
    AITER's flash attention 16 and 32 alone: with `aiter` its backend chooses.
    Source: vLLM 0.33.0, platforms/cuda.py and the backends' supported kernel block sizes.
    """
    return expected if given is None and accelerator.vendor == "amd" and not aiter else given


def block_size_refusal(architecture: Architecture, accelerator: Accelerator, block_size: int) -> Diagnosis | None:
    """Why no attention backend takes this block size, with the nearest that one does; None where it works.

    Source: the backends' supported kernel block sizes in vLLM 0.33.0: multiples of 16; AITER's MLA takes any.
    """
    if block_size % BLOCK_STEP == 0 or (architecture.is_mla and accelerator.vendor == "amd"):
        return None
    near = max(BLOCK_STEP, round(block_size / BLOCK_STEP) * BLOCK_STEP)
    return Diagnosis(
        path="blockSize",
        code="BlockSize",
        message=f"is {block_size}; the attention backends take multiples of {BLOCK_STEP}",
        offers=(Offer.of(f"use {near}", ("model.blockSize", near)),),
    )
