"""The startup budget of a pod, and the deadlines above it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from infra.errors import PlanError
from infra.plan.startup import startup_budget


def test_the_startup_budget_covers_loading_with_its_margin() -> None:
    start = startup_budget(140_000_000_000, storage_bytes_per_second=200_000_000)
    assert start.load_seconds == 700
    assert start.budget_seconds == 1350  # 700 x 1.5 + 300
    assert start.budget_seconds >= 1050
    assert start.budget_seconds < start.progress_deadline_seconds < start.update_timeout_seconds


@pytest.mark.parametrize("speed", [50e6, 200e6, 1e9, 12e9])
@pytest.mark.parametrize("weights", [10**9, 16 * 10**9, 140 * 10**9, 700 * 10**9])
def test_deadlines_are_in_order_at_any_speed(weights: int, speed: float) -> None:
    start = startup_budget(weights, storage_bytes_per_second=speed, replicas=5, replicas_at_a_time=2)
    assert start.budget_seconds >= Fraction(3, 2) * start.load_seconds
    assert start.progress_deadline_seconds > start.budget_seconds
    assert start.progress_deadline_seconds + 30 <= start.create_timeout_seconds < start.progress_deadline_seconds + 90
    assert start.update_timeout_seconds >= 3 * start.progress_deadline_seconds


def test_an_unmeasured_storage_is_said_to_be_so() -> None:
    start = startup_budget(140_000_000_000)
    assert start.load_seconds == 700 and "not stated" in start.reasons[0]


def test_a_progress_deadline_below_the_budget_is_an_error() -> None:
    with pytest.raises(
        PlanError, match=r"models\[1\].progressDeadlineSeconds: 600 s is not above the startup budget of 1800 s"
    ) as error:
        startup_budget(10**9, budget_seconds=1800, progress_deadline_seconds=600, path="models[1]")
    assert [problem.code for problem in error.value.problems] == ["DeadlineBelowBudget"]


@pytest.mark.parametrize(
    ("gb", "load", "budget", "deadline", "create"),
    [
        (0, 0, 300, 900, 960),  # nothing to load: the engine's own start, and the image's pull
        (20, 100, 450, 1080, 1140),
        (22, 110, 480, 1080, 1140),  # 165 and 300 s, in half minutes
        (40, 200, 600, 1200, 1260),
        (40.2, 201, 630, 1260, 1320),
    ],
)
def test_deadlines_at_200_mb_a_second(gb: float, load: int, budget: int, deadline: int, create: int) -> None:
    start = startup_budget(round(gb * 1e9))
    assert (start.load_seconds, start.budget_seconds, start.progress_deadline_seconds, start.create_timeout_seconds) == (
        load, budget, deadline, create,
    )  # fmt: skip


def test_loading_takes_whole_seconds_and_half_as_much_again() -> None:
    assert startup_budget(200_000_001).load_seconds == 2 and startup_budget(200_000_000).load_seconds == 1
    assert startup_budget(10**9, storage_bytes_per_second=10**9).reasons[0] == (
        "startup budget 330 s: loading 1 GB at 1 GB/s takes 1 s, x 1.5, and 300 s for compilation and graph capture."
    )


@pytest.mark.parametrize(
    ("replicas", "at_a_time", "waves", "update"), [(1, 1, "1 wave of 1", 1020), (3, 1, "3 waves of 1", 3060), (3, 2, "2 waves of 2", 2040), (4, 2, "2 waves of 2", 2040), (2, 0, "2 waves of 0", 2040), (0, 1, "0 waves", 0)]
)  # fmt: skip
def test_an_update_waits_for_each_wave(replicas: int, at_a_time: int, waves: str, update: int) -> None:
    start = startup_budget(0, replicas=replicas, replicas_at_a_time=at_a_time)
    assert start.update_timeout_seconds == update and waves in start.reasons[-1]


def test_one_replica_at_a_time_is_what_nothing_said_means() -> None:
    assert startup_budget(0).update_timeout_seconds == 1020
    assert startup_budget(0, replicas=2).update_timeout_seconds == 2040


def test_what_is_given_is_kept_and_said() -> None:
    start = startup_budget(10**9, budget_seconds=1000, progress_deadline_seconds=1001)
    assert (start.budget_seconds, start.progress_deadline_seconds, start.create_timeout_seconds) == (1000, 1001, 1080)
    assert start.update_timeout_seconds == 1140
    bounds = [startup_budget(0, budget_seconds=1, progress_deadline_seconds=seconds) for seconds in (1050, 1051, 1080, 1081)]
    assert [bound.create_timeout_seconds for bound in bounds] == [1080, 1140, 1140, 1140]
    assert [bound.update_timeout_seconds for bound in bounds] == [1200, 1200, 1200, 1260]
    assert start.reasons[0].startswith("startup budget 1000 s: given; loading 1 GB at 0.2 GB/s (not stated")
    assert start.reasons[1] == "progressDeadlineSeconds 1001: given, above the startup budget."
    with pytest.raises(PlanError, match=r"progressDeadlineSeconds: 1000 s is not above the startup budget of 1000 s.* Use 1620"):
        startup_budget(10**9, budget_seconds=1000, progress_deadline_seconds=1000)
    assert startup_budget(10**9, budget_seconds=1000).reasons[1] == (
        "progressDeadlineSeconds 1620: the startup budget and 600 s to schedule and pull the image."
    )
