"""Golden files: what a stack renders to and which URNs it has, as they stand under tests/golden/<stack>/."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from infra.config.load import load_stack_file, stack_file
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan
from infra.render.files import rendered_files
from tests.support.declare import declare_plan
from tests.support.monitor import PROJECT

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"
STACKS = ("local",)


def plan_of(stack: str) -> ClusterPlan:
    return plan_stack(load_stack_file(stack_file(stack, root=ROOT)))


def golden_manifests(stack: str) -> dict[str, str]:
    """File name -> content. The agents' source is left out: it stands in infra/agents, and the checksum of the guard changes with it."""
    return {
        name: re.sub(
            r"^  (gate|numactl|guard)\.py: \|\n(?:(?:    .*)?\n)+", r"  \1.py: (infra/agents/\1.py)\n", content, flags=re.MULTILINE
        )
        for name, content in rendered_files(plan_of(stack), stack=stack).items()
    }


def golden_urns(stack: str, folder: Path) -> str:
    run = declare_plan(plan_of(stack), folder, stack=stack)
    root = f"urn:pulumi:{stack}::{PROJECT}::pulumi:pulumi:Stack::{PROJECT}-{stack}"
    functions = f"urn:pulumi:{stack}::{PROJECT}::pulumi:providers:pulumi::default"  # the engine's own, since the program asks it for the state
    return "".join(f"{urn}\n" for urn in sorted([root, functions, *(resource.urn for resource in run.resources)]))


def write(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Makes the folder hold exactly these files; returns the names that changed."""
    changed = [name for name, content in files.items() if _read(folder / name) != content]
    for name in changed:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(files[name])
    for path in sorted(folder.rglob("*")):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()
            changed.append(str(path.relative_to(folder)))
    return sorted(changed)


def read(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def _read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None
