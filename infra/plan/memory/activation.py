"""The activation peak of vLLM's profile run: the largest of its phases, which follow one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infra.plan.architecture.partition import ParallelSizes
from infra.plan.architecture.quantization import DTYPE_BYTES
from infra.plan.architecture.types import Architecture
from infra.plan.memory.options import ProfileRun
from infra.plan.memory.profile import EngineMemory
from infra.plan.memory.span import NOTHING, Span

FUSED_MOE_CHUNK = 32_768  # vLLM's VLLM_FUSED_MOE_CHUNK_SIZE: experts never see more tokens at once

Phase = Literal["layers", "sampler", "vision encoder"]


@dataclass(frozen=True, kw_only=True)
class ActivationPeak:
    """Bytes of the peak on one rank, and the phase that reaches it.

    `layers`: the largest batch through the widest layer. `sampler`: the logits of max_num_seqs sequences over the whole vocabulary
    (gathered, so not divided by tensor parallel), beside the hidden states of the batch. `vision`: the largest image through the
    encoder.
    """

    peak: Span
    phase: Phase
    layers: Span
    sampler: Span
    vision: Span


def profile_tokens(engine: EngineMemory, architecture: Architecture, max_num_batched_tokens: int, max_model_len: int) -> int:
    """Tokens of the profile run: V0 without chunked prefill ran max_model_len in one piece, V1 always max_num_batched_tokens."""
    if engine.engine == "V0" and (max_model_len <= engine.whole_prompt_up_to or architecture.is_mla):
        return max(max_num_batched_tokens, max_model_len)
    return max_num_batched_tokens


def activation_peak(
    engine: EngineMemory,
    architecture: Architecture,
    sizes: ParallelSizes,
    run: ProfileRun,
    *,
    first_stage: bool = True,
    last_stage: bool = True,
) -> ActivationPeak:
    """The peak of one rank in the profile run; only the last pipeline stage samples, only the first sees images."""
    dtype_bytes = DTYPE_BYTES[run.dtype]
    hidden_states = run.tokens * architecture.hidden * dtype_bytes
    layers = engine.hidden_copies.scaled(hidden_states) + Span.exact(dtype_bytes * _mlp_values(architecture, run.tokens, sizes))
    sampler = vision = NOTHING
    if last_stage:
        logits = min(run.sequences, run.tokens) * architecture.vocab
        sampler = (engine.sampler_bytes + Span.exact(dtype_bytes)).scaled(logits) + Span.exact(hidden_states)
    if first_stage and architecture.vision is not None:
        vision = _vision(engine, architecture, sizes.tensor_parallel_size, dtype_bytes)
    peak = Span.maximum(layers, sampler, vision)
    phases: dict[Phase, float] = {"layers": layers.expected, "sampler": sampler.expected, "vision encoder": vision.expected}
    return ActivationPeak(
        peak=peak, phase=max(phases, key=lambda phase: phases[phase]), layers=layers, sampler=sampler, vision=vision
    )


def _mlp_values(architecture: Architecture, tokens: int, sizes: ParallelSizes) -> int:
    """Values that the widest MLP of the rank keeps at once: gate and up, and their product; for experts, one such set a chosen
    expert."""
    tensor_parallel_size = sizes.tensor_parallel_size
    values = [0]
    if "dense" in architecture.mlp:
        values.append(tokens * (3 if architecture.gated_mlp else 2) * _share(architecture.intermediate, tensor_parallel_size))
    moe = architecture.routed_experts
    if moe is not None:
        expert = moe.intermediate if sizes.expert_parallel else _share(moe.intermediate, tensor_parallel_size)
        routed = moe.experts_per_token * (max(2 * expert, architecture.hidden) + expert)
        values.append(min(tokens, FUSED_MOE_CHUNK) * routed + tokens * 3 * _share(moe.shared_intermediate, tensor_parallel_size))
    return max(values)


def _vision(engine: EngineMemory, architecture: Architecture, tensor_parallel_size: int, dtype_bytes: int) -> Span:
    tower = architecture.vision
    assert tower is not None
    patches = engine.vision_patches.get(architecture.model_type.removesuffix("_text"), engine.other_vision_patches)
    split = _share(2 * tower.intermediate + 4 * tower.hidden, tensor_parallel_size)
    return engine.vision_spread.scaled(patches * dtype_bytes * (6 * tower.hidden + split))


def _share(width: int, tensor_parallel_size: int) -> int:
    return -(-width // tensor_parallel_size)
