"""The user's cache of programs: one folder an entry, complete and checked or not there at all.

An entry is `PART/KEY/` with the files and `entry.json`, which holds their SHA-256. It is made in a folder beside its place, written
through to the disk and renamed, so a killed build leaves nothing that looks like an entry. An entry is used only when its files are
as the marker says: by size and times (cheap; ctime cannot be set back), else by SHA-256.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.toolchain.errors import ToolchainError
from tools.toolchain.progress import HEARTBEAT_SECONDS

MARKER = "entry.json"


def cache_root() -> Path:
    """$XDG_CACHE_HOME/numawise/toolchain, else ~/.cache/numawise/toolchain."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base.startswith("/") else Path("~/.cache").expanduser()
    return root / "numawise" / "toolchain"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A complete entry: its folder and what the marker says of where it came from."""

    folder: Path
    source: str
    seconds: float


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Cache:
    """The entries below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def entry_folder(self, part: str, key: str) -> Path:
        return self.root / part / key

    def find(self, part: str, key: str, files: tuple[str, ...], *, tree: bool = False) -> Entry | None:
        """The entry, if it is complete and its files are what they were when it was made; None otherwise.

        `tree`: the entry holds more than `files`; names and sizes of all of it are compared too.
        """
        folder = self.entry_folder(part, key)
        try:
            marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
            recorded: dict[str, Any] = marker["files"]
            if set(recorded) != set(files):
                return None
            touched = False
            for name in files:
                status = (folder / name).stat()
                facts = recorded[name]
                if status.st_size != facts["size"] or not status.st_mode & stat.S_IXUSR:
                    return None
                if _times(status) != facts["times"]:
                    if sha256_of(folder / name) != facts["sha256"]:
                        return None
                    facts["times"] = _times(status)
                    touched = True
            if tree and _tree_digest(folder) != marker["tree"]:
                return None
            entry = Entry(folder=folder, source=str(marker["source"]), seconds=float(marker["seconds"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if touched:
            with contextlib.suppress(OSError):
                _write(folder / MARKER, json.dumps(marker, indent=1))
        return entry

    def make(self, part: str, key: str, files: tuple[str, ...], fill: Callable[[Path], str], *, tree: bool = False) -> Entry:
        """Makes the entry: `fill(folder)` puts the files there and returns where they came from. What was in its place goes.

        Files beside `files` are left out, but for a `tree`.
        """
        place = self.entry_folder(part, key)
        started = time.monotonic()
        with self._writable(part):
            place.parent.mkdir(parents=True, exist_ok=True)
            half = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=place.parent))
        try:
            source = fill(half)
            with self._writable(part):
                recorded: dict[str, Any] = {}
                for name in files:
                    file = half / name
                    file.chmod(0o755)
                    _through_to_disk(file)
                    recorded[name] = {"sha256": sha256_of(file), "size": file.stat().st_size, "times": _times(file.stat())}
                seconds = round(time.monotonic() - started, 1)
                marker: dict[str, Any] = {"source": source, "seconds": seconds, "files": recorded}
                if tree:
                    os.sync()
                    marker["tree"] = _tree_digest(half)
                else:
                    for stray in set(half.iterdir()) - {half / name for name in files}:
                        shutil.rmtree(stray) if stray.is_dir() else stray.unlink()
                half.chmod(0o755)
                _write(half / MARKER, json.dumps(marker, indent=1))
                shutil.rmtree(place, ignore_errors=True)
                half.rename(place)
                _through_to_disk(place.parent)
            return Entry(folder=place, source=source, seconds=seconds)
        finally:
            shutil.rmtree(half, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, part: str, *, waiting: Callable[[], None]) -> Iterator[None]:
        """Holds the part's lock across processes; `waiting` is called at once and every half minute where another process has it."""
        with self._writable(part):
            folder = self.root / "locks"
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder / part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(handle, waiting)
            self._sweep(part)
            yield
        finally:
            os.close(handle)

    def _take(self, handle: int, waiting: Callable[[], None]) -> None:
        said = -HEARTBEAT_SECONDS
        while True:
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() - said >= HEARTBEAT_SECONDS:
                    waiting()
                    said = time.monotonic()
                time.sleep(0.2)

    def _sweep(self, part: str) -> None:
        # Only the lock's holder makes entries of this part, so every half-made one is a killed process's.
        for half in (self.root / part).glob(".*"):
            shutil.rmtree(half, ignore_errors=True)

    @contextlib.contextmanager
    def _writable(self, part: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"{part} cannot be kept in {self.root} ({reason}). Make room or make it writable, or set XDG_CACHE_HOME to a folder that is."
            raise ToolchainError("CacheUnusable", "toolchain cache", message) from None


def _times(status: os.stat_result) -> list[int]:
    return [status.st_mtime_ns, status.st_ctime_ns]


def _tree_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        # Byte code appears when Python imports from the tree; it is no part of it.
        if file.is_file() and file.name != MARKER and file.suffix != ".pyc":
            digest.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\n".encode())
    return digest.hexdigest()


def _write(file: Path, text: str) -> None:
    half = file.with_name(f".{file.name}.{os.getpid()}")
    half.write_text(text + "\n", encoding="utf-8")
    _through_to_disk(half)
    half.replace(file)


def _through_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
