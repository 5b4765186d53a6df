"""Where pods come to lie, and which GPUs stay free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.config.pools import CoTenant
from infra.plan.model import Slot
from infra.plan.pod_shape import PodShape
from infra.plan.pool.decision import PoolDecision
from infra.units import GIB, MIB
from tests.support.gpu_pools import decide, node_shape, pod_shape

SMALL = node_shape(cpus=16, memory="64Gi", gpus=2, name="small")


def pod(gpus: int = 2, cpu: int = 8, memory: str = "8Gi", **fields: Any) -> PodShape:
    return pod_shape(gpus=gpus, cpu=cpu, memory=memory, **{"anti_affinity": "none", **fields})


def groups(decision: PoolDecision, position: int = 0) -> list[tuple[int, list[tuple[int, ...]]]]:
    return [(group.nodes, [slot.gpus for slot in group.slots]) for group in decision.pods[position].slots]


def test_equal_nodes_with_equal_pods_are_one_group():
    decision = decide(SMALL, pod(copies=3), nodes=2)
    assert groups(decision) == [(1, [(0, 1), (2, 3)]), (1, [(0, 1)])]
    assert decision.idle_gpus == 2
    assert groups(decide(SMALL, pod(copies=4), nodes=2)) == [(2, [(0, 1), (2, 3)])]


def test_a_slot_has_the_cpus_and_memory_that_the_kubelet_gave():
    (slot,) = decide(SMALL, pod()).pods[0].slots[0].slots
    assert slot == Slot(numa_nodes=(0,), gpus=(0, 1), cpu_count=8, cpus_example=(1, 2, 3, 4, 17, 18, 19, 20), memory_numa=(0,))
    (shared,) = decide(SMALL, pod(), kubelet={"cpuManagerPolicy": "none"}).pods[0].slots[0].slots
    assert (shared.numa_nodes, shared.cpu_count, shared.cpus_example) == ((0,), 8, ())


def test_places_stand_for_any_gpus_and_cpus_of_their_numa_nodes():
    decision = decide(SMALL, pod(gpus=1, copies=4, cpu=4))
    assert decision.pods[0].places == (
        Slot(numa_nodes=(0,), gpus=(0,), cpu_count=4, cpus_example=(), memory_numa=(0,)),
        Slot(numa_nodes=(1,), gpus=(2,), cpu_count=4, cpus_example=(), memory_numa=(1,)),
    )
    unpinned = decide(SMALL, pod(), kubelet={"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"})
    assert unpinned.pods[0].places == (Slot(numa_nodes=(0,), gpus=(0, 1), cpu_count=8, cpus_example=()),)


def test_gpus_without_a_numa_node_stand_for_any():
    (place,) = decide(replace(SMALL, numa_in_guest=False), pod()).pods[0].places
    assert (place.numa_nodes, place.gpus) == ((0,), (0, 1))
    nowhere = decide(replace(SMALL, numa_in_guest=False), pod(), kubelet={"cpuManagerPolicy": "none"}).pods[0].places
    assert {(place.numa_nodes, place.gpus) for place in nowhere} == {((), (0, 1))}


def test_co_tenants_start_first():
    agent = CoTenant.model_validate({"name": "agent", "cpu": "10", "memory": "1Gi", "qosClass": "Guaranteed"})
    assert groups(decide(SMALL, pod(), co_tenants=(agent,))) == [(1, [(2, 3)])]


@pytest.mark.parametrize(
    ("pods", "nodes", "idle", "stranded"),
    [
        ((pod(gpus=2),), 1, 2, 0),
        ((pod(gpus=2, copies=2),), 1, 0, 0),
        ((pod(gpus=1, cpu=2),), 2, 7, 0),
        ((pod(gpus=1, cpu=8),), 2, 7, 4),  # CPUs for two pods a node: two GPUs of each node stay free
        ((pod(gpus=1, cpu=2, memory="30Gi"),), 1, 3, 0),
        ((pod(gpus=1, cpu=2, memory="40Gi"),), 1, 3, 2),
        ((pod(gpus=3, cpu=16),), 1, 1, 1),
        ((pod(gpus=1, cpu=7),), 1, 3, 1),  # the kubelet would admit a fourth, but the DaemonSets' CPU is the scheduler's
        ((pod(gpus=1, cpu=2, anti_affinity="required"),), 2, 7, 0),  # anti-affinity aside
        ((pod(gpus=2), pod(gpus=1, cpu=2)), 1, 1, 0),
        ((), 3, 12, 12),
    ],
)
def test_gpus_that_no_planned_size_could_use_are_stranded(pods, nodes, idle, stranded):
    decision = decide(SMALL, *pods, nodes=nodes)
    assert (decision.idle_gpus, decision.stranded_gpus) == (idle, stranded)


def test_the_better_of_filling_with_small_and_with_large_pods_counts():
    """Behind one pod of two GPUs a second fits; a small pod first would leave CPUs for one GPU only."""
    shape = node_shape(numa_nodes=1, cpus=16, memory="64Gi", gpus=4, name="one")
    decision = decide(shape, pod(gpus=1, cpu=8, copies=0), pod(gpus=3, cpu=8, copies=0), kubelet={"memoryManagerPolicy": "None"})
    assert (decision.idle_gpus, decision.stranded_gpus) == (4, 1)


# What the nodes have


def test_numa_nodes_of_the_plan_show_what_is_reserved_on_each():
    decision = decide(SMALL, pod())
    assert [(node.id, node.reserved_cpus, node.gpus) for node in decision.numa_nodes] == [
        (0, (0, 16), (0, 1)),
        (1, (8, 24), (2, 3)),
    ]
    assert [node.allocatable_memory_bytes for node in decision.numa_nodes] == [64 * GIB - 1295 * MIB, 64 * GIB - 1294 * MIB]
    assert decision.allocatable_cpu == 28
    assert decision.allocatable_memory_bytes == 128 * GIB - 2589 * MIB
    assert decision.allocatable_gpus == 4


def test_without_pinned_memory_the_reservation_counts_on_all_nodes_alike():
    settings = {"memoryManagerPolicy": "None", "kubeReserved": {"memory": "1048577"}, "evictionHard": {"memory.available": "0%"}}
    decision = decide(SMALL, pod(), kubelet=settings)
    assert [64 * GIB - node.allocatable_memory_bytes for node in decision.numa_nodes] == [524289, 524288]


def test_a_node_without_memory_has_none_to_give():
    tiny = replace(SMALL, numa_nodes=(SMALL.numa_nodes[0], replace(SMALL.numa_nodes[1], memory_bytes=GIB)))
    decision = decide(tiny, pod(), kubelet={"memoryManagerPolicy": "None"})
    assert [node.allocatable_memory_bytes for node in decision.numa_nodes] == [64 * GIB - 2589 * MIB // 2, 0]
    bare = replace(SMALL, numa_nodes=(replace(SMALL.numa_nodes[0], memory_bytes=0), SMALL.numa_nodes[1]))
    decision = decide(bare, pod(), kubelet={"memoryManagerPolicy": "None"})
    assert [node.allocatable_memory_bytes for node in decision.numa_nodes] == [0, 64 * GIB - 2589 * MIB]
