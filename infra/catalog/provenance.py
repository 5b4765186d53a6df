"""Reads where an entry's facts come from."""

from __future__ import annotations

from collections.abc import Mapping

from infra.catalog.reader import Reader
from infra.catalog.types import Provenance


def read_provenance(reader: Reader, sources: Mapping[str, str]) -> Provenance:
    """`sources`, `confidence`, `unverified` and `note` of an entry; a source that the file does not explain is a problem."""
    used = reader.texts("sources")
    for index, source in enumerate(used):
        if source not in sources:
            reader.problem(f"sources[{index}]", f"{source!r} is not among the file's sources.")
    return Provenance(
        sources=used,
        confidence=reader.one_of("confidence", ("high", "medium", "low"), required=True) or "low",  # type: ignore[arg-type]
        unverified=reader.texts("unverified"),
        note=reader.text("note") or "",
    )
