"""Why a pool cannot be planned: one sentence with the path, both numbers and the remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.config.pools import CoTenant
from infra.errors import PlanError
from infra.kubelet import KubeletRefuses
from infra.plan.model.kubelet import KubeletPlan
from infra.plan.pool.failures import in_words, will_not_start
from infra.plan.pool.proof import Event, Refusal
from infra.plan.pool.search import search
from tests.support.gpu_pools import decide, gpu_pool, node_shape, pod_shape, pool_names


def free(gpus: int = 4, **fields: Any):
    return pod_shape(gpus=gpus, anti_affinity="none", **fields)


def problems(*args: Any, **fields: Any) -> dict[str, tuple[str, str]]:
    with pytest.raises(PlanError) as raised:
        decide(*args, **fields)
    return {problem.path: (problem.code, problem.sentence) for problem in raised.value.problems}


@pytest.mark.parametrize(
    ("pods", "nodes", "path", "message"),
    [
        (
            (pod_shape(copies=3),),
            2,
            "models[0].replicas",
            "3 pods of 4 GPUs, 128.0 GiB and 32 CPUs are wanted (required anti-affinity: one a node); 2 nodes of dgx-h100 hold 2. "
            "Write podAntiAffinity: preferred, or use replicas 2, or give the pool 3 nodes.",
        ),
        (
            (free(copies=5),),
            2,
            "models[0].replicas",
            "5 pods of 4 GPUs, 128.0 GiB and 32 CPUs are wanted; 2 nodes of dgx-h100 hold 4 (3 pods on one node need 12 GPUs, and 8 is there). "
            "Use replicas 4, or give the pool 3 nodes.",
        ),
        (
            (free(cpu=120, copies=2),),
            1,
            "models[0].replicas",
            "2 pods of 4 GPUs, 128.0 GiB and 120 CPUs are wanted; 1 node of dgx-h100 hold 1 (2 pods on one node need 240 CPU, and 219 is there). "
            "Use resources.cpu 108, or use replicas 1, or give the pool 2 nodes.",
        ),
        (
            (free(gpus=1, cpu=4, memory="700Gi", copies=7),),
            3,
            "models[0].replicas",
            "7 pods of 1 GPUs, 700.0 GiB and 4 CPUs are wanted; 3 nodes of dgx-h100 hold 6 "
            "(3 pods on one node need 2100.0 GiB memory, and 2009.5 GiB is there). Use resources.memory 669Gi, or use replicas 6, or give the pool 4 nodes.",
        ),
        (
            (free(copies=2), free(gpus=2, copies=2)),
            1,
            "models[1].replicas",
            "2 pods of 2 GPUs, 128.0 GiB and 32 CPUs are wanted; 1 node of dgx-h100 hold 0 beside the pool's other models. "
            "Give the pool 2 nodes.",
        ),
    ],
)
def test_a_pool_that_is_too_small_says_what_lacks_and_how_many_nodes_it_takes(pods, nodes, path, message):
    assert problems(node_shape(), *pods, nodes=nodes) == {path: ("PoolTooSmall", message)}


@pytest.mark.parametrize(
    ("pod", "path", "words", "offered"),
    [
        (pod_shape(gpus=9), "models[0].tensorParallelSize", "one pod needs 9 GPUs; a node of dgx-h100 has 8 for pods", "8"),
        (pod_shape(cpu=220), "models[0].resources.cpu", "one pod needs 220 CPU; a node of dgx-h100 has 219 for pods", "218"),
        (pod_shape(memory="2010Gi"), "models[0].resources.memory", "one pod needs 2010.0 GiB memory; a node of dgx-h100 has 2009.5 GiB for pods", "2009Gi"),
    ],
)  # fmt: skip
def test_a_pod_that_is_larger_than_a_node_says_what_the_node_has(pod, path, words, offered):
    (code, message) = problems(node_shape(), pod)[path]
    assert code == "PodTooLarge"
    assert message.startswith(words)
    assert message.endswith(f"Use {offered}. A larger node holds it.")


def test_a_node_whose_pods_are_all_taken_has_none_left_for_models():
    (_, message) = problems(node_shape(), pod_shape(), kubelet={"maxPods": 12})["models[0].replicas"]
    assert message.startswith("one pod needs 1 pods; a node of dgx-h100 has 0 for pods")
    assert decide(node_shape(), pod_shape(), kubelet={"maxPods": 13})
    assert "has 0 for pods" in problems(node_shape(), pod_shape(), kubelet={"maxPods": 5})["models[0].replicas"][1]


def test_a_refusal_tells_the_order_and_the_numbers_of_an_empty_node():
    pods = (free(cpu=16, memory="64Gi"), free(gpus=1, cpu=4, memory="16Gi", copies=4))
    found = problems(node_shape(), *pods, kubelet={"topologyManagerPolicy": "restricted"})
    assert found == {
        "nodePools[0].kubelet.topologyManagerPolicy": (
            "TopologyAffinityError",
            "restricted does not admit 1 pod of m0 (4 GPUs) and 4 pods of m1 (1 GPU each) in every order on one node of dgx-h100 with the memory "
            "that its shape states: after start of m0 (NUMA node 0), start of m1 (NUMA node 1), end of m0 (NUMA node 0), start of m1 (NUMA node 0) "
            "the kubelet refuses a pod of m0 (TopologyAffinityError: Resources cannot be allocated with Topology locality). "
            "On an empty node NUMA node 0 has 4 GPUs, 110 CPUs, 1005.7 GiB (1295Mi reserved); NUMA node 1 has 4 GPUs, 110 CPUs, 1005.7 GiB "
            "(1294Mi reserved); the pod needs 4 GPUs, 16 CPUs and 64.0 GiB. Write topologyManagerPolicy: best-effort, which admits all pods in every order. "
            "Or give models of different size pools of their own, whose taints keep the others off.",
        )
    }


def pool_with(*tenants: str):
    co_tenants = tuple(CoTenant.model_validate({"name": name, "cpu": "1", "memory": "1Gi"}) for name in tenants)
    return gpu_pool(node_shape(), pod_shape(), pod_shape(), co_tenants=co_tenants)


def test_a_refusal_names_pods_and_co_tenants_by_their_numbers():
    pool = pool_with("cache", "agent")
    events = (Event("start", 3, ()), Event("start", 1, (0, 1)), Event("end", 2, (1,)))
    words = in_words(Refusal(events=events, resident=0, reason="R", message="why"), pool).worded(pool_names(2))
    assert words == (
        "after start of agent, start of m1 (NUMA nodes 0, 1), end of cache (NUMA node 1) the kubelet refuses a pod of m0 (R: why)"
    )
    alone = Refusal(events=(), resident=2, reason="R", message="why")
    assert in_words(alone, pool).worded(pool_names(2)) == "on an empty node the kubelet refuses a pod of cache (R: why)"


@pytest.mark.parametrize(
    ("fields", "stage", "error", "path"),
    [
        ({"maxPods": 5}, "validate", "maxPods must be positive", "nodePools[0].kubelet.maxPods"),
        ({"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {}}, "x", "CPUManagerPolicyOptions: no", "nodePools[0].kubelet.cpuManagerPolicyOptions"),
        ({}, "memorymanager", "the sums differ", "nodePools[0].kubelet.reservedMemory"),
        ({}, "nodeAllocatable", "nothing is left", "nodePools[0].kubelet.kubeReserved"),
        ({}, "load", "no idea", "nodePools[0].kubelet"),
    ],
)  # fmt: skip
def test_a_kubelet_that_would_not_start_points_at_the_field_that_it_names_or_at_the_stages_own(fields, stage, error, path):
    failure = will_not_start(KubeletPlan(fields=fields), KubeletRefuses(stage, (error, "more")))
    found = failure.finding.worded(pool_names(0))
    assert failure.final
    assert (found.path, found.code, found.message) == (
        path,
        "KubeletRefuses",
        f"the kubelet would not start ({stage}): {error}; more",
    )


def test_a_refused_co_tenant_points_at_the_co_tenants():
    agent = CoTenant.model_validate({"name": "agent", "cpu": "3", "memory": "1Gi", "qosClass": "Guaranteed"})
    settings = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    found = problems(node_shape(), pod_shape(), co_tenants=(agent,), kubelet=settings)
    (code, message) = found["nodePools[0].kubelet.cpuManagerPolicyOptions"]
    assert code == "SMTAlignmentError"
    assert "the kubelet refuses a pod of agent" in message and "On an empty node NUMA" not in message


@pytest.mark.parametrize(
    ("tenant", "pod", "path"),
    [
        ({"memory": "600Gi", "perNode": 2}, pod_shape(memory="450Gi"), "nodePools[0].coTenants"),
        ({"memory": "500Gi", "perNode": 2}, pod_shape(gpus=1, cpu=8, memory="800Gi"), "models[0].resources"),
    ],
)
def test_without_a_field_of_the_user_a_refusal_points_at_the_refused_pods(tenant, pod, path):
    cache = CoTenant.model_validate({"name": "cache", "cpu": "2", "qosClass": "Guaranteed", **tenant})
    assert set(problems(node_shape(), pod, co_tenants=(cache,), kubelet={"memoryManagerPolicy": "Static"})) == {path}


MIXED = tuple(free(gpus=1, cpu=2 * size, memory="8Gi", copies=3) for size in (1, 2, 3))


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (
            {"most_states": 45},
            "more than 45 states of a node with 3 pods of m0 (1 GPU each) and 3 pods of m1 (1 GPU each) and 2 pods of m2",
        ),
        ({"most_states_in_all": 60}, "more than 60 states"),
    ],
)
def test_more_states_than_can_be_looked_at_are_no_proof(budget, words):
    settings = {"topologyManagerPolicy": "restricted", "memoryManagerPolicy": "None"}
    pool = gpu_pool(node_shape(), *MIXED, nodes=4, kubelet=settings)
    proven, failures = search(replace(pool, **budget))
    assert proven is None
    (found,) = [failure.finding.worded(pool_names(3)) for failure in failures]
    assert (found.path, found.code) == ("nodePools[0]", "NotProven")
    assert found.message.startswith(f"admission under restricted is not proven: {words}")
    assert found.message.endswith(". Use dedicated pools for pods of different size.")


def test_the_states_of_all_kinds_of_nodes_together_are_bounded():
    pool = gpu_pool(node_shape(), free(copies=2), kubelet={"topologyManagerPolicy": "restricted", "memoryManagerPolicy": "None"})
    proven, _ = search(pool)
    assert proven is not None
    states = proven.proof.states // 2  # of one of two orders of the devices
    assert search(replace(pool, most_states_in_all=states + states))[0] is not None
    (failure,) = search(replace(pool, most_states_in_all=states + 1))[1]
    assert "more than 1 states of a node with 2 pods of m0" in failure.reason.worded(pool_names(1))
    (failure,) = search(replace(pool, most_states_in_all=states))[1]
    assert f"more than {states} states of 2 kinds of nodes" in failure.reason.worded(pool_names(1))
