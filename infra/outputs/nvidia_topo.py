"""`nvidia-smi topo -m`, `-mp` and `-p2p`: the matrix of links between GPUs and network cards.

Drivers differ in their columns: none after the matrix, CPU Affinity, NUMA Affinity, GPU NUMA ID; a blank CPU cell where the cpuset
holds none of the near CPUs; older ones print a padding tab after a short CPU list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.diagnosis import Diagnosis
from infra.outputs.links import GpuLinks, Link, nvidia_link
from infra.outputs.matrix import Cell, CellForm, Header, Row, drop_contradictions, read_rows
from infra.outputs.reading import Line, Notes, Report
from infra.units import parse_cpu_list

CPU_AFFINITY, NUMA_AFFINITY, GPU_NUMA_ID = "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"

_HEADER_TOKEN = re.compile(
    r"GPU NUMA ID|NUMA Affinity|CPU Affinity|(?:GPU|NIC)\d{1,3}|mlx\d{1,2}_(?:bond_)?\d{1,3}|[a-z][a-z_]*\d[\w.-]{0,30}", re.ASCII
)
_LINK_FORM = CellForm(
    pattern=re.compile(r"X(?![A-WYZ])|NV\d{1,2}(?![\d,-])|PIX|PXB|PHB|NODE|SYS|SOC"),
    own=frozenset({"X"}),
    foreign=re.compile(r"[\d,\-]+$|N/A$"),
)
# OK; chipset, GPU, topology not supported; not supported; disabled by registry key; unknown.
_P2P_FORM = CellForm(
    pattern=re.compile(r"X(?![A-WYZ])|OK|CNS|GNS|TNS|NS|DR|U(?![A-Z])"), own=frozenset({"X"}), foreign=re.compile(r"\d")
)
_NIC_LEGEND = re.compile(r"^\s*(NIC\d{1,3})\s*:\s*([A-Za-z][\w.:-]*)\s*$")
_NIC_BANNER = re.compile(r"(\d+) NICs found in the topology, only displaying (\d+)")
_NUMA_LIST = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*$")


def find_header(lines: Sequence[str], index: int) -> Header | None:
    """The header of a matrix that starts at `lines[index]`, also where a terminal wrapped it; None where there is none."""
    line = lines[index]
    if "GPU" not in line or not line.lstrip().startswith("GPU"):
        return None
    text, count = line, 1
    header = _header_of(text, line)
    for follower in lines[index + 1 : index + 5]:
        if not follower.strip():
            break
        longer = [_header_of(text + joint + follower.lstrip(" "), line) for joint in ("", "\t", " ")]
        found = next((h for h in longer if h is not None), None)
        if found is None or (header is not None and not _continues(follower)):
            break
        joint = ("", "\t", " ")[longer.index(found)]
        text, count, header = text + joint + follower.lstrip(" "), count + 1, found
    if header is None:
        return None
    if len(header.labels) == 1 and not header.tail:
        following = lines[index + count] if index + count < len(lines) else ""
        if not re.match(r"\s*GPU\d+\s+X\s*$", following):
            return None
    return Header(labels=header.labels, tail=header.tail, lines=count, on_tab_stops=header.on_tab_stops)


def _continues(line: str) -> bool:
    return not re.match(r"\s*(?:GPU|NIC)\d+\s+(?:X|NV\d|PIX|PXB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|U)\b", line)


def _header_of(text: str, first_line: str) -> Header | None:
    position = len(text) - len(text.lstrip())
    labels: list[str] = []
    tail: list[str] = []
    while position < len(text):
        if text[position] in " \t":
            position += 1
            continue
        match = _HEADER_TOKEN.match(text, position)
        if match is None:
            return None
        if match[0] in (CPU_AFFINITY, NUMA_AFFINITY, GPU_NUMA_ID):
            tail.append(match[0])
        elif tail:
            return None
        else:
            labels.append(match[0])
        position = match.end()
    if not labels or not labels[0].startswith("GPU") or len({*labels}) < len(labels) or len({*tail}) < len(tail):
        return None
    on_stops = "\t" not in first_line and all(m.start() % 8 == 0 for m in re.finditer(r"GPU\d+|NIC\d+", first_line))
    return Header(labels=tuple(labels), tail=tuple(tail), on_tab_stops=on_stops)


def is_row(line: str) -> bool:
    """Whether a line looks like a row of a GPU or NIC in such a matrix."""
    return (
        re.match(r"\s*(?:GPU\d+|NIC\d+|mlx\d_\d+)\s*(?:X\b|NV\d|PIX|PXB|PHB|NODE|SYS|SOC|OK\b|CNS|GNS|TNS|NS\b|U\b)", line)
        is not None
    )


def read_nvidia_topologies(lines: Sequence[Line]) -> list[Report]:
    """All matrices in these lines, in order."""
    texts = [text for _, text in lines]
    starts: list[tuple[int, Header]] = []
    index = 0
    while index < len(texts):
        header = find_header(texts, index)
        if header is not None:
            starts.append((index, header))
            index += header.lines
        else:
            index += 1
    reports = []
    for position, (start, header) in enumerate(starts):
        end = starts[position + 1][0] if position + 1 < len(starts) else len(texts)
        before = starts[position - 1][0] if position else 0
        reports.append(_read_one(lines[start][0], header, texts[start + header.lines : end], texts[before:start]))
    return reports


def _read_one(first_line: int, header: Header, body: Sequence[str], before: Sequence[str]) -> Report:
    notes = Notes()
    links = sum(len(re.findall(r"\b(?:NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\b", line)) for line in body if is_row(line))
    states = sum(len(re.findall(r"\b(?:OK|CNS|GNS|TNS|NS|DR|U)\b", line)) for line in body if is_row(line))
    is_p2p = states > links
    form = _P2P_FORM if is_p2p else _LINK_FORM

    def tail_fits(row: Row) -> bool:
        if not header.tail or not row.label.startswith("GPU"):
            return True
        values = _affinity(row, header)
        return values is not None and all(values[name] is not None for name in header.tail if name != CPU_AFFINITY)

    row_notes: list[str] = []
    rows = read_rows(body, header, form, tail_fits=tail_fits, notes=row_notes)
    for note in row_notes:
        notes.add(note)
    _distrust_unterminated(rows, body)
    cells: dict[tuple[str, str], Cell] = {
        (label, other): cell for label, row in rows.items() for other, cell in zip(header.labels, row.cells, strict=True)
    }
    contradictions: list[str] = []
    cells = drop_contradictions(cells, header.labels, contradictions)
    for note in contradictions:
        notes.add(note)
    table = _Table(first_line=first_line, header=header, rows=rows, cells=cells, notes=notes)
    missing = table.missing
    if missing:
        notes.add(f"no row for {_some(missing)}: the report is cut" if _at_end(missing, header) else f"no row for {_some(missing)}")
    for label in table.gpus:
        row = rows.get(label)
        if row is not None and (not row.complete or None in row.cells):
            unread = [other for other in header.labels if cells.get((label, other)) is None]
            notes.add(f"row {label}: {len(unread)} of {len(header.labels)} cells cannot be placed")
    return _p2p_report(table) if is_p2p else _topology_report(table, body, before)


@dataclass(frozen=True, kw_only=True)
class _Table:
    """One matrix as far as it could be read; `cells` by row and column, `notes` grow."""

    first_line: int
    header: Header
    rows: Mapping[str, Row]
    cells: Mapping[tuple[str, str], Cell]
    notes: Notes

    @property
    def gpus(self) -> list[str]:
        return [label for label in self.header.labels if label.startswith("GPU")]

    @property
    def nics(self) -> list[str]:
        return [label for label in self.header.labels if not label.startswith("GPU")]

    @property
    def missing(self) -> list[str]:
        """Labels without a row."""
        return [label for label in self.header.labels if label not in self.rows]

    def between(self, labels: Sequence[str]) -> list[list[Cell]]:
        """The cells of each GPU's row in these columns."""
        return [[self.cells.get((gpu, label)) for label in labels] for gpu in self.gpus]


def _topology_report(table: _Table, body: Sequence[str], before: Sequence[str]) -> Report:
    header, rows, notes, gpus, nics = table.header, table.rows, table.notes, table.gpus, table.nics
    matrix, missing = table.between(gpus), table.missing
    affinities = [_affinity(rows[gpu], header) if gpu in rows else None for gpu in gpus]
    if header.tail and (lost := [gpu for gpu, a in zip(gpus, affinities, strict=True) if a is None and gpu in rows]):
        notes.add(f"the affinity of {_some(lost)} cannot be placed")

    def column(name: str) -> list[Any] | None:
        return [a.get(name) if a else None for a in affinities] if name in header.tail else None

    names = _nic_names(body, notes)
    gpu_nic = table.between(nics) if nics else []
    numa = column(NUMA_AFFINITY)
    gpu_ids = tuple(int(gpu[3:]) for gpu in gpus)
    links: dict[tuple[int, int], Link] = {}
    for i, row in enumerate(matrix):
        for j, cell in enumerate(row):
            if i != j and cell is not None and (link := nvidia_link(cell)):
                links[gpu_ids[i], gpu_ids[j]] = link
    if nics and not names and missing and all(re.fullmatch(r"NIC\d+", nic) for nic in nics):
        # The legend is the last thing printed. Its order is that of the devices, which the mlx5 driver numbers from 0.
        names = {nic: f"mlx5_{nic[3:]}" for nic in nics}
        notes.add("the NIC legend is cut off; NIC0 is taken for mlx5_0 and so on")
    nic_labels = [names.get(nic, nic) for nic in nics]
    fields: dict[str, Any] = {
        "gpus": len(gpus),
        "links": matrix,
        "cpu_affinity": column(CPU_AFFINITY),
        "numa_affinity": numa,
        "gpu_numa_id": column(GPU_NUMA_ID),
        "nics": nic_labels,
        "gpu_nic": gpu_nic,
    }
    if gpu_ids != tuple(range(len(gpus))):
        fields["gpu_indices"] = list(gpu_ids)
    if nics:
        fields["nearest_nics"] = [_nearest(row, nic_labels) for row in gpu_nic]
    for line in (*before, *body):
        if banner := _NIC_BANNER.search(line):
            fields["nics_found"] = int(banner[1])
            notes.add(f"the tool found {banner[1]} NICs and shows {len(nics)} of them")
            break
    machine = GpuLinks(gpus=gpu_ids, links=links, numa={gpu: numa_key(numa[i] if numa else None) for i, gpu in enumerate(gpu_ids)})
    return Report(
        kind="nvidia-smi-topo-m",
        first_line=table.first_line,
        fields=fields,
        links=machine,
        notes=notes.all(),
        findings=_findings(machine, matrix, gpu_ids),
        cut=bool(missing),
    )


def _p2p_report(table: _Table) -> Report:
    matrix = table.between(table.gpus)
    states = {cell for i, row in enumerate(matrix) for j, cell in enumerate(row) if i != j}
    known = states - {None}
    summary = None if not known else "all" if states == {"OK"} else "none" if "OK" not in states and None not in states else "some"
    findings: tuple[Diagnosis, ...] = ()
    refused = sorted(state for state in known if state not in ("OK", None, "U"))  # type: ignore[type-var]
    if refused:
        meaning = {
            "CNS": "the chipset does not support it",
            "GNS": "the GPUs or their driver do not support it (GeForce drivers refuse it)",
            "TNS": "the PCIe topology does not support it",
            "NS": "it is not supported",
            "DR": "it is disabled by a registry key",
        }
        reasons = "; ".join(f"{state}: {meaning.get(str(state), 'unknown')}" for state in refused)
        findings = (
            Diagnosis.warning(
                path="",
                code="PeerToPeerRefused",
                message=f"GPUs cannot read each other's memory ({reasons}); collectives go through host memory.",
                remedy="Prefer pipeline parallel, or look at ACS and IOMMU where the chipset or topology is named.",
            ),
        )
    return Report(
        kind="nvidia-smi-topo-p2p",
        first_line=table.first_line,
        fields={"gpus": len(matrix), "p2p": summary, "states": matrix},
        notes=table.notes.all(),
        findings=findings,
        cut=bool(table.missing),
    )


def numa_key(value: int | str | None) -> int | None:
    """The NUMA node that a GPU counts for: of a list (`0,2-17`) the first, which has the CPUs; None where it is unknown."""
    if isinstance(value, int):
        return value
    match = re.match(r"\d+", value or "")
    return int(match[0]) if match else None


def _affinity(row: Row, header: Header) -> dict[str, Any] | None:
    """The columns after the matrix by name; None where the text cannot be placed among them."""
    if row.tail is None or not header.tail:
        return None if row.tail is None or header.tail else {}
    columns = list(header.tail)
    text = row.tail
    if "\t" in text:
        pieces = [piece.strip() for piece in text.lstrip(" ").split("\t")]
        # What precedes the first tab belongs to the last matrix cell's own padding.
        pieces = pieces[1:] if pieces and pieces[0] == "" else pieces
        if not pieces:
            return None
        if columns[0] == CPU_AFFINITY:
            values = {CPU_AFFINITY: pieces[0]}
            rest, names = [piece for piece in pieces[1:] if piece], columns[1:]
        else:
            values, rest, names = {}, [piece for piece in pieces if piece], columns
    else:
        pieces = text.split()
        if len(pieces) == len(columns):
            values, rest, names = {}, pieces, columns
        elif len(pieces) == len(columns) - 1 and columns[0] == CPU_AFFINITY and header.on_tab_stops:
            # Tabs turned into blanks: a CPU cell would stand at the first tab stop after the matrix.
            gap = len(text) - len(text.lstrip())
            is_blank = row.column + gap > (row.column // 8 + 1) * 8
            values = {CPU_AFFINITY: "" if is_blank else pieces[0]}
            rest, names = pieces if is_blank else pieces[1:], columns[1:]
        else:
            return None
    if len(rest) > len(names):
        return None
    values.update(zip(names, rest, strict=False))
    return _checked(values, columns)


def _checked(values: dict[str, str], columns: Sequence[str]) -> dict[str, Any] | None:
    checked: dict[str, Any] = dict.fromkeys(columns)
    for name, text in values.items():
        if name == CPU_AFFINITY:
            if text not in ("", "N/A"):
                try:
                    parse_cpu_list(text)
                except ValueError:
                    return None
            checked[name] = text or None
        elif text == "N/A":
            checked[name] = text
        elif not _NUMA_LIST.match(text):
            return None
        elif name == NUMA_AFFINITY:
            checked[name] = int(text) if text.isdigit() else text
        else:
            checked[name] = text
    return checked


def _distrust_unterminated(rows: dict[str, Row], body: Sequence[str]) -> None:
    """Drops a last cell that a cut may have shortened (NV1 of NV18): the text ends with it, and no line break follows."""
    if not body or not body[-1].strip():
        return
    last = body[-1].rstrip()
    match = re.search(r"NV\d{1,2}$", last)
    if match is None:
        return
    for label, row in rows.items():
        if re.match(rf"\s*{re.escape(label)}\b", last) and row.cells and row.cells[-1] == match[0]:
            rows[label] = Row(label=label, cells=(*row.cells[:-1], None), tail=row.tail, column=row.column, complete=False)


def _nic_names(body: Sequence[str], notes: Notes) -> dict[str, str]:
    names: dict[str, str] = {}
    for line in body:
        if match := _NIC_LEGEND.match(line):
            if names.get(match[1], match[2]) != match[2]:
                notes.add(f"{match[1]} has two names, {names[match[1]]} and {match[2]}")
            names.setdefault(match[1], match[2])
    return names


def _nearest(row: Sequence[Cell], names: Sequence[str]) -> list[str]:
    """The NICs that share a PCIe switch with the GPU: those of its best link, where that is PIX or PXB."""
    ranked = [(link.rank, name) for cell, name in zip(row, names, strict=True) if cell and (link := nvidia_link(cell))]
    nearest = min((rank for rank, _ in ranked), default=None)
    limit = nvidia_link("PXB")
    if nearest is None or limit is None or nearest > limit.rank:
        return []
    return [name for rank, name in ranked if rank == nearest]


def _findings(machine: GpuLinks, matrix: list[list[Cell]], gpu_ids: tuple[int, ...]) -> tuple[Diagnosis, ...]:
    counts = [int(cell[2:]) for row in matrix for cell in row if cell and cell.startswith("NV")]
    if not counts or min(counts) == max(counts):
        return ()
    fewest = min(counts)
    pairs = sorted(
        {
            (gpu_ids[min(i, j)], gpu_ids[max(i, j)])
            for i, row in enumerate(matrix)
            for j, cell in enumerate(row)
            if cell == f"NV{fewest}"
        }
    )
    named = ", ".join(f"{one}-{other}" for one, other in pairs[:4]) + (" and others" if len(pairs) > 4 else "")
    return (
        Diagnosis.warning(
            path="",
            code="UnevenNvLinks",
            message=f"GPUs {named} have {fewest} NVLinks where others have {max(counts)}: links may be down.",
            remedy="`nvidia-smi nvlink -s` shows the state of each link.",
        ),
    )


def _at_end(missing: Sequence[str], header: Header) -> bool:
    return tuple(missing) == header.labels[len(header.labels) - len(missing) :]


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:4]) + (f" and {len(labels) - 4} more" if len(labels) > 4 else "")
