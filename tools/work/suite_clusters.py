"""The clusters that tests start. Their folders lie below one, so that what a killed run left running can be ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from infra.errors import MissingError
from tools.cluster.layout import Layout
from tools.engine.processes import end, orphans
from tools.engine.workspace import Workspace
from tools.work.steps import CHECKOUT

TESTS = CHECKOUT / ".state" / "test"


@contextlib.contextmanager
def suite_folder(folder: Path = TESTS) -> Iterator[Path]:
    """The folder for pytest's --basetemp, for one run at a time; clusters below it are ended before and after."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = "another run of these tests uses this folder; wait for it, or use another checkout."
            raise MissingError.one("SuiteRuns", str(folder), message) from None
        try:
            end_clusters(folder)
            yield folder / "pytest"
        finally:
            status = end_clusters(folder)
            if status == 0:
                shutil.rmtree(folder / "pytest", ignore_errors=True)


def end_leftovers(folder: Path = TESTS) -> int:
    """Ends what a killed run left below its folder; a run that goes on is left alone."""
    try:
        with suite_folder(folder):
            return 0
    except MissingError as running:
        print(running, file=sys.stderr)
        return 0


def cluster_roots(folder: Path) -> list[Path]:
    """The state folders of clusters below this one, by their process records."""
    found = []
    for path, names, _ in os.walk(folder):
        if Layout(Path(path)).records.name in names:
            found.append(Path(path))
            names.clear()
    return sorted(found)


def end_clusters(folder: Path) -> int:
    """Ends the clusters and the engines' plugins below a folder; 0, or the status of the last that could not be ended."""
    status = 0
    for root in cluster_roots(folder):
        end(orphans(Workspace.of(stack="local", state=root.parent)))
        command = [sys.executable, "-m", "tools.cluster", "--state", str(root), "down", "--wipe"]
        status = subprocess.run(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL).returncode or status
    return status
