"""The wait for one workload: what ends it well, what ends it at once or after its patience, and what is told meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from infra.observe.hopeless import RULES
from infra.observe.rollouts import Rollouts
from infra.observe.waiting import Outcome, Waiting
from tests.observe.workloads import KEY, container, deployment, pod, refused, replica_set, seen, unscheduled

NOT_READY: dict[str, Any] = {"availableReplicas": 0, "readyReplicas": 0}


def look(waiting: Waiting, rollouts: Rollouts, now: float, events: tuple[dict[str, Any], ...] = ()) -> Outcome:
    return waiting.look(rollouts, now, lambda: events)


def waiting(timeout_seconds: float = 3600) -> Waiting:
    return Waiting(key=KEY, timeout_seconds=timeout_seconds, since=0)


def after(seconds: float, *pods: dict[str, Any], events: tuple[dict[str, Any], ...] = (), **status: Any) -> Outcome:
    """What a wait says that sees the same from second 5 on, every 5 seconds."""
    wait, outcome, now = waiting(), Outcome(), 5.0
    rollouts = seen(deployment(**{**NOT_READY, **status}), pods=pods)
    while now <= seconds and not outcome.failed:
        outcome, now = look(wait, rollouts, now, events), now + 5
    return outcome


def test_it_is_done_when_all_are_ready_and_where_the_workload_is_gone() -> None:
    assert waiting().quick(seen(deployment())).done
    assert waiting().quick(seen()).done
    assert not waiting().quick(seen(deployment(**NOT_READY))).done


@pytest.mark.parametrize(
    "pods, words",
    [
        pytest.param([container("m-1", state={"waiting": {"reason": "InvalidImageName", "message": "bad"}})], "no registry can answer", id="no image name"),
        pytest.param([container("m-1", lastState={"terminated": {"exitCode": 78, "message": "gate: refused"}}, restartCount=1)], "keeps its CPUs and GPUs", id="gate, again"),
        pytest.param([container("m-1", state={"terminated": {"exitCode": 78}})], "exit code 78", id="gate, just ended"),
    ],
)  # fmt: skip
def test_some_causes_end_it_at_the_first_look(pods: list[dict[str, Any]], words: str) -> None:
    assert words in "\n".join(after(5, *pods).failed)


@pytest.mark.parametrize(
    "pods, words",
    [
        pytest.param([unscheduled("m-1")], "Insufficient nvidia.com/gpu.; waiting cannot help: no pod of this stack is about to leave", id="no room"),
        pytest.param([refused("m-1"), refused("m-2")], "TopologyAffinityError", id="refused again and again"),
    ],
)  # fmt: skip
def test_others_end_it_within_a_minute_and_not_at_once(pods: list[dict[str, Any]], words: str) -> None:
    assert after(15, *pods).failed == ()
    assert words in "\n".join(after(50, *pods).failed)


def test_pods_that_the_api_server_refuses_end_it_within_a_minute() -> None:
    quota = [
        {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreate",
            "message": 'pods "m-1" is forbidden: exceeded quota: gpus',
        }
    ]
    assert "exceeded quota: gpus; waiting cannot help" in after(50, conditions=quota).failed[0]
    webhook = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "failed calling webhook: timeout"}]
    assert after(600, conditions=webhook).failed == ()


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([container("m-1", state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})], id="image"),
        pytest.param([container("m-1", state={"waiting": {"reason": "CreateContainerConfigError"}})], id="secret"),
        pytest.param([container("m-1", lastState={"terminated": {"exitCode": 1}}, restartCount=5)], id="crash"),
        pytest.param([refused("m-1")], id="refused once"),
        pytest.param([refused("m-1", "UnexpectedAdmissionError"), refused("m-2", "UnexpectedAdmissionError")], id="plugin away"),
        pytest.param([{**unscheduled("m-1"), "status": {**unscheduled("m-1")["status"], "nominatedNodeName": "gpu-a"}}], id="preempting"),
        pytest.param([unscheduled("m-1"), pod("m-0", going=True)], id="own pod leaves"),
        pytest.param([unscheduled("m-1"), pod("m-0", revision="0")], id="older template"),
    ],
)  # fmt: skip
def test_what_may_heal_is_waited_for(pods: list[dict[str, Any]]) -> None:
    assert after(600, *pods).failed == ()


def test_a_pod_that_leaves_another_pools_node_gives_no_room() -> None:
    assert after(60, unscheduled("m-1"), pod("m-0", node="gpu-z", going=True)).failed


def test_an_autoscaler_that_makes_a_node_is_waited_for() -> None:
    scaling = {"reason": "TriggeredScaleUp", "involvedObject": {"name": "m-1"}}
    assert after(600, unscheduled("m-1"), events=(scaling,)).failed == ()


def test_a_cause_has_to_stand_without_a_break() -> None:
    wait, stuck = waiting(), seen(deployment(**NOT_READY), pods=(unscheduled("m-1"),))
    assert not look(wait, stuck, 5).failed
    assert not look(wait, seen(deployment(**NOT_READY), pods=(pod("m-1"),)), 30).failed
    assert not look(wait, stuck, 50).failed
    assert look(wait, stuck, 95).failed


def test_pods_of_the_template_before_decide_nothing() -> None:
    crashed = container("m-1", lastState={"terminated": {"exitCode": 78}}, restartCount=3)
    rollouts = seen(
        deployment(revision="2", **NOT_READY), pods=(crashed,), replica_sets=(replica_set(revision="1"), replica_set(revision="2"))
    )
    assert not look(waiting(), rollouts, 5).failed


def test_the_progress_deadline_and_the_timeout_end_it_with_the_causes() -> None:
    late = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
    pulling = container("m-1", state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})
    expected = "image vllm:1 of container vllm cannot be pulled on gpu-a: not found"
    assert look(waiting(), seen(deployment(**NOT_READY, conditions=late), pods=(pulling,)), 5).failed == (expected,)
    assert look(waiting(timeout_seconds=60), seen(deployment(**NOT_READY), pods=(pulling,)), 61).failed == (expected,)
    assert "look at the controller manager" in look(waiting(timeout_seconds=60), seen(deployment(**NOT_READY)), 61).failed[0]


def test_every_half_minute_one_line_names_pod_and_cause() -> None:
    wait = waiting()
    leaving = seen(
        deployment(availableReplicas=0, readyReplicas=1), deployment("n"), pods=(unscheduled("m-1"), unscheduled("m-2"), pod("n-1", of="n", going=True)),
    )  # fmt: skip
    assert look(wait, leaving, 25).tell == ""
    assert look(wait, leaving, 30).tell == (
        "inference/m: 1 of 2 ready after 30 s; pod m-1: not scheduled: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu. (and 1 more); n-1 is about to leave"
    )
    assert look(wait, leaving, 45).tell == ""
    assert look(wait, leaving, 60).tell.startswith("inference/m: 1 of 2 ready after 60 s")


def test_where_no_pod_waits_the_line_says_what_else_does() -> None:
    ready = [{"type": "Ready", "status": "True"}]
    ending = seen(deployment(wanted=1, updatedReplicas=0), pods=(pod("m-0", going=True, conditions=ready),))
    assert look(waiting(), ending, 30).tell.endswith("waits until m-0 is gone")
    assert look(waiting(), seen(deployment(**NOT_READY)), 30).tell.endswith("its controller has not made the next pod yet")
    event = {"reason": "FailedCreate", "message": "webhook timed out", "involvedObject": {"name": "m-5f"}}
    assert look(waiting(), seen(deployment(**NOT_READY)), 30, (event,)).tell.endswith(
        "no pod was made: FailedCreate: webhook timed out"
    )


def test_every_hopeless_cause_is_told_within_a_minute_and_with_its_reason() -> None:
    for rule in RULES:
        assert rule.patience_seconds <= 40, rule.name
        assert rule.why
