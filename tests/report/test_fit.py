"""A memory estimate as a table: of an estimate with round numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.plan.architecture.partition import ParallelSizes
from infra.plan.memory.types import MemoryEstimate
from infra.report.fit_table import fit_as_text
from infra.units import GIB


@pytest.fixture(autouse=True)
def _sentences_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.report.fit_table.memory_reasons", lambda estimate: estimate.reasons)


def span(low: float, expected: float, high: float, unit: int = GIB) -> Any:
    return SimpleNamespace(low=low * unit, expected=expected * unit, high=high * unit)


def estimate(*, cache: float = 20, **more: Any) -> MemoryEstimate:
    """80 GiB, of which the engine may use 72: 40 weights, 6 activations, 2 outside torch, 4 graphs, the rest cache."""
    stage = SimpleNamespace(
        weights=span(40, 40, 40),
        activation=SimpleNamespace(peak=span(5, 6, 7)),
        communication=span(1, 2, 3),
        graphs=span(4, 4, 4),
    )
    facts = {
        "architecture": SimpleNamespace(name="llama"),
        "accelerator": SimpleNamespace(id="h100"),
        "vllm_version": "0.33.0",
        "sizes": ParallelSizes(tensor_parallel_size=2),
        "verdict": "fits",
        "reasons": ("weights: they fit: all.", "cache: 8 tokens.", "more."),
        "fullest": stage,
        "available": span(cache - 1, cache, cache + 1),
        "total_bytes": 80 * GIB,
        "requested": span(72, 72, 72),
        "tokens": span(1000, 2000, 3000, 1),
        "concurrency": span(1, 2, 3, 1),
        "max_model_len": 4096,
        "largest_max_model_len": 131072,
        "kv_bytes_per_token": 1536,
    }
    return cast(MemoryEstimate, SimpleNamespace(**{**facts, **more}))


def test_the_table_has_verdict_bars_capacity_and_reasons() -> None:
    assert fit_as_text(estimate(), ("use tp 4.",)).split("\n") == [
        "llama on h100, tensor parallel 2 x pipeline parallel 1, vLLM 0.33.0",
        "",
        "  FITS  they fit: all.",
        "",
        "  of 80.00 GiB a GPU, on the fullest rank        GiB",
        "  weights                 40.00  ####################",
        "  activations              6.00  ###",
        "  outside torch            2.00  #",
        "  graphs                   4.00  ##",
        "  KV cache                20.00  ##########",
        "  beside the budget        8.00  ####",
        "",
        "                               low    expected        high",
        "  KV cache, GiB              19.00       20.00       21.00",
        "  tokens                     1,000       2,000       3,000",
        "  x 4,096                     1.00        2.00        3.00",
        "",
        "  largest max_model_len 131,072; 1.5 KiB a token and GPU",
        "",
        "  - cache: 8 tokens.",
        "  - more.",
        "  - use tp 4.",
    ]


@pytest.mark.parametrize(("cache", "bar"), [(-30, "!" * 15), (-0.1, "!"), (-0.5 / GIB, "!"), (-100, "!" * 40)])
def test_what_is_missing_has_a_bar_of_its_own(cache: float, bar: str) -> None:
    lines = fit_as_text(estimate(cache=cache, verdict="refused"), ()).split("\n")
    assert lines[2] == "  DOES NOT FIT  they fit: all."
    assert lines[9] == "  KV cache                 0.00"
    assert lines[11] == f"  missing             {-cache:>9.2f}  {bar}"


def test_nothing_is_missing_where_the_cache_is_just_empty() -> None:
    assert not any("missing" in line for line in fit_as_text(estimate(cache=0, verdict="marginal"), ()).split("\n"))


def test_one_gpu_has_no_fullest_rank_and_a_given_version_is_shown() -> None:
    lines = fit_as_text(estimate(sizes=ParallelSizes(), vllm_version="0.19.0"), ()).split("\n")
    assert lines[0].endswith("vLLM 0.19.0")
    assert lines[4] == "  of 80.00 GiB a GPU        GiB"


def test_a_bar_is_never_longer_than_forty_signs() -> None:
    stage = SimpleNamespace(
        weights=span(90, 90, 90), activation=SimpleNamespace(peak=span(0, 0, 0)), communication=span(0, 0, 0), graphs=span(0, -1, 0)
    )
    lines = fit_as_text(estimate(fullest=stage), ()).split("\n")
    assert lines[5] == f"  weights                 90.00  {'#' * 40}"
    assert lines[8] == "  graphs                  -1.00"
