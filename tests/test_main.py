"""The command line as a whole: exit status, errors on the right stream, one JSON document on standard output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.__main__ import COMMANDS, main
from infra.diagnosis import Diagnosis
from infra.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_a_command_is_one_file_and_one_row() -> None:
    modules = {path.stem for path in (ROOT / "infra" / "cli").glob("*.py") if "def run(" in path.read_text(encoding="utf-8")}
    assert modules == set(COMMANDS)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


def test_without_a_command_the_status_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2


def test_a_mistyped_command_is_told_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plna"]) == 2
    assert "Did you mean 'plan'" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"python -m infra {name}" in capsys.readouterr().out.split("example", 1)[1]


def test_errors_go_to_the_error_stream_and_the_status_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-s", "nowhere"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "stacks here: local" in seen.err


def test_with_json_errors_are_one_document_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-s", "nowhere", "--format", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert set(document["errors"][0]) == {"code", "path", "message"}


def test_the_committed_schema_is_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == (ROOT / "stacks" / "schema.json").read_text()


def test_problems_are_sorted_with_numbers_as_numbers_and_without_doubles() -> None:
    problems = [Diagnosis(path=f"models[{index}]", code="X", message="m") for index in (10, 2, 2)]
    assert [problem.path for problem in ConfigError(problems).problems] == ["models[2]", "models[10]"]


@pytest.mark.parametrize("words", [["plan", "-s", ""], ["plan", "-s", "../x"], ["render", "-s", "local", "--out", "x" * 300]])
def test_names_that_cannot_be_are_wrong_input(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("command", ["plan", "render", "verify", "topology"])
def test_help_does_without_what_takes_long_to_import(command: str) -> None:
    program = f"""import sys; from infra.__main__ import main
try: main([{command!r}, "--help"])
except SystemExit: sys.exit("pydantic" in sys.modules or "yaml" in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=ROOT).returncode == 0
