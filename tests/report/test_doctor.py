"""What is there and what is missing, as text and as JSON."""

from __future__ import annotations

from infra.installation import Requirement, missing
from infra.report.doctor import requirements_as_json, requirements_as_text

PYTHON = Requirement(name="Python", ok=True, found="3.11.2", remedy="install Python")
YAML = Requirement(name="package PyYAML", ok=False, found="not installed", remedy="pip install PyYAML==6.0.3")
PULUMI = Requirement(name="pulumi", ok=False, found="not on PATH", remedy="make shell", needed_for="up")


def test_what_is_missing_has_its_remedy_below_it() -> None:
    assert requirements_as_text([PYTHON, YAML, PULUMI]).split("\n") == [
        "ok      Python          3.11.2",
        "MISSING package PyYAML  not installed",
        "                        for everything: pip install PyYAML==6.0.3",
        "absent  pulumi          not on PATH",
        "                        for up: make shell",
        "",
        "1 thing(s) missing.",
    ]


def test_the_last_sentence_tells_whether_work_is_possible() -> None:
    assert requirements_as_text([PYTHON]) == "ok      Python  3.11.2\n\nEverything is there."
    assert requirements_as_text([PYTHON, PULUMI]).endswith(
        "What the commands without a cluster need is there; what is absent is needed for the work that stands beside it."
    )


def test_only_what_everything_needs_counts_as_missing() -> None:
    assert [problem.path for problem in missing([PYTHON, YAML, PULUMI])] == ["package PyYAML"]
    assert PYTHON.problem is None
    assert PULUMI.problem is not None and (PULUMI.problem.severity, PULUMI.problem.remedy) == ("warning", "make shell")


def test_the_document_has_a_check_for_each() -> None:
    assert requirements_as_json([YAML]) == {
        "ok": False,
        "checks": [
            {
                "name": "package PyYAML",
                "ok": False,
                "found": "not installed",
                "remedy": "pip install PyYAML==6.0.3",
                "needed_for": "everything",
            }
        ],
    }
    assert requirements_as_json([PULUMI])["ok"] is True
