"""`numactl -H` (`--hardware`): NUMA nodes with their CPUs, memory and distances."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.outputs.reading import Line, Notes, Report
from infra.units import format_cpu_list

_AVAILABLE = re.compile(r"\s*available: (\d{1,4}) nodes? \(([\d,\-]*)\)?")
_CPUS = re.compile(r"\s*node (\d{1,4}) cpus:((?:\s+\d{1,5})*)\s*$")
_SIZE = re.compile(r"\s*node (\d{1,4}) (size|free):\s*(\d{1,9}) MB\s*$")
_DISTANCES = re.compile(r"\s*node distances:")
_DISTANCE_HEAD = re.compile(r"\s*node((?:\s+\d{1,4})+)\s*$")
_DISTANCE_ROW = re.compile(r"\s*(\d{1,4}):((?:\s+\d{1,4})+)\s*$")
_NUMBERS = re.compile(r"\s*\d{1,5}(?:\s+\d{1,5})*\s*$")


def is_numactl_line(line: str) -> bool:
    """Whether a line is one that numactl -H prints."""
    if "node" not in line:
        return False
    return any(form.match(line) for form in (_AVAILABLE, _CPUS, _SIZE, _DISTANCES)) or line.strip().startswith("node   ")


@dataclass
class _Output:
    first_line: int
    announced: int | None = None
    cpus: dict[int, tuple[int, ...]] = field(default_factory=dict)
    size_mib: dict[int, int] = field(default_factory=dict)
    free_mib: dict[int, int] = field(default_factory=dict)
    columns: list[int] = field(default_factory=list)
    distances: dict[int, tuple[int, ...]] = field(default_factory=dict)
    contradicted: set[str] = field(default_factory=set)

    def is_empty(self) -> bool:
        return self.announced is None and not self.cpus and not self.size_mib and not self.columns

    def put(self, table: dict[int, Any], what: str, node: int, value: Any) -> None:
        if node in table and table[node] != value:
            self.contradicted.add(f"{what} of node {node}")
        table.setdefault(node, value)


def read_numactl(lines: Sequence[Line]) -> list[Report]:
    """All numactl -H outputs in these lines; one begins at `available:`."""
    if not lines:
        return []
    outputs: list[_Output] = []
    current = _Output(first_line=lines[0][0])
    after: str | None = None
    node = -1
    for number, text in lines:
        if match := _AVAILABLE.match(text):
            if not current.is_empty():
                outputs.append(current)
            current = _Output(first_line=number, announced=int(match[1]))
            after = None
        elif match := _CPUS.match(text):
            node, after = int(match[1]), "cpus"
            current.put(current.cpus, "CPUs", node, tuple(map(int, match[2].split())))
        elif match := _SIZE.match(text):
            after = None
            table, what = (current.size_mib, "size") if match[2] == "size" else (current.free_mib, "free memory")
            if what == "size":
                current.put(table, what, int(match[1]), int(match[3]))
            else:
                table.setdefault(int(match[1]), int(match[3]))
        elif _DISTANCES.match(text):
            after = "distances"
        elif after == "distances" and (match := _DISTANCE_HEAD.match(text)):
            current.columns = list(map(int, match[1].split()))
        elif match := _DISTANCE_ROW.match(text):
            if current.columns:
                node, after = int(match[1]), "row"
                current.put(current.distances, "distances", node, tuple(map(int, match[2].split())))
        elif after == "cpus" and _NUMBERS.match(text):
            current.cpus[node] = (*current.cpus[node], *map(int, text.split()))
        elif after == "row" and _NUMBERS.match(text) and len(current.distances[node]) < len(current.columns):
            current.distances[node] = (*current.distances[node], *map(int, text.split()))
        elif text.strip():
            after = None
    if not current.is_empty():
        outputs.append(current)
    return [_report(output) for output in outputs]


def _report(output: _Output) -> Report:
    notes = Notes()
    for what in sorted(output.contradicted):
        notes.add(f"the {what} is given twice with different values")
    ids = sorted({*output.cpus, *output.size_mib})
    announced = output.announced
    if announced is None:
        notes.add("the line `available: N nodes` is missing; the nodes listed are counted")
    cut = announced is not None and (len(output.cpus) < announced or len(output.size_mib) < announced)
    if cut:
        notes.add(
            f"{announced} nodes are announced and {min(len(output.cpus), len(output.size_mib))} are complete: the output is cut"
        )
    size = len(output.columns)
    rows = {node: row for node, row in output.distances.items() if len(row) == size and node in output.columns}
    complete = bool(size) and len(rows) == size and all(rows[node][i] == 10 for i, node in enumerate(output.columns))
    if not complete:
        notes.add("the node distances are not complete" if size else "the node distances are missing")
    held: dict[int, int] = {}
    for node, cpus in output.cpus.items():
        for cpu in cpus:
            if held.setdefault(cpu, node) != node:
                notes.add(f"CPU {cpu} is listed under nodes {held[cpu]} and {node}")
    fields: dict[str, Any] = {
        "nodes": announced if announced is not None else len(ids),
        "cpus": len(held),
        "cpu_nodes": [node for node in ids if output.cpus.get(node)],
        # A node with memory and without CPUs is GPU memory on Grace systems; elsewhere it may be an expander.
        "gpu_mem_nodes": [
            node for node in ids if node in output.cpus and not output.cpus[node] and output.size_mib.get(node, 0) > 0
        ],
        "node_ids": ids,
        "numa_cpus": {str(node): format_cpu_list(output.cpus[node]) for node in ids if node in output.cpus},
        "size_mib": {str(node): output.size_mib[node] for node in ids if node in output.size_mib},
        "distances": [list(rows[node]) for node in output.columns] if complete else None,
    }
    return Report(kind="numactl-H", first_line=output.first_line, fields=fields, notes=notes.all(), cut=cut)
