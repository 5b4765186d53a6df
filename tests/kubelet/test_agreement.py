"""The simulator against recorded answers of the kubelet's own code (v1.37.2); `python -m tests.kubelet.record` records them."""

from __future__ import annotations

import pytest

from infra.kubelet import simulate_case
from tests.kubelet.agreement import RECORDED, agrees, behaviours, corners, outcome, recorded

BEHAVIOURS = behaviours()
CORNERS = corners()


@pytest.mark.parametrize("entry", BEHAVIOURS, ids=[entry["case"]["id"] for entry in BEHAVIOURS])
def test_behaviour_of_the_kubelets_unit_tests(entry: dict) -> None:
    case, answers = entry["case"], entry["answers"]
    assert answers, "the recording has no answer for this case"
    assert agrees(case, simulate_case(case), answers), (answers, outcome(case, simulate_case(case)))


@pytest.mark.parametrize("entry", CORNERS, ids=[entry["case"]["id"] for entry in CORNERS])
def test_corner(entry: dict) -> None:
    case, answers = entry["case"], entry["answers"]
    assert agrees(case, simulate_case(case), answers), (answers, outcome(case, simulate_case(case)))


@pytest.mark.parametrize("kind", RECORDED)
def test_sample_of_recorded_cases(kind: str) -> None:
    """Every fifth recorded case; the rest in the soak."""
    _compare(kind, recorded(kind)[::5])


@pytest.mark.soak
@pytest.mark.parametrize("kind", RECORDED)
def test_all_recorded_cases(kind: str) -> None:
    _compare(kind, recorded(kind))


def _compare(kind: str, cases: list) -> None:
    assert len(cases) >= RECORDED[kind] // 6
    differing = []
    for case, answers in cases:
        result = simulate_case(case)
        if not agrees(case, result, answers):
            differing.append((case["id"], answers[0], outcome(case, result), result.get("config_errors"), result.get("error")))
    assert differing == [], f"{len(differing)} of {len(cases)} cases differ"


def test_recording_covers_starts_refusals_and_every_reason() -> None:
    seen: set[str] = set()
    for kind in RECORDED:
        for _, answers in recorded(kind):
            for entry in answers[0]:
                seen.add("start refused" if entry == "refuses to start" else "admitted" if isinstance(entry[1], list) else entry[1])
    assert {
        *("start refused", "admitted", "TopologyAffinityError", "UnexpectedAdmissionError", "SMTAlignmentError", "InvalidPod"),
        *("EmptyPodSharedPoolError", "OutOfcpu", "OutOfmemory", "OutOfpods", "KubeletPanic", "OutOfhugepages-1Gi"),
    } <= seen
