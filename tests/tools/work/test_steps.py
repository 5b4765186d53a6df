"""Steps and targets: each is named and timed, the first failure ends the target with cause and remedy."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from infra.errors import ConfigError, MissingError
from tools.engine.workspace import Workspace
from tools.work import __main__ as targets
from tools.work import bench, embedded, stack
from tools.work.steps import CHECKOUT, StepFailed, Steps


def test_each_step_is_one_line_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps("up", total=2)
    steps.call("first", lambda: None)
    steps.run("second", [sys.executable, "-c", ""])
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines[1::2]] == ["make up [1/2] first", "make up [2/2] second"]
    assert all(re.search(r": \d+\.\d s$", line) for line in lines[1::2])


def test_the_first_failure_ends_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps("up", total=2)
    with pytest.raises(StepFailed) as caught:
        steps.run("first", [sys.executable, "-c", "raise SystemExit(7)"], remedy="look above")
    assert (caught.value.title, caught.value.status, caught.value.remedy) == ("first", 7, "look above")
    assert "failed with status 7" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "exit_status"), [(1, 1), (2, 2), (3, 3), (255, 1), (-9, 1)])
def test_a_failed_step_decides_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, exit_status: int
) -> None:
    def failing() -> int:
        raise StepFailed("pulumi up", status, "mend it")

    monkeypatch.setitem(targets.ALONE, "down", failing)
    assert targets.main(["down"]) == exit_status
    ending = "was killed by signal 9" if status < 0 else f"failed with status {status}"
    assert capsys.readouterr().err == f"error: make down: pulumi up {ending}; mend it.\n"


def test_what_was_killed_has_a_remedy_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StepFailed) as caught:
        Steps("up", total=1).call("pulumi up", lambda: -9, remedy="look above", remedy_if_killed="run `make recover`")
    assert caught.value.remedy == "run `make recover`"
    assert "was killed by signal 9" in capsys.readouterr().err


def test_an_unknown_stack_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert targets.main(["up", "-s", "nowhere"]) == 3
    assert "stack 'nowhere' has no file" in capsys.readouterr().err


def test_a_user_without_root_is_told_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.os, "geteuid", lambda: 1000)
    with pytest.raises(MissingError, match=r"need root .*user id 1000; run it as root, or plan without a cluster"):
        embedded.check_machine()
    monkeypatch.setattr(embedded.sys, "platform", "darwin")
    with pytest.raises(MissingError, match="needs Linux"):
        embedded.check_machine()


def test_every_target_of_the_makefile_is_there() -> None:
    text = (CHECKOUT / "Makefile").read_text()
    listed = set(re.findall(r"^([a-z]+): .*## ", text, re.MULTILINE)) - {"help", "setup"}
    assert listed == {*targets.ON_STACK, *targets.ALONE, "recover"}


def test_a_benchmark_reports_median_and_slowest_and_a_failure_is_none() -> None:
    result = bench.measure("nothing", [sys.executable, "-c", ""], runs=3)
    assert result is not None
    assert 0 < result.median_seconds <= result.slowest_seconds
    assert bench.measure("failing", [sys.executable, "-c", "raise SystemExit(1)"], runs=1) is None


def test_the_ci_entry_runs_make_test() -> None:
    lines = Path(CHECKOUT / ".ci" / "run").read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert lines[-1] == "make test"


def test_the_shell_of_a_target_never_reads_the_stack_s_name() -> None:
    assert "$(STACK)" not in (CHECKOUT / "Makefile").read_text()


@pytest.mark.parametrize("name", ["", "..", "../local", "a//b"])
def test_a_path_is_no_stack(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert targets.main(["up", "-s", name]) == 3
    assert f"{name!r} names no stack" in capsys.readouterr().err


def test_a_wrong_stack_file_is_told_before_anything_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.local.yaml"
    file.write_text("config: {numawise:cluster: {models: 5}}")
    monkeypatch.setattr(stack.Workspace, "of", lambda **_: Workspace(state=tmp_path, stack="local", stack_file=file))
    monkeypatch.setattr(stack, "check_machine", lambda: None)
    monkeypatch.setattr(stack, "_bring_programs", lambda *_: pytest.fail("programs were built"))
    with pytest.raises(ConfigError, match="models"):
        stack.up("local")
