"""Estimates with the fields of both their records as arguments."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from infra.catalog.types import Accelerator
from infra.plan.architecture.partition import ParallelSizes
from infra.plan.architecture.types import Architecture
from infra.plan.memory.estimate import estimate_memory
from infra.plan.memory.options import EngineOptions
from infra.plan.memory.types import MemoryEstimate

SIZE_NAMES = {field.name for field in fields(ParallelSizes)}


def split_arguments(arguments: dict[str, Any]) -> tuple[ParallelSizes, EngineOptions]:
    """vLLM's arguments as the records of estimate_memory()."""
    return (
        ParallelSizes(**{name: value for name, value in arguments.items() if name in SIZE_NAMES}),
        EngineOptions(**{name: value for name, value in arguments.items() if name not in SIZE_NAMES}),
    )


def estimate_of(architecture: Architecture, accelerator: Accelerator, **arguments: Any) -> MemoryEstimate:
    return estimate_memory(architecture, accelerator, *split_arguments(arguments))
