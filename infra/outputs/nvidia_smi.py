"""`nvidia-smi -L` and `nvidia-smi --query-gpu=... --format=csv`: which GPUs a machine has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from infra.diagnosis import Diagnosis
from infra.outputs.reading import Line, Notes, Report

_GPU = re.compile(r"^\s*GPU (\d{1,3}): (.+?) \(UUID: (GPU-[0-9a-fA-F-]+)\)\s*$")
# vLLM's and PyTorch's collect_env print the same lines without the UUID.
_GPU_NAME = re.compile(r"^\s*GPU (\d{1,3}): ((?:NVIDIA|Tesla|Quadro|GRID) [\w .-]{1,60}?)()\s*$")
_MIG = re.compile(r"^\s*MIG (\S+)\s+Device\s+(\d{1,3}): \(UUID: (MIG-[^\s)]+)\)\s*$")
_CSV_NAMES = frozenset(
    {"index", "name", "gpu_name", "pci.bus_id", "gpu_bus_id", "memory.total", "uuid", "gpu_uuid", "driver_version"}
)
_BUS_ID = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")
_BARE_ROW = re.compile(r"^\s*\d{1,3}, (?:NVIDIA|Tesla|Quadro|GRID) ?[^,]*(?:, |$)")


def is_list_line(line: str) -> bool:
    if "UUID: " in line:
        return (_GPU.match(line) or _MIG.match(line)) is not None
    return _GPU_NAME.match(line) is not None


def csv_columns(line: str) -> list[str] | None:
    """The columns of a query's header line, without units; None for other lines."""
    if "," not in line or not line.isascii() or len(line) > 2000:
        return None
    names = [part.strip().split(" [")[0] for part in line.split(",")]
    return names if _CSV_NAMES.intersection(names) and all(re.fullmatch(r"[a-z][\w.]*", name) for name in names) else None


def is_bare_row(line: str) -> bool:
    """A row of a query with `noheader` that begins with index and name."""
    return _BARE_ROW.match(line) is not None


def read_lists(lines: Sequence[Line]) -> list[Report]:
    """All `nvidia-smi -L` outputs in these lines."""
    reports: list[Report] = []
    gpus: dict[int, tuple[str, str]] = {}
    slices: list[tuple[int, str]] = []
    notes = Notes()
    first = 0
    current: int | None = None

    def close() -> None:
        if gpus or slices:
            reports.append(_list_report(first, gpus, slices, notes))

    for number, text in lines:
        if match := _GPU.match(text) or _GPU_NAME.match(text):
            index = int(match[1])
            if index in gpus and gpus[index] != (match[2], match[3]):
                close()
                gpus, slices, notes, first = {}, [], Notes(), 0
            first = first or number
            gpus[index] = (match[2], match[3])
            current = index
        elif match := _MIG.match(text):
            first = first or number
            if current is None:
                notes.add("a MIG slice stands there before its GPU")
            slices.append((current if current is not None else -1, match[1]))
    close()
    return reports


def _list_report(first: int, gpus: dict[int, tuple[str, str]], slices: list[tuple[int, str]], notes: Notes) -> Report:
    if gpus and sorted(gpus) != list(range(len(gpus))):
        notes.add(f"GPU indices {', '.join(map(str, sorted(gpus)))} are not consecutive: lines are missing, or devices are hidden")
    names = [gpus[index][0] for index in sorted(gpus)]
    profiles: dict[str, int] = {}
    for _, profile in slices:
        profiles[profile] = profiles.get(profile, 0) + 1
    fields: dict[str, Any] = {
        "gpus": len(gpus),
        "names": names,
        "name": names[0] if len(set(names)) == 1 else None,
        "uuids": [gpus[index][1] or None for index in sorted(gpus)],
        "mig": bool(slices),
    }
    findings: tuple[Diagnosis, ...] = ()
    if slices:
        fields["mig_profiles"] = profiles
        # A slice has neither NVLink nor peer-to-peer: a rank cannot leave it.
        fields["tp_max"] = 1
        findings = (
            Diagnosis.warning(
                path="",
                code="MigSlices",
                message=f"{len(slices)} MIG slices: a slice has no NVLink and no peer-to-peer, tensor parallel is 1 on each.",
                remedy="Disable MIG for tensor parallel (`nvidia-smi -mig 0`); `topo -m` shows the parent GPUs only.",
            ),
        )
    return Report(kind="nvidia-smi-L", first_line=first, fields=fields, notes=notes.all(), findings=findings)


def read_queries(lines: Sequence[Line]) -> list[Report]:
    """All CSV queries in these lines, with or without a header."""
    reports: list[Report] = []
    columns: list[str] | None = None
    rows: list[dict[str, str]] = []
    notes = Notes()
    first = 0

    def close() -> None:
        if rows:
            reports.append(_query_report(first, rows, notes))

    for number, text in lines:
        header = csv_columns(text)
        if header is not None:
            close()
            columns, rows, notes, first = header, [], Notes(), number
            continue
        if columns is None and is_bare_row(text):
            parts = [part.strip() for part in text.split(",")]
            names = ["index", "name"] + [_bare_name(part, i) for i, part in enumerate(parts[2:])]
            first = first or number
            rows.append(dict(zip(names, parts, strict=True)))
        elif columns is not None and text.strip():
            parts = [part.strip() for part in text.split(",")]
            if len(parts) == len(columns):
                rows.append(dict(zip(columns, parts, strict=True)))
            elif "," in text:
                notes.add(f"line {number} has {len(parts)} values for {len(columns)} columns")
    close()
    return reports


def _bare_name(text: str, position: int) -> str:
    if _BUS_ID.match(text):
        return "pci.bus_id"
    return "memory.total" if re.fullmatch(r"\d+ MiB", text) else f"column{position}"


def _query_report(first: int, rows: Sequence[dict[str, str]], notes: Notes) -> Report:
    sizes: list[int | None] = []
    for row in rows:
        match = re.match(r"(\d{1,9})(?: MiB)?$", row.get("memory.total", ""))
        sizes.append(int(match[1]) if match else None)
    known = {size for size in sizes if size is not None}
    if len(known) > 1:
        notes.add(f"the GPUs differ in memory: {', '.join(map(str, sorted(known)))} MiB")
    names = [row.get("name", row.get("gpu_name", "")) for row in rows]
    indices = [row.get("index", "") for row in rows if "index" in row]
    if len({*indices}) < len(indices):
        notes.add("a GPU index stands there twice")
    fields: dict[str, Any] = {
        "gpus": len(rows),
        "names": names,
        "name": names[0] if len(set(names)) == 1 else None,
        "mib": known.pop() if len(known) == 1 else None,
        "bus_ids": [row.get("pci.bus_id", row.get("gpu_bus_id")) for row in rows],
    }
    return Report(kind="nvidia-smi-query", first_line=first, fields=fields, notes=notes.all())
