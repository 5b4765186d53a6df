"""AITER by class of model and by device."""

from __future__ import annotations

import pytest

from infra.catalog.engine_releases import engine_release
from infra.catalog.names import find_accelerator
from infra.plan.aiter import aiter_reasons, uses_aiter
from tests.plan.small import small


@pytest.mark.parametrize(
    ("kind", "gpu", "version", "env", "said"),
    [
        ("full", "mi300x", "0.33.0", {}, "AITER off, vLLM's default: for a dense model it changes little"),
        ("mla", "mi300x", "0.33.0", {}, "compare answers before you turn it on"),
        ("full", "mi300x", "0.33.0", {"VLLM_ROCM_USE_AITER": "1"}, "AITER on: VLLM_ROCM_USE_AITER is given."),
        ("full", "mi355x", "0.33.0", {"VLLM_ROCM_USE_AITER": "0"}, "AITER off: VLLM_ROCM_USE_AITER is given."),
        ("full", "mi300x", "0.8.1", {}, None),
        ("full", "mi250x", "0.33.0", {}, None),
        ("full", "l40s", "0.33.0", {}, None),
    ],
)
def test_what_is_said_of_it(kind: str, gpu: str, version: str, env: dict[str, str], said: str | None) -> None:
    reasons = aiter_reasons(small(kind), find_accelerator(gpu), engine_release(version), env)
    assert len(reasons) == (said is not None)
    assert all(said is not None and said in reason for reason in reasons)


@pytest.mark.parametrize(("value", "on"), [("1", True), ("True", True), ("true", True), ("0", False), ("yes", False), ("", False)])
def test_what_turns_it_on(value: str, on: bool) -> None:
    assert uses_aiter({"VLLM_ROCM_USE_AITER": value}) is on
    assert not uses_aiter({})
