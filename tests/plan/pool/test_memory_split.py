"""How the memory reservation is divided over NUMA nodes: to the byte, and with equal room left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.plan.pool.memory_split import MemorySplit, mebibytes, memory_splits, usable_bytes
from infra.units import GIB, MIB, parse_bytes
from tests.support.gpu_pools import node_shape


@settings(max_examples=200, deadline=None)
@given(
    memories=st.lists(st.integers(8, 4096), min_size=1, max_size=8),
    total=st.integers(1, 40 * 1024),
    extra_bytes=st.integers(0, MIB - 1),
)
def test_every_split_adds_up_to_the_byte_and_the_first_leaves_equal_room(memories, total, extra_bytes):
    shape = node_shape(numa_nodes=len(memories), cpus=4, threads=1, gpus=0, memories=tuple(f"{gib}Gi" for gib in memories))
    total_bytes = total * MIB + extra_bytes
    splits = memory_splits(total_bytes, shape)
    sizes = {node.id: node.memory_bytes or 0 for node in shape.numa_nodes}
    for split in splits:
        assert sum(split.by_node.values()) == total_bytes
        assert sum(parse_bytes(entry["limits"]["memory"]) for entry in split.entries) == total_bytes
        assert all(0 <= value < sizes[node] or value == 0 for node, value in split.by_node.items())
    if splits and sum(sizes.values()) > total_bytes:
        left = {node: sizes[node] - splits[0].by_node.get(node, 0) for node in sizes}
        touched = [left[node] for node in sizes if splits[0].by_node.get(node)]
        untouched = [left[node] for node in sizes if not splits[0].by_node.get(node)]
        slack = (len(sizes) + 2) * MIB
        assert max(touched) - min(touched) <= slack
        assert not untouched or max(untouched) <= min(touched) + slack


def test_huge_pages_do_not_count_as_room():
    shape = node_shape(memory="16Gi", hugepages=(("1Gi", 12),))
    assert memory_splits(5 * GIB, shape)[0].by_node == {0: 5 * GIB // 2, 1: 5 * GIB // 2}
    assert not memory_splits(9 * GIB, shape)


@pytest.mark.parametrize(
    ("memories", "total", "split"),
    [
        (("16Gi", "16Gi"), 2 * GIB, {0: GIB, 1: GIB}),
        (("16Gi", "16Gi"), 3 * MIB, {0: 2 * MIB, 1: MIB}),
        (("16Gi", "16Gi"), MIB + 1, {0: MIB + 1, 1: 0}),
        (("16Gi", "15Gi"), GIB, {0: GIB, 1: 0}),
        (("16Gi", "15Gi"), GIB + 2 * MIB, {0: GIB + MIB, 1: MIB}),
        (("15Gi", "16Gi"), 2 * GIB, {0: GIB // 2, 1: 3 * GIB // 2}),
        (("16Gi", "16Gi", "15Gi"), 3 * GIB, {0: 4 * GIB // 3 // MIB * MIB + MIB, 1: 4 * GIB // 3 // MIB * MIB + MIB, 2: 340 * MIB}),
        (("16Gi", "12Gi", "8Gi"), 6 * GIB, {0: 5 * GIB, 1: GIB, 2: 0}),
        (("4Gi", "8388609Ki"), 4 * GIB, {0: 0, 1: 4 * GIB}),  # a node of one KiB more than 8 GiB
        (("16Gi",), 2 * GIB, {0: 2 * GIB}),
    ],
)
def test_the_fullest_nodes_give_first_and_alike(memories, total, split):
    assert memory_splits(total, node_shape(numa_nodes=len(memories), gpus=1, memories=memories))[0].by_node == split


def test_a_reservation_that_would_take_the_whole_of_a_node_has_no_split():
    shape = node_shape(memory="1Gi")
    assert memory_splits(2 * GIB - 2 * MIB, shape)
    assert not memory_splits(2 * GIB - MIB, shape)
    assert not memory_splits(2 * GIB, shape)
    assert not memory_splits(2 * GIB + MIB, shape)


def test_after_the_even_split_each_node_is_tried_that_holds_all_of_it():
    first, *single = memory_splits(3 * GIB, node_shape(memories=("4Gi", "3Gi"), gpus=1))
    assert first.by_node == {0: 2 * GIB, 1: GIB}
    assert [split.by_node for split in single] == [{0: 3 * GIB}]
    assert "lies on NUMA node 0 alone" in single[0].reason
    assert len(memory_splits(3 * GIB - MIB, node_shape(memories=("4Gi", "3Gi"), gpus=1))) == 3
    assert "equal room left (2048Mi on NUMA node 0, 1024Mi on NUMA node 1)" in first.reason


def test_a_single_node_has_one_split_and_no_talk_of_others():
    (only,) = memory_splits(GIB, node_shape(numa_nodes=1, memory="4Gi"))
    assert only.reason == "reservedMemory is 1024Mi on NUMA node 0."


def test_nodes_without_cpus_or_without_memory_take_no_part():
    shape = node_shape(numa_nodes=3, memory="4Gi", gpus=1)
    bare = (shape.numa_nodes[0], replace(shape.numa_nodes[1], cpus=()), replace(shape.numa_nodes[2], memory_bytes=None))
    (only,) = memory_splits(GIB, replace(shape, numa_nodes=bare))
    assert only.by_node == {0: GIB}


def test_entries_leave_nodes_out_that_reserve_nothing():
    split = MemorySplit(by_node={1: 3 * MIB, 2: 0, 0: MIB + 1}, reason="")
    assert split.entries == [
        {"numaNode": 0, "limits": {"memory": "1048577"}},
        {"numaNode": 1, "limits": {"memory": "3Mi"}},
    ]


@pytest.mark.parametrize(("value", "text"), [(0, "0Mi"), (MIB, "1Mi"), (1636 * MIB, "1636Mi"), (GIB + 1024, "1048577Ki")])
def test_whole_mebibytes_are_written_as_such(value, text):
    assert mebibytes(value) == text


def test_huge_pages_are_another_resource():
    assert usable_bytes(16 * GIB, (("1Gi", 3), ("2Mi", 512))) == 12 * GIB
