from __future__ import annotations

from typing import Any

import pytest

from infra.observe.causes import causes


def pod(name: str = "llama-1", *, node: str = "gpu-a", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": status}


def event(reason: str, message: str, *, about: str = "llama-1", at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": {"name": about}, "lastTimestamp": at}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "vllm:1", "state": {"waiting": {"reason": reason, "message": message}}, **more}


def test_a_storm_of_refused_pods_is_one_sentence_with_its_count() -> None:
    message = "Pod was rejected: Resources cannot be allocated with Topology locality"
    pods = [pod(f"llama-{i}", phase="Failed", reason="TopologyAffinityError", message=message) for i in range(37)]
    (sentence,) = causes(pods, [])
    assert sentence.startswith("refused by the kubelet of gpu-a: TopologyAffinityError (Resources cannot")
    assert sentence.endswith("(37 pods)")


def test_a_resource_that_ran_out_on_the_node_is_named() -> None:
    (sentence,) = causes(
        [pod(phase="Failed", reason="OutOfnvidia.com/gpu", message="Pod was rejected: Node didn't have enough")], []
    )
    assert "nvidia.com/gpu ran out there" in sentence


def test_a_refusal_of_an_unknown_reason_is_told_as_one() -> None:
    (sentence,) = causes([pod(phase="Failed", reason="SysctlForbidden", message="Pod was rejected: forbidden sysctl")], [])
    assert sentence == "refused by the kubelet of gpu-a: SysctlForbidden (forbidden sysctl)"


def test_a_pod_that_was_evicted_after_it_had_been_admitted_says_so() -> None:
    (sentence,) = causes([pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")], [])
    assert sentence == "ended on gpu-a: Evicted: The node was low on resource: memory."


def test_what_the_scheduler_says_is_passed_on() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 2 Insufficient nvidia.com/gpu."}
    assert causes([pod(node="", phase="Pending", conditions=[condition])], []) == (
        "not scheduled: 0/3 nodes are available: 2 Insufficient nvidia.com/gpu.",
    )


def test_an_image_that_cannot_be_pulled_is_named_with_the_node() -> None:
    (sentence,) = causes([pod(phase="Pending", containerStatuses=[waiting("ImagePullBackOff", "not found")])], [])
    assert sentence == "image vllm:1 of container vllm cannot be pulled on gpu-a: not found"


def test_a_crash_gives_its_last_words() -> None:
    ended = {
        "terminated": {
            "exitCode": 78,
            "reason": "Error",
            "message": "starting\nnumawise gate: refused: 3 GPUs are here, 4 are planned\n",
        }
    }
    status = waiting("CrashLoopBackOff", lastState=ended, restartCount=4)
    (sentence,) = causes([pod(phase="Running", containerStatuses=[status])], [])
    assert sentence == "container vllm ended with exit code 78, 4 restarts: numawise gate: refused: 3 GPUs are here, 4 are planned"


def test_killed_for_memory_is_said_so() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    (sentence,) = causes(
        [pod(phase="Running", containerStatuses=[waiting("CrashLoopBackOff", lastState=ended, restartCount=1)])], []
    )
    assert sentence == "container vllm was killed for memory (OOMKilled), 1 restarts"


def test_a_pod_that_runs_and_never_gets_ready_gives_the_last_probes_answer() -> None:
    events = [
        event("Unhealthy", "first", at="2026-01-01T00:00:00Z"),
        event("Unhealthy", "connection refused", at="2026-01-01T00:05:00Z"),
    ]
    running = pod(
        phase="Running",
        containerStatuses=[{"name": "vllm", "state": {"running": {}}}],
        conditions=[{"type": "Ready", "status": "False"}],
    )
    assert causes([running], [*reversed(events), event("Unhealthy", "of another", about="qwen-1")]) == (
        "runs but is not ready on gpu-a: Unhealthy: connection refused",
    )


def test_a_mount_that_fails_is_told_by_its_event() -> None:
    stuck = pod(phase="Pending", containerStatuses=[waiting("ContainerCreating")])
    assert causes([stuck], [event("FailedMount", "MountVolume.SetUp failed")]) == (
        "has not started on gpu-a: FailedMount: MountVolume.SetUp failed",
    )


def test_pods_that_are_refused_by_the_api_server_leave_only_an_event() -> None:
    assert causes([], [event("FailedCreate", 'violates PodSecurity "restricted:latest"', about="llama-5f")]) == (
        'no pod was made: FailedCreate: violates PodSecurity "restricted:latest"',
    )


def test_a_ready_pod_is_no_cause() -> None:
    assert causes([pod(phase="Running", conditions=[{"type": "Ready", "status": "True"}])], []) == ()


def test_many_causes_are_cut_and_counted() -> None:
    pods = [
        pod(f"p{i}", phase="Pending", containerStatuses=[waiting("CreateContainerConfigError", f"secret {i} not found")])
        for i in range(9)
    ]
    sentences = causes(pods, [])
    assert len(sentences) == 7
    assert sentences[-1] == "and 3 other causes"


def test_a_container_that_has_just_ended_is_told_by_its_present_state() -> None:
    ended = {"name": "vllm", "state": {"terminated": {"exitCode": 1}}}
    assert causes([pod(phase="Running", containerStatuses=[ended])], []) == ("container vllm ended with exit code 1, 0 restarts",)


def test_the_end_before_counts_more_than_the_present_one() -> None:
    status = {
        "name": "vllm",
        "state": {"terminated": {"exitCode": 1}},
        "lastState": {"terminated": {"exitCode": 2, "message": "  \n"}},
        "restartCount": 3,
    }
    assert causes([pod(phase="Running", containerStatuses=[status])], []) == ("container vllm ended with exit code 2, 3 restarts",)


def test_a_container_that_ended_well_is_no_cause() -> None:
    status = {"name": "warm", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    ready = [{"type": "Ready", "status": "True"}]
    assert causes([pod(phase="Running", initContainerStatuses=[status], conditions=ready)], []) == ()


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_container_that_is_being_made_says_nothing_of_itself(reason: str) -> None:
    assert causes([pod(phase="Pending", containerStatuses=[waiting(reason)])], []) == ("has not started on gpu-a",)


def test_an_init_container_is_told_before_the_others() -> None:
    stuck = pod(
        phase="Pending",
        initContainerStatuses=[{**waiting("CreateContainerConfigError", "secret a not found"), "name": "warm"}],
        containerStatuses=[waiting("PodInitializing")],
    )
    assert causes([stuck], []) == ("container warm waits: CreateContainerConfigError: secret a not found",)


def test_a_reason_to_wait_without_a_message_stands_alone() -> None:
    assert causes([pod(phase="Pending", containerStatuses=[waiting("RunContainerError")])], []) == (
        "container vllm waits: RunContainerError",
    )
    assert causes([pod(phase="Pending", containerStatuses=[waiting("ErrImagePull")])], []) == (
        "image vllm:1 of container vllm cannot be pulled on gpu-a: ErrImagePull",
    )


def test_a_crash_by_a_probe_is_told_with_the_probes_answer() -> None:
    status = waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 137}}, restartCount=2)
    events = [event("Unhealthy", "Liveness probe failed"), event("BackOff", "later", at="2026-01-02T00:00:00Z")]
    assert causes([pod(phase="Running", containerStatuses=[status])], events) == (
        "container vllm ended with exit code 137, 2 restarts (Unhealthy: Liveness probe failed)",
    )


def test_events_that_are_no_warnings_or_of_other_pods_are_not_told() -> None:
    pulled = {**event("Pulled", "image is there"), "type": "Normal"}
    assert causes([pod(phase="Pending")], [pulled, event("FailedMount", "x", about="other")]) == ("has not started on gpu-a",)


def test_the_newest_event_is_told_whichever_time_it_carries() -> None:
    newer = {**event("FailedMount", "second"), "lastTimestamp": None, "eventTime": "2026-01-01T00:01:00Z"}
    assert causes([pod(phase="Pending")], [newer, event("FailedMount", "first")]) == (
        "has not started on gpu-a: FailedMount: second",
    )


def test_a_pod_without_a_node_and_conditions_has_not_started_on_any() -> None:
    assert causes([{"metadata": {"name": "p"}, "status": {"phase": "Pending"}}], []) == ("has not started on no node",)


def test_a_pod_that_is_scheduled_is_not_told_as_unscheduled() -> None:
    scheduled = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]
    assert causes([pod(phase="Pending", conditions=scheduled)], []) == ("has not started on gpu-a",)


def test_a_pod_that_has_no_phase_yet_or_succeeded_is_no_cause() -> None:
    assert causes([pod(), pod(phase="Succeeded")], []) == ()
    assert causes([{"metadata": {"name": "p"}}], []) == ()


def test_where_no_pod_was_made_the_last_failure_is_told_and_events_of_other_kinds_are_not() -> None:
    events = [event("FailedCreate", "first"), event("FailedCreate", "second"), event("ScalingReplicaSet", "up to 2")]
    assert causes([], events) == ("no pod was made: FailedCreate: second",)
    assert causes([], [event("ScalingReplicaSet", "up to 2")]) == ()


def test_six_causes_are_all_told_and_the_commonest_first() -> None:
    stuck = [pod(f"p{i}", phase="Pending", containerStatuses=[waiting("Error", f"cause {i}")]) for i in (0, 1, 2, 2, 3, 4, 5)]
    sentences = causes(stuck, [])
    assert len(sentences) == 6
    assert sentences[0] == "container vllm waits: Error: cause 2 (2 pods)"


def test_a_refusal_without_any_reason_says_so() -> None:
    assert causes([pod(phase="Failed")], []) == ("ended on gpu-a: no reason given",)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TopologyAffinityError", "topology manager found no NUMA nodes"),
        ("SMTAlignmentError", "no multiple of the threads of a core"),
        ("OutOfcpu", "cpu ran out there"),
    ],
)
def test_a_known_reason_of_a_refusal_is_explained(reason: str, words: str) -> None:
    (sentence,) = causes([pod(phase="Failed", reason=reason, message="Pod was rejected: why")], [])
    assert sentence.startswith(f"refused by the kubelet of gpu-a: {reason} (why): ")
    assert words in sentence
