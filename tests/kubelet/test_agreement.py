"""The simulator against recorded answers of the kubelet's own code (v1.37.2); `make record` records them."""

from __future__ import annotations

import pytest

from infra.kubelet import simulate_case
from tests.kubelet.agreement import RECORDED, agrees, behaviours, corners, outcome, recorded, recorded_answers

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


# The rest of the others in the soak.
@pytest.mark.parametrize(
    ("kind", "every"), [("ordinary", 3), ("odd", 2), ("mutated", 2), ("crowded", 1), ("pinned", 1), ("field", 1)]
)
def test_sample_of_recorded_cases(kind: str, every: int) -> None:
    _compare(kind, recorded(kind, every=every))


def test_every_field_of_the_table_is_recorded() -> None:
    seeds = {seed for seed, _, _ in recorded_answers()["field"]}
    missing = sorted({seed.split("/")[0] for seed in RECORDED["field"] if seed not in seeds})
    assert missing == [], "ask the kubelet about these fields: run `make record`"


@pytest.mark.soak
@pytest.mark.parametrize("kind", RECORDED)
def test_all_recorded_cases(kind: str) -> None:
    _compare(kind, recorded(kind))


def _compare(kind: str, cases: list) -> None:
    assert len(cases) >= len(RECORDED[kind]) // 6
    differing = []
    for case, answers in cases:
        result = simulate_case(case)
        if not agrees(case, result, answers):
            differing.append((case["id"], answers[0], outcome(case, result), result.get("config_errors"), result.get("error")))
    assert differing == [], f"{len(differing)} of {len(cases)} cases differ"


def test_recording_covers_starts_refusals_and_every_reason() -> None:
    seen: set[str] = set()
    for kind in RECORDED:
        for _, _, answers in recorded_answers()[kind]:
            for entry in answers[0]:
                if isinstance(entry, str):
                    seen.add(entry)
                elif isinstance(entry, list):
                    seen.add("admitted" if isinstance(entry[1], list) else entry[1])
                else:
                    seen.update(name for name, value in entry.items() if value)
    assert {
        *("refuses to start", "admitted", "TopologyAffinityError", "UnexpectedAdmissionError", "SMTAlignmentError", "InvalidPod"),
        *("preempted", "pod_cpus", "reserved_cpus"),
        *("EmptyPodSharedPoolError", "OutOfcpu", "OutOfmemory", "OutOfpods", "KubeletPanic", "OutOfhugepages-1Gi"),
        *(
            f"refuses at {stage}"
            for stage in ("load", "validate", "kubeReserved", "evictionHard", "topologymanager", "cpumanager", "memorymanager")
        ),
    } <= seen
