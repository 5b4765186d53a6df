"""What the scheduler may put on a node."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import infra.plan.placement as placement_room
from infra.plan.placement import NodeCapacity, Placement, TooManyLoads, amount, blockable, maximal_loads, spread, tolerates
from infra.units import GIB
from tests.support.gpu_pools import pod_shape


def capacity(gpus: int = 8, cpus: int = 220, memory_gib: int = 2000, pods: int = 98) -> NodeCapacity:
    return NodeCapacity(millicpu=cpus * 1000, memory_bytes=memory_gib * GIB, gpus=gpus, pods=pods)


def free(gpus: int, copies: int, **fields: object):
    return pod_shape(gpus=gpus, cpu=2 * gpus, memory="8Gi", copies=copies, anti_affinity="none", **fields)


def test_required_anti_affinity_leaves_one_pod_a_node():
    shapes = (pod_shape(copies=2),)
    assert maximal_loads(shapes, capacity()) == ((1,),)
    assert spread(shapes, capacity(), 2).groups == ((2, (1,)),)


def test_without_anti_affinity_a_node_holds_what_fits():
    assert maximal_loads((free(4, 2),), capacity()) == ((2,),)
    assert maximal_loads((free(4, 1),), capacity()) == ((1,),)
    assert maximal_loads((free(3, 9),), capacity()) == ((2,),)


def test_preferred_anti_affinity_promises_nothing():
    assert maximal_loads((pod_shape(copies=2, anti_affinity="preferred"),), capacity()) == ((2,),)


def test_pods_of_an_update_count_beside_the_old_ones():
    assert maximal_loads((free(2, 2, surge=1),), capacity()) == ((3,),)


def test_mixed_sizes_give_every_fullest_mixture():
    loads = maximal_loads((free(4, 8), free(2, 8)), capacity())
    assert set(loads) == {(2, 0), (1, 2), (0, 4)}


def test_what_finds_no_node_is_named_with_its_number():
    assert spread((pod_shape(copies=3),), capacity(), 2).unplaced == ((0, 1),)


def test_ten_thousand_nodes_cost_no_more_than_one():
    shapes = (pod_shape(copies=10_000), free(1, 30_000))
    began = time.perf_counter()
    placement = spread(shapes, capacity(), 10_000)
    loads = maximal_loads(shapes, capacity())
    assert time.perf_counter() - began < 0.5
    assert placement.groups == ((10_000, (1, 3)),)
    assert set(loads) == {(1, 4), (0, 8)}


def test_small_pods_can_take_a_part_of_every_node():
    shapes = (free(8, 1), free(1, 2))
    assert blockable(shapes, capacity(), 2) == (0,)
    assert blockable(shapes, capacity(), 3) == ()
    assert blockable((free(8, 2),), capacity(), 2) == ()


def test_small_pods_are_blocked_only_when_every_node_is_full():
    shapes = (free(4, 3), free(4, 1))
    assert blockable(shapes, capacity(), 2) == ()


sizes = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 4, 8]), st.integers(1, 6), st.sampled_from(["required", "none"])), min_size=1, max_size=3
)


@settings(max_examples=60, deadline=None)
@given(sizes=sizes, nodes=st.integers(1, 4))
def test_every_load_that_is_possible_is_part_of_a_maximal_one(sizes, nodes):
    shapes = tuple(
        pod_shape(gpus=gpus, cpu=2 * gpus, memory="8Gi", copies=copies, anti_affinity=affinity) for gpus, copies, affinity in sizes
    )
    there = capacity()
    loads = maximal_loads(shapes, there)
    for load in product(*(range(pod.copies + 1) for pod in shapes)):
        possible = there.holds(shapes, load) and tolerates(shapes, load)
        assert possible == any(all(a <= b for a, b in zip(load, fullest, strict=True)) for fullest in loads), (load, loads)
    placement = spread(shapes, there, nodes)
    assert sum(count for count, _ in placement.groups) == nodes
    placed = [sum(count * load[i] for count, load in placement.groups) for i in range(len(shapes))]
    unplaced = dict(placement.unplaced)
    assert [done + unplaced.get(i, 0) for i, done in enumerate(placed)] == [pod.copies for pod in shapes]
    assert all(there.holds(shapes, load) and tolerates(shapes, load) for _, load in placement.groups)


@settings(max_examples=40, deadline=None)
@given(sizes=sizes, nodes=st.integers(1, 2))
def test_blockable_agrees_with_trying_all_placements(sizes, nodes):
    shapes = tuple(
        pod_shape(gpus=gpus, cpu=2 * gpus, memory="8Gi", copies=min(copies, 3), anti_affinity=affinity)
        for gpus, copies, affinity in sizes
    )
    there = capacity()
    wanted = []
    for index in range(len(shapes)):
        others = [pod.copies - (i == index) for i, pod in enumerate(shapes)]
        wanted.append(_blocked_somehow(shapes, there, nodes, index, others))
    expected = () if len(shapes) < 2 else tuple(i for i, blocked in enumerate(wanted) if blocked)
    assert blockable(shapes, there, nodes) == expected


def _blocked_somehow(shapes, there, nodes, index, others) -> bool:
    if nodes == 0:
        return True
    for load in product(*(range(count + 1) for count in others)):
        if not (there.holds(shapes, load) and tolerates(shapes, load)):
            continue
        more = tuple(count + (i == index) for i, count in enumerate(load))
        if there.holds(shapes, more) and tolerates(shapes, more):
            continue
        if _blocked_somehow(shapes, there, nodes - 1, index, [a - b for a, b in zip(others, load, strict=True)]):
            return True
    return False


def test_what_fits_to_the_last_unit_fits():
    there = NodeCapacity(millicpu=4_000, memory_bytes=16 * GIB, gpus=2, pods=2)
    shape = (free(1, 9),)  # 2 CPUs and 8 GiB
    assert there.shortfall(shape, (2,)) is None
    assert there.shortfall(shape, (3,)) == ("GPUs", 3, 2)
    assert replace(there, gpus=3).shortfall(shape, (3,)) == ("CPU", 6_000, 4_000)
    assert replace(there, gpus=3, millicpu=6_000).shortfall(shape, (3,)) == ("memory", 24 * GIB, 16 * GIB)
    assert replace(there, gpus=3, millicpu=6_000, memory_bytes=24 * GIB).shortfall(shape, (3,)) == ("pods", 3, 2)
    assert there.holds(shape, (2,)) and not there.holds(shape, (3,))


def test_the_largest_pods_are_placed_first_and_on_the_emptiest_nodes():
    shapes = (free(2, 3), free(4, 2), free(2, 1))
    placement = spread(shapes, capacity(), 3)
    assert placement.groups == ((1, (0, 1, 1)), (1, (1, 1, 0)), (1, (2, 0, 0)))
    assert spread((free(4, 3),), capacity(), 2).groups == ((1, (2,)), (1, (1,)))
    assert spread((), capacity(), 2).groups == ((2, ()),)


def test_what_is_left_over_of_each_shape_is_told_in_order():
    shapes = (free(2, 9), free(8, 3))
    assert spread(shapes, capacity(), 2) == Placement(groups=((2, (0, 1)),), unplaced=((0, 9), (1, 1)))


def test_mixtures_beyond_count_are_not_looked_at(monkeypatch):
    shapes = (free(1, 2), free(1, 2), free(8, 1))  # nine mixtures of the first two, and the third alone
    monkeypatch.setattr(placement_room, "_MOST_LOADS", 10)
    assert maximal_loads(shapes, capacity()) == ((2, 2, 0), (0, 0, 1))
    assert blockable(shapes, capacity(), 2) == (2,)
    monkeypatch.setattr(placement_room, "_MOST_LOADS", 9)
    with pytest.raises(TooManyLoads) as raised:
        maximal_loads(shapes, capacity())
    assert raised.value.args == (3,)


def test_a_shape_counts_as_blockable_where_the_search_would_take_too_long(monkeypatch):
    shapes = (free(2, 4), free(2, 4), free(8, 1))
    assert blockable(shapes, capacity(), 9) == ()
    assert blockable(shapes, capacity(), 7) == (2,)
    roomy = (free(2, 5), free(4, 1))
    assert blockable(roomy, capacity(), 2) == ()
    for steps, blocked in [(0, (0, 1)), (1, (0,))]:
        monkeypatch.setattr(placement_room, "_MOST_BLOCKING_STEPS", steps)
        assert blockable(roomy, capacity(), 2) == blocked
    monkeypatch.undo()
    monkeypatch.setattr(placement_room, "_MOST_LOADS", 2)
    assert blockable(roomy, capacity(), 2) == (0, 1)


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [("memory", 3 * GIB // 2, "1.5 GiB"), ("CPU", 1500, "1500m"), ("CPU", 220_000, "220"), ("GPUs", 8, "8"), ("pods", 98, "98")],
)
def test_amounts_as_people_read_them(resource, value, text):
    assert amount(resource, value) == text
