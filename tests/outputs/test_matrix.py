"""Rows of square tables: what counts as a cell, where a row is wrapped, and what is left unread."""

from __future__ import annotations

import re

import pytest

from infra.outputs.matrix import CellForm, Header, Row, drop_contradictions, read_row, read_rows, row_label

FORM = CellForm(pattern=re.compile(r"X(?![A-Z])|NV\d{1,2}|PIX|SYS"), own=frozenset({"X"}), foreign=re.compile(r"[\d,\-]+$|N/A$"))
LABELS = ("GPU0", "GPU1", "GPU2")
HEADER = Header(labels=LABELS, tail=("CPU",))


def cells(text: str, form: CellForm = FORM) -> tuple[bool, tuple[str | None, ...], str | None] | None:
    row = read_row(text, HEADER, form)
    return None if row is None else (row.complete, row.cells, row.tail)


@pytest.mark.parametrize(
    ("text", "complete", "read", "tail"),
    [
        ("GPU0\t X \tNV4\tSYS\t0-3", True, ("X", "NV4", "SYS"), "\t0-3"),
        ("GPU0 X NV4 SYS 0-3", True, ("X", "NV4", "SYS"), " 0-3"),
        ("  GPU1 NV4 X SYS", True, ("NV4", "X", "SYS"), ""),
        ("GPU2 SYSNV4X", True, ("SYS", "NV4", "X"), ""),
        ("GPU0 X NV4 ??", True, ("X", "NV4", None), ""),
        ("GPU0 X NV4 0-3", False, ("X", None, None), None),
        ("GPU1 NV4 X", False, ("NV4", "X", None), None),
        ("GPU1 ?? X", False, (None, "X", None), None),
        ("GPU1 X NV4 SYS", False, (None, None, None), None),
        ("GPU1 X X SYS", False, (None, None, None), None),
        ("GPU1 0-3 X SYS", False, (None, None, None), None),
        ("GPU0 X NV4 SYS PIX", False, ("X", None, None), None),
        ("GPU0\t X \t\tSYS\t0-3", False, ("X", None, None), None),
        ("GPU0", False, (None, None, None), None),
    ],
)
def test_a_cell_counts_where_its_place_is_certain(
    text: str, complete: bool, read: tuple[str | None, ...], tail: str | None
) -> None:
    assert cells(text) == (complete, read, tail)


@pytest.mark.parametrize("text", ["GPU3 X", "words", "", "GPU0: NVIDIA", "GPU10 X"])
def test_other_lines_are_no_rows(text: str) -> None:
    assert cells(text) is None


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("GPU0X NV4", "GPU0"),
        (" GPU1 X", "GPU1"),
        ("GPU0:", None),
        ("GPU00 X", None),
        ("0000:05:00.0 X", "0000:05:00.0"),
        ("-", None),
    ],
)
def test_labels_end_where_the_headers_do(text: str, label: str | None) -> None:
    assert row_label(text, (*LABELS, "0000:05:00.0")) == label


def test_the_column_tells_where_the_tail_begins() -> None:
    row = read_row(" GPU0 X NV4 SYS  0-3", HEADER, FORM)
    assert row is not None and (row.tail, row.column) == ("  0-3", 15)


def test_a_mark_that_others_have_too_does_not_place_a_row() -> None:
    shared = CellForm(pattern=re.compile(r"ON|OFF"), own=frozenset({"ON"}), own_is_unique=False)
    assert cells("GPU0 ON ON OFF", shared) == (True, ("ON", "ON", "OFF"), "")
    assert cells("GPU0 ON ON", shared) == (False, (None, None, None), None)
    assert cells("GPU1 OFF OFF ON", shared) == (False, (None, None, None), None)


def rows(text: str, **options: object) -> tuple[dict[str, tuple[str | None, ...]], list[str]]:
    notes: list[str] = []
    found = read_rows(text.split("\n"), Header(labels=LABELS), FORM, notes=notes, **options)  # type: ignore[arg-type]
    return {label: row.cells for label, row in found.items()}, notes


WHOLE = "GPU0 X NV4 SYS\nGPU1 NV4 X SYS\nGPU2 SYS SYS X"
READ = {"GPU0": ("X", "NV4", "SYS"), "GPU1": ("NV4", "X", "SYS"), "GPU2": ("SYS", "SYS", "X")}


def test_rows_are_read_up_to_the_end() -> None:
    assert rows(WHOLE) == (READ, [])
    assert rows("words\n" + WHOLE + "\nend\nGPU0 X SYS SYS", is_end=lambda line: line == "end") == (READ, [])


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("GPU1 NV4 X SYS", "GPU1 NV4 X\nSYS"),
        WHOLE.replace("GPU1 NV4 X SYS", "GPU1 NV4\n X\n SYS"),
        WHOLE.replace("GPU1 NV4 X SYS", "GPU1 NV\n4 X S\nYS"),
        WHOLE.replace("GPU1 NV4 X SYS", "GPU1\nNV4\nX\nSY\nS"),
    ],
)
def test_wrapped_rows_are_put_together(text: str) -> None:
    assert rows(text) == (READ, [])


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("GPU1 NV4 X SYS", "GPU1 NV4 X\n\nSYS"),
        WHOLE.replace("GPU1 NV4 X SYS", "GPU1\nNV4\nX\nS\nY\nS"),
    ],
)
def test_blank_lines_and_too_many_pieces_end_a_row(text: str) -> None:
    assert rows(text)[0].get("GPU1", (None,))[-1] is None


def test_a_row_that_comes_twice_with_other_cells_is_not_used() -> None:
    found, notes = rows(WHOLE + "\nGPU0 X NV2 SYS")
    assert found["GPU0"] == (None, None, None)
    assert notes == ["row GPU0 stands there twice with different cells; neither is used"]
    assert rows(WHOLE + "\nGPU0 X NV4 SYS") == (READ, [])


def test_a_row_whose_tail_does_not_fit_is_continued() -> None:
    found, _ = rows("GPU0 X NV4 SYS\n0-3\nGPU1 NV4 X SYS", tail_fits=lambda row: row.tail is not None and row.tail.strip() == "0-3")
    assert found["GPU0"] == ("X", "NV4", "SYS")


def test_cells_that_differ_from_their_mirror_image_are_dropped() -> None:
    table = {("a", "b"): "x", ("b", "a"): "y", ("a", "c"): "z", ("c", "a"): "z", ("b", "c"): "w", ("c", "b"): None}
    notes: list[str] = []
    assert drop_contradictions(table, ("a", "b", "c"), notes, what="hops ") == {**table, ("a", "b"): None, ("b", "a"): None}
    assert notes == ["hops a-b is x in one row and y in the other; neither is used"]


def test_a_single_device_needs_no_other_cell() -> None:
    found = read_rows(["GPU0 X"], Header(labels=("GPU0",)), FORM, notes=[])
    assert found["GPU0"] == Row(label="GPU0", cells=("X",), tail="", column=6, complete=True)
