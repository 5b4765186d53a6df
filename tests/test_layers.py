"""Imports follow the arrows: catalog, config <- kubelet <- plan <- observe, render <- components; infra never imports pulumi."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Package of infra -> what it may import of infra besides itself, infra.errors and infra.units.
LAYERS = {
    "agents": set(),
    "config": set(),
    "catalog": {"config"},
    "kubelet": {"config", "catalog"},
    "plan": {"config", "catalog", "kubelet"},
    "observe": {"config", "catalog", "kubelet", "plan"},
    "render": {"config", "catalog", "kubelet", "plan", "agents"},
    "outputs": {"config", "catalog", "kubelet", "plan"},
    "verify": {"config", "catalog", "kubelet", "plan", "observe", "render", "outputs"},
    "report": {"config", "catalog", "kubelet", "plan", "outputs"},
}
BASE = {"diagnosis", "errors", "kinds", "units"}


@pytest.fixture(autouse=True, scope="module")
def _no_collection_while_parsing() -> Iterator[None]:
    """CPython 3.11's ast module fails where a garbage collection inside it runs Python code (left-over futures that complain)."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def imports_of(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides where it leads"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_infra_never_imports_pulumi_or_what_declares() -> None:
    for path in sources("infra"):
        outside = {
            name
            for name in imports_of(path)
            if name.split(".")[0] in ("pulumi", "pulumi_kubernetes", "components", "tools", "tests")
        }
        assert not outside, f"{path} imports {', '.join(sorted(outside))}"


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_a_layer_imports_only_what_lies_below_it(layer: str) -> None:
    for path in sources(f"infra/{layer}"):
        packages = {name.split(".")[1] for name in imports_of(path) if name.startswith("infra.")}
        above = packages - LAYERS[layer] - BASE - {layer}
        assert not above, f"{path} imports infra.{', infra.'.join(sorted(above))}; {layer} may use {sorted(LAYERS[layer])}"


def test_every_package_of_infra_has_its_layer() -> None:
    packages = {path.parent.name for path in (ROOT / "infra").glob("*/__init__.py")} - {"cli"}
    assert packages <= set(LAYERS), f"no layer is written down for {sorted(packages - set(LAYERS))}"


def test_agents_that_run_in_the_cluster_use_the_standard_library_alone() -> None:
    import sys

    for path in sources("infra/agents"):
        foreign = {name.split(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names)
        assert not foreign, f"{path} imports {', '.join(sorted(foreign))}"


def test_only_the_components_and_their_tests_import_pulumi() -> None:
    for folder in ("tools", "policy"):
        for path in sources(folder):
            assert not {name for name in imports_of(path) if name.split(".")[0] == "pulumi_kubernetes"}, (
                f"{path} imports pulumi_kubernetes"
            )
