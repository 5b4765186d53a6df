"""docs/catalog.md describes the fields of the catalog's files as the schema has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from infra.catalog.entries import Entry
from infra.catalog.platforms import PlatformEntry
from infra.catalog.shapes import ShapeEntry
from infra.catalog.types import (
    Accelerator,
    AcceleratorMemory,
    Fabric,
    Model,
    NetworkInterfaces,
    PartitionMode,
    Pin,
    PublishedParameters,
)
from infra.catalog.vendors import VendorFacts
from infra.config.topology import InlineNumaNode, NumaNode

PAGE = Path(__file__).resolve().parents[2] / "docs/catalog.md"
# heading of a table -> the model whose fields it shows
TABLES: dict[str, type[BaseModel]] = {
    "Every entry": Entry,
    "accelerators.yaml": Accelerator,
    "accelerators.yaml: memory": AcceleratorMemory,
    "accelerators.yaml: fabric": Fabric,
    "accelerators.yaml: partitionModes": PartitionMode,
    "shapes.yaml": ShapeEntry,
    "shapes.yaml: numaNodes": NumaNode,
    "shapes.yaml: network": NetworkInterfaces,
    "models.yaml": Model,
    "models.yaml: publishedParameters": PublishedParameters,
    "pins.yaml": Pin,
    "vendors.yaml": VendorFacts,
    "platforms.yaml": PlatformEntry,
}
NAMES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "object": "map"}


def type_of(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return type_of(next(option for option in schema["anyOf"] if option.get("type") != "null"))
    if "$ref" in schema:
        return "map, below"
    if schema.get("type") == "array":
        inner = type_of(schema["items"]) if "items" in schema else "number"
        return "list of maps, below" if inner == "map, below" else f"list of {inner}s" if "list" not in inner else "list of lists"
    if isinstance(schema.get("type"), list):
        return "quantity"
    return NAMES[schema["type"]]


def rows(model: type[BaseModel]) -> list[str]:
    """The lines of a table of the model's own fields."""
    schema = model.model_json_schema(by_alias=True)
    inherited = set(Entry.model_fields) if issubclass(model, Entry) and model is not Entry else set()
    shown = []
    for name, field in model.model_fields.items():
        if name not in inherited:
            needed = "yes" if field.is_required() else ""
            shown.append(f"| `{field.alias}` | {type_of(schema['properties'][field.alias])} | {needed} | {field.description} |")
    return shown


def table_below(heading: str) -> list[str]:
    lines = PAGE.read_text().splitlines()
    after = lines[lines.index(f"#### {heading}") + 1 :]
    start = next(index for index, line in enumerate(after) if line.startswith("| ---")) + 1
    end = next((index for index in range(start, len(after)) if not after[index].startswith("|")), None)
    return after[start:end]


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_of_the_page_has_the_fields_of_the_schema(heading: str) -> None:
    wanted = rows(TABLES[heading])
    assert table_below(heading) == wanted, "the table has to be:\n" + "\n".join(wanted)


def test_every_field_has_a_description() -> None:
    for model in (*TABLES.values(), InlineNumaNode):
        assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_the_page_has_no_table_of_fields_besides() -> None:
    assert [line[5:] for line in PAGE.read_text().splitlines() if line.startswith("#### ")] == list(TABLES)
