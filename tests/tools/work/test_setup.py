"""make setup: .venv is made once, remade where it is broken, and what is missing is named with its remedy."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tools.work import setup


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose .venv is made for real (without pip, for speed), and whose installations are only counted."""
    (tmp_path / "requirements.txt").write_text("a==1\n")
    (tmp_path / "requirements-dev.txt").write_text("-r requirements.txt\nb==1\n")
    monkeypatch.setattr(setup, "_install", lambda folder, python: (tmp_path / "installs").open("a").write("x"))
    monkeypatch.setattr(setup, "_make", lambda environment: venv.create(environment, with_pip=False, symlinks=True))
    return tmp_path


def installs(checkout: Path) -> int:
    file = checkout / "installs"
    return len(file.read_text()) if file.exists() else 0


def test_the_environment_is_made_once_and_again_only_after_a_change(checkout: Path) -> None:
    setup.ensure(checkout)
    setup.ensure(checkout)
    assert installs(checkout) == 1
    (checkout / "requirements.txt").write_text("a==2\n")
    setup.ensure(checkout)
    assert installs(checkout) == 2


def test_an_environment_of_another_place_or_python_is_made_anew(checkout: Path) -> None:
    setup.ensure(checkout)
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    setup.ensure(checkout)
    assert subprocess.run([python, "-c", ""]).returncode == 0
    assert installs(checkout) == 2


def test_an_installation_that_was_broken_off_is_repeated(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path, python: Path) -> None:
        raise setup.SetupError("pip cannot install")

    setup.ensure(checkout)
    (checkout / "requirements.txt").write_text("a==3\n")
    with monkeypatch.context() as patch:
        patch.setattr(setup, "_install", broken)
        with pytest.raises(setup.SetupError):
            setup.ensure(checkout)
    (checkout / "requirements.txt").write_text("a==1\n")
    setup.ensure(checkout)
    assert installs(checkout) == 2


def test_a_python_without_venv_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python3"
    python.write_text(
        "#!/bin/sh\necho 'The virtual environment was not created successfully because ensurepip is not available.'\nexit 1\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(setup.sys, "executable", str(python))
    with pytest.raises(setup.SetupError, match="apt install python3-venv"):
        setup.ensure(tmp_path)
    assert not (tmp_path / ".venv").exists()


def test_an_old_python_is_told_what_is_needed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(setup.sys, "version_info", (3, 9, 2))
    monkeypatch.setenv("PATH", "/nowhere")
    assert setup.main() == 3
    assert "Python 3.9 at " in (said := capsys.readouterr().err)
    assert "3.11 or newer is needed" in said


def test_an_old_python_hands_over_to_a_newer_one_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    newer = tmp_path / "python3.12"
    newer.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\nexit 0\n')
    newer.chmod(0o755)
    monkeypatch.setattr(setup.sys, "version_info", (3, 9, 2))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert setup.main() == 0
    assert (tmp_path / "called").read_text() == "-m tools.work.setup\n"


def test_the_setup_program_can_be_read_by_an_old_python() -> None:
    # compile() with an old feature version refuses what that version could not parse.
    import ast

    ast.parse(Path(setup.__file__).read_text(), feature_version=(3, 7))
    assert sys.version_info >= setup.MINIMUM
