"""Renderers raise nothing: what can be wrong is found by the plan, so that whatever plans also renders and can be declared."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from infra.config.load import parse_cluster_document
from infra.errors import NumawiseError
from infra.kinds import key_of
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan
from infra.render.files import rendered_files
from infra.render.parts import manifests_of, objects_of, stack_parts
from tests.support.declare import declare_plan
from tests.support.drawn_stacks import ALL_PLATFORMS, drawn_document

RENDER = Path(__file__).resolve().parents[2] / "infra" / "render"
SECRETS = ("api-key", "hub-token")


def raising_functions() -> set[str]:
    found = set()
    for path in RENDER.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.Lambda) and any(
                isinstance(n, ast.Raise | ast.Assert) for n in ast.walk(function)
            ):
                found.add(f"{path.relative_to(RENDER)}:{getattr(function, 'name', 'lambda')}")
    return found


def test_nothing_in_render_raises_but_the_writing_of_files() -> None:
    assert raising_functions() == {"files.py:write_files"}


def drawn_plans(seeds: range) -> Iterator[tuple[int, ClusterPlan]]:
    for seed in seeds:
        try:
            yield seed, plan_stack(parse_cluster_document(drawn_document(seed, platforms=ALL_PLATFORMS)))
        except NumawiseError:
            continue


def render_all(seeds: range, folder: Path, *, written_every: int) -> int:
    """How many of the drawn stacks plan; each renders to objects, and some are written to files and declared."""
    done = 0
    for seed, plan in drawn_plans(seeds):
        parts = stack_parts(plan, stack="drawn", secrets=SECRETS)
        keys = [key_of(child.manifest) for child in objects_of(parts)]
        assert len(set(keys)) == len(keys), f"drawn_document({seed})"
        if done % written_every == 0:
            files = rendered_files(plan, stack="drawn", secrets=SECRETS)
            read_back = [yaml.load(content, Loader=yaml.CSafeLoader) for name, content in files.items() if name.endswith(".yaml")]
            assert sorted(map(str, map(key_of, read_back))) == sorted(map(str, map(key_of, manifests_of(parts)))), (
                f"drawn_document({seed})"
            )
            run = declare_plan(plan, folder, stack="drawn", secrets=dict.fromkeys(SECRETS, "value"))
            declared = {resource.name for resource in run.resources if resource.type.startswith("kubernetes:")}
            assert declared == {part.resource_name(child) for part in parts for child in part.children}, f"drawn_document({seed})"
        done += 1
    return done


def test_drawn_stacks_that_plan_render_and_are_declared(tmp_path: Path) -> None:
    assert render_all(range(24), tmp_path, written_every=6) >= 10


@pytest.mark.soak
def test_hundreds_of_drawn_stacks_that_plan_render_and_are_declared(tmp_path: Path) -> None:
    assert render_all(range(5_000, 6_000), tmp_path, written_every=5) >= 400
