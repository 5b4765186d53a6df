"""Rows of words as aligned columns."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], *, indent: str = "") -> list[str]:
    """One line a row, each column as wide as its widest cell, two blanks between columns. All rows have as many cells as the first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [(indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip() for row in rows]
