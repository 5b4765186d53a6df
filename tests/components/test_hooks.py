from __future__ import annotations

import asyncio
from typing import Any

import pulumi
import pytest

from components.hooks import explain_hook
from infra.errors import MissingError
from infra.observe.client import ApiError
from tests.support.monitor import run_program

DEPLOYMENT = {
    "metadata": {
        "namespace": "inference",
        "name": "llama-70b",
        "labels": {"app.kubernetes.io/name": "vllm", "app.kubernetes.io/instance": "llama-70b", "numawise.dev/stack": "local"},
    },
    "spec": {},
}
REFUSED = {
    "metadata": {"name": "llama-70b-1"},
    "spec": {"nodeName": "gpu-a"},
    "status": {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no locality"},
}


class Cluster:
    """Answers as infra.observe.client.Client does; keeps what it was asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._error = error

    def list(self, path: str, *, query: Any = None) -> Any:
        self.asked.append((path, query))
        if self._error:
            raise self._error
        return iter([REFUSED] if path.endswith("/pods") else [])


def call(cluster: Cluster | None, operation: str = "create") -> tuple[Any, list[tuple[str, str]]]:
    """The hook's answer to the engine, and what it logged."""
    answers: list[Any] = []

    def program() -> None:
        hook = explain_hook(lambda: cluster)  # type: ignore[arg-type,return-value]
        failure = pulumi.ErrorHookArgs("urn", "id", "llama-70b-deployment", "t", new_inputs=DEPLOYMENT, failed_operation=operation)
        answer = hook(failure)
        assert asyncio.iscoroutine(answer)
        answers.append(asyncio.ensure_future(answer))
        pulumi.Output.from_input(answers[0]).apply(lambda value: answers.append(value))

    run = run_program(program)
    return answers[-1], list(run.log)


def test_it_logs_why_the_workload_is_not_ready_and_never_retries() -> None:
    cluster = Cluster()
    retry, log = call(cluster)
    assert retry is False
    assert log == [
        (
            "error",
            "inference/llama-70b: refused by the kubelet of gpu-a: TopologyAffinityError (no locality): "
            "the kubelet's topology manager found no NUMA nodes that hold all its resources",
        )
    ]
    assert cluster.asked[0] == (
        "/api/v1/namespaces/inference/pods",
        {"labelSelector": "app.kubernetes.io/name=vllm,app.kubernetes.io/instance=llama-70b"},
    )


@pytest.mark.parametrize(
    "error", [ApiError(403, "pods is forbidden"), MissingError.one("ClusterUnreachable", "connection", "no answer")]
)
def test_a_cluster_that_does_not_answer_is_said_so_and_hides_no_failure(error: Exception) -> None:
    retry, log = call(Cluster(error))
    assert retry is False
    assert log[0][1].startswith("inference/llama-70b: the cluster could not be asked: ")


def test_a_failed_delete_has_no_pods_to_ask() -> None:
    cluster = Cluster()
    assert call(cluster, "delete") == (False, [])
    assert cluster.asked == []


def test_without_a_cluster_it_says_where_to_look() -> None:
    retry, log = call(None)
    assert retry is False
    assert "look at the controller manager" in log[0][1]
