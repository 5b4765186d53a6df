"""A memory estimate as a table that is read at a glance."""

from __future__ import annotations

from infra.diagnosis import Diagnosis
from infra.plan.memory.reasons import memory_reasons
from infra.plan.memory.types import MemoryEstimate
from infra.units import GIB, KIB

BAR_WIDTH = 40
_VERDICTS = {"fits": "FITS", "marginal": "MARGINAL", "refused": "DOES NOT FIT"}


def fit_as_text(estimate: MemoryEstimate, size_reasons: tuple[str, ...], warnings: tuple[Diagnosis, ...] = ()) -> str:
    """Verdict, bars of where a GPU's memory goes, what the cache holds, and the reasons."""
    sizes, reasons = estimate.sizes, memory_reasons(estimate)
    size = f"tensor parallel {sizes.tensor_parallel_size} x pipeline parallel {sizes.pipeline_parallel_size}"
    version = estimate.vllm_version
    lines = [
        f"{estimate.architecture.name} on {estimate.accelerator.id}, {size}, vLLM {version}",
        "",
        f"  {_VERDICTS[estimate.verdict]}  {reasons[0].split(': ', 1)[1]}",
        "",
        *_bars(estimate),
        "",
        *_capacity(estimate),
        "",
        *(f"  - {reason}" for reason in (*reasons[1:], *size_reasons)),
        *(f"warning: {warning}" for warning in warnings),
    ]
    return "\n".join(lines)


def _bars(estimate: MemoryEstimate) -> list[str]:
    stage = estimate.fullest
    parts = [
        ("weights", stage.weights.expected),
        ("activations", stage.activation.peak.expected),
        ("outside torch", stage.communication.expected),
        ("graphs", stage.graphs.expected),
        ("KV cache", max(0.0, estimate.available.expected)),
        ("beside the budget", estimate.total_bytes - estimate.requested.expected),
    ]
    lines = [
        f"  of {estimate.total_bytes / GIB:.2f} GiB a GPU{'' if estimate.sizes.gpus == 1 else ', on the fullest rank'}        GiB"
    ]
    for name, size in parts:
        bar = "#" * min(BAR_WIDTH, round(BAR_WIDTH * max(0.0, size) / estimate.total_bytes))
        lines.append(f"  {name:<20}{size / GIB:>9.2f}  {bar}".rstrip())
    missing = -estimate.available.expected
    if missing > 0:
        lines.append(
            f"  {'missing':<20}{missing / GIB:>9.2f}  {'!' * min(BAR_WIDTH, max(1, round(BAR_WIDTH * missing / estimate.total_bytes)))}"
        )
    return lines


def _capacity(estimate: MemoryEstimate) -> list[str]:
    available, tokens, concurrency = estimate.available, estimate.tokens, estimate.concurrency
    heading = f"  {'':<20}{'low':>12}{'expected':>12}{'high':>12}"
    rows = [
        ("KV cache, GiB", *(f"{value / GIB:.2f}" for value in (available.low, available.expected, available.high))),
        ("tokens", *(f"{value:,}" for value in (tokens.low, tokens.expected, tokens.high))),
        (f"x {estimate.max_model_len:,}", *(f"{value:.2f}" for value in (concurrency.low, concurrency.expected, concurrency.high))),
    ]
    return [
        heading,
        *(f"  {name:<20}{low:>12}{expected:>12}{high:>12}" for name, low, expected, high in rows),
        "",
        f"  largest max_model_len {estimate.largest_max_model_len:,}; {estimate.kv_bytes_per_token / KIB:g} KiB a token and GPU",
    ]
