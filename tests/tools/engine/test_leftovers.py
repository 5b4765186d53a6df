"""What a killed update leaves behind: locks of dead processes, plugin processes, pending operations."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.engine.test_workspace import workspace
from tools.engine import Workspace
from tools.engine.backend import forget, mend_checkpoint, pending_operations, read_locks
from tools.engine.processes import end, orphans
from tools.engine.workspace import CHECKOUT

SLEEP = shutil.which("sleep")


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    return workspace(tmp_path)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    """Starts a process under any name, with any PULUMI_HOME; all end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(name: str, home: Path | str) -> subprocess.Popen[bytes]:
        program = tmp_path / "programs" / name
        program.parent.mkdir(exist_ok=True)
        if not program.exists():
            assert SLEEP is not None
            shutil.copy(os.path.realpath(SLEEP), program)
        process = subprocess.Popen([program, "60"], env={"PULUMI_HOME": str(home)})
        started.append(process)
        deadline = time.monotonic() + 5
        while Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[0] != os.fsencode(program):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.wait()


def lock(made: Workspace, pid: int, *, hostname: str | None = None) -> None:
    made.locks.mkdir(parents=True, exist_ok=True)
    content = {"pid": pid, "hostname": socket.gethostname() if hostname is None else hostname, "username": "root"}
    (made.locks / f"{pid}.json").write_text(json.dumps(content))


def test_a_lock_lives_while_its_pulumi_runs(made: Workspace, start) -> None:
    process = start("pulumi", made.home)
    lock(made, process.pid)
    assert [(found.pid, found.alive) for found in read_locks(made)] == [(process.pid, True)]
    process.kill()
    # Not waited for yet: a zombie holds no lock either.
    time.sleep(0.1)
    assert [found.alive for found in read_locks(made)] == [False]


def test_another_program_with_the_dead_update_s_process_id_holds_no_lock(made: Workspace, start) -> None:
    lock(made, start("postgres", made.home).pid)
    assert [found.alive for found in read_locks(made)] == [False]


def test_a_lock_of_another_machine_is_not_ours_to_judge(made: Workspace) -> None:
    lock(made, 2**22 - 1, hostname="elsewhere")
    assert [found.alive for found in read_locks(made)] == [True]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "many"}', "{}"])
def test_a_lock_that_was_cut_short_is_dead(made: Workspace, text: str) -> None:
    made.locks.mkdir(parents=True)
    (made.locks / "x.json").write_text(text)
    assert [found.alive for found in read_locks(made)] == [False]


def test_plugins_of_this_state_folder_without_an_engine_are_orphans_and_others_are_not(
    made: Workspace, start, tmp_path: Path
) -> None:
    ours = [start("pulumi-resource-kubernetes", made.home), start("pulumi-language-python", made.home)]
    others = [start("pulumi-resource-kubernetes", tmp_path / "other"), start("sleep", made.home), start("pulumi", made.home)]
    assert orphans(made) == sorted(process.pid for process in ours)
    end(orphans(made))
    assert orphans(made) == []
    assert all(process.wait(5) == -15 for process in ours)
    assert all(process.poll() is None for process in others)


def test_plugins_below_a_running_engine_are_left_alone(made: Workspace, tmp_path: Path) -> None:
    # A shell under the engine's name, so that it can have children.
    engine, plugin = tmp_path / "pulumi", tmp_path / "pulumi-resource-kubernetes"
    assert SLEEP is not None
    shutil.copy(os.path.realpath(shutil.which("bash") or "/bin/sh"), engine)
    shutil.copy(os.path.realpath(SLEEP), plugin)
    process = subprocess.Popen(
        [engine, "-c", f"{plugin} 60 & echo $!; wait"], env={"PULUMI_HOME": str(made.home)}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        assert orphans(made) == []
        process.kill()
        process.wait()
        deadline = time.monotonic() + 5
        while orphans(made) != [child]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.stdout.close()
        end([child])
    assert orphans(made) == []


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    end([process.pid], patience_seconds=0.3)
    assert process.wait(5) == -9
    process.stdout.close()


@pytest.mark.parametrize(
    ("latest", "count"),
    [
        ({"pending_operations": [{"type": "creating"}, {"type": "deleting"}]}, 2),
        ({"pending_operations": None}, 0),
        ({}, 0),
        (None, 0),
    ],
)
def test_pending_operations_are_counted(made: Workspace, latest: object, count: int) -> None:
    assert pending_operations(made) == 0
    made.checkpoint.parent.mkdir(parents=True)
    made.checkpoint.write_text(json.dumps({"version": 3, "checkpoint": {"latest": latest}}))
    assert pending_operations(made) == count


WHOLE = '{"version": 3, "checkpoint": {"latest": {}}}'


def test_a_whole_state_is_left_alone(made: Workspace) -> None:
    assert mend_checkpoint(made) == ""
    made.checkpoint.parent.mkdir(parents=True)
    made.checkpoint.write_text(WHOLE)
    assert mend_checkpoint(made) == ""
    assert [file.name for file in made.checkpoint.parent.iterdir()] == ["local.json"]


@pytest.mark.parametrize("damaged", ["", WHOLE[:20], "null", "[]", "{}"])
@pytest.mark.parametrize("copies", ["bak", "older", "damaged bak", "none"])
def test_a_state_that_was_cut_short_goes_back_to_its_newest_copy(made: Workspace, damaged: str, copies: str) -> None:
    made.checkpoint.parent.mkdir(parents=True)
    made.checkpoint.write_text(damaged)
    backups = made.backend / ".pulumi" / "backups" / "numawise" / "local"
    backups.mkdir(parents=True)
    if copies == "bak":
        made.checkpoint.with_name("local.json.bak").write_text(WHOLE)
    if copies == "damaged bak":
        made.checkpoint.with_name("local.json.bak").write_text(damaged)
    if copies in ("older", "damaged bak"):
        (backups / "local.1.json").write_text(damaged)
        (backups / "local.2.json").write_text(WHOLE)
    said = mend_checkpoint(made)
    kept = made.checkpoint.with_name("local.json.damaged")
    assert kept.read_text() == damaged
    if copies == "none":
        assert "has no copy" in said and not made.checkpoint.exists()
    else:
        assert made.checkpoint.read_text() == WHOLE
        assert said.endswith("local.json.bak" if copies == "bak" else "local.2.json")
    assert mend_checkpoint(made) == ""


def test_forgetting_a_stack_leaves_the_other_stacks(made: Workspace) -> None:
    folder = made.checkpoint.parent
    folder.mkdir(parents=True)
    for name in ("local.json", "local.json.bak", "local-two.json", "prod.json"):
        (folder / name).write_text("{}")
    lock(made, 1)
    forget(made)
    assert sorted(file.name for file in folder.iterdir()) == ["local-two.json", "prod.json"]
    assert read_locks(made) == []


def test_an_interrupt_is_the_command_s_to_answer(tmp_path: Path) -> None:
    # Both get the signal, as from a terminal; the command takes its time to end in order.
    command = "trap 'sleep 0.5; echo in order; exit 4' INT; echo started; while :; do sleep 0.05; done"
    program = (
        "import sys; from pathlib import Path; from tools.engine.processes import run_to_its_end; "
        f"print(run_to_its_end(['/bin/bash', '-c', {command!r}], cwd=Path('/'), env={{'PATH': '/usr/bin:/bin'}}, stdin=None))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout.read() == "in order\n4\n"
    assert process.wait(10) == 0
    process.stdout.close()
