"""Reservations: whole cores on each NUMA node, memory that adds up to the byte, and the names of fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.machine import machine_of
from infra.catalog.types import NodeShape
from infra.diagnosis import Diagnosis
from infra.plan.pool.fields import KINDS, read_user_fields
from infra.plan.pool.kubelet_plan import KubeletPlan
from infra.plan.pool.machine import Widths, cpu_widths, gpu_widths, memory_variants
from infra.plan.pool.memory_split import memory_splits
from infra.plan.pool.platforms import PlatformFields, kube_reserved_millicpu
from infra.plan.pool.reserve import Reservations, reserve, reserved_cores
from infra.units import GIB, MIB, parse_bytes, parse_cpu_list
from tests.support.gpu_pools import node_shape


def reserved(user: dict[str, Any], shape: NodeShape) -> tuple[Reservations, list[Diagnosis]]:
    return reserve(KubeletPlan(fields=user), shape, "k")


def test_the_first_core_of_each_numa_node_is_reserved_with_all_its_threads():
    assert reserved_cores(node_shape()) == ((0, 112), (56, 168))
    reservations, problems = reserved({}, node_shape(numa_nodes=4, cpus=24, threads=1))
    assert not problems
    assert parse_cpu_list(reservations.fields["reservedSystemCPUs"]) == (0, 24, 48, 72)


def test_the_default_reservation_follows_a_public_rule():
    reservations, _ = reserved({}, node_shape())
    assert reservations.fields["kubeReserved"] == {"memory": "1465Mi"}
    assert reservations.fields["systemReserved"] == {"memory": "1Gi"}
    assert reservations.memory_bytes == (1465 + 1024 + 100) * MIB
    assert reserved({"maxPods": 32}, node_shape())[0].fields["kubeReserved"] == {"memory": f"{255 + 11 * 32}Mi"}


@pytest.mark.parametrize(("threshold", "total"), [("100Mi", 1124), ("1Gi", 2048), ("0%", 1024), ("100%", 1024), ("5%", None)])
def test_the_memory_threshold_is_a_summand(threshold, total):
    user = {"kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": threshold}}
    reservations, problems = reserved(user, node_shape())
    assert not problems
    assert reservations.memory_bytes == (None if total is None else total * MIB)


@pytest.mark.parametrize(
    ("user", "path"),
    [
        ({"kubeReserved": {"memory": "1GB"}}, "k.kubeReserved.memory"),
        ({"systemReserved": {"memory": "-1Gi"}}, "k.systemReserved.memory"),
        ({"kubeReserved": {"cpu": "10%"}}, "k.kubeReserved.cpu"),
        ({"evictionHard": {"memory.available": "many"}}, "k.evictionHard.memory.available"),
        ({"reservedSystemCPUs": "3-1"}, "k.reservedSystemCPUs"),
        ({"reservedSystemCPUs": "0-223"}, "k.reservedSystemCPUs"),
        ({"reservedSystemCPUs": "220-225"}, "k.reservedSystemCPUs"),
    ],
)
def test_what_is_no_quantity_or_cpu_list_is_told_with_its_path(user, path):
    assert [problem.path for problem in reserved(user, node_shape())[1]] == [path]


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


def test_numbers_and_booleans_become_the_strings_that_a_kubelet_reads():
    fields, problems = read_user_fields(
        {"cpuManagerPolicyOptions": {"full-pcpus-only": True}, "kubeReserved": {"cpu": 1, "memory": None}, "maxPods": None}, "k"
    )
    assert not problems
    assert fields == {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "kubeReserved": {"cpu": "1"}}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_field_refuses_a_value_of_another_kind(name):
    wrong = 5 if KINDS[name] in ("string", "duration", "boolean") else "text"
    fields, problems = read_user_fields({name: wrong}, "k")
    assert not fields
    assert [problem.path for problem in problems] == [f"k.{name}"]


@pytest.mark.parametrize(("cpus", "millicpu"), [(1, 60), (2, 70), (4, 80), (8, 90), (96, 310), (224, 630)])
def test_the_clouds_rule_for_reserved_cpus(cpus, millicpu):
    assert kube_reserved_millicpu(cpus) == millicpu


def test_platforms_that_take_a_whole_configuration_lack_nothing():
    assert not PlatformFields.of("eks").unavailable
    assert "reservedMemory" in PlatformFields.of("gke").unavailable
    assert {"memoryManagerPolicy", "topologyManagerScope"} <= PlatformFields.of("aks").unavailable - PlatformFields.of(
        "gke"
    ).unavailable
