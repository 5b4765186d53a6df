"""Processes of the engine: which run, which plugins were left behind, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tools.engine.workspace import Workspace

_PROC = Path("/proc")


def run_to_its_end(words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: int | None) -> int:
    """Runs a command with its output going through and returns its status. Ctrl-C is the command's to answer: the engine then ends its
    update in order and removes its lock, where a kill would leave both behind."""
    main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGINT, lambda *_: None) if main else None
    try:
        return subprocess.Popen(words, cwd=cwd, env=dict(env), stdin=stdin).wait()
    finally:
        if main:
            signal.signal(signal.SIGINT, previous)


def is_engine(pid: int) -> bool:
    """Whether this process is a running pulumi. Process ids are used again: any other program holds no lock."""
    try:
        state = (_PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return False
    return _command(pid)[:1] == ["pulumi"] and state not in ("Z", "X")


def orphans(workspace: Workspace) -> list[int]:
    """Plugin and program processes of this workspace (by their PULUMI_HOME) that no running engine of it is an ancestor of."""
    home = f"PULUMI_HOME={workspace.home}".encode()
    ours = {pid for pid in _pids() if home in _environ(pid)}
    engines = {pid for pid in ours if is_engine(pid)}
    return sorted(pid for pid in ours if _is_plugin(pid) and not engines.intersection({pid, *_ancestors(pid)}))


def end(pids: Iterable[int], *, patience_seconds: float = 5.0) -> None:
    """Ends processes by id: asks first, and kills what is still there after `patience_seconds`."""
    waiting = list(pids)
    for pid in waiting:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + patience_seconds
    while waiting and time.monotonic() < deadline:
        time.sleep(0.05)
        waiting = [pid for pid in waiting if _runs(pid)]
    for pid in waiting:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _is_plugin(pid: int) -> bool:
    return any(name.startswith(("pulumi-resource-", "pulumi-language-", "pulumi-analyzer-")) for name in _command(pid))


def _command(pid: int) -> list[str]:
    """The file names of the first three words of its command line: program, interpreter's script."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.rsplit(b"/", 1)[-1].decode("utf-8", "replace") for word in words[:3]]


def _runs(pid: int) -> bool:
    try:
        return (_PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def _pids() -> Iterator[int]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def _environ(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _ancestors(pid: int) -> set[int]:
    seen: set[int] = set()
    while pid > 1:
        try:
            pid = int((_PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            break
        seen.add(pid)
    return seen
