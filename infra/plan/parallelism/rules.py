"""Which tensor, pipeline and expert parallel sizes the pinned vLLM accepts for a model, and the rule behind each refusal.

Source: vLLM 0.33.0, config/model.py (verify_with_parallel_config), the attention classes of the models,
model_executor/layers/linear.py, vocab_parallel_embedding.py, fused_moe/config.py and quantization/utils/fp8_utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import ceil

from infra.diagnosis import Diagnosis
from infra.offers import LEFT_OUT, Offer
from infra.plan.architecture.partition import MXFP4_ROUNDING, kv_heads_per_rank, padded_vocabulary, round_up
from infra.plan.architecture.precision import resolve_quantization
from infra.plan.architecture.quantization import Quantization
from infra.plan.architecture.types import Architecture

LARGEST_SIZE = 64
MOST_GPUS = 4096  # no tensor-parallel group is sought beyond


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a size does not work: a stable `rule` name, one sentence with both numbers, and sizes that may do (paths begin at `model` or its `pool`).

    `field` is the key of the model that the refusal points at, where it is not the size's own.
    """

    rule: str
    message: str
    offers: tuple[Offer, ...] = ()
    remedy: str = ""
    field: str = ""

    def at(self, path: str, prefix: str = "") -> Diagnosis:
        """As an error of the stack file."""
        return Diagnosis(path=path, code=self.rule, message=f"{prefix}{self.message}", remedy=self.remedy, offers=self.offers)

    @property
    def sentence(self) -> str:
        return self.at("").sentence


def valid_tensor_parallel_sizes(
    architecture: Architecture,
    quantization: str | None = None,
    max_size: int = 8,
    *,
    expert_parallel: bool = False,
    data_parallel_size: int = 1,
) -> tuple[int, ...]:
    """All tensor parallel sizes up to `max_size` that vLLM accepts, rising; `quantization` is --quantization, not the checkpoint's
    own."""
    chosen = resolve_quantization(architecture, quantization)
    return tuple(
        size for size in range(1, max_size + 1) if not _refusals(architecture, size, chosen, expert_parallel, data_parallel_size)
    )


def tensor_parallel_refusals(
    architecture: Architecture,
    size: int,
    *,
    quantization: str | None = None,
    expert_parallel: bool = False,
    data_parallel_size: int = 1,
) -> tuple[Refusal, ...]:
    """Every rule that this tensor parallel size breaks, with the nearest sizes that break none; () where vLLM accepts it."""
    chosen = resolve_quantization(architecture, quantization)
    found = _refusals(architecture, size, chosen, expert_parallel, data_parallel_size)
    if not found:
        return ()
    offers = tuple(_sizes_beside(architecture, size, quantization, expert_parallel, data_parallel_size))
    return tuple(
        replace(refusal, offers=offers, remedy="" if any(o.words.startswith("use") for o in offers) else "No size works as it is.")
        for refusal in found
    )


def _sizes_beside(
    architecture: Architecture, size: int, quantization: str | None, expert_parallel: bool, data_parallel_size: int
) -> Iterator[Offer]:
    valid = valid_tensor_parallel_sizes(
        architecture,
        quantization,
        max(LARGEST_SIZE, min(size, MOST_GPUS)),
        expert_parallel=expert_parallel,
        data_parallel_size=data_parallel_size,
    )
    below, above = [v for v in valid if v < size], [v for v in valid if v > size]
    yield from (Offer.of(f"use {near}", ("model.tensorParallelSize", near)) for near in (*below[-2:], *above[:1]))
    chosen = resolve_quantization(architecture, quantization)
    if architecture.is_moe and not expert_parallel and not _refusals(architecture, size, chosen, True, data_parallel_size):
        yield Offer.of(f"keep {size} with enableExpertParallel: true", ("model.enableExpertParallel", True))


@cache
def _refusals(
    architecture: Architecture, size: int, quantization: Quantization | None, expert_parallel: bool, data_parallel_size: int
) -> tuple[Refusal, ...]:
    return tuple(
        refusal
        for rule in (_heads, _kv_heads, _state_heads, _vocabulary, _widths)
        for refusal in rule(architecture, size, expert_parallel, data_parallel_size)
    ) + tuple(_quantized_widths(architecture, size, quantization, expert_parallel, data_parallel_size))


def _heads(architecture: Architecture, size: int, *_: object) -> Iterator[Refusal]:
    if architecture.heads % size:
        yield Refusal(
            rule="AttentionHeads",
            message=f"{architecture.name} has {architecture.heads} attention heads, not divisible by {size}",
        )


def _kv_heads(architecture: Architecture, size: int, *_: object) -> Iterator[Refusal]:
    if architecture.is_mla:
        return
    kinds = {kind for kind in architecture.attention if kind in ("full", "sliding", "chunked")}
    for kv_heads in sorted({architecture.kv_heads_of(kind) for kind in kinds}):
        if size <= kv_heads and kv_heads % size:
            yield Refusal(rule="KvHeads", message=f"{architecture.name} has {kv_heads} KV heads, not divisible by {size}")
        elif size > kv_heads and size % kv_heads:
            yield Refusal(
                rule="KvHeads",
                message=f"{architecture.name} has {kv_heads} KV heads; to repeat them, {size} would have to be a multiple of {kv_heads}",
            )


def _state_heads(architecture: Architecture, size: int, *_: object) -> Iterator[Refusal]:
    if architecture.linear is not None:
        for name, heads in (("key", architecture.linear.key_heads), ("value", architecture.linear.value_heads)):
            if heads % size:
                yield Refusal(
                    rule="LinearAttentionHeads",
                    message=f"{architecture.name} has {heads} linear-attention {name} heads, not divisible by {size}",
                )
    mamba = architecture.state_space
    if mamba is not None:
        if mamba.heads % size:
            yield Refusal(rule="MambaHeads", message=f"{architecture.name} has {mamba.heads} Mamba heads, not divisible by {size}")
        if mamba.groups != 1 and mamba.groups % size:
            yield Refusal(
                rule="MambaGroups", message=f"{architecture.name} has {mamba.groups} Mamba groups, not divisible by {size}"
            )


def _vocabulary(architecture: Architecture, size: int, *_: object) -> Iterator[Refusal]:
    padded = padded_vocabulary(architecture.vocab)
    if padded % size:
        yield Refusal(
            rule="Vocabulary",
            message=f"{architecture.name} has {architecture.vocab} tokens, padded to {padded}, not divisible by {size}",
        )


def _widths(architecture: Architecture, size: int, expert_parallel: bool, data_parallel_size: int) -> Iterator[Refusal]:
    if "dense" in architecture.mlp and architecture.intermediate % size:
        yield Refusal(
            rule="MlpWidth", message=f"{architecture.name} has an MLP width of {architecture.intermediate}, not divisible by {size}"
        )
    moe = architecture.routed_experts
    if moe is None:
        return
    ranks = size * data_parallel_size
    if not expert_parallel and moe.intermediate % ranks:
        yield Refusal(
            rule="ExpertWidth", message=f"{architecture.name} has an expert width of {moe.intermediate}, not divisible by {ranks}"
        )
    if moe.shared_intermediate % size:
        yield Refusal(
            rule="SharedExpertWidth",
            message=f"{architecture.name} has a shared expert of width {moe.shared_intermediate}, not divisible by {size}",
        )


def _quantized_widths(
    architecture: Architecture, size: int, quantization: Quantization | None, expert_parallel: bool, data_parallel_size: int
) -> Iterator[Refusal]:
    if quantization is None:
        return
    if quantization.form == "block" and not quantization.online:
        yield from _block_widths(architecture, size, quantization, expert_parallel, data_parallel_size)
    elif quantization.form == "group" and quantization.method != "mxfp4" and not quantization.online:
        yield from _group_widths(architecture, size, quantization, expert_parallel, data_parallel_size)


def _block_widths(
    architecture: Architecture, size: int, quantization: Quantization, expert_parallel: bool, data_parallel_size: int
) -> Iterator[Refusal]:
    """FP8 blocks must not be cut. vLLM's Triton kernel can refine the scales of some checkpoints instead; a plan does not rely on
    one kernel."""
    block = quantization.block_out
    for name, width, ranks in dict.fromkeys(_split_widths(architecture, size, expert_parallel, data_parallel_size)):
        if ranks == 1 and name != "expert width":
            continue
        part = width // ranks
        if width % ranks == 0 and part % block:
            yield Refusal(
                rule="Fp8BlockWidth",
                message=f"{architecture.name} is quantised in FP8 blocks of {block}: its {name} {width} over {ranks} ranks is {part}, "
                f"not a multiple of {block}",
            )


def _group_widths(
    architecture: Architecture, size: int, quantization: Quantization, expert_parallel: bool, data_parallel_size: int
) -> Iterator[Refusal]:
    """The inputs of a row-parallel matrix must be whole quantisation groups on each rank."""
    group = quantization.group_size
    for name, width, ranks in _split_widths(architecture, size, expert_parallel, data_parallel_size):
        if ranks == 1 or name not in ("MLP width", "expert width", "attention output width"):
            continue
        if width % ranks == 0 and (width // ranks) % group:
            yield Refusal(
                rule="QuantizationGroup",
                message=f"{architecture.name} is quantised in groups of {group}: its {name} {width} over {ranks} ranks is {width // ranks}, "
                f"not a multiple of {group}",
            )


def _split_widths(
    architecture: Architecture, size: int, expert_parallel: bool, data_parallel_size: int
) -> Iterator[tuple[str, int, int]]:
    """What tensor parallel cuts: name, whole width, ranks that share it."""
    if "dense" in architecture.mlp:
        yield "MLP width", architecture.intermediate, size
    moe = architecture.routed_experts
    if moe is not None:
        if not expert_parallel:
            yield "expert width", moe.intermediate, size * data_parallel_size
        if moe.shared_intermediate:
            yield "shared expert width", moe.shared_intermediate, size
    if architecture.mla is not None:
        mla = architecture.mla
        yield "query width", architecture.heads * (mla.nope_head_dim + mla.rope_head_dim), size
        yield "attention output width", architecture.heads * mla.v_head_dim, size
        return
    for kind in sorted({kind for kind in architecture.attention if kind in ("full", "sliding", "chunked")}):
        head_dim = architecture.head_dim_of(kind)
        yield "query width", architecture.heads * head_dim * (2 if architecture.output_gate else 1), size
        yield "attention output width", architecture.heads * head_dim, size
        local = kv_heads_per_rank(architecture.kv_heads_of(kind), size) * head_dim
        yield "key width", local * size, size


def pipeline_parallel_refusals(architecture: Architecture, size: int) -> tuple[Refusal, ...]:
    """Why vLLM refuses this pipeline parallel size; an uneven split of the layers is none."""
    refusals = []
    if size > architecture.layers:
        refusals.append(
            Refusal(
                rule="Layers",
                message=f"{architecture.name} has {architecture.layers} layers, fewer than {size} stages",
                offers=tuple(
                    Offer.of(f"use {stages}", ("model.pipelineParallelSize", stages), kind="stages")
                    for stages in (architecture.layers, 16, 8, 4, 2, 1)
                    if stages <= architecture.layers
                ),
            )
        )
    if size > 1 and not architecture.supports_pipeline_parallel:
        refusals.append(
            Refusal(
                rule="PipelineParallelUnsupported",
                message=f"{architecture.class_name} has no pipeline parallel in vLLM, so {size} stages cannot be",
                offers=(Offer.of("use 1", ("model.pipelineParallelSize", 1)),),
                remedy="Tensor parallel splits it.",
            )
        )
    return tuple(refusals)


def expert_parallel_refusal(architecture: Architecture) -> Refusal | None:
    """Expert parallel needs experts."""
    if architecture.is_moe:
        return None
    return Refusal(
        rule="NoExperts",
        message=f"{architecture.name} has 0 experts, and expert parallel spreads experts",
        offers=(Offer.of("leave enableExpertParallel out", ("model.enableExpertParallel", LEFT_OUT)),),
    )


def quantization_warning(
    architecture: Architecture, size: int, *, vendor: str = "nvidia", quantization: str | None = None
) -> str | None:
    """What splitting costs although vLLM accepts it: MXFP4 experts whose width is rounded up on each of several ranks."""
    chosen = resolve_quantization(architecture, quantization)
    moe = architecture.moe
    if size == 1 or chosen is None or chosen.method != "mxfp4" or moe is None:
        return None
    part = ceil(moe.intermediate / size)
    padded = round_up(part, MXFP4_ROUNDING[vendor][0])
    if padded == part:
        return None
    return f"each rank's MXFP4 expert width {part} is rounded up to {padded}: {100 * (padded / part - 1):.0f} % more memory for the experts"
