"""The waits of a program: all in one loop, each ending by itself, and one verdict when all have ended."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pulumi
import pytest

from components import rolled_out
from components.rolled_out import RolloutWaits
from components.room import Room
from infra.errors import MissingError
from infra.observe.client import Client
from infra.observe.room import RoomPlan
from tests.observe.workloads import KEY, container, deployment, replica_set
from tests.support.monitor import run_program

BAD_NAME = container("n-1", state={"waiting": {"reason": "InvalidImageName", "message": "bad"}})


class _Cluster:
    """Lists one state of the Deployments after the other, then the last one."""

    def __init__(
        self, *states: list[dict[str, Any]], pods: tuple[dict[str, Any], ...] = (), error: Exception | None = None
    ) -> None:
        self.states, self.pods, self.error = list(states), pods, error

    def list(self, path: str, *, query: Any = None) -> list[Any]:
        if self.error is not None:
            raise self.error
        if path.endswith("/deployments"):
            return self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if path.endswith("/replicasets"):
            return [replica_set("m"), replica_set("n")]
        return list(self.pods) if path == "/api/v1/pods" else []


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolled_out, "_SHORTEST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(rolled_out, "_BETWEEN_PODS_SECONDS", 0)


def verdict_on(cluster: _Cluster, *names: str) -> list[tuple[str, str]]:
    """Waits for Deployments of these names at once and returns the log; RunError where one failed."""
    waits = cast(RolloutWaits, None)

    async def wait() -> None:
        await asyncio.gather(
            *(waits.wait_for(type(KEY)(kind="Deployment", namespace="inference", name=name), 60) for name in names)
        )

    def program() -> None:
        nonlocal waits
        waits = RolloutWaits(lambda: cast(Client, cluster), {}, Room(RoomPlan(taking={}), {}, lambda: cast(Client, cluster)))
        done = pulumi.Output.from_input(asyncio.ensure_future(wait()))
        waits._outputs.append(done)  # type: ignore[reportPrivateUsage]
        waits.verdict()

    from unittest.mock import patch

    with patch("tests.support.monitor.patch"):
        return list(run_program(program).log)


def test_it_waits_while_the_rollout_goes_on_and_logs_nothing_when_all_is_ready() -> None:
    cluster = _Cluster([deployment(updatedReplicas=1)], [deployment(updatedReplicas=1)], [deployment()])
    assert verdict_on(cluster, "m") == []
    assert len(cluster.states) == 1


def test_one_that_fails_is_told_at_once_and_the_others_are_waited_for_to_their_end() -> None:
    broken = deployment("n", availableReplicas=0)
    pod = {**BAD_NAME, "metadata": {**BAD_NAME["metadata"], "labels": {"app": "n", "pod-template-hash": "1"}}}
    cluster = _Cluster(*[[deployment(updatedReplicas=1), broken]] * 5, [deployment(), broken], pods=(pod,))
    with pytest.raises(pulumi.RunError, match=r"^1 workload did not become ready: inference/n; the causes stand above$"):
        verdict_on(cluster, "m", "n")
    assert len(cluster.states) == 1, "the healthy one was waited for"


def test_a_cluster_that_does_not_answer_fails_all_waits_in_sentences() -> None:
    lost = _Cluster(error=MissingError.one("ClusterUnreachable", "connection", "no answer"))
    with pytest.raises(pulumi.RunError, match=r"2 workloads did not become ready: inference/m, inference/n"):
        verdict_on(lost, "m", "n")
