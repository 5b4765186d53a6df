"""The simulator against recorded answers of the older minors' own kubelet code; `make record` records them.

A minor's recording holds the answers in which it differs from the newest minor; all others are the newest one's.
"""

from __future__ import annotations

import pytest

from infra.kubelet import simulate_case
from infra.kubelet.configuration.versions import SUPPORTED
from tests.kubelet.agreement import agrees, compared_groups, outcome, recorded_of

GROUPS = dict(compared_groups())
OLDER = SUPPORTED[:-1]


@pytest.mark.parametrize("minor", OLDER)
@pytest.mark.parametrize("group", GROUPS)
def test_answers_of_an_older_minor(minor: str, group: str) -> None:
    # Every case in which the minor differs from the newest, and every eighth of the others; all of them in the soak.
    newest = {case["id"]: answers for case, answers in GROUPS[group]}
    cases = recorded_of(minor, group, GROUPS[group])
    _compare([entry for index, entry in enumerate(cases) if index % 8 == 0 or entry[1] != newest[entry[0]["id"]]])


@pytest.mark.soak
@pytest.mark.parametrize("minor", OLDER)
@pytest.mark.parametrize("group", GROUPS)
def test_all_answers_of_an_older_minor(minor: str, group: str) -> None:
    cases = recorded_of(minor, group, GROUPS[group])
    assert len(cases) >= len(GROUPS[group]) * 0.99, "the recording lacks answers"
    _compare(cases)


@pytest.mark.parametrize("minor", OLDER)
def test_a_recording_shows_what_the_minor_does_otherwise(minor: str) -> None:
    differing = {
        case["id"]
        for group in ("corners", "ordinary", "crowded", "pinned", "field")
        for (case, answers), (_, newest) in zip(recorded_of(minor, group, GROUPS[group]), GROUPS[group], strict=False)
        if answers != newest
    }
    assert len(differing) > 20


def _compare(cases: list) -> None:
    differing = []
    for case, answers in cases:
        result = simulate_case(case)
        if not agrees(case, result, answers):
            differing.append((case["id"], answers[0], outcome(case, result), result.get("config_errors"), result.get("error")))
    assert differing == [], f"{len(differing)} of {len(cases)} cases differ"
