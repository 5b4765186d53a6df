"""Spoilt kubelet sections and spoilt cases: an answer each, never a traceback."""

from __future__ import annotations

import random
from typing import Any

import pytest

from infra.errors import NumawiseError
from infra.kubelet import KubeletRefuses, Machine, simulate_case
from infra.kubelet.advice import advise
from infra.kubelet.configuration.merge import effective_configuration
from tests.kubelet.generate import generate

_JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "1Gi",
    [],
    [None],
    {},
    {"a": None},
    [[]],
    "\ud800",
)


def _spoilt_sections(first: int, count: int) -> None:
    outcomes = {"refused": 0, "started": 0}
    for seed in range(first, first + count):
        result = simulate_case(generate("mutated", seed))
        assert "error" not in result, (seed, result)
        assert all(isinstance(message, str) and message for message in result["config_errors"])
        outcomes["refused" if result["config_errors"] else "started"] += 1
    assert min(outcomes.values()) > count // 20, outcomes


def _spoilt_cases(first: int, count: int) -> None:
    for seed in range(first, first + count):
        rng = random.Random(seed)
        case = generate("odd", seed)
        for _ in range(rng.choice([1, 1, 2, 4])):
            _spoil(case, rng)
        result = simulate_case(case)
        assert result["config_errors"] or result.get("error") or "node" in result


def _spoil(document: Any, rng: random.Random) -> None:
    """Replaces one value somewhere in the document."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = document[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.75:
            document = inner
            continue
        document[key] = rng.choice(_JUNK)
        return


def test_spoilt_sections_sample() -> None:
    _spoilt_sections(20_000, 500)


@pytest.mark.soak
def test_spoilt_sections() -> None:
    _spoilt_sections(30_000, 10_000)


def test_spoilt_cases_sample() -> None:
    _spoilt_cases(0, 400)


@pytest.mark.soak
def test_spoilt_cases() -> None:
    _spoilt_cases(1000, 10_000)


@pytest.mark.parametrize("seed", range(60))
def test_advice_never_breaks(seed: int) -> None:
    case = generate("mutated", seed)
    try:
        problems = advise(Machine.from_dict(case["machine"]), case["kubelet"], {})
    except (KubeletRefuses, NumawiseError):
        return
    assert all(problem.code and problem.path and problem.message for problem in problems)


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{", "a: [", "\t", "null", "3", "apiVersion: 1", "a: 1\na: 2", "\x00", "&a [*a]", "? {a: b}\n: c"]
)
def test_spoilt_files_are_refused(text: str) -> None:
    with pytest.raises(KubeletRefuses):
        effective_configuration(base=text)
