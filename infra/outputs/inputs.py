"""Files (or standard input) to machines: what the commands `topology` and `shape` read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from infra.diagnosis import shown
from infra.errors import NumawiseError
from infra.outputs.collective_log import CollectiveLog
from infra.outputs.machine import Machine, contradictions, machines
from infra.outputs.paste import clean_lines, decode, unreadable, unwrapped
from infra.outputs.reading import Report
from infra.outputs.recognise import KINDS, collective_report, recognise

# The outputs of the largest machines are below 1 MiB; only collective logs are larger.
MOST_BYTES = 32 * 2**20

_FAILURES = (
    ("couldn't communicate with the NVIDIA driver", "the NVIDIA driver is not loaded"),
    ("Failed to initialize NVML", "NVML could not be initialised (driver and library differ, or the container lost its devices)"),
    ("No devices were found", "the tool found no GPU"),
    ("Unable to determine the device handle", "a GPU has fallen off the bus"),
    ("Unable to open /dev/kfd", "/dev/kfd cannot be opened"),
    ("command not found", "the tool is not installed there"),
    ("No NUMA support available", "the machine or the container shows no NUMA nodes to numactl"),
)


def read_bytes(path: str, *, most: int | None = None) -> bytes:
    """The bytes of a file, `-` for standard input; ConfigError for what cannot be read."""
    if path == "-":
        return sys.stdin.buffer.read()
    file = Path(path)
    try:
        if file.is_dir():
            raise unreadable(path, "it is a directory; give the file with the tool's output.", code="NotAFile")
        with file.open("rb") as handle:
            return handle.read() if most is None else handle.read(most)
    except FileNotFoundError:
        near = sorted(other.name for other in file.parent.glob("*") if other.is_file())[:5] if file.parent.is_dir() else []
        there = f" In that folder are {', '.join(near)}." if near else ""
        raise unreadable(path, f"there is no such file.{there}", code="MissingFile") from None
    except OSError as error:
        raise unreadable(path, f"it cannot be read: {error.strerror}.") from None


def read_reports(path: str) -> tuple[Report, ...]:
    """All outputs that a file holds, in order; ConfigError with what the file is where it holds none."""
    raw = read_bytes(path, most=MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        if b"NCCL " not in raw[: 4 * 2**20]:
            raise unreadable(path, f"it is larger than {MOST_BYTES // 2**20} MiB; the output of one tool was expected.")
        return (read_collective_file(path),)
    return reports_in(raw, path=path)


def reports_in(raw: bytes, *, path: str) -> tuple[Report, ...]:
    """All outputs that these bytes hold; `path` is what errors call them."""
    text = decode(raw, path=path)
    lines = clean_lines(text)
    reports, broken = _recognised(lines, path)
    whole = unwrapped(lines) if len(lines) < 20_000 else None
    if whole is not None:
        joined, _ = _recognised(whole, path)
        if _known_values(joined) > _known_values(reports):
            reports, broken = joined, None
    if broken is not None:
        raise broken
    if not reports:
        raise unreadable(path, _nothing_found(lines), code="UnknownOutput")
    for report in reports:
        if report.links is not None and not report.links.links and len(report.links.gpus) > 1:
            why = "; ".join(report.notes[:2]) or "no row fits the header"
            raise unreadable(
                path,
                f"it has the header of a matrix of {len(report.links.gpus)} GPUs (line {report.first_line}), and no link "
                f"can be read: {why}.",
                code="NoLinks",
            )
    return reports


def _recognised(lines: Sequence[str], path: str) -> tuple[tuple[Report, ...], NumawiseError | None]:
    try:
        return recognise(lines, source=path), None
    except NumawiseError as error:
        return (), error


def _known_values(reports: Sequence[Report]) -> int:
    """How much was read: the values that are there, in all outputs."""

    def count(value: object) -> int:
        if isinstance(value, dict):
            return sum(map(count, value.values()))
        if isinstance(value, list | tuple):
            return sum(map(count, value))
        return value is not None and value != ""

    return sum(1 + count(dict(report.fields)) + len(report.findings) for report in reports)


def read_collective_file(path: str) -> Report:
    """A collective log of any size, as one report."""
    from infra.outputs.log_file import log_lines

    return collective_report(CollectiveLog(source=path).read(log_lines(path)).verdict())


def read_machine(paths: Sequence[str]) -> Machine:
    """The one machine that the files describe; ConfigError where they describe several, or contradict each other."""
    reports: list[Report] = []
    offset = 0
    problems = []
    for path in paths:
        try:
            found = read_reports(path)
        except NumawiseError as error:
            problems += error.problems
            continue
        reports += [replace(report, first_line=offset + report.first_line) for report in found]
        offset += 10_000_000
    if problems:
        raise NumawiseError(problems)
    return one_machine(reports, source=", ".join(paths))


def one_machine(reports: Sequence[Report], *, source: str) -> Machine:
    """The machine that all reports describe; ConfigError where there are several, or where they contradict each other."""
    found_machines = machines(reports)
    if len(found_machines) > 1:
        described = "; ".join(
            f"{machine.host or f'machine {i}'}: {describe(machine)}" for i, machine in enumerate(found_machines[:6], 1)
        )
        more = f"; and {len(found_machines) - 6} more" if len(found_machines) > 6 else ""
        raise unreadable(
            source,
            f"it holds the outputs of {len(found_machines)} machines ({described}{more}); give one machine's outputs at a time.",
            code="SeveralMachines",
        )
    machine = next(iter(found_machines))
    if against := contradictions(machine):
        raise unreadable(
            source, f"the outputs cannot be of one machine: {'; '.join(against)}. Take them all on one node.", code="Contradiction"
        )
    return machine


def describe(machine: Machine) -> str:
    """What is known of a machine in a few words."""
    parts = []
    for report in machine.reports:
        gpus, nodes = report.fields.get("gpus"), report.fields.get("nodes")
        known = f"{gpus} GPUs" if isinstance(gpus, int) else f"{nodes} NUMA nodes" if isinstance(nodes, int) else ""
        parts.append(f"{report.kind} {known}".strip())
    return ", ".join(parts)


def _nothing_found(lines: Sequence[str]) -> str:
    filled = [line.strip() for line in lines if line.strip()]
    text = "\n".join(filled)
    for sign, meaning in _FAILURES:
        if sign in text:
            return f"it holds no output but an error: {meaning}."
    if "NVIDIA-SMI" in text and "Driver Version" in text:
        return "it is the overview that `nvidia-smi` prints without options; `nvidia-smi topo -m` shows the links."
    if any("GPU0" in line and ("NV" in line or "SYS" in line or "NODE" in line) for line in filled):
        return "there are rows of a GPU matrix but not its header (the line `GPU0 GPU1 ...`); copy the whole output."
    if any(line.startswith("Legend:") or "Connection traversing" in line for line in filled):
        return "there is only the legend of `nvidia-smi topo -m`; copy the matrix above it too."
    first = filled[0][:60] if filled else ""
    return f"no known output is among its {len(filled)} lines (the first is {shown(first)}). Read are {KINDS}."
