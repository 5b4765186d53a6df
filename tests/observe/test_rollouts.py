"""How far a workload has come, which of its pods are of its newest template, and which are about to go."""

from __future__ import annotations

from typing import Any, cast

import pytest

from infra.observe.client import ApiError, Client
from infra.observe.rollouts import has_given_up, is_rolled_out, look_at_rollouts
from tests.observe.workloads import KEY, deployment, pod, replica_set, seen


def test_all_replicas_of_the_newest_template_count_as_rolled_out() -> None:
    assert is_rolled_out(deployment())


def test_a_workload_of_no_replicas_is_rolled_out_once_all_are_gone() -> None:
    assert is_rolled_out(deployment(wanted=0))
    assert not is_rolled_out(deployment(wanted=0) | {"status": {"observedGeneration": 3, "replicas": 1}})


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


def test_groups_count_by_ready_replicas_and_by_the_generation_that_the_controller_has_seen() -> None:
    group = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "m", "namespace": "inference", "generation": 2},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 2, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1},
    }
    assert is_rolled_out(group)
    assert not is_rolled_out({**group, "status": {**group["status"], "observedGeneration": 1}})
    assert not is_rolled_out({**group, "status": {**group["status"], "readyReplicas": 0}})


def test_a_passed_progress_deadline_is_giving_up_and_one_of_an_older_template_is_not() -> None:
    late = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
    assert has_given_up(deployment(conditions=late))
    assert not has_given_up(deployment(conditions=late, observedGeneration=2))
    assert not has_given_up(deployment(conditions=[{"type": "Progressing", "status": "True"}]))
    assert not has_given_up(deployment(conditions=[{"type": "Progressing", "status": "False", "reason": "FailedCreate"}]))


def test_pods_of_an_older_template_and_pods_that_go_are_not_the_newest() -> None:
    pods = (pod("old", revision="1"), pod("new", revision="2"), pod("ending", revision="2", going=True), pod("other", of="n"))
    look = seen(deployment(revision="2"), pods=pods, replica_sets=(replica_set(revision="1"), replica_set(revision="2")))
    assert [p["metadata"]["name"] for p in look.newest_pods_of(KEY)] == ["new"]
    assert len(look.pods_of(KEY)) == 3


def test_what_is_about_to_leave_is_ending_of_an_older_template_or_too_many() -> None:
    pods = (
        pod("old", revision="1"),
        pod("ending", of="n", going=True),
        pod("spare", of="shrinking"),
        pod("stays", of="n"),
        pod("elsewhere", of="n", node="gpu-z", going=True),
        pod("over", of="n", going=True, phase="Failed"),
    )
    sets = (replica_set(revision="1"), replica_set(revision="2"), replica_set("n"), replica_set("shrinking"))
    workloads = (deployment(revision="2"), deployment("n", wanted=1), deployment("shrinking", wanted=0))
    workloads[2]["status"]["replicas"] = 1
    look = seen(*workloads, pods=pods, replica_sets=sets)
    assert look.leaving(["gpu-a"]) == ("ending", "old", "spare")


class _Cluster:
    def __init__(self, error: ApiError | None = None) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.error = error

    def list(self, path: str, *, query: Any = None) -> list[Any]:
        self.asked.append((path, query))
        if "leaderworkersets" in path and self.error is not None:
            raise self.error
        return [deployment()] if path.endswith("/deployments") else []


def test_a_quick_look_asks_for_workloads_of_this_stack_alone_and_bears_a_cluster_without_groups() -> None:
    cluster = _Cluster(ApiError(404, "the server could not find the requested resource"))
    look = look_at_rollouts(cast(Client, cluster), {"a": "b", "c": "d"}, pods=False)
    assert list(look.workloads) == [KEY]
    assert [path for path, _ in cluster.asked] == [
        "/apis/apps/v1/deployments",
        "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
    ]
    assert all(query == {"labelSelector": "a=b,c=d"} for _, query in cluster.asked)


def test_another_refusal_is_not_borne() -> None:
    with pytest.raises(ApiError):
        look_at_rollouts(cast(Client, _Cluster(ApiError(403, "forbidden"))), {}, pods=False)
