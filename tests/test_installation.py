"""What doctor looks for: versions at their limits, programs that are absent or fail, a stack's file and cluster."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra import installation
from infra.errors import MissingError
from infra.installation import ROOT, Requirement, requirements
from infra.observe.client import ApiError

PROVIDERS = json.dumps([{"name": "kubernetes", "version": "4.25.0"}, {"name": "aws", "version": "4.25.0"}])
PROGRAMS: dict[tuple[str, ...], str | None] = {
    ("pulumi", "version"): "v3.226.0",
    ("pulumi", "plugin", "ls", "--json"): PROVIDERS,
    ("kubectl", "version", "--client"): "Client Version: v1.37.2\nKustomize Version: v5",
}


def found(monkeypatch: pytest.MonkeyPatch, outputs: Mapping[tuple[str, ...], str | None] = PROGRAMS) -> dict[str, Requirement]:
    """All requirements by name, where programs print `outputs` (None: absent or failed)."""
    monkeypatch.setattr(installation, "_output", lambda *command: outputs[command])
    return {requirement.name: requirement for requirement in requirements()}


def test_a_complete_machine_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    every = found(monkeypatch)
    assert [name for name, requirement in every.items() if not requirement.ok] == []
    assert every["kubectl"].found == "Client Version: v1.37.2"
    assert every["kubernetes provider"].found == "4.25.0"
    assert every["Python"].found == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(("version", "ok"), [((3, 10, 9), False), ((3, 11, 0), True), ((3, 14, 1), True)])
def test_the_oldest_python_is_3_11(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], ok: bool) -> None:
    monkeypatch.setattr(installation.sys, "version_info", (*version, "final", 0))
    python = found(monkeypatch)["Python"]
    assert (python.ok, python.found, python.needed_for) == (ok, ".".join(map(str, version)), "everything")


@pytest.mark.parametrize(
    ("output", "ok", "shown"),
    [
        ("v3.226.0", True, "v3.226.0"),
        ("v3.227.1", True, "v3.227.1"),
        ("v4.0.0", True, "v4.0.0"),
        ("v3.225.9", False, "v3.225.9"),
        ("v2.999.0", False, "v2.999.0"),
        ("dev", False, "dev"),
        (None, False, "not on PATH"),
    ],
)
def test_the_oldest_pulumi_is_3_226(monkeypatch: pytest.MonkeyPatch, output: str | None, ok: bool, shown: str) -> None:
    pulumi = found(monkeypatch, {**PROGRAMS, ("pulumi", "version"): output})["pulumi"]
    assert (pulumi.ok, pulumi.found) == (ok, shown)
    assert pulumi.needed_for != "everything"
    assert ok or pulumi.remedy in ("install 3.226 or newer", "https://www.pulumi.com/docs/install/, or `make shell`")


@pytest.mark.parametrize(
    "listed", [None, "", "no JSON", "[1]", '[{"name": "kubernetes"}]', '[{"name": "aws", "version": "4.25.0"}]']
)
def test_a_list_of_plugins_without_the_provider_is_a_provider_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, listed: str | None
) -> None:
    plugin = found(monkeypatch, {**PROGRAMS, ("pulumi", "plugin", "ls", "--json"): listed})["kubernetes provider"]
    assert (plugin.ok, plugin.found, plugin.remedy) == (False, "not installed", "pulumi plugin install resource kubernetes 4.25.0")


def test_another_provider_is_named_and_kubectl_may_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = json.dumps([{"name": "kubernetes", "version": "4.24.0"}])
    every = found(monkeypatch, {**PROGRAMS, ("pulumi", "plugin", "ls", "--json"): listed, ("kubectl", "version", "--client"): None})
    assert (every["kubernetes provider"].ok, every["kubernetes provider"].found) == (False, "4.24.0")
    assert (every["kubectl"].ok, every["kubectl"].found) == (False, "not on PATH")


def test_packages_are_compared_with_their_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "pydantic":
            raise importlib.metadata.PackageNotFoundError
        return "0"

    monkeypatch.setattr(installation.importlib.metadata, "version", version)
    every = found(monkeypatch)
    pins = dict(
        line.split("==") for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line and line[0] != "#"
    )
    assert {f"package {name}" for name in pins} == {name for name in every if name.startswith("package ")}
    pydantic, pulumi = every["package pydantic"], every["package pulumi"]
    assert (pydantic.found, pydantic.remedy) == (
        f"not installed, pinned {pins['pydantic']}",
        f"pip install pydantic=={pins['pydantic']}",
    )
    assert (pulumi.ok, pulumi.found) == (False, "0")
    needed = {name for name, one in every.items() if one.needed_for == "everything"}
    assert needed == {"Python", "catalog", "package pydantic", "package PyYAML"}


def test_a_program_is_run_where_it_is_on_the_path_and_counts_as_absent_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installation._output("sh", "-c", "echo ' out '") == "out"
    assert installation._output("sh", "-c", "echo out; exit 1") is None
    assert installation._output("no-such-program") is None

    def hang(*_: Any, timeout: float, **__: Any) -> None:
        raise subprocess.TimeoutExpired("sh", timeout)

    monkeypatch.setattr(installation.subprocess, "run", hang)
    assert installation._output("sh") is None


STACK = """
config:
  numawise:cluster:
    connection: {kubeconfig: %s}
    kubernetesVersion: "1.37"
    namespace: {name: inference, create: true}
    nodePools: [{name: h100, platform: existing, nodeShape: dgx-h100, nodes: 1}]
    models: []
"""


def of_stack(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str | None, client: Any = None) -> list[Requirement]:
    (folder / "stacks").mkdir()
    if text is not None:
        (folder / "stacks" / "Pulumi.x.yaml").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(installation, "Client", client)
    monkeypatch.setattr(installation, "_output", lambda *_: None)
    return [one for one in requirements("x") if one.name in ("stack file", "cluster")]


def test_a_stack_without_its_file_is_missing_for_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (file,) = of_stack(monkeypatch, tmp_path, None)
    assert (file.ok, file.needed_for, file.remedy) == (False, "everything", "correct stacks/Pulumi.x.yaml")
    assert "\n" not in file.found


def test_a_cluster_that_answers_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def client(path: Path, context: str | None, *, timeout_seconds: float) -> Any:
        assert (path, context, timeout_seconds) == (Path("k.yaml"), None, 5)
        return SimpleNamespace(server="https://c", get=lambda _: {"gitVersion": "v1.37.2"})

    file, cluster = of_stack(monkeypatch, tmp_path, STACK % "k.yaml", client)
    assert (file.ok, cluster.ok, cluster.found) == (True, True, "https://c runs v1.37.2")


@pytest.mark.parametrize("error", [MissingError.one("X", "connection", "no answer"), ApiError(403, "no answer")])
def test_a_cluster_that_does_not_answer_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception) -> None:
    def client(*_: Any, **__: Any) -> Any:
        raise error

    _, cluster = of_stack(monkeypatch, tmp_path, STACK % "k.yaml", client)
    assert (cluster.ok, cluster.needed_for) == (False, "up and verify")
    assert "no answer" in cluster.found


@pytest.mark.parametrize("connection", ["connection: {kubeconfig: {stack: o/p/s, output: k}}", ""])
def test_without_a_kubeconfig_path_nothing_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connection: str) -> None:
    text = STACK.replace("connection: {kubeconfig: %s}", connection)
    _, cluster = of_stack(monkeypatch, tmp_path, text)
    assert (cluster.ok, cluster.found) == (False, "no kubeconfig path in connection")
