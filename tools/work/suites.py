"""make test and make soak: the suites in order."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata

from tools.toolchain import toolchain
from tools.work.check import VET_REMEDY, check, go_vet
from tools.work.embedded import check_machine
from tools.work.steps import CHECKOUT, Steps
from tools.work.suite_clusters import suite_folder

SEED = "20261129"
# The embedded clusters mostly wait: four of them fill two cores.
CLUSTERS_AT_ONCE = 4


def test() -> int:
    """Checks, the pure and component tests, then those on embedded clusters."""
    steps = Steps("test", total=4)
    # What fails in seconds comes before the programs, which a new machine builds for half an hour; go vet then finds them compiled.
    check(vet=False)
    steps.run("tests without a cluster", _pytest("not soak and not e2e", "-n", "auto"), remedy="the failures stand above")
    check_machine()
    steps.call("toolchain", _bring)
    steps.call("go vet", go_vet, remedy=VET_REMEDY)
    with suite_folder() as folder:
        # A file's tests share a cluster and build on each other.
        options = ("-n", str(CLUSTERS_AT_ONCE), "--dist", "loadfile", "-vv", "--durations", "15", f"--basetemp={folder}")
        steps.run("tests on embedded clusters", _pytest("e2e and not soak", *options), remedy="the failures stand above")
    steps.done("all tests passed")
    return 0


def soak() -> int:
    """The long suites in full. Writes seed, versions, duration and outcome to .state/soak-results/TIME.json.

    The seed (NUMAWISE_SEED, else a fixed one) is hypothesis'; suites that draw otherwise have theirs in their files.
    """
    seed = os.environ.get("NUMAWISE_SEED", SEED)
    steps = Steps("soak", total=1)
    began = time.time()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began))
    folder = CHECKOUT / ".state" / "soak-results"
    folder.mkdir(parents=True, exist_ok=True)
    junit = folder / f"{stamp}.xml"
    command = _pytest("soak", "-n", "auto", "-vv", f"--hypothesis-seed={seed}", f"--junit-xml={junit}")
    done = subprocess.run(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL)
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


def _bring() -> None:
    """The programs of the cluster, and those that only tests run."""
    programs = toolchain()
    programs.ensure(name for name, part in programs.parts.items() if part.tier in ("", "tests"))


def _pytest(marks: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-m", marks, *options]


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
