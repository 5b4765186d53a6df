"""Imports inside the plan: architecture <- memory <- parallelism, and no circle, also none through an import inside a function."""

from __future__ import annotations

from functools import lru_cache

import pytest

from tests.test_layers import ROOT, imports_of, sources

# Room of the plan -> the rooms that it may import besides itself
ROOMS = {"architecture": set(), "memory": {"architecture"}, "parallelism": {"architecture", "memory"}}


@lru_cache(maxsize=1)
def modules() -> dict[str, set[str]]:
    """Each module of infra, and the modules of infra that it imports."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sources("infra")}
    return {name: {other for other in imports_of(path) if other in names and other != name} for name, path in names.items()}


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    for name, imported in modules().items():
        if name.startswith(f"infra.plan.{room}."):
            rooms = {other.split(".")[2] for other in imported if other.startswith("infra.plan.")}
            assert rooms - ROOMS[room] <= {room}, f"{name} imports {sorted(rooms - ROOMS[room] - {room})}"


def test_no_module_imports_itself_through_others() -> None:
    graph = modules()
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"a circle: {' -> '.join((*path[path.index(name) :], name))}"
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())
