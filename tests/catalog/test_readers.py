"""Each fact of the catalog has a reader: what nothing outside reads is neither kept true nor missed."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from infra.catalog.platforms import PlatformEntry
from infra.catalog.shapes import ShapeEntry
from infra.catalog.types import (
    Accelerator,
    AcceleratorMemory,
    EngineFacts,
    Fabric,
    Model,
    NetworkInterfaces,
    NodeShape,
    NumaNode,
    PartitionMode,
    Pin,
    PublishedParameters,
)
from infra.catalog.vendors import VendorFacts

ROOT = Path(__file__).resolve().parents[2]
# In the catalog itself: finding by name, the machine that the kubelet's rules get, the warnings of what is not certain, and
# properties of other facts.
READERS_INSIDE = {"names.py", "platforms.py", "machine.py", "confidence.py", "topology.py", "types.py", "load.py", "__init__.py"}
# What the variables that hold one are called.
CALLED: dict[type, tuple[str, ...]] = {
    Accelerator: ("accelerator", "card", "item"),
    AcceleratorMemory: ("memory",),
    Fabric: ("fabric",),
    PartitionMode: ("mode",),
    NodeShape: ("shape",),
    NumaNode: ("node", "known"),
    NetworkInterfaces: ("network",),
    Model: ("entry", "model", "found", "models()"),
    PublishedParameters: ("published", "published_parameters", "stated"),
    Pin: ("pins()", "pin"),
    VendorFacts: ("vendors()", "row", "vendor"),
    PlatformEntry: ("entry",),
    EngineFacts: ("engine_facts()",),
}
# Counts that are published are what the tests hold the program's own arithmetic against.
READ_BY_TESTS = (PublishedParameters, Model)
ABOUT_THE_ENTRY = {"id", "source", "sources", "confidence", "unverified", "note"}
WIRE_NAMES = {"sku": "accelerator", "memory": "memory_bytes"}


def receiver(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return receiver(node.value)
    if isinstance(node, ast.Call):
        return f"{receiver(node.func)}()"
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def attributes(tree: ast.AST) -> set[tuple[str, str]]:
    """(`shape`, `gpus`) for every reading of shape.gpus or hardware.shape.gpus."""
    return {(receiver(node.value), node.attr) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@cache
def read_outside(with_tests: bool) -> frozenset[tuple[str, str]]:
    files = [path for path in (ROOT / "infra").rglob("*.py") if path.parent.name != "catalog" or path.name in READERS_INSIDE]
    files += (ROOT / "tests/plan").rglob("*.py") if with_tests else ()
    return frozenset(pair for path in files for pair in attributes(ast.parse(path.read_text())))


def names_of(kind: type) -> set[str]:
    if issubclass(kind, BaseModel):
        return set(kind.model_fields) - ABOUT_THE_ENTRY
    return {field.name for field in fields(kind)} - ABOUT_THE_ENTRY


def read_of(kind: type) -> set[str]:
    """Names read outside, and what its own properties and methods read that are."""
    outside = read_outside(kind in READ_BY_TESTS)
    found = {name for owner, name in outside if owner in CALLED[kind]}
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    methods = {item.name: item for item in definition.body if isinstance(item, ast.FunctionDef)}
    waiting = [name for name in found if name in methods]
    while waiting:
        for owner, name in attributes(methods[waiting.pop()]):
            if owner == "self" and name not in found:
                found.add(name)
                waiting += [name] if name in methods else []
    return found


@pytest.mark.parametrize("kind", CALLED, ids=lambda kind: kind.__name__)
def test_every_field_is_read(kind: type) -> None:
    assert names_of(kind) - read_of(kind) == set(), "use them, or drop them from schema and data"


def test_every_field_of_a_shape_becomes_one_of_the_machine() -> None:
    written = {WIRE_NAMES.get(name, name) for name in ShapeEntry.model_fields}
    assert written - {"sources", "note"} == {field.name for field in fields(NodeShape)}
