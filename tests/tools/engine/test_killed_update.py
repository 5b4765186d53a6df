"""The real engine on the embedded cluster: an update that is killed, what is left of it, and the way back. No tracked file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.engine import Engine, Workspace
from tools.engine.backend import pending_operations, read_locks
from tools.engine.processes import orphans
from tools.engine.workspace import CHECKOUT
from tools.work.embedded import cluster, settle_state, take_down

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    made = Workspace.of(stack="local", state=tmp_path_factory.mktemp("state"))
    assert cluster(made, "up", "--stack", "local") == 0
    settle_state(made)
    yield made
    assert take_down(made) == 0


def tracked_files() -> dict[str, bytes]:
    """Those of the files that an engine writes to where it is let."""
    return {file.name: file.read_bytes() for file in [*(CHECKOUT / "stacks").iterdir(), CHECKOUT / "Pulumi.yaml"]}


def kill_in_the_middle(workspace: Workspace, *, after_operations: int) -> None:
    """Starts an update and kills its engine when the checkpoint has grown by so many writes."""
    environ = {**os.environ, "NUMAWISE_STATE": str(workspace.state)}
    words = [sys.executable, "-m", "tools.engine", "up", "-s", "local"]
    process = subprocess.Popen(words, cwd=CHECKOUT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen: set[int] = set()
    deadline = time.monotonic() + 180
    while len(seen) <= after_operations:
        assert process.poll() is None, "the update ended before it could be killed"
        assert time.monotonic() < deadline
        if workspace.checkpoint.exists() and read_locks(workspace):
            seen.add(workspace.checkpoint.stat().st_mtime_ns)
        time.sleep(0.002)
    (lock,) = read_locks(workspace)
    assert lock.alive
    os.kill(lock.pid, signal.SIGKILL)
    assert process.wait(30) != 0


def test_an_update_that_was_killed_is_cleared_up_and_repeated(workspace: Workspace) -> None:
    before = tracked_files()
    kill_in_the_middle(workspace, after_operations=4)
    assert [lock.alive for lock in read_locks(workspace)] == [False]
    engine = Engine(workspace)
    assert engine.recover() == 0
    assert read_locks(workspace) == []
    assert pending_operations(workspace) == 0
    assert orphans(workspace) == []
    assert engine.preview(["--expect-no-changes"]) == 0
    assert tracked_files() == before


def test_a_state_that_the_kill_cut_short_is_mended(workspace: Workspace) -> None:
    workspace.checkpoint.write_text("")
    engine = Engine(workspace)
    assert engine.recover() == 0
    assert engine.preview(["--expect-no-changes"]) == 0


def test_a_state_of_a_cluster_that_is_gone_is_forgotten(workspace: Workspace) -> None:
    assert cluster(workspace, "down", "--wipe") == 0
    assert cluster(workspace, "up", "--stack", "local") == 0
    assert settle_state(workspace)
    assert not settle_state(workspace)
    assert Engine(workspace).up() == 0


def test_a_running_update_is_never_cleared_away(workspace: Workspace, tmp_path: Path) -> None:
    # The lock of a live process under the engine's name.
    import json
    import shutil
    import socket

    program = tmp_path / "pulumi"
    shutil.copy(os.path.realpath(shutil.which("sleep") or "/bin/sleep"), program)
    process = subprocess.Popen([program, "60"])
    workspace.locks.mkdir(parents=True, exist_ok=True)
    file = workspace.locks / "running.json"
    file.write_text(json.dumps({"pid": process.pid, "hostname": socket.gethostname()}))
    try:
        with pytest.raises(Exception, match=rf"an update of it runs \(process {process.pid} on "):
            Engine(workspace).recover()
        assert file.exists()
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        file.unlink()
