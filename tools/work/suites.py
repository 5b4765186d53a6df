"""make test and make soak: the suites in order, the real cluster in a state folder of its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata

from tools.engine import Workspace
from tools.toolchain import toolchain
from tools.work.check import VET_REMEDY, check, go_vet
from tools.work.embedded import check_machine, cluster_environment, take_down
from tools.work.steps import CHECKOUT, Steps

SEED = "20261129"


def test() -> int:
    """Checks, the pure and component tests, then those on the embedded cluster."""
    # What fails in seconds comes before the programs, which a new machine builds for half an hour; go vet then finds them compiled.
    check(vet=False)
    steps = Steps("test", total=5)
    steps.run("tests without a cluster", _pytest("not soak and not e2e"), remedy="the failures stand above")
    check_machine()
    workspace = _workspace("test")
    steps.call("toolchain", _bring)
    steps.call("go vet", go_vet, remedy=VET_REMEDY)
    try:
        steps.run(
            "tests on the embedded cluster",
            _pytest("e2e and not soak"),
            env=cluster_environment(workspace),
            remedy="the failures stand above",
        )
    finally:
        steps.call("stopping the tests' cluster", lambda: take_down(workspace))
    steps.done("all tests passed")
    return 0


def soak() -> int:
    """The long suites in full. Writes seed, versions, duration and outcome to .state/soak-results/TIME.json.

    The seed (NUMAWISE_SEED, else a fixed one) is hypothesis'; suites that draw otherwise have theirs in their files.
    """
    seed = os.environ.get("NUMAWISE_SEED", SEED)
    workspace = _workspace("soak")
    check_machine()
    steps = Steps("soak", total=3)
    steps.call("toolchain", _bring)
    began = time.time()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began))
    folder = CHECKOUT / ".state" / "soak-results"
    folder.mkdir(parents=True, exist_ok=True)
    junit = folder / f"{stamp}.xml"
    command = [*_pytest("soak"), f"--hypothesis-seed={seed}", f"--junit-xml={junit}"]
    done = subprocess.run(command, cwd=CHECKOUT, env=cluster_environment(workspace), stdin=subprocess.DEVNULL)
    steps.call("stopping the suite's cluster", lambda: take_down(workspace))
    result = {
        "seed": seed,
        "passed": done.returncode == 0,
        "seconds": round(time.time() - began, 1),
        "started": stamp,
        "commit": _commit(),
        "versions": versions(),
        "cases": junit.name,
    }
    file = folder / f"{stamp}.json"
    file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    steps.done(f"{'passed' if result['passed'] else 'FAILED'}; results in {file.relative_to(CHECKOUT)}")
    return done.returncode


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    packages = ("pulumi", "pulumi-kubernetes", "pydantic", "hypothesis", "pytest")
    programs = {name: part.version for name, part in toolchain().parts.items()}
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}, **programs}


def _workspace(name: str) -> Workspace:
    return Workspace.of(stack="local", state=CHECKOUT / ".state" / name)


def _bring() -> None:
    toolchain().ensure()


def _pytest(marks: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-m", marks]


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
