"""make check's policy step: each stack file is rendered and its objects are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.work.check import policy
from tools.work.steps import CHECKOUT

LOCAL = (CHECKOUT / "stacks" / "Pulumi.local.yaml").read_text()


def test_the_stacks_of_this_checkout_break_no_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert policy() == 0
    assert " objects, 8 rules, 0 breaches" in capsys.readouterr().out


def test_a_stack_that_breaks_a_rule_fails_and_the_others_are_still_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = LOCAL.replace("      - name: llama-70b\n", "      - name: llama-70b\n        env: {MY_PASSWORD: x}\n")
    assert broken != LOCAL
    (tmp_path / "Pulumi.a.yaml").write_text(broken)
    (tmp_path / "Pulumi.b.yaml").write_text(LOCAL)
    (tmp_path / "Pulumi.c.yaml").write_text("environment: [prod]\n")
    assert policy(tmp_path) == 1
    seen = capsys.readouterr()
    assert "(no-plain-secrets)" in seen.out
    assert seen.out.count(" rules, ") == 2
    assert seen.err == "Pulumi.c.yaml: not checked, its document stands in an ESC environment\n"


def test_a_stack_that_cannot_be_planned_has_the_status_of_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Pulumi.a.yaml").write_text("config: {numawise:cluster: {nodePools: []}}\n")
    assert policy(tmp_path) == 2
    assert "error: " in capsys.readouterr().err
