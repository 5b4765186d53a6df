"""`amd-smi topology`, as text and as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from infra.diagnosis import Diagnosis
from infra.outputs.amd_tables import (
    BDF,
    gpu_links,
    link_findings,
    matrix_of,
    outputs_of,
    read_tables,
)
from infra.outputs.matrix import Cell, drop_contradictions
from infra.outputs.reading import Line, Notes, Report


def is_amd_smi_title(line: str) -> bool:
    return re.match(r"\s*(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE:?\s*$", line) is not None


def read_amd_smi_topologies(lines: Sequence[Line]) -> list[Report]:
    """All outputs of amd-smi topology in these lines."""
    return [report for part in outputs_of(lines) if (report := _amd_smi_report(part)) is not None]


def _amd_smi_report(lines: Sequence[Line]) -> Report | None:
    notes = Notes()
    labels, tables, cut = read_tables(lines, notes)
    if not labels:
        return None
    access = tables.get("access")
    return _amd_smi(
        "amd-smi-topology",
        lines[0][0],
        labels,
        matrix_of(tables.get("link_type"), labels),
        matrix_of(tables.get("hops"), labels),
        matrix_of(tables.get("weight"), labels),
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
        "bdf": [label for label in labels if BDF.fullmatch(label)] or None,
        "weight": weight,
        "hops": hops,
        "link_type": link_type,
        "p2p": p2p,
    }
    findings = list(link_findings(hops, weight, link_type))
    if p2p in ("none", "some"):
        findings.append(
            Diagnosis.warning(
                path="",
                code="PeerToPeerRefused",
                message="GPUs cannot read each other's memory (ACCESS is DISABLED): collectives go through host memory.",
                remedy="Look at ACS and `iommu=pt`, and at whether the cards support peer-to-peer at all.",
            )
        )
    return Report(
        kind=kind,
        first_line=first_line,
        fields=fields,
        links=gpu_links(indices, link_type, hops, weight, None, with_hops=False),
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
    tables = {name: matrix_of(cells[name] or None, labels) for name in cells}
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
