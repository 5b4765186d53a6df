"""Updates of stack local that fail or are killed, and the way back, on the real engine and real kubelets.

The tests of this file build on each other in order: one cluster, one stack.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from infra.observe.client import ApiError
from tests.e2e.cluster_fixture import wait_for
from tests.e2e.stack_fixture import RunningStack, assert_verified, stack
from tools.engine import Engine

pytestmark = pytest.mark.e2e

__all__ = ["stack"]


def _occupy(stack: RunningStack, name: str, node: str, cpu: int) -> None:
    """A foreign Guaranteed pod that holds exclusive CPUs of a node, placed past the scheduler."""
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    body = {
        "metadata": {"name": name, "namespace": "inference"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/other:1",
                    "resources": {"requests": amounts, "limits": amounts},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }
    wait_for(lambda: stack.client.find("/api/v1/namespaces/inference/serviceaccounts/default"))
    stack.client.request("POST", "/api/v1/namespaces/inference/pods", body=body)
    wait_for(lambda: stack.client.get(f"/api/v1/namespaces/inference/pods/{name}")["status"].get("phase") == "Running")


def _free(stack: RunningStack, *names: str) -> None:
    for name in names:
        path = f"/api/v1/namespaces/inference/pods/{name}"
        try:
            stack.client.request("DELETE", path)
        except ApiError as error:
            assert error.status == 404
        wait_for(lambda path=path: stack.client.find(path) is None)


def _failing_models(cluster: dict[str, Any]) -> None:
    cluster["models"] = [model for model in cluster["models"] if model["name"] == "qwen-72b"]
    for name, cpu, env in (("never-ready", "8", {"SIM_NUMAWISE_READY": "false"}), ("refused", "32", {}), ("no-room", "64", {})):
        cluster["models"].append(
            {
                "name": name,
                "nodePool": "h100",
                "model": "meta-llama/Llama-3.1-8B-Instruct",
                "tensorParallelSize": 1,
                "maxModelLen": 4096,
                "resources": {"cpu": cpu, "memory": "64Gi"},
                "storage": {"existingClaim": "pvc-llama-models", "modelPath": "Llama-3.1-8B-Instruct"},
                "podAntiAffinity": "none",
                "startup": {"budgetSeconds": 20},
                "progressDeadlineSeconds": 30,
                "env": env,
            }
        )


@pytest.fixture(scope="class")
def failed(stack: RunningStack) -> Iterator[str]:
    """The last lines of a first update in which three models fail (in one, since each wait costs its whole timeout); afterwards the nodes are free.

    On gpu-a two tenants leave 60 CPUs, 30 on each NUMA node, and gpu-b is cordoned: enough for 8 CPUs, enough for the scheduler but for no NUMA node for
    32, and not enough for 64.
    """
    cordon = {"spec": {"unschedulable": True}}
    _occupy(stack, "tenant-a", "gpu-a", 80)
    _occupy(stack, "tenant-b", "gpu-a", 80)
    stack.client.request("PATCH", "/api/v1/nodes/gpu-b", body=cordon, content_type="application/merge-patch+json")
    try:
        done = stack.pulumi("up", _failing_models)
        assert done.status != 0
        yield "\n".join(line for line in done.text.splitlines() if "error" in line or line.startswith((" ", "\t")))
    finally:
        cordon["spec"]["unschedulable"] = False
        stack.client.request("PATCH", "/api/v1/nodes/gpu-b", body=cordon, content_type="application/merge-patch+json")
        _free(stack, "tenant-a", "tenant-b")


def _errors_of(text: str, model: str) -> str:
    return "\n".join(line for line in text.splitlines() if f"inference/{model}:" in line and "error" in line)


class TestModelsThatDoNotBecomeReady:
    def test_a_model_that_is_never_ready_fails_the_update_and_the_cause_is_told(self, failed: str) -> None:
        said = _errors_of(failed, "never-ready")
        assert "503" in said or "Startup probe failed" in said, failed

    def test_a_model_that_finds_no_room_fails_the_update_and_the_scheduler_is_quoted(self, failed: str) -> None:
        said = _errors_of(failed, "no-room")
        assert "not scheduled: 0/3 nodes are available" in said, failed

    def test_a_model_that_a_kubelet_refuses_fails_the_update_and_the_refusal_is_told(self, failed: str) -> None:
        said = _errors_of(failed, "refused")
        assert "TopologyAffinityError" in said, failed

    def test_refused_pods_do_not_go_on_for_ever(self, stack: RunningStack, failed: str) -> None:
        refused = [pod for pod in stack.refused_pods() if pod.startswith("refused-")]
        assert 1 <= len(refused) <= 3, "the guard keeps one refused pod a node as a witness"


def test_the_stack_comes_back_once_the_causes_are_gone(stack: RunningStack) -> None:
    done = stack.pulumi("up", None, "--refresh")
    assert done.status == 0, done.text
    wait_for(
        lambda: (
            not [
                pod
                for pod in stack.pods()
                if pod["metadata"]["labels"].get("app.kubernetes.io/instance") in ("never-ready", "refused", "no-room")
            ]
        ),
        seconds=180,
    )
    wait_for(lambda: stack.verify()["ok"], seconds=60, describe=lambda: str(stack.verify()["findings"]))


def test_a_killed_update_is_mended_by_recover(stack: RunningStack) -> None:
    def another(cluster: dict[str, Any]) -> None:
        cluster["models"][0]["gpuMemoryUtilization"] = 0.89

    running = stack.started_update(another)
    wait_for(lambda: any(stack.workspace().locks.glob("*.json")), seconds=120)
    time.sleep(2)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert any(stack.workspace().locks.glob("*.json")), "the lock of the killed update is still there"
    assert Engine(stack.workspace()).recover() == 0
    assert not any(stack.workspace().locks.glob("*.json"))
    assert_verified(stack)
