"""Square tables of links between devices, read so that no link is invented.

A cell counts only where its place is certain: the row holds the table's own mark of "this device itself" (X, SELF, 0) in its own
column, the number of cells fits the header, and what follows is no cell. Where a row does not fit, the cells before its own mark are
used (their place is certain) and the rest is None. Cells that contradict their mirror image are both dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Cell = str | None


@dataclass(frozen=True, kw_only=True)
class Header:
    """`labels` of the square part, in order; `tail` the columns after it; `lines` how many lines it took."""

    labels: tuple[str, ...]
    tail: tuple[str, ...] = ()
    lines: int = 1
    on_tab_stops: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: `cells` of the square part, `tail` the text after it (None where its start is not certain), `column` where that text starts."""

    label: str
    cells: tuple[Cell, ...]
    tail: str | None
    column: int = 0
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class CellForm:
    """What a cell looks like. `pattern` matches one cell at the start of a text, even where the next one is glued to it."""

    pattern: re.Pattern[str]
    own: frozenset[str]
    own_is_unique: bool = True
    foreign: re.Pattern[str] = field(default_factory=lambda: re.compile(r"(?!)"))


def read_row(text: str, header: Header, form: CellForm) -> Row | None:
    """A row from its text; None where it starts with no label of the header, cells None where they cannot be placed."""
    label = row_label(text, header.labels)
    if label is None:
        return None
    own = header.labels.index(label)
    start = len(text) - len(text.lstrip()) + len(label)
    rest = text[start:]
    best: Row | None = None
    for row in (_by_tabs(label, rest, header, form, own), _by_tokens(label, rest, start, header, form, own)):
        if row is not None and (best is None or _worth(row) > _worth(best)):
            best = row
    return best or Row(label=label, cells=(None,) * len(header.labels), tail=None, complete=False)


def row_label(text: str, labels: Sequence[str]) -> str | None:
    """The header's label that the text starts with; `GPU1` is not taken for the start of `GPU10`."""
    match = re.match(r"\s*((?:GPU|NIC)\d+|[\w:.-]+)", text)
    if match is None or text[match.end() : match.end() + 1] == ":":
        return None
    if match[1] in labels:
        return match[1]
    glued = re.match(r"\s*((?:GPU|NIC)\d+)(?=[A-Z])", text)
    return glued[1] if glued and glued[1] in labels else None


def _worth(row: Row) -> tuple[bool, int]:
    return row.complete, sum(cell is not None for cell in row.cells)


def _by_tabs(label: str, rest: str, header: Header, form: CellForm, own: int) -> Row | None:
    if not rest.startswith("\t"):
        return None
    pieces = rest.split("\t")[1:]
    size = len(header.labels)
    cells = [piece.strip() for piece in pieces[:size]]
    tail = pieces[size:]
    return _placed(label, cells, "".join("\t" + piece for piece in tail), size, form, own, 0)


def _by_tokens(label: str, rest: str, start: int, header: Header, form: CellForm, own: int) -> Row | None:
    size = len(header.labels)
    cells: list[str] = []
    position = 0
    while len(cells) < size:
        while position < len(rest) and rest[position] in " \t":
            position += 1
        if position == len(rest):
            break
        match = form.pattern.match(rest, position)
        if match is None:
            match = re.compile(r"\S+").match(rest, position)
        assert match is not None
        cells.append(match[0])
        position = match.end()
    return _placed(label, cells, rest[position:], size, form, own, start + position)


def _placed(label: str, cells: list[str], tail: str, size: int, form: CellForm, own: int, column: int) -> Row | None:
    def valid(cell: str) -> bool:
        match = form.pattern.match(cell)
        return match is not None and match.end() == len(cell)

    own_fits = own < len(cells) and cells[own] in form.own
    if form.own_is_unique:
        own_fits = own_fits and not any(cell in form.own for i, cell in enumerate(cells) if i != own)
    strangers = [cell == "" or form.foreign.match(cell) is not None for cell in cells]
    # A cell in what follows, or what follows among the cells: something was lost or came in between.
    shifted = any(valid(piece) and not form.foreign.match(piece) for piece in tail.split()) or any(strangers)
    if own_fits and len(cells) == size and not shifted:
        read = tuple(cell if valid(cell) else None for cell in cells)
        return Row(label=label, cells=read, tail=tail, column=column, complete=True)
    if not (own < len(cells) and cells[own] in form.own) or not form.own_is_unique or any(strangers[:own]):
        return None
    if any(cell in form.own for cell in cells[:own]):
        return None
    certain = [cell if valid(cell) else None for cell in cells[:own]] + [cells[own]]
    return Row(label=label, cells=(*certain, *[None] * (size - own - 1)), tail=None, complete=False)


def read_rows(
    lines: Sequence[str],
    header: Header,
    form: CellForm,
    *,
    is_end: Callable[[str], bool] = lambda line: False,
    notes: list[str],
    tail_fits: Callable[[Row], bool] = lambda row: True,
    more_lines: int = 4,
) -> dict[str, Row]:
    """The rows below a header, by label. Wrapped rows are put together; a row that comes twice must have the same cells.

    What could not be read is added to `notes`.
    """
    rows: dict[str, Row] = {}
    twice: set[str] = set()
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if is_end(line):
            break
        row = read_row(line, header, form)
        if row is None:
            continue
        if not row.complete or not tail_fits(row):
            text = line
            followers = []
            for follower in lines[index : index + more_lines]:
                if not follower.strip() or is_end(follower) or row_label(follower, header.labels) is not None:
                    break
                followers.append(follower)
            for count in range(1, len(followers) + 1):
                joined = _joined(text, followers[:count], header, form, tail_fits)
                if joined is not None:
                    row, index = joined, index + count
                    break
        own = header.labels.index(row.label)
        if len(row.cells) > 1 and all(cell is None for i, cell in enumerate(row.cells) if i != own):
            continue
        if row.label in rows and rows[row.label].cells != row.cells:
            twice.add(row.label)
        if row.label not in rows or _worth(row) > _worth(rows[row.label]):
            rows[row.label] = row
    for label in sorted(twice):
        notes.append(f"row {label} stands there twice with different cells; neither is used")
        rows[label] = Row(label=label, cells=(None,) * len(header.labels), tail=None, complete=False)
    return rows


def _joined(text: str, followers: Sequence[str], header: Header, form: CellForm, tail_fits: Callable[[Row], bool]) -> Row | None:
    """A row that a terminal wrapped: the parts put together with nothing or a tab in between, where just one way fits."""
    texts = [text]
    for follower in followers:
        texts = [before + joint + follower.lstrip(" ") for before in texts for joint in ("", "\t")][:16]
    fitting: list[Row] = []
    for candidate in texts:
        row = read_row(candidate, header, form)
        if row is not None and row.complete and None not in row.cells and tail_fits(row):
            fitting.append(row)
    if not fitting or any(row.cells != fitting[0].cells for row in fitting):
        return None
    # The cells agree; what follows them is only certain where all ways agree.
    first = fitting[0]
    if len({tuple((row.tail or "").split()) for row in fitting}) == 1:
        return first
    return Row(label=first.label, cells=first.cells, tail=None, complete=True)


def drop_contradictions(
    cells: dict[tuple[str, str], Cell], labels: Sequence[str], notes: list[str], *, what: str = ""
) -> dict[tuple[str, str], Cell]:
    """The cells without those whose mirror image differs."""
    checked = dict(cells)
    for i, one in enumerate(labels):
        for other in labels[i + 1 :]:
            there, back = cells.get((one, other)), cells.get((other, one))
            if there is not None and back is not None and there != back:
                notes.append(f"{what}{one}-{other} is {there} in one row and {back} in the other; neither is used")
                checked[one, other] = checked[other, one] = None
    return checked
