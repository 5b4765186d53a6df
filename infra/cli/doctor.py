"""Tell what is installed, found and missing, each with the remedy; with a stack, also whether its cluster answers.

examples:
  python -m infra doctor
  python -m infra doctor -s local
  python -m infra doctor --format json | jq '.checks[] | select(.ok | not)'
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.catalog.load import accelerators, catalog_problems, models, shapes
from infra.config.load import load_stack_file, stack_file
from infra.errors import NumawiseError
from infra.observe.client import ApiError, Client

ROOT = Path(__file__).resolve().parents[2]
OLDEST_PYTHON = (3, 11)
OLDEST_PULUMI = (3, 226)


@dataclass(frozen=True, kw_only=True)
class Check:
    """`needed_for` says which work is not possible without it; a check that is not needed by everything never fails the command alone."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    needed_for: str = "everything"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--stack", metavar="STACK", help="also look at this stack's file and cluster")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    checks = [
        _python(),
        *_packages(),
        _catalog(),
        _pulumi(),
        _provider_plugin(),
        _kubectl(),
        *(_stack(args.stack) if args.stack else ()),
    ]
    missing = [check for check in checks if not check.ok and check.needed_for == "everything"]
    if args.format == "json":
        print(json.dumps({"ok": not missing, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            state = "ok      " if check.ok else "MISSING " if check.needed_for == "everything" else "absent  "
            print(
                f"{state}{check.name:<{width}}  {check.found}"
                + ("" if check.ok else f"\n{'':8}{'':{width}}  for {check.needed_for}: {check.remedy}")
            )
        print(
            "\nEverything is there."
            if all(c.ok for c in checks)
            else "\nWhat the commands without a cluster need is there; what is absent is needed for the work that stands beside it."
            if not missing
            else f"\n{len(missing)} thing(s) missing."
        )
    return 3 if missing else 0


def _python() -> Check:
    version = sys.version_info[:3]
    return Check(
        name="Python",
        ok=version >= OLDEST_PYTHON,
        found=".".join(map(str, version)),
        remedy="install Python 3.11 or newer and run `make setup`",
    )


def _packages() -> Iterator[Check]:
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        match = re.match(r"([A-Za-z0-9_-]+)==(\S+)", line)
        if match is None:
            continue
        name, pinned = match.groups()
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = ""
        uses = "everything" if name in ("pydantic", "PyYAML") else "pulumi preview and up"
        yield Check(
            name=f"package {name}",
            ok=found == pinned,
            found=found or f"not installed, pinned {pinned}",
            remedy=f"pip install {name}=={pinned}",
            needed_for=uses,
        )


def _catalog() -> Check:
    """Commands validate the entries that they use; here are all of them, for files that were changed where they are installed."""
    problems = list(catalog_problems())
    return Check(
        name="catalog",
        ok=not problems,
        found=f"{problems[0]} ({len(problems)} in all)"
        if problems
        else f"{len(accelerators())} accelerators, {len(shapes())} node shapes, {len(models())} models",
        remedy="correct the files in infra/catalog/data (docs/catalog.md has the fields)",
    )


def _pulumi() -> Check:
    uses = "pulumi preview and up (make up brings its own)"
    output = _output("pulumi", "version")
    if output is None:
        return Check(
            name="pulumi",
            ok=False,
            found="not on PATH",
            remedy="https://www.pulumi.com/docs/install/, or `make shell`",
            needed_for=uses,
        )
    match = re.search(r"(\d+)\.(\d+)", output)
    new_enough = match is not None and (int(match[1]), int(match[2])) >= OLDEST_PULUMI
    return Check(
        name="pulumi", ok=new_enough, found=output, remedy=f"install {'.'.join(map(str, OLDEST_PULUMI))} or newer", needed_for=uses
    )


def _provider_plugin() -> Check:
    uses = "pulumi preview and up (make up brings its own)"
    listed = _output("pulumi", "plugin", "ls", "--json")
    try:
        versions = [plugin["version"] for plugin in json.loads(listed or "[]") if plugin.get("name") == "kubernetes"]
    except (ValueError, TypeError, KeyError):
        versions = []
    return Check(
        name="kubernetes provider",
        ok="4.25.0" in versions,
        found=", ".join(versions) or "not installed",
        remedy="pulumi plugin install resource kubernetes 4.25.0",
        needed_for=uses,
    )


def _kubectl() -> Check:
    output = _output("kubectl", "version", "--client")
    return Check(
        name="kubectl",
        ok=output is not None,
        found=(output or "not on PATH").splitlines()[0],
        remedy="https://kubernetes.io/docs/tasks/tools/, or `make shell`",
        needed_for="the commands that findings suggest",
    )


def _stack(stack: str) -> Iterator[Check]:
    path = stack_file(stack)
    try:
        config = load_stack_file(path)
    except NumawiseError as error:
        yield Check(name="stack file", ok=False, found=str(error).splitlines()[0], remedy=f"correct {path}")
        return
    yield Check(name="stack file", ok=True, found=str(path))
    connection = config.connection
    if connection is None or not isinstance(connection.kubeconfig, str):
        yield Check(
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
        yield Check(name="cluster", ok=True, found=f"{client.server} runs {version}")
    except (NumawiseError, ApiError) as error:
        yield Check(
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
