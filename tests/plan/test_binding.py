"""Rank binding: only where the pod is proven to hold CPUs and memory next to its GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.catalog.types import NumaNode
from infra.config.pools import CoTenant
from infra.plan.binding import Unbound, bind_ranks, describe_binding
from infra.plan.model import RankBinding
from infra.plan.pool.proof import ContainerFootprint
from infra.units import GIB
from tests.support.gpu_pools import decide, node_shape, pod_shape

BOTH = (0, 1)


def place(cpus: dict[int, int], gpus: dict[int, int], memory: tuple[int, ...] = ()) -> ContainerFootprint:
    return ContainerFootprint(
        name="vllm",
        cpus=tuple(cpus.items()),
        devices=tuple(gpus.items()),
        memory_numa=memory,
        topology=tuple(sorted({*cpus, *gpus})),
    )


def bind(*places: ContainerFootprint, homes: tuple[int | None, ...] = (0, 0, 0, 0, 1, 1, 1, 1), threads: int = 2, memory=BOTH):
    return bind_ranks(homes, places, all_memory_nodes=memory, threads_per_core=threads)


def test_ranks_follow_their_gpus():
    bound = bind(place({0: 58, 1: 58}, {0: 4, 1: 4}))
    assert bound == RankBinding(numa_node_of_rank=(0, 0, 0, 0, 1, 1, 1, 1), cpus_per_numa_node={0: 58, 1: 58}, memory_nodes=BOTH)
    assert isinstance(bound, RankBinding)
    assert describe_binding(bound) == "ranks 0-3 to NUMA node 0 (58 CPUs) and ranks 4-7 to NUMA node 1 (58 CPUs)"


def test_gpu_index_order_is_not_numa_order():
    bound = bind(place({1: 10, 3: 10}, {1: 2, 3: 2}), homes=(3, 3, 1, 1), memory=(0, 1, 2, 3))
    assert isinstance(bound, RankBinding)
    assert bound.numa_node_of_rank == (3, 3, 1, 1)
    assert describe_binding(bound) == "ranks 2-3 to NUMA node 1 (10 CPUs) and ranks 0-1 to NUMA node 3 (10 CPUs)"


@pytest.mark.parametrize(
    ("homes", "words"),
    [
        ((0, 1), "rank 0 to NUMA node 0 (4 CPUs) and rank 1 to NUMA node 1 (4 CPUs)"),
        ((0, 1, 0, 1), "ranks 0, 2 to NUMA node 0 (4 CPUs) and ranks 1, 3 to NUMA node 1 (4 CPUs)"),
    ],
)
def test_ranks_in_words_one_by_one_where_they_are_no_span(homes, words):
    bound = RankBinding(numa_node_of_rank=homes, cpus_per_numa_node={0: 4, 1: 4}, memory_nodes=BOTH)
    assert describe_binding(bound) == words


def test_a_physical_core_a_rank_is_enough():
    assert isinstance(bind(place({0: 8, 1: 8}, {0: 4, 1: 4})), RankBinding)
    assert isinstance(bind(place({0: 8, 1: 7}, {0: 4, 1: 4})), Unbound)
    assert isinstance(bind(place({0: 4, 1: 4}, {0: 4, 1: 4}), threads=1), RankBinding)


def test_no_place_and_nodes_beside_the_gpus_need_no_binding():
    assert bind() is None
    assert bind(place({0: 32}, {})) is None


def test_memory_that_may_lie_on_fewer_nodes_in_some_place_may_lie_there_only():
    bound = bind(place({0: 8, 1: 8}, {0: 4, 1: 4}, memory=BOTH), place({0: 8, 1: 8}, {0: 4, 1: 4}), memory=(0, 1, 2))
    assert isinstance(bound, RankBinding)
    assert bound.memory_nodes == BOTH


def test_a_pod_of_one_numa_node_needs_no_binding():
    assert bind(place({0: 32}, {0: 4}), place({1: 32}, {1: 4}), homes=(0, 0, 0, 0)) is None


def test_the_worst_place_counts():
    bound = bind(place({0: 60, 1: 56}, {0: 4, 1: 4}), place({0: 50, 1: 66}, {0: 4, 1: 4}))
    assert isinstance(bound, RankBinding)
    assert bound.cpus_per_numa_node == {0: 50, 1: 56}


@pytest.mark.parametrize(
    ("lying", "words"),
    [
        (
            place({0: 32}, {0: 4, 1: 4}),
            "32 on NUMA node 0 and none on NUMA node 1, since 32 CPUs fit fewer nodes than the GPUs",
        ),
        (place({}, {0: 4, 1: 4}), "no exclusive CPUs"),
        (place({0: 110, 1: 6}, {0: 4, 1: 4}), "holds 6 CPUs on it, less than a physical core a rank (8 CPUs)"),
        (place({0: 58, 1: 58}, {0: 4, 1: 4}, memory=(0,)), "pins the pod's memory to NUMA node 0"),
    ],
)
def test_what_cannot_be_bound_says_why(lying, words):
    unbound = bind(lying)
    assert isinstance(unbound, Unbound)
    assert words in unbound.reason


def test_one_place_without_cpus_is_enough_to_leave_it_unbound():
    assert isinstance(bind(place({0: 58, 1: 58}, {0: 4, 1: 4}), place({0: 110}, {0: 4, 1: 4})), Unbound)


def test_devices_without_numa_nodes_cannot_be_bound():
    assert isinstance(bind(place({0: 58, 1: 58}, {-1: 8}), place({0: 58, 1: 58}, {0: 4, 1: 4})), Unbound)
    assert isinstance(bind(place({0: 58, 1: 58}, {0: 4, 1: 4}), homes=(None,) * 8), Unbound)


@pytest.mark.parametrize(("threads", "cpus", "each"), [(2, 112, 58), (1, 56, 29), (2, 48, 26), (1, 24, 13)])
def test_left_out_cpus_are_chosen_so_that_every_rank_can_be_bound(threads, cpus, each):
    decision = decide(node_shape(cpus=cpus, threads=threads), pod_shape(gpus=8, cpu=None, memory=None))
    bound = decision.pods[0].binding
    assert bound is not None
    assert bound.cpus_per_numa_node == {0: each, 1: each}
    assert decision.pods[0].shape.cpu == 2 * each


def test_ranks_of_half_an_eight_numa_node_machine_are_bound_wherever_the_pod_lies():
    shape = node_shape(numa_nodes=4, cpus=48, memory="256Gi", gpus=2, name="four")
    decision = decide(shape, pod_shape(gpus=4, cpu=None, memory=None, copies=2, anti_affinity="none"))
    bound = decision.pods[0].binding
    assert bound is not None
    assert bound.numa_node_of_rank == (0, 0, 1, 1)
    assert [slot.numa_nodes for slot in decision.pods[0].slots[0].slots] == [(0, 1), (2, 3)]
    assert any("the ranks follow their GPUs" in reason for reason in decision.pods[0].reasons)
    alone = decide(node_shape(), pod_shape(gpus=8, cpu=None, memory=None))
    assert not any("the ranks follow their GPUs" in reason for reason in alone.pods[0].reasons)


def test_memory_of_a_node_without_cpus_is_not_bound_to():
    two = node_shape(cpus=16, memory="64Gi", gpus=2)
    beside = (
        NumaNode(id=2, cpus=(), cores=(), memory_bytes=64 * GIB, gpus=()),
        NumaNode(id=3, cpus=(), cores=(), memory_bytes=0, gpus=()),
    )
    decision = decide(
        replace(two, numa_nodes=(*two.numa_nodes, *beside)),
        pod_shape(gpus=4, cpu=None, memory="8Gi"),
        kubelet={"memoryManagerPolicy": "None"},
    )
    bound = decision.pods[0].binding
    assert bound is not None
    assert bound.memory_nodes == (0, 1)


def test_a_user_who_wants_pinned_memory_gets_it_and_the_binding_is_proven_with_it():
    settings = {"memoryManagerPolicy": "Static", "topologyManagerPolicy": "best-effort"}
    decision = decide(node_shape(memory="1Ti"), pod_shape(gpus=8, cpu=None, memory=None), kubelet=settings)
    bound = decision.pods[0].binding
    assert bound is not None
    assert bound.memory_nodes == (0, 1)
    assert decision.pods[0].slots[0].slots[0].memory_numa == (0, 1)


def test_co_tenants_that_leave_too_few_cpus_cost_the_binding_and_not_the_plan():
    busy = CoTenant.model_validate({"name": "cache", "cpu": "110", "memory": "8Gi"})
    decision = decide(node_shape(), pod_shape(gpus=8, cpu=None, memory=None), co_tenants=(busy,))
    assert decision.pods[0].shape.cpu == 20
    assert decision.kubelet.topology_manager_policy == "best-effort"
    assert decision.pods[0].binding is None
    assert "RanksNotBound" in {warning.code for warning in decision.warnings}
