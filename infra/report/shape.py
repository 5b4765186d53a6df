"""An inline topology as the YAML to paste into a stack file, and as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from infra.outputs.shape import InlineShape


def shape_as_json(shape: InlineShape) -> dict[str, Any]:
    """The document of `shape --format json`."""
    return {"topology": shape.topology, "remarks": list(shape.remarks)}


def shape_as_yaml(shape: InlineShape) -> str:
    """The block to paste, one line for each NUMA node; remarks stand above it as comments."""
    lines = [*(f"# {remark}" for remark in shape.remarks), "topology:"]
    for key, value in shape.topology.items():
        if key != "numaNodes":
            lines.append(f"  {key}: {_flow(value)}")
            continue
        lines.append("  numaNodes:")
        for node in value:
            lines.append("    - {" + ", ".join(f"{name}: {_flow(item, name)}" for name, item in node.items()) + "}")
    return "\n".join(lines)


def _flow(value: Any, name: str = "") -> str:
    """A value in YAML's flow style. CPU lists and words that YAML would read as numbers are quoted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, str) and (
        name == "cpus" or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", value) or re.fullmatch(r"[\d.eE_-]+", value)
    ):
        return json.dumps(value)
    return str(value)
