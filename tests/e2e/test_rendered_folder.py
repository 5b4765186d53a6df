"""The rendered folder, applied by kubectl alone, on real kubelets; the gate and the guard as the processes that they are.

The tests of this file build on each other in order: one cluster, one folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.__main__ import main
from infra.observe.causes import causes
from tests.e2e.cluster_fixture import EmbeddedCluster, is_ready, wait_for
from tools.cluster.layout import Layout
from tools.cluster.stack import machine_set_of_stack
from tools.toolchain import binary

pytestmark = pytest.mark.e2e

LABEL = "numawise.dev/kubelet-config"
RUN_FOR_REAL = {"spec": {"template": {"metadata": {"annotations": {"sim.numawise.dev/run": "process"}}}}}


@dataclass(frozen=True)
class Applied:
    cluster: EmbeddedCluster
    folder: Path

    def pods(self, model: str) -> list[dict[str, Any]]:
        query = f"?labelSelector=app.kubernetes.io/instance%3D{model}"
        return self.cluster.api.get(f"/api/v1/namespaces/inference/pods{query}")["items"]

    def ready_pods(self, model: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods(model) if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]

    def patch(self, model: str, change: Any, kind: str = "merge") -> None:
        self.cluster.kubectl("patch", "deployment", model, "-n", "inference", "--type", kind, "-p", json.dumps(change))

    def labels(self, node: str) -> dict[str, str]:
        return self.cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]

    def verify(self) -> dict[str, Any]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main(["verify", "-s", "local", "--kubeconfig", str(self.cluster.layout.kubeconfig), "--format", "json"])
        return json.loads(out.getvalue())


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applied]:
    embedded = EmbeddedCluster(Layout(tmp_path_factory.mktemp("cluster")))
    folder = tmp_path_factory.mktemp("rendered")
    try:
        embedded.up(machine_set_of_stack("local"))
        assert main(["render", "-s", "local", "--out", str(folder)]) == 0
        yield Applied(embedded, folder)
    finally:
        embedded.run("down", "--wipe")


def test_the_api_server_knows_every_field_of_every_file(applied: Applied) -> None:
    for command in (
        folder_line for folder_line in (applied.folder / "node-labels.txt").read_text().splitlines() if folder_line[0] != "#"
    ):
        words = shlex.split(command)
        assert words[0] == "kubectl"
        labelled = applied.cluster.kubectl(*words[1:], check=False)
        assert labelled.returncode == 0, labelled.stderr
    done = applied.cluster.kubectl("apply", "--validate=strict", "-f", str(applied.folder), check=False)
    assert done.returncode == 0, done.stderr
    assert "unknown field" not in done.stderr
    assert len(done.stdout.splitlines()) == len(list(applied.folder.glob("*.yaml")))


def test_every_pod_gets_ready_in_a_planned_slot(applied: Applied) -> None:
    wait_for(lambda: len(applied.ready_pods("llama-70b")) == 2 and len(applied.ready_pods("qwen-72b")) == 1, seconds=120)
    verified = applied.verify()
    assert verified["ok"], verified["findings"]
    assert len(verified["pods"]) == 3


def test_the_gate_lets_vllm_start_where_the_kubelet_gave_what_was_planned(applied: Applied) -> None:
    applied.patch("llama-70b", RUN_FOR_REAL)
    applied.cluster.kubectl("rollout", "status", "deployment/llama-70b", "-n", "inference", "--timeout=110s")
    for pod in applied.ready_pods("llama-70b"):
        log = applied.cluster.kubectl("logs", "-n", "inference", pod["metadata"]["name"]).stdout
        assert "numawise gate: CPUs " in log
        assert "stand-in for vllm serve /models/Meta-Llama-3-70B-Instruct" in log
        assert "warning" not in log


def test_the_gate_refuses_a_placement_that_is_not_the_planned_one_and_says_why(applied: Applied) -> None:
    path = "/api/v1/namespaces/inference/configmaps/llama-70b-gate"
    files = applied.cluster.api.get(path)["data"]
    other = {**json.loads(files["plan.json"]), "gpus": 3}
    applied.cluster.kubectl(
        "patch", "configmap", "llama-70b-gate", "-n", "inference", "-p", json.dumps({"data": {"plan.json": json.dumps(other)}})
    )
    victim = applied.ready_pods("llama-70b")[0]["metadata"]["name"]
    applied.cluster.kubectl("delete", "pod", victim, "-n", "inference", "--wait=false")

    def crashed() -> list[dict[str, Any]]:
        statuses = [(pod, pod["status"].get("containerStatuses") or [{}]) for pod in applied.pods("llama-70b")]
        return [pod for pod, (status,) in statuses if (status.get("lastState", {}).get("terminated") or {}).get("exitCode") == 78]

    pod = wait_for(crashed, seconds=90)[0]
    (sentence,) = causes([pod], [])
    assert sentence.startswith("container vllm ended with exit code 78")
    assert sentence.endswith("numawise gate: refused: 4 GPUs are here, 3 are planned; look at the device plugin's log on this node")
    applied.cluster.kubectl("apply", "-f", str(next(applied.folder.glob("*configmap-llama-70b-gate.yaml"))))
    applied.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", "inference", "--wait=false")
    wait_for(lambda: len(applied.ready_pods("llama-70b")) == 2, seconds=90)


def test_the_guard_ends_a_storm_of_refused_pods_within_seconds(applied: Applied) -> None:
    wait_for(lambda: _guard_runs(applied))
    cpu = "/spec/template/spec/containers/0/resources"
    applied.patch(
        "llama-70b",
        [{"op": "replace", "path": f"{cpu}/{kind}/cpu", "value": "130"} for kind in ("limits", "requests")],
        kind="json",
    )
    wait_for(lambda: any(pod["status"].get("reason") == "TopologyAffinityError" for pod in applied.pods("llama-70b")), seconds=60)
    wait_for(lambda: any(LABEL not in applied.labels(node) for node in ("gpu-a", "gpu-b")), seconds=60)
    time.sleep(10)
    names = {pod["metadata"]["name"] for pod in applied.pods("llama-70b")}
    time.sleep(10)
    assert {pod["metadata"]["name"] for pod in applied.pods("llama-70b")} == names, "pods are still made and refused"
    refused = [pod for pod in applied.pods("llama-70b") if pod["status"].get("phase") == "Failed"]
    assert len(refused) == 1, "one refused pod stays as evidence"
    assert applied.labels("gpu-c")[LABEL]
    assert len(applied.ready_pods("llama-70b")) == 1, "the replica that was well goes on"


def test_the_node_comes_back_by_itself_once_its_time_is_over(applied: Applied) -> None:
    applied.cluster.kubectl("apply", "-f", str(next(applied.folder.glob("*deployment-llama-70b.yaml"))))
    wait_for(lambda: all(LABEL in applied.labels(node) for node in ("gpu-a", "gpu-b")), seconds=150)
    wait_for(lambda: len(applied.ready_pods("llama-70b")) == 2, seconds=120)


def _guard_runs(applied: Applied) -> bool:
    done = subprocess.run(
        [
            binary("kubectl"),
            "--kubeconfig",
            str(applied.cluster.layout.kubeconfig),
            "logs",
            "-n",
            "numawise-system",
            "deploy/numawise-guard",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return "numawise guard: watching 3 nodes and namespaces inference" in done.stdout
