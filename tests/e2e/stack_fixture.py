"""Stack local on an embedded cluster of its own, driven through the real engine as make does it."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.__main__ import main
from infra.observe.client import Client
from tools.engine import Engine, Workspace
from tools.work.embedded import cluster, cluster_environment, settle_state, take_down
from tools.work.steps import CHECKOUT

# A line of an update: operation, type, name, what was done.
_STEP = re.compile(
    r"^\s*(\+-|\+|~|-|\+\+|--)\s+(\S+)\s+(\S+)\s+(created|updated|deleted|replaced|creating|updating|deleting|replacing)\b"
)


@dataclass(frozen=True)
class Update:
    """What one run of the engine did."""

    status: int
    text: str

    def changed(self, what: str) -> set[tuple[str, str]]:
        """(type, name) of the resources that were `created`, `updated` or `deleted`; components are left out."""
        found = set()
        for line in self.text.splitlines():
            match = _STEP.match(line)
            if match and match[4] == what and not match[2].startswith(("numawise:", "pulumi:pulumi:Stack")):
                found.add((match[2], match[3]))
        return found

    @property
    def changes(self) -> dict[str, int]:
        """The engine's own summary: {"unchanged": 27}."""
        return {
            word: int(count)
            for count, word in re.findall(
                r"^\s*(?:[-+~]{1,2} )?(\d+) (created|updated|deleted|replaced|unchanged|refreshed)", self.text, re.MULTILINE
            )
        }


@dataclass(frozen=True)
class RunningStack:
    """The stack of one test module; `change` gives it another stack file for one update."""

    folder: Path
    tree: Path = CHECKOUT  # whose engine and program `pulumi` runs

    @property
    def tracked(self) -> dict[str, Any]:
        return yaml.safe_load((CHECKOUT / "stacks" / "Pulumi.local.yaml").read_text())

    def workspace(self, change: Callable[[dict[str, Any]], None] | None = None) -> Workspace:
        """The workspace; with a change, of a copy of the stack file in which the cluster document was changed."""
        document = self.tracked
        if change is not None:
            change(document["config"]["numawise:cluster"])
        file = self.folder / "given" / "Pulumi.local.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        return Workspace.of(stack="local", state=self.folder, stack_file=file)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "cluster" / "kubeconfig"

    @property
    def client(self) -> Client:
        return Client(self.kubeconfig, "numawise-local")

    def cluster(self, *words: str) -> int:
        return cluster(self.workspace(), *words)

    def pulumi(self, command: str, change: Callable[[dict[str, Any]], None] | None = None, *extra: str) -> Update:
        """Runs `Engine.COMMAND` and returns its status and all that it printed."""
        workspace = self.workspace(change)
        script = f"import sys; from pathlib import Path; from tools.engine import Engine, Workspace; w = Workspace.of(stack='local', state=Path({str(self.folder)!r}), stack_file=Path({str(workspace.stack_file)!r})); sys.exit(Engine(w).{command}({list(extra)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=self.tree,
            env=cluster_environment(workspace),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        return Update(status=done.returncode, text=done.stdout + done.stderr)

    def started_update(self, change: Callable[[dict[str, Any]], None] | None = None) -> subprocess.Popen[str]:
        """An update that goes on by itself."""
        workspace = self.workspace(change)
        script = f"from pathlib import Path; from tools.engine import Engine, Workspace; Engine(Workspace.of(stack='local', state=Path({str(self.folder)!r}), stack_file=Path({str(workspace.stack_file)!r}))).up()"
        return subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=CHECKOUT,
            env=cluster_environment(workspace),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def verify(self, change: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """`python -m infra verify --format json` on the stack as it is, or as it was changed."""
        file = self.workspace(change).stack_file
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = main(
                [
                    "verify",
                    "--config",
                    str(file),
                    "--kubeconfig",
                    str(self.kubeconfig),
                    "--context",
                    "numawise-local",
                    "--format",
                    "json",
                ]
            )
        return {**json.loads(out.getvalue()), "status": status}

    def pods(self) -> list[dict[str, Any]]:
        return list(self.client.list("/api/v1/namespaces/inference/pods"))

    def refused_pods(self) -> list[str]:
        """Pods that a kubelet refused, with the reason."""
        return [
            f"{pod['metadata']['name']}: {pod['status'].get('reason')}"
            for pod in self.pods()
            if pod["status"].get("phase") == "Failed"
        ]

    def urns(self) -> list[str]:
        """URNs of the state."""
        checkpoint = json.loads(self.workspace().checkpoint.read_text())
        return sorted(resource["urn"] for resource in checkpoint["checkpoint"]["latest"].get("resources") or ())


def assert_verified(stack: RunningStack, change: Callable[[dict[str, Any]], None] | None = None) -> None:
    verified = stack.verify(change)
    assert verified["ok"], verified["findings"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """The embedded cluster with the nodes of stack local, and nothing of the stack on it yet; ended after the module."""
    running = RunningStack(tmp_path_factory.mktemp("stack"))
    workspace = running.workspace()
    try:
        assert cluster(workspace, "up", "--stack", "local") == 0
        settle_state(workspace)
        Engine(workspace)
        yield running
    finally:
        take_down(workspace)
