"""How long a vLLM pod may take to serve, and the deadlines above that."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from infra.diagnosis import Diagnosis
from infra.errors import PlanError
from infra.offers import Offer


@dataclass(frozen=True, kw_only=True)
class StartupBudget:
    """Seconds: the startup probe allows `budget_seconds`; the Deployment's `progress_deadline_seconds` is above it, the engine's
    timeouts above that."""

    load_seconds: int
    budget_seconds: int
    progress_deadline_seconds: int
    create_timeout_seconds: int
    update_timeout_seconds: int
    reasons: tuple[str, ...]


DEFAULT_STORAGE_BYTES_PER_SECOND = 200_000_000  # a network file system that nobody measured
LOAD_MARGIN = Fraction(3, 2)
ENGINE_START_SECONDS = 300  # imports, process groups, torch.compile without a cache, graph capture
IMAGE_PULL_SECONDS = 600  # a vLLM image has 8 to 12 GB compressed
GRACE_SECONDS = 120
ANSWER_SECONDS = 30  # from the controller's last word on a Deployment until the engine has seen it


def startup_budget(
    weights_bytes: int,
    *,
    storage_bytes_per_second: float | None = None,
    replicas: int = 1,
    replicas_at_a_time: int = 1,
    budget_seconds: int | None = None,
    progress_deadline_seconds: int | None = None,
    path: str = "",
) -> StartupBudget:
    """How long a pod may take to serve, and the two deadlines above.

    `weights_bytes` is what a pod reads, `storage_bytes_per_second` what one pod gets of the storage (None: not measured).
    `replicas` over `replicas_at_a_time` are the waves of an update. PlanError where the user's own numbers contradict each other.
    """
    speed = storage_bytes_per_second or DEFAULT_STORAGE_BYTES_PER_SECOND
    load = ceil(weights_bytes / speed)
    measured = "" if storage_bytes_per_second else " (not stated: taken for a network file system)"
    needed = ceil(load * LOAD_MARGIN) + ENGINE_START_SECONDS
    decided = budget_seconds if budget_seconds is not None else _round_up(needed, 30)
    reasons = [
        f"startup budget {decided} s: "
        + (
            f"given; loading {weights_bytes / 1e9:.0f} GB at {speed / 1e9:g} GB/s{measured} takes {load} s."
            if budget_seconds is not None
            else f"loading {weights_bytes / 1e9:.0f} GB at {speed / 1e9:g} GB/s{measured} takes {load} s, x {float(LOAD_MARGIN):g},"
            f" and {ENGINE_START_SECONDS} s for compilation and graph capture."
        )
    ]
    deadline = progress_deadline_seconds if progress_deadline_seconds is not None else _round_up(decided + IMAGE_PULL_SECONDS, 60)
    if deadline <= decided:
        enough = _round_up(decided + IMAGE_PULL_SECONDS, 60)
        raise PlanError(
            [
                Diagnosis(
                    path=f"{path}.progressDeadlineSeconds" if path else "progressDeadlineSeconds",
                    code="DeadlineBelowBudget",
                    message=f"{deadline} s is not above the startup budget of {decided} s: the Deployment would be given up while the model loads",
                    offers=(Offer.of(f"use {enough}", ("model.progressDeadlineSeconds", enough)),),
                )
            ]
        )
    waves = ceil(replicas / max(1, replicas_at_a_time))
    # New replicas all start at once, and no old pod has to end before them.
    create = _round_up(deadline + ANSWER_SECONDS, 60)
    timeout = _round_up(waves * (deadline + GRACE_SECONDS), 60)
    reasons.append(
        f"progressDeadlineSeconds {deadline}: "
        + (
            "given, above the startup budget."
            if progress_deadline_seconds is not None
            else f"the startup budget and {IMAGE_PULL_SECONDS} s to schedule and pull the image."
        )
    )
    reasons.append(
        f"create timeout {create} s: all replicas start at once; update timeout {timeout} s: {waves} {'wave' if waves == 1 else 'waves'} of {replicas_at_a_time}, each the progress deadline and {GRACE_SECONDS} s to end the old pod."
    )
    return StartupBudget(
        load_seconds=load,
        budget_seconds=decided,
        progress_deadline_seconds=deadline,
        create_timeout_seconds=create,
        update_timeout_seconds=timeout,
        reasons=tuple(reasons),
    )


def _round_up(seconds: int, step: int) -> int:
    return -(-seconds // step) * step
