"""Programs that are installed already: taken where the version fits the pin."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.toolchain.pins import OnPath, Part


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What PATH holds under a part's name: `fits` tells whether it may be used, `why` says it in words."""

    file: Path
    version: str
    fits: bool
    why: str


def look_on_path(part: Part, environ: Mapping[str, str], *, not_below: Path) -> Candidate | None:
    """The first program of that name on PATH, judged; None where there is none. Our own cache on PATH does not count."""
    rule = part.path
    if rule is None or rule.beside:
        return None
    folders = [folder for folder in environ.get("PATH", "").split(":") if folder and not Path(folder).is_relative_to(not_below)]
    found = shutil.which(part.name, path=":".join(folders))
    if found is None:
        return None
    version = _version_of(found, rule, environ)
    if not version:
        return Candidate(file=Path(found), version="", fits=False, why=f"{found} does not tell its version")
    if rule.minimum:
        fits = version_key(version) >= version_key(rule.minimum)
        wanted = f"at least {rule.minimum}"
    else:
        fits = version == part.version
        wanted = part.version
    return Candidate(file=Path(found), version=version, fits=fits, why=f"{found} is {version}; the pin is {wanted}")


def version_key(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparing: `1.26.6` -> (1, 26, 6); what follows them (-rc.1, +k3s1) is left out."""
    match = re.match(r"\D*(\d+(?:\.\d+)*)", version)
    return tuple(int(number) for number in match.group(1).split(".")) if match else ()


def _version_of(program: str, rule: OnPath, environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            [program, *rule.arguments],
            capture_output=True,
            text=True,
            timeout=20,
            env={**environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    match = re.search(rule.pattern, done.stdout + done.stderr)
    return match.group(1).split("+")[0] if match and done.returncode == 0 else ""
