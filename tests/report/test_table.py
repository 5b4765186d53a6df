from __future__ import annotations

from infra.report.document import json_text
from infra.report.table import table


def test_columns_are_as_wide_as_their_widest_cell_and_no_line_ends_in_blanks() -> None:
    rows = [("node", "pool", "x"), ("a", "long-pool", ""), ("bcdefg", "p", "yes")]
    assert table(rows) == ["node    pool       x", "a       long-pool", "bcdefg  p          yes"]
    assert table(rows[:1], indent="  ") == ["  node  pool  x"]


def test_a_document_is_indented_by_two_and_escapes_what_a_terminal_may_not_take() -> None:
    assert json_text({"a": ["ü"]}) == '{\n  "a": [\n    "\\u00fc"\n  ]\n}'
    assert json_text("ü", ascii_only=False) == '"ü"'
