"""make check: style, types, Go sources, whether generated files are in date, and the policy on what each stack renders to."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from infra.__main__ import main as render_command
from infra.config.load import load_stack_file
from infra.errors import NumawiseError
from policy.__main__ import main as policy_command
from tools.toolchain import toolchain
from tools.work.steps import CHECKOUT, StepFailed, Steps

VET_REMEDY = "the messages name file and line"
SCHEMA = CHECKOUT / "stacks" / "schema.json"


def check(*, vet: bool = True) -> int:
    """Runs every check of the sources, then fails where one of them did. `vet`: with `go vet`, which compiles what it looks at."""
    steps = Steps("check", total=7 if vet else 6)
    tool = Path(sys.executable).parent
    schema = "run `.venv/bin/python -m infra schema > stacks/schema.json`"
    checks: list[tuple[str, Callable[[], int], str]] = [
        ("ruff check", lambda: _run(str(tool / "ruff"), "check", "."), "run `.venv/bin/ruff check --fix .`"),
        ("ruff format", lambda: _run(str(tool / "ruff"), "format", "--check", "--quiet", "."), "run `.venv/bin/ruff format .`"),
        ("pyright", lambda: _run(str(tool / "pyright")), "the messages name file and line"),
        ("gofmt", gofmt, "run gofmt -w on the files above"),
        ("schema of the stack file", schema_in_date, schema),
        (
            "policy on what the stacks render to",
            policy,
            "correct the stack file, or what renders the object that the message names",
        ),
    ]
    if vet:
        checks.append(("go vet", go_vet, VET_REMEDY))
    failed: list[StepFailed] = []
    for title, action, remedy in checks:
        try:
            steps.call(title, action, remedy=remedy)
        except StepFailed as failure:
            failed.append(failure)
    if failed:
        raise StepFailed(", ".join(failure.title for failure in failed), 1, "; ".join(failure.remedy for failure in failed))
    return 0


def _run(*words: str) -> int:
    return subprocess.run(words, cwd=CHECKOUT, stdin=subprocess.DEVNULL).returncode


def go_modules() -> list[Path]:
    """The folders under tools/ that hold a go.mod and Go sources of ours."""
    return sorted(file.parent for file in (CHECKOUT / "tools").rglob("go.mod") if any(file.parent.rglob("*.go")))


def gofmt() -> int:
    """Lists Go files that gofmt would change; 1 where there are some."""
    program = toolchain().builder().gofmt()
    done = subprocess.run([str(program), "-l", *map(str, go_modules())], capture_output=True, text=True)
    print(done.stdout + done.stderr, end="", file=sys.stderr)
    return 1 if done.stdout or done.returncode else 0


def go_vet() -> int:
    """`go vet ./...` in each module, with the flags of the build so that its compiled packages serve."""
    chain = toolchain()
    builder = chain.builder()
    status = 0
    for module in go_modules():
        part = next(
            (part for part in chain.parts.values() if part.build and part.build.overlay and CHECKOUT / part.build.module == module),
            None,
        )
        messages = builder.vet(module, overlay_of=part)
        print(messages, end="", file=sys.stderr)
        status |= bool(messages)
    return status


def schema_in_date() -> int:
    """1 where stacks/schema.json is not what `python -m infra schema` prints."""
    done = subprocess.run([sys.executable, "-m", "infra", "schema"], cwd=CHECKOUT, capture_output=True, text=True)
    print(done.stderr, end="", file=sys.stderr)
    return done.returncode or int(done.stdout != SCHEMA.read_text(encoding="utf-8"))


def policy(stacks: Path = CHECKOUT / "stacks") -> int:
    """Renders each stack file of the folder and checks the objects against the rules; the highest exit status of all.

    A document that stands in an ESC environment is not here to be rendered: a line names its file, and nothing fails.
    """
    status = 0
    for file in sorted(stacks.glob("Pulumi.*.yaml")):
        if _stands_in_environment(file):
            print(f"{file.name}: not checked, its document stands in an ESC environment", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="numawise-policy-") as folder:
            status = max(status, render_command(["render", "--config", str(file), "--out", folder]) or policy_command([folder]))
    return status


def _stands_in_environment(file: Path) -> bool:
    try:
        load_stack_file(file)
    except NumawiseError as error:
        return any(problem.code == "DocumentFromEnvironment" for problem in error.problems)
    return False
