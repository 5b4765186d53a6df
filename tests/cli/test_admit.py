"""python -m infra admit: cases in, results out, in order and whatever becomes of the pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.__main__ import main
from tests.kubelet.agreement import agrees, behaviours


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    file = tmp_path / "cases.json"
    file.write_text(json.dumps([entry["case"] for entry in behaviours()]))
    return file


def test_json_in_json_out(cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admit", str(cases), "--format", "json"]) == 0
    results = json.loads(capsys.readouterr().out)
    expected = behaviours()
    assert [result["id"] for result in results] == [entry["case"]["id"] for entry in expected]
    assert all(agrees(entry["case"], result, entry["answers"]) for entry, result in zip(expected, results, strict=True))


def test_text_tells_admissions_and_refusals(cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admit", str(cases)]) == 0
    text = capsys.readouterr().out
    assert "the kubelet does not start (memorymanager)" in text
    assert "refused, TopologyAffinityError" in text
    assert "aligned to NUMA node 0" in text


def test_a_case_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.json"
    good = behaviours()[0]["case"]
    file.write_text(json.dumps([{"id": "bad", "machine": {"numa": [{"id": 0, "cpus": "0-3"}]}}, good]))
    assert main(["admit", str(file), "--format", "json"]) == 0
    bad, answered = json.loads(capsys.readouterr().out)
    assert "machine.numa[0].cpus" in bad["error"]
    assert answered["pods"][0]["admitted"] is True


@pytest.mark.parametrize(
    ("text", "word"), [("{", "is no JSON"), ("{}", "array of cases"), ('"x"', "array of cases"), ("", "is no JSON")]
)
def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, word: str) -> None:
    file = tmp_path / "cases.json"
    file.write_text(text)
    assert main(["admit", str(file), "--format", "json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert word in error["message"]
    assert str(file) in error["path"]


def test_an_empty_array_is_answered_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.json"
    file.write_text("[]")
    assert main(["admit", str(file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admit", "/nonexistent/cases.json"]) == 2
    assert "/nonexistent/cases.json: there is no such file." in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("escaped", "read"),
    [
        (r"a\ud800", "a\ufffd"),
        (r"\udc00b", "\ufffdb"),
        (r"\uD83Dx\uDE00", "\ufffdx\ufffd"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\\ud800", r"\ud800"),
    ],
)
def test_half_a_character_is_read_as_the_kubelet_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, escaped: str, read: str
) -> None:
    file = tmp_path / "cases.json"
    file.write_text(f'[{{"id": "{escaped}", "machine": {{"{escaped}": ["{escaped}"]}}}}]')
    assert main(["admit", str(file), "--format", form]) == 0
    out = capsys.readouterr().out
    assert (json.loads(out)[0]["id"] if form == "json" else out.split("\n")[0]) == read
