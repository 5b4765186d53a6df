"""The cluster's processes: started, recorded by process id and start time, found again, ended. Never anyone else's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.errors import ClusterError
from tools.cluster.layout import Layout

PROGRAMS = frozenset({"simnode", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"})
KILL_AFTER_SECONDS = 8.0


@dataclass(frozen=True)
class Record:
    """A started process. `start_time` (clock ticks since boot, field 22 of /proc/PID/stat) tells it from a later one of that id."""

    pid: int
    start_time: int
    command: tuple[str, ...]

    def alive(self) -> bool:
        return start_time(self.pid) == self.start_time


def start_time(pid: int) -> int | None:
    """Start time of a running process; None where there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def read_record(layout: Layout, name: str) -> Record | None:
    try:
        record = json.loads((layout.records / f"{name}.json").read_text())
        return Record(pid=record["pid"], start_time=record["startTime"], command=tuple(record["command"]))
    except (OSError, ValueError, KeyError):
        return None


def running(layout: Layout, name: str) -> Record | None:
    """The record of a process that still runs."""
    record = read_record(layout, name)
    return record if record is not None and record.alive() else None


def recorded_names(layout: Layout) -> list[str]:
    return sorted(path.stem for path in layout.records.glob("*.json")) if layout.records.is_dir() else []


def start(layout: Layout, name: str, command: Sequence[str], *, namespace_of: int | None = None) -> Record:
    """Starts a process in the background, its output appended to its log.

    `namespace_of` is the process whose network namespace it runs in. nsenter becomes the program, so the id is the program's.
    """
    layout.logs.mkdir(parents=True, exist_ok=True)
    layout.records.mkdir(parents=True, exist_ok=True)
    prefix = [] if namespace_of is None else ["nsenter", f"--net=/proc/{namespace_of}/ns/net", "--"]
    with layout.log(name).open("ab") as log:
        process = subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": str(layout.root),
                "LANG": "C.UTF-8",
            },
        )
    began = start_time(process.pid)
    if began is None:
        raise ClusterError(f"{name} ended at once with status {process.wait()}: {last_words(layout.log(name))}")
    record = Record(pid=process.pid, start_time=began, command=tuple(command))
    path = layout.records / f"{name}.json"
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"pid": record.pid, "startTime": record.start_time, "command": list(command)}))
    temporary.replace(path)
    return record


def ensure(layout: Layout, name: str, command: Sequence[str], *, namespace_of: int | None = None) -> tuple[Record, bool]:
    """The running process of that name, started (again) where it does not run or ran another command; and whether it was started."""
    record = running(layout, name)
    if record is not None:
        if record.command == tuple(command):
            return record, False
        stop(layout, [name])
    return start(layout, name, command, namespace_of=namespace_of), True


def stop(layout: Layout, names: Sequence[str]) -> None:
    """Ends these processes together: asked first, killed after some seconds. Their records go."""
    records = [record for name in names if (record := running(layout, name)) is not None]
    end(records)
    for name in names:
        (layout.records / f"{name}.json").unlink(missing_ok=True)


def end(records: Sequence[Record]) -> None:
    for record in records:
        send(record, signal.SIGTERM)
    deadline = time.monotonic() + KILL_AFTER_SECONDS
    waiting = list(records)
    while waiting and time.monotonic() < deadline:
        time.sleep(0.05)
        reap()
        waiting = [record for record in waiting if record.alive()]
    for record in waiting:
        send(record, signal.SIGKILL)
    while any(record.alive() for record in waiting):
        time.sleep(0.05)
        reap()


def send(record: Record, number: signal.Signals) -> None:
    if record.alive():
        try:
            os.kill(record.pid, number)
        except ProcessLookupError:
            return


def reap() -> None:
    """Collects our own ended children, so that they do not look alive."""
    for path in Path("/proc/self/task").iterdir():
        try:
            children = (path / "children").read_text().split()
        except OSError:
            continue
        for pid in children:
            if start_time(int(pid)) is None:
                try:
                    os.waitpid(int(pid), os.WNOHANG)
                except ChildProcessError:
                    continue


def strays(layout: Layout) -> list[Record]:
    """Running programs of ours whose command line carries this state folder, but that no record names: what an earlier run left.

    A node's init is not counted: it ends with the process that holds the node.
    """
    recorded = {record.pid for name in recorded_names(layout) if (record := running(layout, name)) is not None}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in recorded or int(entry.name) == os.getpid():
            continue
        try:
            command = [part.decode(errors="replace") for part in (entry / "cmdline").read_bytes().split(b"\0")]
        except OSError:
            continue
        if (
            command[1:2] == ["init"]
            or not PROGRAMS & {Path(part).name for part in command[:5]}
            or not any(carries(part, layout.root) for part in command)
        ):
            continue
        began = start_time(int(entry.name))
        if began is not None:
            found.append(Record(pid=int(entry.name), start_time=began, command=tuple(command)))
    return found


def carries(argument: str, root: Path) -> bool:
    before, found, after = argument.partition(str(root))
    return bool(found) and (not after or after[0] == "/") and (not before or not before[-1].isalnum())


def wait_until(check: Callable[[], bool], *, seconds: float, every_seconds: float = 0.1) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        if check():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_seconds)


def last_words(log: Path, lines: int = 5) -> str:
    """The end of a log, with the log's path, for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16384))
            text = file.read().decode(errors="replace").rstrip().splitlines()
    except OSError:
        return f"(no log at {log})"
    tail = "\n  ".join(line[:400] for line in text[-lines:])
    return f"the end of {log}:\n  {tail}" if tail else f"(nothing in {log})"
