"""The best GPU sets are those that a search over all sets finds."""

from itertools import combinations
from math import comb
from random import Random
from time import process_time

import pytest

from infra.outputs.links import GpuLinks, GpuSet, Link, amd_link, best_set, best_sets, judge, nvidia_link

CELLS = ("NV18", "NV12", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")


def link(cell: str) -> Link:
    found = nvidia_link(cell)
    assert found is not None
    return found


def amd(link_type: str, hops: int | None, weight: int | None) -> Link:
    found = amd_link(link_type, hops, weight)
    assert found is not None
    return found


def best(machine: GpuLinks, size: int) -> GpuSet:
    found = best_set(machine, size)
    assert found is not None
    return found


def brute_force(machine: GpuLinks, size: int):
    """Score by the rule in its own words, over every set: worst link, NUMA nodes, sum of links, indices."""
    scored = []
    for gpus in combinations(machine.gpus, size):
        links = [machine.link(a, b) for a, b in combinations(gpus, 2)]
        ranks = [found.rank for found in links if found is not None]
        if len(ranks) < len(links):
            continue
        nodes = {machine.numa.get(gpu) for gpu in gpus}
        scored.append(((max(ranks), max(len(nodes - {None}), 1), None in nodes, sum(ranks)), gpus))
    if not scored:
        return None
    score, gpus = min(scored)
    return gpus, score[1], sum(other == score for other, _ in scored)


def random_machine(random: Random, count: int, cells=CELLS, nodes=(0, 1, None), lost=0.0) -> GpuLinks:
    gpus = tuple(sorted(random.sample(range(count + 3), count)))
    links = {}
    for a, b in combinations(gpus, 2):
        if random.random() >= lost:
            links[a, b] = links[b, a] = link(random.choice(cells))
    return GpuLinks(gpus=gpus, links=links, numa={gpu: random.choice(nodes) for gpu in gpus})


def regular_machine(random: Random, count: int) -> GpuLinks:
    """Islands of equal GPUs, as machines are built: NVLink or a switch inside, a worse link between."""
    island = random.choice((1, 2, 4, count))
    inside, between = link(random.choice(CELLS[:5])), link(random.choice(CELLS))
    gpus = tuple(range(count))
    links = {(a, b): inside if a // island == b // island else between for a in gpus for b in gpus if a != b}
    nodes = random.choice((1, 2, 4))
    return GpuLinks(gpus=gpus, links=links, numa={gpu: gpu * nodes // count for gpu in gpus})


@pytest.mark.parametrize("seed", range(150))
def test_best_sets_are_those_of_a_search_over_all_sets(seed):
    random = Random(seed)
    count = random.randrange(1, 10)
    machine = (
        regular_machine(random, count)
        if seed % 3 == 0
        else random_machine(random, count, cells=random.choice((CELLS, ("NV18", "SYS"), ("SYS",))), lost=random.choice((0, 0, 0.2)))
    )
    for size in (2, 3, 4, 8):
        if size <= count:
            found, wanted = best_set(machine, size), brute_force(machine, size)
            assert (None if found is None else (found.gpus, found.numa_nodes, found.ties)) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_sixteen_gpus_without_symmetry_are_searched_completely(seed):
    machine = random_machine(Random(seed), 16, nodes=(0, 1, 2, 3))
    found, wanted = best(machine, 8), brute_force(machine, 8)
    assert (found.gpus, found.numa_nodes, found.ties) == wanted


def test_sixteen_gpus_take_less_than_a_second():
    machine = random_machine(Random(7), 16)
    start = process_time()
    best_sets(machine)
    assert process_time() - start < 1


def test_sixty_four_partitions_are_counted_without_being_listed():
    gpus = tuple(range(64))
    same, other = amd("XXXX", None, None), amd("XGMI", 1, 15)
    links = {(a, b): same if a // 8 == b // 8 else other for a in gpus for b in gpus if a != b}
    machine = GpuLinks(gpus=gpus, links=links, numa={gpu: gpu // 32 for gpu in gpus})
    assert best(machine, 8).gpus == tuple(range(8))
    assert best(machine, 8).ties == 8
    assert best(machine, 2).ties == 8 * comb(8, 2)


def test_more_nvlinks_are_better_and_any_nvlink_is_better_than_a_switch():
    order = [link(cell) for cell in ("NV18", "NV12", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS")]
    assert order == sorted(order)
    assert len({found.rank for found in order}) == len(order)
    assert link("SOC").rank == link("SYS").rank
    assert nvidia_link("X") is None
    assert nvidia_link("NV") is None


def test_weights_tell_the_hops_that_rocm_smi_does_not():
    assert amd("XGMI", 1, 45).label == "XGMIh3"
    assert amd("XGMI", 1, None).label == "XGMIh1"
    assert amd("PCIE", 3, 52).label == "PCIEh3"
    assert amd("XGMI", 1, 15) < amd("XGMI", 1, 30) < amd("PCIE", 2, 40)


def test_a_set_with_an_unread_link_is_never_named():
    pix = link("PIX")
    machine = GpuLinks(gpus=(0, 1, 2), links={(0, 1): pix, (1, 2): link("SYS")}, numa={})
    assert best(machine, 2).gpus == (0, 1)
    assert best_set(machine, 3) is None


def test_directions_that_were_read_differently_count_as_the_worse():
    machine = GpuLinks(gpus=(0, 1), links={(0, 1): link("NV18"), (1, 0): link("NV4")}, numa={})
    assert best(machine, 2).worst.label == "NV4"


def test_a_chosen_group_is_judged_against_the_best_of_its_size():
    nv, node = link("NV12"), link("NODE")
    pairs = {(0, 1): nv, (2, 3): nv}
    links = {(a, b): pairs.get((a, b), node) for a, b in combinations(range(4), 2)}
    machine = GpuLinks(gpus=(0, 1, 2, 3), links=links, numa={0: 0, 1: 0, 2: 1, 3: 1})
    assert judge(machine, (0, 1)).verdict == "good"
    assert judge(machine, (2, 3)).verdict == "good"
    bad = judge(machine, (1, 2))
    assert bad.verdict == "bad"
    assert bad.reason == "their worst link is NODE; GPUs 0, 1 have NV12"
    assert judge(machine, (3,)).verdict == "good"
    assert judge(machine, (0, 1, 2, 3)).verdict == "good"
    with pytest.raises(ValueError, match="GPU 4 is not there"):
        judge(machine, (0, 4))


def test_a_group_over_more_numa_nodes_than_needed_is_degraded():
    links = {(a, b): link("NV18") for a, b in combinations(range(4), 2)}
    machine = GpuLinks(gpus=(0, 1, 2, 3), links=links, numa={0: 0, 1: 1, 2: 0, 3: 1})
    assert judge(machine, (0, 1)).verdict == "degraded"
    assert judge(machine, (0, 2)).verdict == "good"
    del links[0, 2]
    assert judge(machine, (0, 2)).verdict == "unknown"
