"""What the file backend holds of a stack: locks, unfinished operations, the state itself."""

from __future__ import annotations

import json
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from tools.engine.processes import is_engine
from tools.engine.workspace import PROJECT, Workspace


@dataclass(frozen=True, kw_only=True)
class Lock:
    """An update's lock in the file backend; `alive` where its process still runs, or cannot be looked at (another machine)."""

    file: Path
    pid: int
    hostname: str
    alive: bool


def read_locks(workspace: Workspace) -> list[Lock]:
    """The stack's locks. One that cannot be read was cut short by a crash: no process holds it."""
    locks: list[Lock] = []
    for file in sorted(workspace.locks.glob("*.json")):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            pid, hostname = int(content["pid"]), str(content.get("hostname", ""))
        except (OSError, ValueError, KeyError, TypeError):
            locks.append(Lock(file=file, pid=0, hostname="", alive=False))
            continue
        here = hostname in ("", socket.gethostname())
        locks.append(Lock(file=file, pid=pid, hostname=hostname, alive=not here or is_engine(pid)))
    return locks


def pending_operations(workspace: Workspace) -> int:
    """How many operations a killed update had begun and not recorded as done."""
    try:
        deployment = json.loads(workspace.checkpoint.read_text(encoding="utf-8"))
        return len(deployment["checkpoint"]["latest"].get("pending_operations") or [])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0


def mend_checkpoint(workspace: Workspace) -> str:
    """Puts a copy in the place of a state that a crash cut short; tells in a few words what was done, or nothing where the state is whole.

    The engine keeps the state before the last write beside it (.bak), and one an update in its backups. What an older one lacks is found again: objects
    of the stack carry its label, so that the next update takes them as they are. The damaged file is kept with `.damaged` behind its name.
    """
    checkpoint = workspace.checkpoint
    if not checkpoint.exists() or _is_whole(checkpoint):
        return ""
    backups = (workspace.backend / ".pulumi" / "backups" / PROJECT / workspace.name).glob("*.json*")
    newest = sorted(backups, key=lambda file: file.stat().st_mtime, reverse=True)
    copy = next((file for file in (checkpoint.with_name(f"{checkpoint.name}.bak"), *newest) if _is_whole(file)), None)
    checkpoint.replace(checkpoint.with_name(f"{checkpoint.name}.damaged"))
    if copy is None:
        return "the state was cut short and has no copy; beginning with an empty one"
    shutil.copyfile(copy, checkpoint)
    return f"the state was cut short; going back to its copy {copy.name}"


def _is_whole(file: Path) -> bool:
    try:
        return isinstance(json.loads(file.read_text(encoding="utf-8"))["checkpoint"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def forget(workspace: Workspace) -> None:
    """Removes the stack's state: its cluster is gone, and nothing of it can be deleted any more."""
    for file in workspace.checkpoint.parent.glob(f"{workspace.name}.json*"):
        file.unlink()
    shutil.rmtree(workspace.locks, ignore_errors=True)
    for kind in ("history", "backups"):
        shutil.rmtree(workspace.backend / ".pulumi" / kind / PROJECT / workspace.name, ignore_errors=True)
