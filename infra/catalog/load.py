"""The catalog's files, each read once and only when a command needs it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from infra.catalog.entries import DATA, Entries, as_it_is, document_of
from infra.catalog.platforms import platforms
from infra.catalog.reading import read_whole
from infra.catalog.shapes import ShapeEntry, resolve_shape
from infra.catalog.types import Accelerator, EngineFacts, Model, NodeShape, Pin
from infra.catalog.vendors import vendors
from infra.diagnosis import Diagnosis


@cache
def accelerators() -> Entries[Accelerator, Accelerator]:
    """All accelerators by id."""
    return Entries(DATA / "accelerators.yaml", "accelerators", Accelerator, as_it_is)


@cache
def shapes() -> Entries[ShapeEntry, NodeShape]:
    """All node shapes by id."""
    return Entries(DATA / "shapes.yaml", "shapes", ShapeEntry, resolve_shape)


@cache
def models() -> Entries[Model, Model]:
    """All models by hub name."""
    return Entries(DATA / "models.yaml", "models", Model, as_it_is)


@cache
def pins() -> Entries[Pin, Pin]:
    """Container images, charts and releases by id."""
    return Entries(DATA / "pins.yaml", "pins", Pin, as_it_is)


def catalog_problems() -> Iterator[Diagnosis]:
    """Everything that is wrong with the files of entries, as they are installed."""
    for load in (vendors, platforms, accelerators, shapes, models, pins):
        yield from load().problems()


@cache
def engine_facts() -> EngineFacts:
    """What vLLM at the pinned version supports."""
    path = DATA / "vllm.yaml"
    return read_whole(EngineFacts, document_of(path), path.name)


def classes_without_pipeline_parallel() -> frozenset[str]:
    """vLLM's model classes that refuse pipeline_parallel_size > 1."""
    return engine_facts().classes_without_pipeline_parallel
