"""Progress on standard error: a line a part, and a sign of life every half minute of a long one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HEARTBEAT_SECONDS = 30.0


class Progress:
    """Says what is done, what it took and what comes next."""

    def __init__(self, *, total: int, write: Callable[[str], object] | None = None) -> None:
        self._total = total
        self._done = 0
        self._started = time.monotonic()
        self._write = write or (lambda text: print(text, file=sys.stderr, flush=True))

    def begin(self) -> None:
        self._done += 1

    def say(self, text: str) -> None:
        elapsed = int(time.monotonic() - self._started)
        place = f" [{self._done}/{self._total}]" if self._total else ""
        self._write(f"toolchain{place} {elapsed // 60}:{elapsed % 60:02d}  {text}")

    def run(
        self, command: Sequence[str], *, title: str, cwd: Path | None = None, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Runs a long command; both output streams come back as one text."""
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=HEARTBEAT_SECONDS)
                    return subprocess.CompletedProcess(list(command), process.returncode, output, "")
                except subprocess.TimeoutExpired:
                    self.say(f"{title}: still at it after {int(time.monotonic() - started)} s")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
