"""An update ends when every replica of the newest template is ready, and fails with the cause where the Deployment gives up."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pulumi
import pytest

from components.rolled_out import has_given_up, is_rolled_out, wait_until_rolled_out
from infra.observe.client import Client

MANIFEST = {
    "metadata": {
        "name": "m",
        "namespace": "n",
        "labels": {"app.kubernetes.io/name": "vllm", "app.kubernetes.io/instance": "m", "app.kubernetes.io/component": "c"},
    }
}


def deployment(**status: Any) -> dict[str, Any]:
    full = {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    return {"metadata": {"generation": 3}, "spec": {"replicas": 2}, "status": {**full, **status}}


def test_all_replicas_of_the_newest_template_count_as_rolled_out() -> None:
    assert is_rolled_out(deployment())


@pytest.mark.parametrize(
    "status",
    [
        {"observedGeneration": 2},
        {"updatedReplicas": 1},
        {"availableReplicas": 1},
        {"replicas": 3},
        {"availableReplicas": 0, "updatedReplicas": 0, "replicas": 0},
    ],
    ids=["not seen yet", "one old", "one not ready", "one too many", "none"],
)
def test_anything_less_does_not(status: dict[str, Any]) -> None:
    assert not is_rolled_out(deployment(**status))


def test_a_passed_progress_deadline_is_giving_up() -> None:
    assert has_given_up(deployment(conditions=[{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]))
    assert not has_given_up(deployment(conditions=[{"type": "Progressing", "status": "True"}]))


class _Cluster:
    """Answers with one state of the Deployment after the other, then with the last one; no pods, no events."""

    def __init__(self, *states: dict[str, Any] | None) -> None:
        self.states = list(states)

    def find(self, path: str) -> dict[str, Any] | None:
        assert path == "/apis/apps/v1/namespaces/n/deployments/m"
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def list(self, path: str, *, query: Any = None) -> list[Any]:
        pod = {"metadata": {"name": "m-1"}, "spec": {}, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "Insufficient cpu"}]}}  # fmt: skip
        return [pod] if path.endswith("/pods") else []


def wait(*states: dict[str, Any] | None, seconds: int = 10) -> None:
    asyncio.run(wait_until_rolled_out(cast(Client, _Cluster(*states)), MANIFEST, seconds))


def test_it_waits_while_the_rollout_goes_on() -> None:
    wait(deployment(updatedReplicas=1, availableReplicas=1), deployment())


def test_a_deployment_that_is_gone_is_not_waited_for() -> None:
    wait(None)


def test_giving_up_ends_the_program_with_workload_and_cause() -> None:
    gave_up = deployment(availableReplicas=1, conditions=[{"type": "Progressing", "status": "False"}])
    with pytest.raises(pulumi.RunError, match="n/m: not scheduled: Insufficient cpu"):
        wait(gave_up)


def test_the_timeout_ends_it_too() -> None:
    with pytest.raises(pulumi.RunError, match="n/m: "):
        wait(deployment(availableReplicas=1), seconds=0)
