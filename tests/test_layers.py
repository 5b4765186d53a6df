"""Imports follow the arrows: catalog, config <- kubelet <- plan <- observe, render <- components; infra never imports pulumi.

And the limits of a file's form that no linter here checks: import circles, parameters of a function, the width of a line.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ("infra", "components", "tools", "policy")
# Each package or module of infra -> what it may import of infra besides itself and BASE.
LAYERS: dict[str, set[str]] = {
    "agents": set(),
    "config": set(),
    "catalog": {"config"},
    "kubelet": {"config", "catalog"},
    "plan": {"config", "catalog", "kubelet"},
    "observe": {"config", "catalog", "kubelet", "plan"},
    "render": {"config", "catalog", "kubelet", "plan", "agents"},
    "outputs": {"catalog"},
    "verify": {"agents", "config", "catalog", "kubelet", "plan", "observe", "render", "outputs"},
    "hub": {"catalog"},
    "installation": {"catalog", "config", "observe"},
    "report": {"plan", "outputs", "verify", "installation"},
    "cli": {"config", "catalog", "kubelet", "plan", "observe", "render", "outputs", "verify", "hub", "installation", "report"},
}
BASE = {"diagnosis", "errors", "kinds", "offers", "units"}
MOST_PARAMETERS = 10
MOST_COLUMNS = 132
_PRAGMA = re.compile(r"  # (type: ignore|noqa|pyright: ).*")


@pytest.fixture(autouse=True, scope="module")
def _no_collection_while_parsing() -> Iterator[None]:
    """CPython 3.11's ast module fails where a garbage collection inside it runs Python code (left-over futures that complain)."""
    gc.collect()
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def import_statements(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports of a file, wherever in it, but for those that only type checkers see."""
    nodes: list[ast.AST] = [tree_of(path)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            nodes += node.orelse
        else:
            nodes += ast.iter_child_nodes(node)


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Dotted names of all modules that a file imports, for types alone too."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it leads"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return frozenset(found)


def sources(*names: str) -> list[Path]:
    """The Python files of folders, or the one file of a module."""
    return [path for name in names for path in (sorted((ROOT / name).rglob("*.py")) or [ROOT / f"{name}.py"])]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def import_graph() -> dict[str, set[str]]:
    """Each module of the program -> the modules of the program that it imports when it is loaded or run."""
    files = {dotted(path): path for path in sources(*PROGRAM)}
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in import_statements(path):
            for alias in node.names:
                inner = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
                graph[name].add(inner if inner in files or isinstance(node, ast.Import) else str(node.module))
        graph[name] &= files.keys() - {name}
    return graph


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of a graph; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_infra_never_imports_pulumi_or_what_declares() -> None:
    for path in sources("infra"):
        outside = {
            name
            for name in imports_of(path)
            if name.split(".")[0] in ("pulumi", "pulumi_kubernetes", "components", "policy", "tools", "tests")
        }
        assert not outside, f"{path} imports {', '.join(sorted(outside))}"


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_a_layer_imports_only_what_lies_below_it(layer: str) -> None:
    for path in sources(f"infra/{layer}"):
        packages = {name.split(".")[1] for name in imports_of(path) if name.startswith("infra.")}
        above = packages - LAYERS[layer] - BASE - {layer}
        assert not above, f"{path} imports infra.{', infra.'.join(sorted(above))}; {layer} may use {sorted(LAYERS[layer])}"


def test_what_all_layers_may_use_uses_none_of_them() -> None:
    for name in sorted(BASE):
        for path in sources(f"infra/{name}"):
            above = {found for found in imports_of(path) if found.split(".")[0] == "infra"} if path.exists() else set()
            assert {found.split(".")[1] for found in above if "." in found} <= BASE, f"{path} imports {', '.join(sorted(above))}"


def test_every_package_and_module_of_infra_has_its_layer() -> None:
    names = {path.parent.name for path in (ROOT / "infra").glob("*/__init__.py")}
    names |= {path.stem for path in (ROOT / "infra").glob("*.py")} - {"__init__", "__main__"}
    assert names <= LAYERS.keys() | BASE, f"no layer is written down for {sorted(names - LAYERS.keys() - BASE)}"
    assert set(LAYERS) <= names, f"{sorted(set(LAYERS) - names)} are no packages of infra"


def test_agents_that_run_in_the_cluster_use_the_standard_library_alone() -> None:
    """And what they share among themselves, which is shipped in place of the import."""
    for path in sources("infra/agents"):
        others = {name for name in imports_of(path) if not name.startswith("infra.agents.")} - {"infra.agents"}
        foreign = {name.split(".")[0] for name in others} - set(sys.stdlib_module_names)
        assert not foreign, f"{path} imports {', '.join(sorted(foreign))}"


def test_only_the_components_and_their_tests_import_pulumi() -> None:
    for path in sources("tools", "policy"):
        assert not {name for name in imports_of(path) if name.split(".")[0] == "pulumi_kubernetes"}, (
            f"{path} imports pulumi_kubernetes"
        )


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not (circle := circle_in(import_graph())), " -> ".join(circle)


def test_no_packages_of_the_plan_import_each_other_in_a_circle() -> None:
    packages: dict[str, set[str]] = {}
    for name, imported in import_graph().items():
        for target in imported:
            inner = [".".join(one.split(".")[:3]) for one in (name, target) if one.startswith("infra.plan.")]
            if len(inner) == 2 and inner[0] != inner[1] and all((ROOT / one.replace(".", "/")).is_dir() for one in inner):
                packages.setdefault(inner[0], set()).add(inner[1])
    assert not (circle := circle_in(packages)), " -> ".join(circle)


def test_circles_are_found() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


def test_no_function_takes_more_than_ten_parameters() -> None:
    for path in sources(*PROGRAM):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                taken = node.args
                count = len(taken.posonlyargs + taken.args + taken.kwonlyargs) + bool(taken.vararg) + bool(taken.kwarg)
                assert count <= MOST_PARAMETERS, (
                    f"{path}:{node.lineno}: {node.name} takes {count} parameters; put what belongs together into a dataclass"
                )


def test_no_line_is_wider_than_its_limit_but_for_strings() -> None:
    wide = [f"{path}:{line}" for path in sources(*PROGRAM, "tests") for line in _wide_lines(path.read_text(encoding="utf-8"))]
    assert not wide, f"{', '.join(wide)}: wider than {MOST_COLUMNS} columns"


def _wide_lines(text: str) -> list[int]:
    """Numbers of the lines beyond the limit that hold no part of a string; a linter's pragma at the end does not count."""
    wide = [number for number, line in enumerate(text.split("\n"), 1) if len(_PRAGMA.sub("", line)) > MOST_COLUMNS]
    if not wide:
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    strings = {line for token in tokens if token.type == tokenize.STRING for line in range(token.start[0], token.end[0] + 1)}
    return [number for number in wide if number not in strings]


def test_wide_lines_are_found_and_long_sentences_are_none() -> None:
    width = MOST_COLUMNS
    assert _wide_lines(f"x = {'1' * (width - 4)}  # type: ignore[arg-type]\n") == []
    assert _wide_lines(f"x = {'1' * (width - 3)}\n# {'c' * width}\ny = '{'s' * width}'\n") == [1, 2]
