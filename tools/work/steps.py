"""Steps of a make target: one line each with what it is and what it took; the first that fails ends the target."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


class StepFailed(Exception):
    """A step that ended with a status other than 0. `remedy` is what to do about it."""

    def __init__(self, title: str, status: int, remedy: str) -> None:
        self.title = title
        self.status = status
        self.remedy = remedy
        super().__init__(title)

    @property
    def ending(self) -> str:
        """As subprocess gives a status: below 0 it is the signal that ended the process."""
        return f"failed with status {self.status}" if self.status > 0 else f"was killed by signal {-self.status}"


class Steps:
    """Numbers and times the steps of one target."""

    def __init__(self, target: str, *, total: int) -> None:
        self._target = target
        self._total = total
        self._number = 0
        self._started = time.monotonic()
        self.seconds: dict[str, float] = {}

    def call(
        self, title: str, action: Callable[[], int | None], *, remedy: str = "", remedy_if_killed: str = "run it again"
    ) -> None:
        """Runs `action`; its status (None counts as 0, below 0 the signal that ended it) decides. What was killed has said nothing of a reason."""
        self._number += 1
        began = time.monotonic()
        self._line(f"{title} ...")
        status = action() or 0
        self.seconds[title] = round(time.monotonic() - began, 2)
        if status != 0:
            failed = StepFailed(title, status, remedy if status > 0 else remedy_if_killed)
            self._line(f"{title}: {failed.ending} after {self.seconds[title]:.1f} s")
            raise failed
        self._line(f"{title}: {self.seconds[title]:.1f} s")

    def run(
        self, title: str, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path = CHECKOUT, remedy: str = ""
    ) -> None:
        """Runs a command with its output going through."""
        self.call(
            title, lambda: subprocess.run(list(command), cwd=cwd, env=env, stdin=subprocess.DEVNULL).returncode, remedy=remedy
        )

    def done(self, text: str) -> None:
        print(f"make {self._target}: {text} ({time.monotonic() - self._started:.1f} s)", file=sys.stderr, flush=True)

    def _line(self, text: str) -> None:
        print(f"make {self._target} [{self._number}/{self._total}] {text}", file=sys.stderr, flush=True)
