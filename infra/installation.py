"""What this project's work needs on this machine: found, or missing with the remedy."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.catalog.load import accelerators, catalog_problems, models, shapes
from infra.config.load import load_stack_file, stack_file
from infra.diagnosis import Diagnosis
from infra.errors import NumawiseError
from infra.observe.client import Client

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PYTHON = (3, 11)
OLDEST_PULUMI = (3, 226)
PROVIDER_VERSION = "4.25.0"
EVERYTHING = "everything"


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One thing that some work needs; `found` is its version or place, or what is there instead, `needed_for` which work."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    needed_for: str = EVERYTHING

    @property
    def problem(self) -> Diagnosis | None:
        """None where it is there; an error where nothing works without it, a warning where only some work needs it."""
        if self.ok:
            return None
        severity = "error" if self.needed_for == EVERYTHING else "warning"
        return Diagnosis(self.name, "Missing", self.found, severity=severity, remedy=self.remedy)


def missing(requirements: Sequence[Requirement]) -> tuple[Diagnosis, ...]:
    """What nothing works without, and is not there."""
    problems = (requirement.problem for requirement in requirements)
    return tuple(problem for problem in problems if problem is not None and problem.severity == "error")


def requirements(stack: str | None = None) -> tuple[Requirement, ...]:
    """Everything that is needed, looked for one by one; with a stack also its file and its cluster."""
    of_stack = () if stack is None else _stack(stack)
    return (_python(), *_packages(), _catalog(), _pulumi(), _provider_plugin(), _kubectl(), *of_stack)


def _python() -> Requirement:
    version = sys.version_info[:3]
    return Requirement(
        name="Python",
        ok=version >= OLDEST_PYTHON,
        found=".".join(map(str, version)),
        remedy="install Python 3.11 or newer and run `make setup`",
    )


def _packages() -> Iterator[Requirement]:
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        match = re.match(r"([A-Za-z0-9_-]+)==(\S+)", line)
        if match is None:
            continue
        name, pinned = match.groups()
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = ""
        uses = EVERYTHING if name in ("pydantic", "PyYAML") else "pulumi preview and up"
        yield Requirement(
            name=f"package {name}",
            ok=found == pinned,
            found=found or f"not installed, pinned {pinned}",
            remedy=f"pip install {name}=={pinned}",
            needed_for=uses,
        )


def _catalog() -> Requirement:
    """Commands validate the entries that they use; here are all of them, for files that were changed where they are installed."""
    problems = list(catalog_problems())
    return Requirement(
        name="catalog",
        ok=not problems,
        found=f"{problems[0]} ({len(problems)} in all)"
        if problems
        else f"{len(accelerators())} accelerators, {len(shapes())} node shapes, {len(models())} models",
        remedy="correct the files in infra/catalog/data (docs/catalog.md has the fields)",
    )


def _pulumi() -> Requirement:
    uses = "pulumi preview and up (make up brings its own)"
    output = _output("pulumi", "version")
    if output is None:
        return Requirement(
            name="pulumi",
            ok=False,
            found="not on PATH",
            remedy="https://www.pulumi.com/docs/install/, or `make shell`",
            needed_for=uses,
        )
    match = re.search(r"(\d+)\.(\d+)", output)
    new_enough = match is not None and (int(match[1]), int(match[2])) >= OLDEST_PULUMI
    return Requirement(
        name="pulumi", ok=new_enough, found=output, remedy=f"install {'.'.join(map(str, OLDEST_PULUMI))} or newer", needed_for=uses
    )


def _provider_plugin() -> Requirement:
    uses = "pulumi preview and up (make up brings its own)"
    listed = _output("pulumi", "plugin", "ls", "--json")
    try:
        versions = [plugin["version"] for plugin in json.loads(listed or "[]") if plugin.get("name") == "kubernetes"]
    except (ValueError, TypeError, KeyError, AttributeError):
        versions = []
    return Requirement(
        name="kubernetes provider",
        ok=PROVIDER_VERSION in versions,
        found=", ".join(versions) or "not installed",
        remedy=f"pulumi plugin install resource kubernetes {PROVIDER_VERSION}",
        needed_for=uses,
    )


def _kubectl() -> Requirement:
    output = _output("kubectl", "version", "--client")
    return Requirement(
        name="kubectl",
        ok=output is not None,
        found=(output or "not on PATH").splitlines()[0],
        remedy="https://kubernetes.io/docs/tasks/tools/, or `make shell`",
        needed_for="the commands that findings suggest",
    )


def _stack(stack: str) -> Iterator[Requirement]:
    path = stack_file(stack)
    try:
        config = load_stack_file(path)
    except NumawiseError as error:
        yield Requirement(name="stack file", ok=False, found=str(error).splitlines()[0], remedy=f"correct {path}")
        return
    yield Requirement(name="stack file", ok=True, found=str(path))
    connection = config.connection
    if connection is None or not isinstance(connection.kubeconfig, str):
        yield Requirement(
            name="cluster",
            ok=False,
            found="no kubeconfig path in connection",
            remedy="give connection.kubeconfig",
            needed_for="up and verify",
        )
        return
    try:
        client = Client(Path(connection.kubeconfig).expanduser(), connection.context, timeout_seconds=5)
        version = client.get("/version").get("gitVersion", "?")
        yield Requirement(name="cluster", ok=True, found=f"{client.server} runs {version}")
    except NumawiseError as error:
        yield Requirement(
            name="cluster",
            ok=False,
            found=str(error).splitlines()[0],
            remedy="`make up` for stack local; else check the kubeconfig",
            needed_for="up and verify",
        )


def _output(*command: str) -> str | None:
    """What a command prints, or None where it is absent or fails."""
    path = shutil.which(command[0])
    if path is None:
        return None
    try:
        done = subprocess.run([path, *command[1:]], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
