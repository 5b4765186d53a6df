"""Loads the catalog: each file once, by the C loader, and only when a command needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from infra.catalog.accelerators import read_accelerator
from infra.catalog.provenance import read_provenance
from infra.catalog.reader import Reader
from infra.catalog.shapes import read_shape
from infra.catalog.types import Accelerator, EngineFacts, Model, NodeShape, Pin, PublishedParameters
from infra.diagnosis import Diagnosis
from infra.errors import ConfigError

SCHEMA_VERSION = 1
DATA = Path(__file__).parent / "data"

Entry = TypeVar("Entry", Accelerator, NodeShape, Model, Pin)


def parse_yaml(text: str | bytes, name: str) -> Any:
    """YAML through libyaml (the pure Python loader costs ten times as much); ConfigError names the line."""
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError([Diagnosis(path=name, code="InvalidYaml", message=" ".join(str(error).split()))]) from None


def read_document(path: Path) -> Reader:
    """The top level of a catalog file, its schema version checked."""
    problems: list[Diagnosis] = []
    document = Reader(parse_yaml(path.read_bytes(), path.name), path.name, problems)
    version = document.integer("schemaVersion", required=True)
    if version is not None and version != SCHEMA_VERSION:
        document.problem("schemaVersion", f"is {version}; this program reads {SCHEMA_VERSION}.")
    if problems:
        raise ConfigError(problems)
    return document


def read_entries(path: Path, key: str, read: Callable[[Reader, Mapping[str, str]], Entry | None]) -> dict[str, Entry]:
    """The entries under `key` by id; ConfigError lists every unknown key, wrong type, unknown source and double id."""
    document = read_document(path)
    sources = document.raw("sources") or {}
    entries: dict[str, Entry] = {}
    for item in document.children(key, required=True):
        entry = read(item, sources)
        item.finish()
        if entry is None:
            continue
        if entry.id in entries:
            item.problem("id", f"{entry.id} stands there twice.")
        entries[entry.id] = entry
    document.finish()
    if document.problems:
        raise ConfigError(document.problems)
    return entries


@lru_cache(maxsize=1)
def accelerators() -> Mapping[str, Accelerator]:
    """All accelerators by id."""
    return read_entries(DATA / "accelerators.yaml", "accelerators", read_accelerator)


@lru_cache(maxsize=1)
def shapes() -> Mapping[str, NodeShape]:
    """All node shapes by id."""
    return read_entries(DATA / "shapes.yaml", "shapes", read_shape)


@lru_cache(maxsize=1)
def models() -> Mapping[str, Model]:
    """All models by hub name."""
    return read_entries(DATA / "models.yaml", "models", read_model)


@lru_cache(maxsize=1)
def pins() -> Mapping[str, Pin]:
    """Container images, charts and releases by id."""
    return read_entries(DATA / "pins.yaml", "pins", read_pin)


@lru_cache(maxsize=1)
def engine_facts() -> EngineFacts:
    """What vLLM at the pinned version supports."""
    document = read_document(DATA / "vllm.yaml")
    document.raw("sources")
    facts = EngineFacts(
        version=document.text("version", required=True) or "",
        classes_without_pipeline_parallel=frozenset(document.texts("classesWithoutPipelineParallel")),
        quantization_methods=frozenset(document.texts("quantizationMethods")),
    )
    document.finish()
    if document.problems:
        raise ConfigError(document.problems)
    return facts


def read_model(reader: Reader, sources: Mapping[str, str]) -> Model | None:
    """One entry of models.yaml."""
    name = reader.text("id", required=True)
    config = reader.raw("config", required=True)
    if config is not None and not isinstance(config, Mapping):
        reader.problem("config", "is no map; config.json's fields are expected.")
        config = None
    published = None
    stated = reader.child("publishedParameters")
    if stated is not None:
        count, source = stated.integer("count", required=True, minimum=1), stated.text("source", required=True)
        tolerance, counts = stated.number("tolerance", minimum=0), stated.text("counts")
        stated.finish()
        if source is not None and source not in sources:
            stated.problem("source", f"{source!r} is not among the file's sources.")
        if count is not None and source is not None:
            published = PublishedParameters(
                count=count,
                source=source,
                tolerance=0.001 if tolerance is None else tolerance,
                counts=counts or "all tensors",
            )
    vision = reader.integer("visionParameters", minimum=0)
    aliases, provenance = reader.texts("aliases"), read_provenance(reader, sources)
    if name is None or config is None:
        return None
    return Model(
        id=name, config=config, aliases=aliases, published_parameters=published, vision_parameters=vision, provenance=provenance
    )


def read_pin(reader: Reader, sources: Mapping[str, str]) -> Pin | None:
    """One entry of pins.yaml."""
    name, version = reader.text("id", required=True), reader.text("version", required=True)
    kind = reader.one_of("kind", ("image", "chart", "release"), required=True)
    reference, digest = reader.text("reference"), reader.text("digest")
    if digest is not None and not (digest.startswith("sha256:") and len(digest) == 71):
        reader.problem("digest", f"is {digest!r}; sha256: and 64 hexadecimal digits are expected.")
    provenance = read_provenance(reader, sources)
    if name is None or version is None or kind is None:
        return None
    return Pin(id=name, kind=kind, version=version, reference=reference, digest=digest, note=provenance.note, provenance=provenance)  # type: ignore[arg-type]


def classes_without_pipeline_parallel() -> frozenset[str]:
    """vLLM's model classes that refuse pipeline_parallel_size > 1."""
    return engine_facts().classes_without_pipeline_parallel
