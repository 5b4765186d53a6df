"""AMD's tools: `rocm-smi --showtopo` (text, JSON), `amd-smi topology` (text, --json) and the concise table of `rocm-smi`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from infra.verify.finding import Finding
from infra.verify.links import GpuLinks, Link, amd_link
from infra.verify.matrix import Cell, CellForm, Header, drop_contradictions, read_rows
from infra.verify.report import Line, Notes, Report

_TITLES = (
    ("weight", re.compile(r"weight between two GPUs|^\s*WEIGHT TABLE", re.IGNORECASE)),
    ("hops", re.compile(r"hops between two GPUs|^\s*HOPS TABLE", re.IGNORECASE)),
    ("link_type", re.compile(r"link type between two GPUs|^\s*LINK TYPE TABLE", re.IGNORECASE)),
    ("access", re.compile(r"link accessibility between two GPUs|^\s*ACCESS TABLE", re.IGNORECASE)),
    ("bandwidth", re.compile(r"min/max bandwidth between two GPUs|^\s*NUMA BW TABLE", re.IGNORECASE)),
    ("other", re.compile(r"^\s*[A-Z][A-Z -]+ TABLE:?\s*$|^=+ .* =+\s*$")),
)
_BDF = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_NUMA_LINE = re.compile(r"^\s*GPU\[(\d{1,3})\]\s*:\s*\(Topology\) Numa (Node|Affinity):\s*(-?\d{1,4}|N/A|None)\s*$", re.IGNORECASE)
# A weight is 13 or more (xGMI 15, PCIe 20 and up), hops are few: so a row of one table is not taken for one of the other, and a
# weight cut to its first digit is not read.
_FORMS = {
    "weight": CellForm(pattern=re.compile(r"(?:N/A|0|\d{2,4})(?=\s|$)"), own=frozenset({"0"})),
    "hops": CellForm(pattern=re.compile(r"(?:N/A|\d)(?=\s|$)"), own=frozenset({"0"})),
    "link_type": CellForm(pattern=re.compile(r"(?:XGMI|PCIE|XXXX|UNKNOWN|N/A|0)(?=\s|$)"), own=frozenset({"0"})),
    "access": CellForm(
        pattern=re.compile(r"(?:ENABLED|DISABLED|True|False|N/A)(?=\s|$)"),
        own=frozenset({"ENABLED", "True"}),
        own_is_unique=False,
    ),
}
_AMD_SMI_TYPE = CellForm(pattern=re.compile(r"(?:XGMI|PCIE|XXXX|UNKNOWN|N/A|SELF)(?=\s|$)"), own=frozenset({"SELF"}))


def table_title(line: str) -> str | None:
    """Which table a title line opens; None for other lines."""
    if "TABLE" not in line and "==" not in line and "etween two GPUs" not in line:
        return None
    return next((name for name, form in _TITLES if form.search(line)), None)


def is_rocm_title(line: str) -> bool:
    return "etween two GPUs" in line or "Numa Nodes" in line


def is_numa_line(line: str) -> bool:
    return "(Topology)" in line and _NUMA_LINE.match(line) is not None


def is_amd_smi_title(line: str) -> bool:
    return re.match(r"\s*(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE:?\s*$", line) is not None


def _device_header(line: str) -> Header | None:
    labels = line.split()
    if not labels or len({*labels}) < len(labels):
        return None
    if all(re.fullmatch(r"GPU\d{1,3}", label) for label in labels) or all(_BDF.fullmatch(label) for label in labels):
        return Header(labels=tuple(labels))
    return None


def read_rocm_topologies(lines: Sequence[Line]) -> list[Report]:
    """All outputs of rocm-smi --showtopo (or its single parts) in these lines."""
    return [report for part in _outputs(lines) if (report := _rocm_report(part)) is not None]


def read_amd_smi_topologies(lines: Sequence[Line]) -> list[Report]:
    """All outputs of amd-smi topology in these lines."""
    return [report for part in _outputs(lines) if (report := _amd_smi_report(part)) is not None]


def _outputs(lines: Sequence[Line]) -> list[list[Line]]:
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
        if (numa := _NUMA_LINE.match(text)) and numa[1] == "0" and numa[2].lower() == "node":
            if "numa" in seen:
                parts.append([])
                seen = set()
            seen.add("numa")
        parts[-1].append((number, text))
    return [part for part in parts if part]


def _tables(lines: Sequence[Line], notes: Notes) -> tuple[tuple[str, ...], dict[str, dict[tuple[str, str], Cell]], bool]:
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
        if title not in _FORMS or title in tables:
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
            _AMD_SMI_TYPE if title == "link_type" and not labels[0].startswith("GPU") else _FORMS[title],
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


def _matrix(cells: Mapping[tuple[str, str], Cell] | None, labels: Sequence[str]) -> list[list[int | str | None]] | None:
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
                # Only the weight tells a direct link from one through another GPU: without it the pair is not known.
                continue
            link = amd_link(kind, number(hops, i, j), pair_weight, with_hops=with_hops)
            if link is not None:
                links[one, other] = link
    return links


def _rocm_report(lines: Sequence[Line]) -> Report | None:
    notes = Notes()
    labels, tables, cut = _tables(lines, notes)
    node: dict[int, int | None] = {}
    affinity: dict[int, int | None] = {}
    for _, text in lines:
        if match := _NUMA_LINE.match(text):
            gpu, value = int(match[1]), int(match[3]) if match[3].lstrip("-").isdigit() else None
            table = node if match[2].lower() == "node" else affinity
            if gpu in table and table[gpu] != value:
                notes.add(f"the NUMA {match[2].lower()} of GPU {gpu} is given twice with different values")
                table[gpu] = None
            else:
                table[gpu] = value
    if not labels and not node and not affinity:
        return None
    gpus = [int(label[3:]) for label in labels if label.startswith("GPU")] or sorted({*node, *affinity})
    if len(gpus) < len(labels):
        return None
    unknown = [gpu for gpu in gpus if gpu not in node and gpu not in affinity]
    numa: list[int | None] | None = None
    if node or affinity:
        numa = [node[gpu] if gpu in node else affinity.get(gpu) for gpu in gpus]
        if unknown:
            notes.add(f"no NUMA node is given for {len(unknown)} of {len(gpus)} GPUs")
            cut = True
    weight, hops, link_type = (_matrix(tables.get(name), labels) for name in ("weight", "hops", "link_type"))
    fields: dict[str, Any] = {"gpus": len(gpus), "weight": weight, "hops": hops, "link_type": link_type, "numa": numa}
    if gpus != list(range(len(gpus))):
        fields["gpu_indices"] = gpus
    return Report(
        kind="rocm-smi-showtopo",
        first_line=lines[0][0],
        fields=fields,
        links=_machine(gpus, link_type, hops, weight, numa, with_hops=True),
        notes=notes.all(),
        findings=_findings(hops, weight, link_type),
        cut=cut,
    )


def _machine(
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
    """-1 is what the kernel says where the firmware or hypervisor gives no node."""
    return node if node is not None and node >= 0 else None


def _findings(
    hops: list[list[int | str | None]] | None,
    weight: list[list[int | str | None]] | None,
    link_type: list[list[int | str | None]] | None,
) -> tuple[Finding, ...]:
    found: list[Finding] = []
    xgmi_weights = {
        weight[i][j]
        for i, row in enumerate(link_type or [])
        for j, kind in enumerate(row)
        if weight is not None and i != j and kind == "XGMI" and isinstance(weight[i][j], int)
    }
    if hops is not None and len(xgmi_weights) > 1:
        found.append(
            Finding(
                code="IndirectXgmi",
                message="some xGMI pairs are joined through another GPU (weights "
                f"{', '.join(str(w) for w in sorted(xgmi_weights, key=str))}), although the tool says 1 hop for all.",
                remedy="Choose tensor-parallel sets by weight; the verdict here does.",
                severity="info",
            )
        )
    if any("XXXX" in row for row in link_type or []):
        found.append(
            Finding(
                code="PartitionedGpus",
                message="link type XXXX joins partitions of one GPU (CPX or DPX): the indices are partitions, not cards.",
                severity="info",
            )
        )
    return tuple(found)


def _amd_smi_report(lines: Sequence[Line]) -> Report | None:
    notes = Notes()
    labels, tables, cut = _tables(lines, notes)
    if not labels:
        return None
    access = tables.get("access")
    return _amd_smi(
        "amd-smi-topology",
        lines[0][0],
        labels,
        _matrix(tables.get("link_type"), labels),
        _matrix(tables.get("hops"), labels),
        _matrix(tables.get("weight"), labels),
        None if access is None else [[access.get((one, other)) for other in labels] for one in labels],
        notes,
        cut,
    )


def _amd_smi(
    kind: str,
    first_line: int,
    labels: Sequence[str],
    link_type: list[list[int | str | None]] | None,
    hops: list[list[int | str | None]] | None,
    weight: list[list[int | str | None]] | None,
    access: Sequence[Sequence[str | None]] | None,
    notes: Notes,
    cut: bool,
    *,
    gpus: Sequence[int] | None = None,
) -> Report:
    states = {state for i, row in enumerate(access or []) for j, state in enumerate(row) if i != j}
    on = {"ENABLED", "True"}
    p2p = None if not states - {None} else "all" if states <= on else "none" if not states & (on | {None}) else "some"
    indices = list(gpus) if gpus is not None else list(range(len(labels)))
    fields: dict[str, Any] = {
        "gpus": len(labels),
        "bdf": [label for label in labels if _BDF.fullmatch(label)] or None,
        "weight": weight,
        "hops": hops,
        "link_type": link_type,
        "p2p": p2p,
    }
    findings = list(_findings(hops, weight, link_type))
    if p2p in ("none", "some"):
        findings.append(
            Finding(
                code="PeerToPeerRefused",
                message="GPUs cannot read each other's memory (ACCESS is DISABLED): collectives go through host memory.",
                remedy="Look at ACS and `iommu=pt`, and at whether the cards support peer-to-peer at all.",
            )
        )
    return Report(
        kind=kind,
        first_line=first_line,
        fields=fields,
        links=_machine(indices, link_type, hops, weight, None, with_hops=False),
        notes=notes.all(),
        findings=tuple(findings),
        cut=cut,
    )


def read_amd_smi_json(document: Any, first_line: int, *, cut: bool = False) -> Report | None:
    """`amd-smi topology --json`: a list of GPUs, each with its links; None for another document."""
    entries = document.get("topology", document.get("gpus")) if isinstance(document, Mapping) else document
    if not isinstance(entries, list):
        return None
    rows = [e for e in entries if isinstance(e, Mapping) and isinstance(e.get("links"), list) and isinstance(e.get("gpu"), int)]
    if not rows:
        return None
    notes = Notes()
    by_gpu: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        if by_gpu.setdefault(row["gpu"], row) is not row:
            notes.add(f"GPU {row['gpu']} stands there twice; the second is not used")
    named = {link["gpu"] for row in rows for link in row["links"] if isinstance(link, Mapping) and isinstance(link.get("gpu"), int)}
    gpus = sorted({*by_gpu, *named})[:256]
    if missing := [gpu for gpu in gpus if gpu not in by_gpu]:
        notes.add(f"no entry for {len(missing)} of {len(gpus)} GPUs: the document is cut")
        cut = True
    bdfs = {gpu: str(row.get("bdf", f"GPU{gpu}")) for gpu, row in by_gpu.items()}
    cells: dict[str, dict[tuple[str, str], Cell]] = {"link_type": {}, "num_hops": {}, "weight": {}, "link_status": {}}
    for gpu, row in by_gpu.items():
        for link in row["links"]:
            if not isinstance(link, Mapping) or not isinstance(link.get("gpu"), int):
                continue
            for name, table in cells.items():
                value = link.get(name)
                if isinstance(value, str | int) and not isinstance(value, bool):
                    key = (str(gpu), str(link["gpu"]))
                    if table.setdefault(key, str(value)) != str(value):
                        notes.add(f"{name} of GPUs {gpu} and {link['gpu']} is given twice with different values")
                        table[key] = None
    labels = [str(gpu) for gpu in gpus]
    contradictions: list[str] = []
    for name in ("link_type", "num_hops", "weight"):
        cells[name] = drop_contradictions(cells[name], labels, contradictions, what=f"{name} ")
    for note in contradictions:
        notes.add(note)
    tables = {name: _matrix(cells[name] or None, labels) for name in cells}
    status = tables["link_status"]
    access = None if status is None else [[None if state is None else str(state) for state in row] for row in status]
    names = [bdfs.get(gpu, f"GPU{gpu}") for gpu in gpus]
    return _amd_smi(
        "amd-smi-topology-json",
        first_line,
        names,
        tables["link_type"],
        tables["num_hops"],
        tables["weight"],
        access,
        notes,
        cut,
        gpus=gpus,
    )


_ROCM_PAIR = re.compile(r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d{1,3}) and (\d{1,3})$")


def read_rocm_json(document: Any, first_line: int) -> Report | None:
    """`rocm-smi --showtopo --json`: pairs under `system`, NUMA nodes under `card<N>`; None for another document."""
    if not isinstance(document, Mapping):
        return None
    cells: dict[str, dict[tuple[str, str], Cell]] = {"Weight": {}, "Hops": {}, "Link type": {}}
    numa: dict[int, int | None] = {}
    for name, values in document.items():
        if not isinstance(values, Mapping):
            continue
        card = re.fullmatch(r"card(\d{1,3})", str(name))
        for key, value in values.items():
            if (pair := _ROCM_PAIR.match(str(key))) and isinstance(value, str | int):
                for one, other in ((pair[2], pair[3]), (pair[3], pair[2])):
                    cells[pair[1]][one, other] = str(value)
            elif card and key == "(Topology) Numa Node" and re.fullmatch(r"-?\d{1,4}", str(value)):
                numa[int(card[1])] = int(value)
    gpus = sorted({int(gpu) for table in cells.values() for pair in table for gpu in pair} | {*numa})
    if not gpus or (not any(cells.values()) and not numa):
        return None
    labels = [str(gpu) for gpu in gpus]
    for table in cells.values():
        if table:
            table.update({(label, label): "0" for label in labels})
    weight, hops, link_type = (_matrix(cells[name] or None, labels) for name in ("Weight", "Hops", "Link type"))
    nodes = [numa.get(gpu) for gpu in gpus] if numa else None
    return Report(
        kind="rocm-smi-showtopo",
        first_line=first_line,
        fields={"gpus": len(gpus), "weight": weight, "hops": hops, "link_type": link_type, "numa": nodes},
        links=_machine(gpus, link_type, hops, weight, nodes, with_hops=True),
        findings=_findings(hops, weight, link_type),
    )


_CONCISE_HEAD = re.compile(r"^\s*Device\s+Node\s+IDs\s")
_CONCISE_ROW = re.compile(
    r"^\s*(\d{1,3})\s+(?:\[[^\]]*\]\s+)?(\d{1,3})\s+(0x[0-9a-fA-F]{4}),\s+(\S+)\s.*?\b(NPS\d|N/A),\s+(SPX|DPX|TPX|QPX|CPX|N/A),\s+(\d+)"
)


def is_concise_head(line: str) -> bool:
    return _CONCISE_HEAD.match(line) is not None


def read_rocm_concise(lines: Sequence[Line]) -> list[Report]:
    """The table that `rocm-smi` prints without options: device id and partition modes. NPS here is the GPU's, not the host's."""
    reports: list[Report] = []
    rows: list[re.Match[str]] = []
    first = 0

    def close() -> None:
        if rows:
            reports.append(_concise_report(first, rows))

    for number, text in lines:
        if is_concise_head(text):
            close()
            rows, first = [], number
        elif first and (match := _CONCISE_ROW.match(text)):
            rows.append(match)
    close()
    return reports


def _concise_report(first: int, rows: Sequence[re.Match[str]]) -> Report:
    notes = Notes()

    def common(group: int, name: str) -> str | None:
        values = sorted({row[group] for row in rows})
        if len(values) > 1:
            notes.add(f"the devices differ in {name}: {', '.join(values)}")
        return values[0] if len(values) == 1 else None

    fields = {
        "gpus": len({row[1] for row in rows}),
        "did": common(3, "device id"),
        "mem_partition": common(5, "memory partition"),
        "compute_partition": common(6, "compute partition"),
    }
    return Report(kind="rocm-smi-concise", first_line=first, fields=fields, notes=notes.all())
