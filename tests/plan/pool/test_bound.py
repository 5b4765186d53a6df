"""The condition on counts alone under which single-numa-node refuses no pod."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.plan.pool.bound import NumaRoom, never_blocked
from infra.plan.pool.proof import Resident
from infra.units import GIB

GPU = "nvidia.com/gpu"


def kind(number: int, count: int, gpus: int, cpu: str = "4", memory: str = "8Gi", **pod: Any) -> Resident:
    limits = {"cpu": cpu, "memory": memory, **({GPU: str(gpus)} if gpus else {})}
    return Resident(number=number, pod={"containers": [{"name": "vllm", "limits": limits}], **pod}, count=count)


def rooms(count: int = 2, gpus: int = 4, cpus: int = 16, memory_gib: int | None = 64) -> list[NumaRoom]:
    memory = None if memory_gib is None else memory_gib * GIB
    return [NumaRoom(id=node, gpus=gpus, cpus=cpus, memory_bytes=memory) for node in range(count)]


@pytest.mark.parametrize(
    ("kinds", "holds"),
    [
        ([kind(0, 8, 1)], True),
        ([kind(0, 9, 1)], False),  # more than slots: the node fit has to keep the ninth away, and it is not looked at
        ([kind(0, 2, 3)], True),
        ([kind(0, 3, 3)], False),
        ([kind(0, 2, 1, memory="64Gi")], True),
        ([kind(0, 2, 1, memory="65Gi")], False),
        ([kind(0, 2, 1, cpu="16")], True),
        ([kind(0, 2, 1, cpu="17")], False),
        ([kind(0, 1, 4), kind(1, 1, 1)], True),
        ([kind(0, 1, 4), kind(1, 2, 1)], False),  # one on each node
        ([kind(0, 1, 3), kind(1, 3, 1)], True),
        ([kind(0, 1, 3), kind(1, 4, 1)], False),  # two on each node
        ([kind(0, 1, 1, cpu="16"), kind(1, 2, 1, cpu="1")], False),
        ([kind(0, 1, 1, cpu="16"), kind(1, 2, 1, cpu="500m")], True),  # fractions run in the shared pool
        ([kind(0, 1, 1, memory="60Gi"), kind(1, 2, 1, memory="4Gi")], True),
        ([kind(0, 1, 1, memory="60Gi"), kind(1, 2, 1, memory="5Gi")], False),
        ([kind(0, 1, 4, cpu="2"), kind(1, 1, 1, cpu="14")], True),
        (
            [kind(0, 1, 4, cpu="2"), kind(1, 1, 1, cpu="15")],
            False,
        ),  # by counts a GPU on one node and CPUs on the other; it is one pod
        ([kind(0, 1, 4, cpu="15"), kind(1, 1, 1, cpu="2"), kind(2, 1, 0, cpu="2")], False),
        ([], True),
    ],
)
def test_pods_are_never_blocked_where_the_others_together_cannot_take_a_part_of_every_node(kinds, holds):
    assert (never_blocked(rooms(), kinds, GPU) is not None) == holds


def test_memory_that_is_not_pinned_blocks_nobody():
    kinds = [kind(0, 1, 1, memory="60Gi"), kind(1, 2, 1, memory="60Gi")]
    assert never_blocked(rooms(memory_gib=None), kinds, GPU) is not None
    assert never_blocked(rooms(), kinds, GPU) is None


@pytest.mark.parametrize(("count", "known"), [(12, True), (13, False)])
def test_too_many_nodes_are_not_looked_at(count, known):
    assert (never_blocked(rooms(count), [kind(0, 1, 1)], GPU) is not None) == known


def test_only_pods_of_one_container_are_known():
    several = Resident(number=0, pod={"containers": [{"name": "a"}, {"name": "b"}]}, count=1)
    assert never_blocked(rooms(), [several], GPU) is None
    assert never_blocked(rooms(), [kind(0, 1, 1, initContainers=[{"name": "i"}])], GPU) is None


def test_places_are_the_nodes_that_are_large_enough_with_what_a_pod_gets_there():
    uneven = [*rooms(1), NumaRoom(id=5, gpus=2, cpus=16, memory_bytes=64 * GIB)]
    places = never_blocked(uneven, [kind(7, 1, 3), kind(9, 1, 0, cpu="500m")], GPU)
    assert places is not None
    (large,) = [footprint.container("vllm") for footprint in places[7]]
    assert (large.cpus, large.devices, large.memory_numa, large.topology) == (((0, 4),), ((0, 3),), (0,), (0,))
    small = sorted(footprint.container("vllm") for footprint in places[9])
    assert [(one.cpus, one.devices, one.memory_numa) for one in small] == [((), (), (0,)), ((), (), (5,))]
    unpinned = never_blocked(rooms(memory_gib=None), [kind(0, 1, 1)], GPU)
    assert unpinned is not None
    assert {footprint.container("vllm").memory_numa for footprint in unpinned[0]} == {()}


def blocked_somehow(free: tuple[tuple[int, int], ...], kinds: list[tuple[int, int, int]], target: int) -> bool:
    """Brute force: whether the others can be put on the nodes so that no node has GPUs and CPUs for one of the target's pods."""
    _, gpus, cpus = kinds[target]
    pods = [(g, c) for index, (count, g, c) in enumerate(kinds) for _ in range(count - (index == target))]
    for places in product(range(-1, len(free)), repeat=len(pods)):  # -1: not running
        left = [list(node) for node in free]
        for (g, c), place in zip(pods, places, strict=True):
            if place >= 0:
                left[place][0] -= g
                left[place][1] -= c
        if all(g >= 0 and c >= 0 for g, c in left) and not any(g >= gpus and c >= cpus for g, c in left):
            return True
    return False


@settings(max_examples=60, deadline=None, derandomize=True)
@given(kinds=st.lists(st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=2))
def test_the_condition_never_holds_where_pods_can_be_blocked(kinds):
    free = ((3, 6), (3, 6))
    numa = [NumaRoom(id=node, gpus=gpus, cpus=cpus, memory_bytes=None) for node, (gpus, cpus) in enumerate(free)]
    residents = [kind(number, count, gpus, cpu=str(cpus)) for number, (count, gpus, cpus) in enumerate(kinds)]
    if never_blocked(numa, residents, GPU) is not None:
        assert not any(blocked_somehow(free, kinds, target) for target in range(len(kinds)))
