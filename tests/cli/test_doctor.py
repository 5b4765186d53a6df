"""python -m infra doctor: both forms and the exit status."""

from __future__ import annotations

import pytest

from infra import installation
from infra.__main__ import main


@pytest.mark.parametrize(("format", "start"), [("text", "ok      Python"), ("json", '{\n  "ok": true,')])
def test_the_command_prints_both_forms_and_its_status_is_0_or_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], format: str, start: str
) -> None:
    monkeypatch.setattr(installation, "_output", lambda *_: None)
    assert main(["doctor", "--format", format]) == 0
    assert capsys.readouterr().out.startswith(start)
    monkeypatch.setattr(installation.sys, "version_info", (3, 10, 0, "final", 0))
    assert main(["doctor", "--format", format]) == 3
