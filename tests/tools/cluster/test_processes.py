"""Processes are known by id and start time, and only our own are ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.cluster import processes
from tools.cluster.errors import ClusterError
from tools.cluster.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    found = Layout(tmp_path / "state")
    found.root.mkdir()
    yield found
    processes.stop(found, processes.recorded_names(found))


def program(layout: Layout, name: str = "simnode") -> str:
    """A long-running program that has a name of ours and the state folder in its command line."""
    path = layout.root.parent / name
    if path.exists():  # a shell reads its script as it goes: a running one is not to be written again
        return str(path)
    path.write_text("#!/bin/sh\nwhile true; do sleep 0.1; done\n")
    path.chmod(0o755)
    return str(path)


def test_a_started_process_is_found_again_and_not_started_twice(layout: Layout) -> None:
    command = ["/bin/sleep", "60"]
    record, started = processes.ensure(layout, "one", command)
    assert started
    assert processes.ensure(layout, "one", command) == (record, False)
    other, started = processes.ensure(layout, "one", ["/bin/sleep", "61"])
    assert started and other.pid != record.pid and not record.alive()


def test_a_process_id_that_was_given_again_is_not_ours(layout: Layout) -> None:
    stranger = subprocess.Popen(["/bin/sleep", "60"])
    try:
        layout.records.mkdir()
        began = processes.start_time(stranger.pid)
        assert began is not None
        (layout.records / "one.json").write_text(json.dumps({"pid": stranger.pid, "startTime": began - 1, "command": ["x"]}))
        assert processes.running(layout, "one") is None
        processes.stop(layout, ["one"])
        assert stranger.poll() is None
        assert processes.recorded_names(layout) == []
    finally:
        stranger.kill()
        stranger.wait()


def test_a_killed_process_is_not_running(layout: Layout) -> None:
    record, _ = processes.ensure(layout, "one", ["/bin/sleep", "60"])
    os.kill(record.pid, signal.SIGKILL)
    assert processes.wait_until(lambda: processes.running(layout, "one") is None, seconds=5)


def test_what_ignores_the_request_to_end_is_killed(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "KILL_AFTER_SECONDS", 0.5)
    record = processes.start(layout, "stubborn", ["/bin/sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 0.1; done"])
    assert processes.wait_until(lambda: layout.log("stubborn").read_text() == "deaf\n", seconds=5)
    began = time.monotonic()
    processes.stop(layout, ["stubborn"])
    assert not record.alive()
    assert 0.4 < time.monotonic() - began < 5


def test_a_program_that_does_not_start_is_named_with_its_last_words(layout: Layout) -> None:
    processes.start(layout, "broken", ["/bin/sh", "-c", "sleep 0.3; echo no such flag >&2; exit 1"])
    assert processes.wait_until(lambda: processes.running(layout, "broken") is None, seconds=5)
    assert "no such flag" in processes.last_words(layout.log("broken"))
    with pytest.raises((ClusterError, FileNotFoundError)):
        processes.start(layout, "absent", ["/nonexistent/program"])


def test_strays_are_our_programs_with_this_folder_in_their_command_line(layout: Layout) -> None:
    ours = subprocess.Popen([program(layout), "node", f"-dir={layout.root}/nodes/a"])
    neighbour = subprocess.Popen([program(layout), "node", f"-dir={layout.root}-2/nodes/a"])
    editor = subprocess.Popen(["/bin/sh", "-c", f"while true; do sleep 0.1; done # {layout.root}/kubeconfig"])
    recorded, _ = processes.ensure(layout, "node-b", [program(layout), "node", f"-dir={layout.root}/nodes/b"])
    try:
        assert processes.wait_until(lambda: len(processes.strays(layout)) == 1, seconds=5)
        assert [stray.pid for stray in processes.strays(layout)] == [ours.pid]
        processes.end(processes.strays(layout))
        assert processes.start_time(ours.pid) is None
        assert neighbour.poll() is None and editor.poll() is None and recorded.alive()
    finally:
        for process in (ours, neighbour, editor):
            process.kill()
            process.wait()


def test_the_log_of_a_process_is_appended_to(layout: Layout) -> None:
    for word in ("first", "second"):
        processes.start(layout, "talker", ["/bin/sh", "-c", f"sleep 0.3; echo {word}"])
        assert processes.wait_until(lambda: processes.running(layout, "talker") is None, seconds=5)
    assert layout.log("talker").read_text() == "first\nsecond\n"
