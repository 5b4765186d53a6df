"""What a preview costs against a bare program that declares the same objects through the same provider, alternating, on the embedded cluster."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from infra.config.load import load_stack_file
from infra.kinds import kind_of
from infra.plan.cluster import plan_stack
from infra.render.parts import objects_of, stack_parts
from tools.engine import Engine, Workspace
from tools.work.steps import CHECKOUT

_PROGRAM = '''"""A bare program: these objects and nothing else."""

import json
import re
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

provider = kubernetes.Provider("kubernetes", kubeconfig=KUBECONFIG, enable_server_side_apply=True)
options = pulumi.ResourceOptions(provider=provider)
for number, (group, version, kind, content) in enumerate(json.loads(Path("objects.json").read_text())):
    typed = getattr(getattr(getattr(kubernetes, group), version), kind)
    typed(f"object-{number}", opts=options, **{re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower(): value for key, value in content.items()})
'''


@dataclass(frozen=True, kw_only=True)
class PreviewCost:
    """Medians in seconds; `ratio` of the pairs' medians."""

    runs: int
    ours_seconds: float
    bare_seconds: float

    @property
    def ratio(self) -> float:
        return self.ours_seconds / self.bare_seconds


def measure_preview(*, runs: int) -> PreviewCost | None:
    """Previews of stack local that create everything, in a state of their own; None where the embedded cluster is not up. RuntimeError where one fails."""
    deployed = Workspace.of(stack="local")
    if not deployed.kubeconfig.exists():
        return None
    with tempfile.TemporaryDirectory(prefix="numawise-bench-") as folder:
        workspace = Workspace.of(stack="local", state=Path(folder, "state"))
        engine = Engine(workspace)
        workspace.kubeconfig.parent.mkdir(parents=True)
        shutil.copy2(deployed.kubeconfig, workspace.kubeconfig)
        ours = ["pulumi", "preview", "--stack", "local", "--config-file", str(workspace.config_file), "--non-interactive"]
        bare = ["pulumi", "preview", "--stack", "bare", "--non-interactive"]
        place = _bare_program(Path(folder, "bare"), workspace)
        engine.preview(["--suppress-progress"])
        _run(["pulumi", "stack", "init", "bare", "--non-interactive"], place, engine.environment)
        seconds: dict[str, list[float]] = {"ours": [], "bare": []}
        for run in range(runs + 1):
            for name, command, where in (("ours", ours, CHECKOUT), ("bare", bare, place)):
                took = _run(command, where, engine.environment)
                if run:  # the first of each warms up
                    seconds[name].append(took)
    return PreviewCost(
        runs=runs,
        ours_seconds=round(statistics.median(seconds["ours"]), 2),
        bare_seconds=round(statistics.median(seconds["bare"]), 2),
    )


def _bare_program(place: Path, workspace: Workspace) -> Path:
    """Writes the program for what stack local declares: its objects as rendered, labels of nodes as patches."""
    place.mkdir()
    virtualenv = str((CHECKOUT / ".venv").resolve())
    project = {"name": "bare", "runtime": {"name": "python", "options": {"toolchain": "pip", "virtualenv": virtualenv}}}
    (place / "Pulumi.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
    (place / "__main__.py").write_text(_PROGRAM.replace("KUBECONFIG", repr(str(workspace.kubeconfig))), encoding="utf-8")
    plan = plan_stack(load_stack_file(workspace.stack_file))
    objects = []
    for child in objects_of(stack_parts(plan, stack="local")):
        row = kind_of(child.manifest)
        content = {key: value for key, value in child.manifest.items() if key not in ("apiVersion", "kind")}
        objects.append([row.group.split(".")[0] or "core", row.version, f"{row.kind}Patch" if child.patch else row.kind, content])
    (place / "objects.json").write_text(json.dumps(objects), encoding="utf-8")
    return place


def _run(command: list[str], where: Path, environment: Mapping[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=where, env=dict(environment), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` failed:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - began
