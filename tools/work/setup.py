"""Makes .venv with the pinned packages; does nothing where it is up to date. Started by the system's own Python, whatever it is."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

# This file must be readable by an old Python, so that it can say that the Python is too old.
CHECKOUT = Path(__file__).resolve().parents[2]
MINIMUM = (3, 11)
NEWER = ("python3.14", "python3.13", "python3.12", "python3.11")
STAMP = "numawise-requirements.sha256"


class SetupError(Exception):
    """What is missing, and the remedy."""


def main():
    """Exit status: 0 .venv is ready, 3 something that it needs is missing."""
    try:
        if sys.version_info < MINIMUM:
            return _again_with_newer()
        ensure(CHECKOUT)
    except SetupError as error:
        print(f"error: setup: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(
            f"error: setup: {error.filename or CHECKOUT}: {error.strerror or error}; this checkout has to be writable for the user that runs make",
            file=sys.stderr,
        )
        return 3
    return 0


def ensure(checkout):
    """Brings checkout/.venv to what requirements-dev.txt says."""
    state = checkout / ".state"
    state.mkdir(exist_ok=True)
    with (state / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = checkout / ".venv"
        python = environment / "bin" / "python"
        stamp = environment / STAMP
        version = _version(python, environment)
        if version and stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == wanted_stamp(checkout, version):
            return
        if not version:
            if environment.exists():
                print("setup: .venv is of another Python or place; making it anew", file=sys.stderr)
                shutil.rmtree(environment)
            _make(environment)
        with contextlib.suppress(FileNotFoundError):
            stamp.unlink()
        print("setup: installing the packages of requirements-dev.txt into .venv", file=sys.stderr)
        _install(checkout, python)
        stamp.write_text(wanted_stamp(checkout, _version(python, environment)) + "\n", encoding="utf-8")


def wanted_stamp(checkout, version):
    """A hash of all requirements files and of the environment's Python version."""
    digest = hashlib.sha256(version.encode())
    for file in sorted(checkout.glob("requirements*.txt")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _version(python, environment):
    """`3.11` of a working environment at this place; the empty string for any other."""
    probe = "import sys; print(sys.prefix); print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([str(python), "-c", probe], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    output = done.stdout.splitlines()
    if done.returncode != 0 or len(output) != 2 or Path(output[0]) != environment:
        return ""
    return output[1] if tuple(map(int, output[1].split("."))) >= MINIMUM else ""


def _make(environment):
    done = subprocess.run([sys.executable, "-m", "venv", str(environment)], capture_output=True, text=True)
    if done.returncode == 0:
        return
    shutil.rmtree(environment, ignore_errors=True)
    output = done.stdout + done.stderr
    # Debian ships Python without ensurepip; where the system has pip, that one can fill an environment from outside.
    if (
        _has_pip(sys.executable)
        and subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], capture_output=True).returncode == 0
    ):
        return
    shutil.rmtree(environment, ignore_errors=True)
    if "ensurepip" in output or "No module named venv" in output:
        raise SetupError(
            f"this Python ({sys.executable}) cannot make virtual environments; install its venv package (Debian, Ubuntu: apt install python3-venv) and run it again."
        )
    raise SetupError(f"`{sys.executable} -m venv` failed: {(output.strip().splitlines() or ['no output'])[-1]}")


def _has_pip(python):
    return subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True).returncode == 0


def _install(checkout, python):
    if _has_pip(python):
        pip = [str(python), "-m", "pip"]
    elif _has_pip(sys.executable):
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
    else:
        raise SetupError(
            ".venv has no pip and neither has the system's Python; remove .venv, install python3-venv and run it again."
        )
    # Python compiles what it imports by itself: a small part of the thousands of modules that pip would compile.
    options = ["--quiet", "--no-compile", "--disable-pip-version-check", "--no-input", "--root-user-action", "ignore"]
    done = subprocess.run(
        [*pip, "install", *options, "-r", str(checkout / "requirements-dev.txt")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or done.stdout.strip().splitlines()[-1:]
        reason = (lines or ["no output"])[-1].replace("ERROR: ", "").rstrip(".")
        raise SetupError(
            f"pip cannot install requirements-dev.txt: {reason}. Check the network or pip's index settings and run it again."
        )


def _again_with_newer():
    for name in NEWER:
        found = shutil.which(name)
        if found:
            return subprocess.call([found, "-m", "tools.work.setup"], cwd=str(CHECKOUT))
    version = ".".join(map(str, sys.version_info[:2]))
    raise SetupError(
        f"Python {version} at {sys.executable} is too old; 3.11 or newer is needed. Install one, or name it: make PYTHON=/path/to/python3.11"
    )


if __name__ == "__main__":
    os.chdir(str(CHECKOUT))
    sys.exit(main())
