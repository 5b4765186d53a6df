"""The tables that AMD's tools share: weight, hops, link type and access of each pair of GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from infra.diagnosis import Diagnosis
from infra.outputs.links import GpuLinks, Link, amd_link
from infra.outputs.matrix import Cell, CellForm, Header, drop_contradictions, read_rows
from infra.outputs.reading import Line, Notes

TITLES = (
    ("weight", re.compile(r"weight between two GPUs|^\s*WEIGHT TABLE", re.IGNORECASE)),
    ("hops", re.compile(r"hops between two GPUs|^\s*HOPS TABLE", re.IGNORECASE)),
    ("link_type", re.compile(r"link type between two GPUs|^\s*LINK TYPE TABLE", re.IGNORECASE)),
    ("access", re.compile(r"link accessibility between two GPUs|^\s*ACCESS TABLE", re.IGNORECASE)),
    ("bandwidth", re.compile(r"min/max bandwidth between two GPUs|^\s*NUMA BW TABLE", re.IGNORECASE)),
    ("other", re.compile(r"^\s*[A-Z][A-Z -]+ TABLE:?\s*$|^=+ .* =+\s*$")),
)
BDF = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
NUMA_LINE = re.compile(r"^\s*GPU\[(\d{1,3})\]\s*:\s*\(Topology\) Numa (Node|Affinity):\s*(-?\d{1,4}|N/A|None)\s*$", re.IGNORECASE)
# A weight is 13 or more (xGMI 15, PCIe 20 and up), hops are few: so a row of one table is not taken for one of the other, and a
# weight cut to its first digit is not read.
FORMS = {
    "weight": CellForm(pattern=re.compile(r"(?:N/A|0|\d{2,4})(?=\s|$)"), own=frozenset({"0"})),
    "hops": CellForm(pattern=re.compile(r"(?:N/A|\d)(?=\s|$)"), own=frozenset({"0"})),
    "link_type": CellForm(pattern=re.compile(r"(?:XGMI|PCIE|XXXX|UNKNOWN|N/A|0)(?=\s|$)"), own=frozenset({"0"})),
    "access": CellForm(
        pattern=re.compile(r"(?:ENABLED|DISABLED|True|False|N/A)(?=\s|$)"),
        own=frozenset({"ENABLED", "True"}),
        own_is_unique=False,
    ),
}
AMD_SMI_TYPE = CellForm(pattern=re.compile(r"(?:XGMI|PCIE|XXXX|UNKNOWN|N/A|SELF)(?=\s|$)"), own=frozenset({"SELF"}))


def table_title(line: str) -> str | None:
    """Which table a title line opens; None for other lines."""
    if "TABLE" not in line and "==" not in line and "etween two GPUs" not in line:
        return None
    return next((name for name, form in TITLES if form.search(line)), None)


def _device_header(line: str) -> Header | None:
    labels = line.split()
    if not labels or len({*labels}) < len(labels):
        return None
    if all(re.fullmatch(r"GPU\d{1,3}", label) for label in labels) or all(BDF.fullmatch(label) for label in labels):
        return Header(labels=tuple(labels))
    return None


def outputs_of(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines by output: a new one begins where a table comes again that the current one has."""
    parts: list[list[Line]] = [[]]
    seen: set[str] = set()
    for number, text in lines:
        title = table_title(text)
        if title not in (None, "other"):
            if title in seen:
                parts.append([])
                seen = set()
            seen.add(str(title))
        if (numa := NUMA_LINE.match(text)) and numa[1] == "0" and numa[2].lower() == "node":
            if "numa" in seen:
                parts.append([])
                seen = set()
            seen.add("numa")
        parts[-1].append((number, text))
    return [part for part in parts if part]


def read_tables(lines: Sequence[Line], notes: Notes) -> tuple[tuple[str, ...], dict[str, dict[tuple[str, str], Cell]], bool]:
    """The devices, the cells of each table, and whether a row is missing."""
    labels: tuple[str, ...] = ()
    tables: dict[str, dict[tuple[str, str], Cell]] = {}
    cut = False
    title: str | None = None
    texts = [text for _, text in lines]
    for index, text in enumerate(texts):
        if (found := table_title(text)) is not None:
            title = found
            continue
        if title not in FORMS or title in tables:
            continue
        header = _device_header(text)
        if header is None:
            continue
        for follower in texts[index + 1 : index + 4]:
            more = _device_header(follower)
            if more is None or {*more.labels} & {*header.labels}:
                break
            header = Header(labels=(*header.labels, *more.labels), lines=header.lines + 1)
        if labels and header.labels != labels:
            notes.add(f"the {title} table has other devices than the one before; it is not used")
            title = None
            continue
        labels = header.labels
        row_notes: list[str] = []
        rows = read_rows(
            texts[index + header.lines :],
            header,
            AMD_SMI_TYPE if title == "link_type" and not labels[0].startswith("GPU") else FORMS[title],
            is_end=lambda line: table_title(line) is not None or _device_header(line) is not None,
            notes=row_notes,
        )
        cells = {(label, o): cell for label, row in rows.items() for o, cell in zip(labels, row.cells, strict=True)}
        cells = drop_contradictions(cells, labels, row_notes, what=f"{title.replace('_', ' ')} ")
        for note in row_notes:
            notes.add(note)
        for label in labels:
            if label not in rows:
                notes.add(f"the {title.replace('_', ' ')} table has no row {label}")
                cut = True
            elif any(cells.get((label, other)) is None for other in labels):
                notes.add(f"the {title.replace('_', ' ')} table: row {label} cannot be placed completely")
        tables[title] = cells
    return labels, tables, cut


def matrix_of(cells: Mapping[tuple[str, str], Cell] | None, labels: Sequence[str]) -> list[list[int | str | None]] | None:
    if cells is None:
        return None
    return [[_value(cells.get((one, other))) for other in labels] for one in labels]


def _value(cell: Cell) -> int | str | None:
    return int(cell) if cell is not None and cell.isdigit() else cell


def _links(
    gpus: Sequence[int],
    link_type: list[list[int | str | None]] | None,
    hops: list[list[int | str | None]] | None,
    weight: list[list[int | str | None]] | None,
    *,
    with_hops: bool,
) -> dict[tuple[int, int], Link]:
    links: dict[tuple[int, int], Link] = {}

    def number(table: list[list[int | str | None]] | None, i: int, j: int) -> int | None:
        values = [] if table is None else [value for value in (table[i][j], table[j][i]) if isinstance(value, int)]
        return values[0] if values else None

    for i, one in enumerate(gpus):
        for j, other in enumerate(gpus):
            kind = link_type[i][j] if link_type is not None else None
            if i == j or not isinstance(kind, str):
                continue
            pair_weight = number(weight, i, j)
            if kind == "XGMI" and weight is not None and pair_weight is None:
                # Only the weight distinguishes a direct link from one through another GPU: without it the pair is not known.
                continue
            link = amd_link(kind, number(hops, i, j), pair_weight, with_hops=with_hops)
            if link is not None:
                links[one, other] = link
    return links


def gpu_links(
    gpus: Sequence[int],
    link_type: list[list[int | str | None]] | None,
    hops: list[list[int | str | None]] | None,
    weight: list[list[int | str | None]] | None,
    numa: Sequence[int | None] | None,
    *,
    with_hops: bool,
) -> GpuLinks | None:
    if link_type is None:
        return None
    return GpuLinks(
        gpus=tuple(gpus),
        links=_links(gpus, link_type, hops, weight, with_hops=with_hops),
        numa={gpu: _known_node(numa[i]) if numa is not None else None for i, gpu in enumerate(gpus)},
    )


def _known_node(node: int | None) -> int | None:
    """-1 is the kernel's value where the firmware or hypervisor gives no node."""
    return node if node is not None and node >= 0 else None


def link_findings(
    hops: list[list[int | str | None]] | None,
    weight: list[list[int | str | None]] | None,
    link_type: list[list[int | str | None]] | None,
) -> tuple[Diagnosis, ...]:
    found: list[Diagnosis] = []
    xgmi_weights = {
        weight[i][j]
        for i, row in enumerate(link_type or [])
        for j, kind in enumerate(row)
        if weight is not None and i != j and kind == "XGMI" and isinstance(weight[i][j], int)
    }
    if hops is not None and len(xgmi_weights) > 1:
        found.append(
            Diagnosis.info(
                path="",
                code="IndirectXgmi",
                message="some xGMI pairs are joined through another GPU (weights "
                f"{', '.join(str(w) for w in sorted(xgmi_weights, key=str))}), although the tool says 1 hop for all.",
                remedy="Choose tensor-parallel sets by weight; the verdict here does.",
            )
        )
    if any("XXXX" in row for row in link_type or []):
        found.append(
            Diagnosis.info(
                path="",
                code="PartitionedGpus",
                message="link type XXXX joins partitions of one GPU (CPX or DPX): the indices are partitions, not cards.",
            )
        )
    return tuple(found)
