"""The text of an agent, as it is shipped in a ConfigMap."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def source_of(agent: str) -> str:
    """`agent`: the module's name in this folder."""
    return Path(__file__).with_name(f"{agent}.py").read_text(encoding="utf-8")
