"""`lscpu` in any of its languages, as text or as JSON (-J)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from infra.outputs.lscpu_labels import FIELD_OF
from infra.outputs.reading import Line, Notes, Report
from infra.units import parse_cpu_list

_NUMBERS = frozenset({"cpus", "threads_per_core", "cores_per_socket", "cores_per_cluster", "sockets", "clusters", "numa_nodes"})
_STRONG = frozenset(
    {"threads_per_core", "cores_per_socket", "cores_per_cluster", "sockets", "numa_nodes", "online", "architecture"}
)
_CPU_LIST = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\s*\d{1,5}(?:-\d{1,5})?)*,?$")
_CONTINUATION = re.compile(r"\s+[\d,\-]+\s*$")


def lscpu_field(line: str) -> tuple[str, str] | None:
    """The name and value of a line of lscpu (`numa` and the node's number for a NUMA node); None for other lines."""
    key, colon, value = line.replace("：", ":").partition(":")
    if not colon or len(key) > 60:
        return None
    key = re.sub(r"\s+", " ", key).strip().casefold()
    if key in FIELD_OF:
        return FIELD_OF[key], value.strip()
    if "numa" in key:
        numbers = re.findall(r"\d+", key)
        value = value.strip()
        if len(numbers) == 1 and len(numbers[0]) < 5 and (value in ("", "-") or _CPU_LIST.match(value)):
            return f"numa {int(numbers[0])}", value
    return None


def is_strong(field: str) -> bool:
    """Whether a field is one that hardly stands in any other text."""
    return field in _STRONG or field.startswith("numa ")


def read_lscpu(lines: Sequence[Line]) -> list[Report]:
    """All lscpu outputs in these lines; one begins anew where a field comes a second time with another value."""
    reports: list[Report] = []
    fields: dict[str, str] = {}
    first = 0
    last: str | None = None
    for number, text in lines:
        found = lscpu_field(text)
        if found is None:
            if last is not None and last.startswith("numa ") and _CONTINUATION.match(text):
                fields[last] = fields[last].rstrip() + text.strip()
            else:
                last = None
            continue
        name, value = found
        if name in _NUMBERS and not value:
            # A heading such as `CPU:`.
            continue
        if name in fields and fields[name] != value and name in ("architecture", "cpus") and len(fields) > 2:
            reports.append(_report(first, fields))
            fields = {}
        if not fields:
            first = number
        if name in fields and fields[name] != value and name not in ("model", "vendor"):
            fields[f"{name} again"] = value
        fields.setdefault(name, value)
        last = name
    if fields:
        reports.append(_report(first, fields))
    return [report for report in reports if report.fields["cpus"] is not None or report.fields["nodes"] is not None]


def lscpu_json_lines(document: Mapping[str, Any]) -> list[str]:
    """The text lines of an `lscpu -J` document."""
    lines: list[str] = []

    def walk(entries: Any) -> None:
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and isinstance(entry.get("field"), str):
                data = entry.get("data")
                lines.append(f"{entry['field'].rstrip(':')}: {data if data is not None else ''}")
                walk(entry.get("children"))

    walk(document.get("lscpu"))
    return lines


def _report(first: int, fields: Mapping[str, str]) -> Report:
    notes = Notes()
    numbers: dict[str, int | None] = {}
    for name in _NUMBERS:
        text = fields.get(name)
        match = re.match(r"\d{1,6}$", text) if text is not None else None
        numbers[name] = int(match[0]) if match else None
        if name == "threads_per_core" and numbers[name] == 0:
            numbers[name] = None
            notes.add("Thread(s) per core: 0 is no number of threads")
        if text is not None and match is None and text not in ("-", ""):
            notes.add(f"{name.replace('_', ' ')}: {text[:30]!r} is no number")
        if f"{name} again" in fields:
            notes.add(f"{name.replace('_', ' ')} is {text} and {fields[f'{name} again']}; neither is used")
            numbers[name] = None
    numa: dict[int, tuple[int, ...] | None] = {}
    for name, value in fields.items():
        if not name.startswith("numa ") or name.endswith(" again"):
            continue
        node = int(name[5:])
        numa[node] = _cpus(value)
        if numa[node] is None or f"{name} again" in fields:
            notes.add(f"the CPUs of NUMA node {node} cannot be read")
            numa[node] = None
    nodes = numbers["numa_nodes"]
    cut = nodes is not None and len(numa) < nodes
    if cut:
        notes.add(f"{nodes} NUMA nodes are announced and {len(numa)} are listed: the output is cut")
    if nodes is None and numa:
        nodes = len(numa)
        notes.add("the number of NUMA nodes is not there; the nodes listed are counted")
    listed = [cpu for cpus in numa.values() for cpu in cpus or ()]
    cpus = numbers["cpus"]
    if len(set(listed)) < len(listed):
        notes.add("a CPU is listed under two NUMA nodes")
    online = _cpus(fields.get("online", ""))
    if (
        not cut
        and None not in numa.values()
        and numa
        and cpus is not None
        and len(set(listed)) != (len(online) if online else cpus)
    ):
        notes.add(f"{len(online) if online else cpus} CPUs are on-line and {len(set(listed))} are listed under NUMA nodes")
    sockets = numbers["sockets"] if numbers["sockets"] is not None else numbers["clusters"]
    out: dict[str, Any] = {
        "cpus": cpus,
        "nodes": nodes,
        "sockets": sockets,
        "threads_per_core": numbers["threads_per_core"],
        "cores_per_socket": numbers["cores_per_socket"]
        if numbers["cores_per_socket"] is not None
        else numbers["cores_per_cluster"],
        "numa_cpus": {str(node): _text(fields[f"numa {node}"]) if numa[node] is not None else None for node in sorted(numa)},
        "model": fields.get("model") or None,
        "hypervisor": fields.get("hypervisor") or None,
    }
    if fields.get("offline"):
        out["offline_cpus"] = fields["offline"]
        notes.add(f"CPUs {fields['offline']} are off-line")
    return Report(kind="lscpu", first_line=first, fields=out, notes=notes.all(), cut=cut)


def _cpus(text: str) -> tuple[int, ...] | None:
    if text in ("", "-"):
        return ()
    try:
        return parse_cpu_list(text)
    except ValueError:
        return None


def _text(value: str) -> str:
    return value.replace(" ", "").rstrip(",") if value != "-" else ""
