"""JSON as commands print it."""

from __future__ import annotations

import json
from typing import Any


def json_text(document: Any, *, ascii_only: bool = True) -> str:
    """One document, indented by two blanks; `ascii_only`: other characters are escaped, so that any terminal takes it."""
    return json.dumps(document, indent=2, ensure_ascii=ascii_only)
