"""python -m infra verify: which cluster it looks at, what it prints, and its exit status."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.__main__ import main
from infra.diagnosis import Diagnosis
from infra.observe.client import Client
from infra.verify.cluster import Verification
from tests.support.documents import small_document

GOOD = Verification(nodes=(), pods=(), findings=())
BAD = Verification(nodes=(), pods=(), findings=(Diagnosis("pods.a", "NoSlot", "a fills no slot."),))


class Looks:
    """What was looked at, and the result that is given for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, result: Verification = GOOD) -> None:
        self.connections: list[tuple[Path, str | None]] = []
        monkeypatch.setattr("infra.observe.connect.Client", lambda path, context: self.connections.append((path, context)))
        monkeypatch.setattr("infra.verify.cluster.verify_cluster", lambda *_, **__: result)


def document(tmp_path: Path, connection: Any) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps({**small_document(), "connection": connection}))
    return str(file)


def test_the_documents_connection_is_used_and_options_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = Looks(monkeypatch)
    file = document(tmp_path, {"kubeconfig": "~/k.yaml", "context": "prod"})
    assert main(["verify", "--config", file]) == 0
    assert main(["verify", "--config", file, "--kubeconfig", "other.yaml", "--context", "test"]) == 0
    assert looks.connections == [(Path("~/k.yaml").expanduser(), "prod"), (Path("other.yaml"), "test")]


def test_no_connection_needs_the_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = Looks(monkeypatch)
    file = document(tmp_path, None)
    assert main(["verify", "--config", file, "--format", "json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["path"] == "connection" and "give --kubeconfig FILE" in error["message"]
    assert main(["verify", "--config", file, "--kubeconfig", "k.yaml"]) == 0
    assert looks.connections == [(Path("k.yaml"), None)]


def engine(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program named pulumi, found first."""
    program = folder / "bin" / "pulumi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


_KUBECONFIG = {
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a"}}],
    "clusters": [{"name": "a", "cluster": {"server": "https://api.example.com"}}],
}


@pytest.mark.parametrize(
    "content", [_KUBECONFIG, json.dumps(_KUBECONFIG), yaml.safe_dump(_KUBECONFIG)], ids=["object", "JSON", "YAML"]
)
def test_another_stacks_output_is_asked_of_the_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: Any) -> None:
    clients: list[Client] = []
    monkeypatch.setattr("infra.verify.cluster.verify_cluster", lambda _, client, **__: clients.append(client) or GOOD)
    (tmp_path / "answer").write_text(json.dumps(content))
    engine(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/answer')
    file = document(tmp_path, {"kubeconfig": {"stack": "o/p/s", "output": "kubeconfig"}})
    assert main(["verify", "--config", file]) == 0
    assert clients[0].server == "https://api.example.com"
    assert "stack output kubeconfig --stack o/p/s --show-secrets --json" in (tmp_path / "asked").read_text()


def test_an_output_that_the_engine_does_not_give_is_told_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(tmp_path, monkeypatch, "echo 'error: no stack named s found' >&2; exit 255")
    file = document(tmp_path, {"kubeconfig": {"stack": "o/p/s"}})
    assert main(["verify", "--config", file, "--format", "json"]) == 3
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert "no stack named s found" in error["message"] and "--kubeconfig FILE" in error["message"]


@pytest.mark.parametrize(("result", "status"), [(GOOD, 0), (BAD, 1)])
def test_the_status_is_1_where_the_cluster_is_not_as_planned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], result: Verification, status: int
) -> None:
    Looks(monkeypatch, result)
    file = document(tmp_path, {"kubeconfig": "k.yaml"})
    assert main(["verify", "--config", file, "--format", "json"]) == status
    assert json.loads(capsys.readouterr().out)["ok"] is (status == 0)
    assert main(["verify", "--config", file]) == status
    assert capsys.readouterr().out.startswith("node  pool  kubelet")


@pytest.mark.parametrize(
    ("name", "stack"), [("Pulumi.prod.yaml", "prod"), ("prod.yml", "prod"), ("cluster.json", "cluster.json"), (".yaml", "stack")]
)
def test_a_file_gives_its_stack_a_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, stack: str
) -> None:
    file = tmp_path / name
    file.write_text(json.dumps(small_document()))
    assert main(["plan", "--config", str(file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["stack"] == stack


def test_a_stack_may_be_named_with_its_organization_and_project(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert main(["plan", "-s", "acme/numawise/local", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["stack"] == "local"
