"""`rocm-smi --showtopo` (text and JSON) and the table that `rocm-smi` prints without options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from infra.outputs.amd_tables import (
    NUMA_LINE,
    gpu_links,
    link_findings,
    matrix_of,
    outputs_of,
    read_tables,
)
from infra.outputs.matrix import Cell
from infra.outputs.reading import Line, Notes, Report


def is_rocm_title(line: str) -> bool:
    return "etween two GPUs" in line or "Numa Nodes" in line


def is_numa_line(line: str) -> bool:
    return "(Topology)" in line and NUMA_LINE.match(line) is not None


def read_rocm_topologies(lines: Sequence[Line]) -> list[Report]:
    """All outputs of rocm-smi --showtopo (or its single parts) in these lines."""
    return [report for part in outputs_of(lines) if (report := _rocm_report(part)) is not None]


def _rocm_report(lines: Sequence[Line]) -> Report | None:
    notes = Notes()
    labels, tables, cut = read_tables(lines, notes)
    node: dict[int, int | None] = {}
    affinity: dict[int, int | None] = {}
    for _, text in lines:
        if match := NUMA_LINE.match(text):
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
    weight, hops, link_type = (matrix_of(tables.get(name), labels) for name in ("weight", "hops", "link_type"))
    fields: dict[str, Any] = {"gpus": len(gpus), "weight": weight, "hops": hops, "link_type": link_type, "numa": numa}
    if gpus != list(range(len(gpus))):
        fields["gpu_indices"] = gpus
    return Report(
        kind="rocm-smi-showtopo",
        first_line=lines[0][0],
        fields=fields,
        links=gpu_links(gpus, link_type, hops, weight, numa, with_hops=True),
        notes=notes.all(),
        findings=link_findings(hops, weight, link_type),
        cut=cut,
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
    weight, hops, link_type = (matrix_of(cells[name] or None, labels) for name in ("Weight", "Hops", "Link type"))
    nodes = [numa.get(gpu) for gpu in gpus] if numa else None
    return Report(
        kind="rocm-smi-showtopo",
        first_line=first_line,
        fields={"gpus": len(gpus), "weight": weight, "hops": hops, "link_type": link_type, "numa": nodes},
        links=gpu_links(gpus, link_type, hops, weight, nodes, with_hops=True),
        findings=link_findings(hops, weight, link_type),
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
