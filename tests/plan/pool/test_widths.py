"""Widths: how many NUMA nodes a request needs, and what follows for a policy without any proof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.catalog.machine import machine_of
from infra.plan.pool.machine import Widths, cpu_widths, gpu_widths, memory_variants, memory_widths
from infra.plan.pool.widths import Conflict, NodeWidths
from infra.units import GIB
from tests.support.gpu_pools import node_shape, pod_shape


def test_widths_count_all_cpus_and_only_gpus_with_a_numa_node():
    shape = node_shape(numa_nodes=4, cpus=48, gpus=2)
    assert [cpu_widths(shape).of_request(n) for n in (1, 48, 49, 96, 97, 192, 193)] == [1, 1, 2, 2, 3, 4, None]
    assert [gpu_widths(shape).of_request(n) for n in (0, 1, 2, 3, 8, 9)] == [0, 1, 1, 2, 4, None]
    assert gpu_widths(node_shape(hides_numa=True)).capacities == ()
    assert Widths.of([10, 30, 20]).least_of_width(3) == 51


def test_the_catalogs_memory_is_a_lower_bound_and_more_of_it_is_tried_too():
    shape = node_shape()
    bound, more, *single = memory_variants(shape, pinned=True)
    assert bound[1] == {} and more[1].keys() == {0, 1} and [factors.keys() for _, factors in single] == [{0}, {1}]
    assert machine_of(shape, {0: 2})["numa"][0]["memory_bytes"] == 2 * (shape.numa_nodes[0].memory_bytes or 0)
    assert len(memory_variants(shape, pinned=False)) == 1


def test_a_request_of_nothing_needs_no_node_and_a_machine_without_any_holds_none():
    assert Widths.of([4, 4]).of_request(0) == 0
    assert Widths.of([4, 4]).of_request(-1) == 0
    empty = Widths.of([0, 0])
    assert (empty.capacities, empty.of_request(1), empty.largest, empty.least_of_width(1)) == ((), None, 0, 1)
    assert Widths.of([10, 30, 20]).capacities == (30, 20, 10)
    assert [Widths.of([10, 30, 20]).least_of_width(width) for width in (1, 2, 3)] == [1, 31, 51]


def test_memory_widths_leave_out_reservations_and_huge_pages():
    shape = node_shape(memory="16Gi", hugepages=(("1Gi", 4),))
    assert memory_widths(shape, {1: GIB}).capacities == (12 * GIB, 11 * GIB)
    assert memory_widths(shape, {0: 13 * GIB}).capacities == (12 * GIB,)


@pytest.mark.parametrize(("numa_nodes", "variants"), [(1, 2), (2, 4), (8, 10), (9, 2)])
def test_much_memory_on_a_single_node_is_tried_where_nodes_are_few(numa_nodes, variants):
    assert len(memory_variants(node_shape(numa_nodes=numa_nodes, cpus=4, gpus=1), pinned=True)) == variants


def test_most_memory_is_5_percent_above_what_is_stated():
    (_, more) = memory_variants(node_shape(), pinned=False)[0]
    assert {float(factor) for factor in more.values()} == {1.05}


def widths(**fields):
    return NodeWidths.of(node_shape(), **{"reserved_memory": None, "pins_cpus": True, **fields})


@pytest.mark.parametrize(
    ("policy", "pod", "conflict"),
    [
        ("single-numa-node", pod_shape(gpus=4, cpu=112), None),
        ("best-effort", pod_shape(gpus=8, cpu=4), None),
        ("none", pod_shape(gpus=8, cpu=4), None),
        (
            "single-numa-node",
            pod_shape(gpus=5, cpu=4),
            Conflict(
                "tensorParallelSize",
                "5 GPUs need 2 NUMA nodes of dgx-h100 (4 each); single-numa-node admits 1",
            ),
        ),
        (
            "single-numa-node",
            pod_shape(gpus=4, cpu=113),
            Conflict(
                "resources.cpu",
                "113 CPUs need 2 NUMA nodes of dgx-h100 (112 each); single-numa-node admits 1",
            ),
        ),
        ("restricted", pod_shape(gpus=8, cpu=113), None),
        ("restricted", pod_shape(gpus=1, cpu=1), None),
        (
            "restricted",
            pod_shape(gpus=8, cpu=112),
            Conflict(
                "resources.cpu",
                "restricted admits a pod of dgx-h100 only where GPUs, CPUs and pinned memory need the same number of NUMA nodes; "
                "here 8 GPUs need 2, 112 CPUs need 1",
            ),
        ),
        (
            "restricted",
            pod_shape(gpus=4, cpu=113),
            Conflict(
                "resources.cpu",
                "restricted admits a pod of dgx-h100 only where GPUs, CPUs and pinned memory need the same number of NUMA nodes; "
                "here 4 GPUs need 1, 113 CPUs need 2",
            ),
        ),
    ],
)
def test_what_a_strict_policy_refuses_on_an_empty_node(policy, pod, conflict):
    assert widths().conflict(policy, pod) == conflict


def test_cpus_that_are_not_pinned_have_no_width():
    assert widths(pins_cpus=False).conflict("restricted", pod_shape(gpus=8, cpu=4)) is None
    assert widths(pins_cpus=False).conflict("single-numa-node", pod_shape(gpus=4, cpu=113)) is None


@pytest.mark.parametrize(
    ("policy", "pod", "field", "words"),
    [
        ("single-numa-node", pod_shape(memory="1006Gi"), None, ""),
        (
            "single-numa-node",
            pod_shape(memory="1007Gi"),
            "resources.memory",
            "1007.0 GiB of memory need 2 NUMA nodes of dgx-h100 (1006.0 GiB at most on one)",
        ),
        ("restricted", pod_shape(gpus=8, cpu=120, memory="1006Gi"), "resources.memory", "here 8 GPUs need 2, 120 CPUs need 2, 1006.0 GiB need 1"),
        ("restricted", pod_shape(gpus=8, cpu=120, memory="1007Gi"), "resources.memory", "1007.0 GiB of memory need 2 NUMA nodes with the memory that is stated, and 1 with"),
        ("restricted", pod_shape(gpus=8, cpu=4, memory="8Gi"), "resources.cpu", "here 8 GPUs need 2, 4 CPUs need 1, 8.0 GiB need 1"),
        ("restricted", pod_shape(gpus=4, cpu=4, memory="8Gi"), None, ""),
    ],
)  # fmt: skip
def test_pinned_memory_counts_at_the_catalogs_lower_bound(policy, pod, field, words):
    conflict = widths(reserved_memory={0: GIB, 1: GIB}).conflict(policy, pod)
    assert (conflict and conflict.field) == field
    assert words in (conflict.sentence if conflict else "")


def test_the_remedy_names_every_resource_that_is_too_narrow():
    conflict = widths(reserved_memory={}).conflict("restricted", pod_shape(gpus=8, cpu=4, memory="8Gi"))
    assert conflict is not None
    assert conflict.offers[0].words == "ask for 116 CPUs and write memoryManagerPolicy: None"


def test_unequal_numa_nodes_are_told_by_the_largest():
    shape = node_shape()
    uneven = replace(shape, numa_nodes=(shape.numa_nodes[0], replace(shape.numa_nodes[1], gpus=(4,))))
    conflict = NodeWidths.of(uneven, reserved_memory=None, pins_cpus=True).conflict("single-numa-node", pod_shape(gpus=5))
    assert conflict is not None
    assert "(at most 4 on one)" in conflict.sentence


@pytest.mark.parametrize(
    ("pod", "cpus"),
    [
        (pod_shape(gpus=4, cpu=None), 12),
        (pod_shape(gpus=8, cpu=None), 116),
        (pod_shape(gpus=8, cpu=32), 32),
        (pod_shape(gpus=8, cpu=200, cpu_given=False), 200),
    ],
)
def test_cpus_that_the_user_leaves_open_reach_all_numa_nodes_of_the_gpus(pod, cpus):
    assert widths().with_enough_cpus(pod).cpu == cpus
    assert widths(pins_cpus=False).with_enough_cpus(pod).cpu == pod.cpu


def test_enough_cpus_are_whole_cores_on_each_node():
    for threads, cpus, width, enough in [(2, 112, 2, 116), (1, 112, 2, 114), (2, 48, 3, 102), (4, 64, 2, 72)]:
        shape = node_shape(numa_nodes=3, cpus=cpus, threads=threads)
        assert NodeWidths.of(shape, reserved_memory=None, pins_cpus=True).enough_cpus(width) == enough


def test_a_machine_whose_cpus_lie_on_fewer_nodes_than_its_gpus_raises_no_cpus():
    shape = node_shape()
    one_sided = replace(shape, numa_nodes=(shape.numa_nodes[0], replace(shape.numa_nodes[1], cpus=(), cores=())))
    narrow = NodeWidths.of(one_sided, reserved_memory=None, pins_cpus=True)
    assert narrow.with_enough_cpus(pod_shape(gpus=8, cpu=None)).cpu == 20


def test_gpus_without_a_numa_node_span_none():
    hidden = NodeWidths.of(node_shape(hides_numa=True), reserved_memory=None, pins_cpus=True)
    assert hidden.spans(pod_shape(gpus=8)) == 0
    assert widths().spans(pod_shape(gpus=9)) == 0
    assert [widths().spans(pod_shape(gpus=gpus)) for gpus in (1, 4, 5, 8)] == [1, 1, 2, 2]
