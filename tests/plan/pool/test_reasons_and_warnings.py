"""What a decision says for itself: the words are those that people act on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.config.pools import CoTenant
from infra.plan.pod_shape import PodShape
from infra.plan.pool.decision import PoolDecision
from tests.support.gpu_pools import decide, node_shape, pod_shape

SMALL = node_shape(cpus=16, memory="64Gi", gpus=2, name="small")
FOUR = node_shape(numa_nodes=4, cpus=16, memory="64Gi", gpus=2, name="four")


def pod(gpus: int = 2, cpu: int | None = 8, memory: str | None = "8Gi", **fields: Any) -> PodShape:
    return pod_shape(gpus=gpus, cpu=cpu, memory=memory, **{"anti_affinity": "none", **fields})


def tenant(**fields: Any) -> CoTenant:
    return CoTenant.model_validate({"name": "agent", "cpu": "2", "memory": "1Gi", "qosClass": "Guaranteed", **fields})


def starting(decision: PoolDecision, words: str) -> list[str]:
    return [reason for reason in decision.reasons if reason.startswith(words)]


def warned(decision: PoolDecision) -> dict[str, tuple[str, str]]:
    return {warning.code: (warning.path, warning.sentence) for warning in decision.warnings}


def test_the_policy_says_how_it_was_proven_and_what_was_not_possible():
    mixed = decide(SMALL, pod(), pod(gpus=1, cpu=4, memory="4Gi", copies=2))
    (policy,) = starting(mixed, "topologyManagerPolicy")
    assert policy.startswith(
        "topologyManagerPolicy best-effort, the strictest that admits all pods: every order of starts, ends and restarts was tried, "
    )
    assert policy.endswith(" with what the scheduler can put on a node (1 pod of m0 (2 GPUs) and 2 pods of m1 (1 GPU each)).")
    assert [reason.split(": ")[0] for reason in starting(mixed, "not ")] == ["not single-numa-node", "not restricted"]
    given = decide(SMALL, pod(), kubelet={"topologyManagerPolicy": "restricted"}, co_tenants=(tenant(),))
    (policy,) = starting(given, "topologyManagerPolicy")
    assert policy.startswith("topologyManagerPolicy restricted, as the stack file says: ")
    assert policy.endswith("(1 pod of m0 (2 GPUs)) and the Guaranteed co-tenants.")
    assert not starting(given, "not ")


@pytest.mark.parametrize(("kinds", "told", "more"), [(4, 4, False), (5, 4, True)])
def test_of_many_loads_the_first_are_told(kinds, told, more):
    decision = decide(SMALL, *(pod(gpus=4, memory="1Gi") for _ in range(kinds)), nodes=kinds)
    (policy,) = starting(decision, "topologyManagerPolicy")
    assert policy.count(" pod of ") == told
    assert ("; ...)" in policy) == more
    assert policy.count("; or ") == told - 1


def test_policies_that_would_not_come_to_an_end_are_said_to_be_left_out():
    decision = decide(node_shape(numa_nodes=9, cpus=4, memory="16Gi", gpus=1, name="nine"), pod(gpus=1, cpu=2, memory="1Gi"))
    assert starting(decision, "restricted and best-effort would merge the hints of 9 NUMA nodes")


@pytest.mark.parametrize(
    ("shape", "pods", "fields", "words"),
    [
        (SMALL, (pod(),), {}, "reservedMemory is divided so that the NUMA nodes have equal room left (1295Mi on NUMA node 0, 1294Mi on NUMA node 1)"),
        (SMALL, (pod(),), {"kubelet": {"evictionHard": {"memory.available": "5%"}}}, "memoryManagerPolicy None: the memory threshold of evictionHard is a percentage"),
        (SMALL, (pod(),), {"platform": "gke"}, "memoryManagerPolicy None: Static has no use here, or cannot be had on small."),
        (
            SMALL,
            (pod(gpus=4, cpu=20),),
            {},
            "memoryManagerPolicy None, not Static: restricted admits a pod of small only where GPUs, CPUs and pinned memory need the same number of "
            "NUMA nodes; here 4 GPUs need 2, 20 CPUs need 2, 8.0 GiB need 1. Without it pods may allocate on all NUMA nodes",
        ),
    ],
)  # fmt: skip
def test_pinned_memory_or_why_there_is_none(shape, pods, fields, words):
    (reason,) = [
        *starting(decide(shape, *pods, **fields), "reservedMemory "),
        *starting(decide(shape, *pods, **fields), "memoryManagerPolicy "),
    ]
    assert reason.startswith(words)


def test_what_the_user_decides_of_memory_needs_no_reason():
    for settings in ({"memoryManagerPolicy": "None"}, {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "2589Mi"}}]}):
        decision = decide(SMALL, pod(), kubelet=settings)
        assert not starting(decision, "memoryManagerPolicy") and not starting(decision, "reservedMemory ")


def test_the_split_says_what_it_sums():
    (reason,) = starting(decide(SMALL, pod()), "reservedMemory ")
    assert reason.endswith(" Together kubeReserved 1465Mi + systemReserved 1024Mi + evictionHard 100Mi (default).")


@pytest.mark.parametrize(
    ("pods", "fields", "distribute", "strict", "off"),
    [
        ((pod(),), {}, False, True, False),
        ((pod(gpus=4, cpu=20),), {}, True, True, False),
        ((pod(cpu=9),), {}, False, True, True),
        ((pod(),), {"kubelet": {"cpuManagerPolicy": "none"}}, False, False, False),
        ((pod(),), {"kubelet": {"cpuManagerPolicyOptions": {"full-pcpus-only": "false"}}}, False, True, True),
    ],
)
def test_options_of_the_cpu_manager_that_are_on_or_off_say_why(pods, fields, distribute, strict, off):
    decision = decide(SMALL, *pods, **fields)
    assert bool(starting(decision, "distribute-cpus-across-numa takes")) == distribute
    assert bool(starting(decision, "strict-cpu-reservation keeps")) == strict
    assert bool(starting(decision, "full-pcpus-only is off")) == off


def test_whole_cores_are_no_matter_where_a_core_has_one_thread():
    assert not starting(
        decide(node_shape(cpus=16, threads=1, memory="64Gi", gpus=2), pod(cpu=9), platform="gke"), "full-pcpus-only is off"
    )
    assert starting(decide(SMALL, pod(), platform="gke"), "full-pcpus-only is off")


def test_cpus_that_the_plan_raises_say_why():
    (raised,) = decide(SMALL, pod(gpus=4, cpu=None)).pods
    assert raised.reasons[0] == (
        "20 CPUs instead of 12: 4 GPUs lie on 2 NUMA nodes, and only a pod with more than 16 CPUs gets CPUs on all of them "
        "(with fewer the CPU manager takes all from one node)."
    )
    assert not decide(SMALL, pod(cpu=None)).pods[0].reasons


@pytest.mark.parametrize(
    ("shape", "copies", "nodes", "words"),
    [
        (SMALL, 2, 2, "in others a pod comes to lie on NUMA node 1."),
        (FOUR, 4, 2, "in others a pod comes to lie on NUMA node 2; 3."),
        (SMALL, 2, 1, None),
    ],
)
def test_places_beside_the_shown_slots_are_named(shape, copies, nodes, words):
    (decided,) = decide(shape, pod(copies=copies), nodes=nodes).pods
    assert list(decided.reasons) == ([] if words is None else [f"Slots show one order of starts: {words}"])


def test_places_of_several_nodes_are_named_as_such():
    (decided,) = decide(FOUR, pod(gpus=3, copies=2)).pods
    assert decided.reasons[-1] == "Slots show one order of starts: in others a pod comes to lie on NUMA nodes 0, 1, 3."
    (decided,) = decide(FOUR, pod(gpus=4, cpu=20, copies=2), nodes=2).pods
    assert decided.reasons[-1] == "Slots show one order of starts: in others a pod comes to lie on NUMA nodes 2, 3."


# Warnings


def test_pods_that_fit_one_node_and_may_come_to_lie_on_several_are_warned_of():
    mixed = decide(SMALL, pod(), pod(gpus=1, cpu=4, memory="4Gi", copies=2))
    assert warned(mixed)["AlignmentNotAssured"] == (
        "models[0]",
        "2 GPUs and 8 CPUs fit one NUMA node of small, but topologyManagerPolicy best-effort lets a pod come to lie on NUMA nodes 0, 1 in some orders. "
        "Give pods of different size pools of their own.",
    )
    off = decide(SMALL, pod(), pod(gpus=1, cpu=4, memory="4Gi", copies=2), kubelet={"topologyManagerPolicy": "none"})
    assert warned(off)["AlignmentNotAssured"][1].endswith(
        "Give pods of different size pools of their own or choose hardware settings with fewer NUMA nodes (NPS1, SNC off, coherent driver memory)."
    )
    assert "AlignmentNotAssured" not in warned(decide(SMALL, pod(), kubelet={"topologyManagerPolicy": "best-effort"}))
    assert "AlignmentNotAssured" not in warned(decide(SMALL, pod(gpus=4, cpu=8)))


def test_pods_whose_room_others_can_take_may_stay_pending():
    decision = decide(SMALL, pod(gpus=4, cpu=20), pod(gpus=1, cpu=2, memory="1Gi", copies=2), nodes=2)
    assert warned(decision)["MayStayPending"] == (
        "models[0].replicas",
        "the scheduler may spread the other models of nodePools[0] so that a pod of 4 GPUs finds no node, though there is room for all: "
        "give the models pools of their own, or pack pods (scoring MostAllocated).",
    )
    assert "MayStayPending" not in warned(decide(SMALL, pod(gpus=4, cpu=20), pod(gpus=1, cpu=2, memory="1Gi"), nodes=2))


def test_a_policy_without_effect_is_warned_of_only_where_there_is_a_policy():
    hidden = replace(SMALL, numa_in_guest=False)
    path, message = warned(decide(hidden, pod()))["PolicyWithoutEffect"]
    assert path == "nodePools[0].kubelet.topologyManagerPolicy"
    assert message.startswith("small is a virtual machine that hides NUMA") and "so single-numa-node aligns CPUs" in message
    assert "PolicyWithoutEffect" not in warned(decide(hidden, pod(), kubelet={"topologyManagerPolicy": "none"}))


def test_stranded_gpus_are_counted_over_the_pool_and_told_with_the_planned_sizes():
    decision = decide(FOUR, pod(gpus=3, copies=4), pod(gpus=6, cpu=8), nodes=3)
    assert (decision.idle_gpus, decision.stranded_gpus) == (6, 6)
    assert warned(decision)["StrandedGpus"] == (
        "nodePools[0]",
        "6 of 6 idle GPUs cannot be used by any pod of the planned sizes (3, 6 GPUs) under best-effort. Sizes that divide the GPUs of a NUMA node leave none.",
    )


@pytest.mark.parametrize(
    ("cpus", "pods", "tenants", "path"),
    [
        (16, (pod(cpu=12),), 3, "nodePools[0].coTenants"),
        (8, (pod(gpus=1, cpu=4), pod(gpus=1, cpu=1, copies=3)), 0, "models[0]"),
    ],
)
def test_cores_that_a_pod_shares_are_told_with_who_could_help(cpus, pods, tenants, path):
    agents = (tenant(cpu="1", perNode=tenants),) if tenants else ()
    found = warned(decide(node_shape(cpus=cpus, memory="256Gi", name="small"), *pods, co_tenants=agents))
    assert found["CoresShared"][0] == path
    assert found["CoresShared"][1].startswith("a pod of m0 may get single threads of physical cores")
    assert "no multiple of 2, so that" in found["CoresShared"][1]


def test_estimates_of_a_managed_platform_are_warned_of():
    path, message = warned(decide(SMALL, pod(), platform="gke"))["ReservationsOfPlatform"]
    assert path == "nodePools[0]"
    assert message.startswith("gke sets kubeReserved and evictionHard itself")


def test_advice_about_fields_that_the_plan_chose_or_the_platform_decides_is_not_passed_on():
    uneven = node_shape(memories=("512Gi", "64Gi"), cpus=48)
    assert "UnevenMemory" not in warned(decide(uneven, pod(gpus=1)))
    settings = {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "2589Mi"}}]}
    assert warned(decide(uneven, pod(gpus=1), kubelet=settings))["UnevenMemory"][0].startswith(
        "nodePools[0].kubelet.reservedMemory"
    )
