"""The closed forms of hints and their merge against the plain walk over every combination that the kubelet does."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from infra.kubelet import Device, Kubelet, Machine, Pod
from infra.kubelet.managers.hints import (
    ResourceHints,
    intersections,
    mask_space,
    masks_of,
    masks_with_at_least,
    masks_with_devices,
)
from infra.kubelet.managers.topology import (
    BEST_EFFORT,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    TopologyHint,
    TopologyPolicy,
)

Hint = tuple[int | None, bool]


def plain_merge(policy: TopologyPolicy, providers: list) -> tuple[TopologyHint, bool]:
    """policy.go word for word: every combination of one hint per resource, compared one after the other."""
    resources: list[list[Hint]] = []
    for provider in providers:
        if not provider:
            resources.append([(None, True)])
            continue
        for hints in provider.values():
            if hints is None:
                resources.append([(None, True)])
            elif not hints.possible:
                resources.append([(None, False)])
            else:
                resources.append([(mask, bool(hints.preferred >> mask & 1)) for mask in masks_of(hints.possible)])
    default = policy.space.full
    if policy.name == SINGLE_NUMA_NODE:
        resources = [[h for h in r if h[1] and (h[0] is None or h[0].bit_count() == 1)] for r in resources]
    narrowest = 0
    for resource in resources:
        masks = [mask for mask, _ in resource if mask is not None]
        if masks:
            narrowest = max(narrowest, min(mask.bit_count() for mask in masks))
    best: Hint | None = None
    for combination in itertools.product(*resources):
        masks = [mask for mask, _ in combination if mask is not None]
        merged = default
        for mask in masks:
            merged &= mask
        candidate = (merged, all(preferred for _, preferred in combination) and len(set(masks)) <= 1)
        best = _better(policy, best, candidate, narrowest)
    mask, preferred = best or (default, False)
    if policy.name == SINGLE_NUMA_NODE:
        return TopologyHint(None if mask == default else mask, preferred), preferred
    return TopologyHint(mask, preferred), preferred or policy.name == BEST_EFFORT


def _better(policy: TopologyPolicy, current: Hint | None, candidate: Hint, narrowest: int) -> Hint | None:
    mask = candidate[0]
    assert mask is not None
    if not mask:
        return current
    if current is None or (candidate[1] and not current[1]):
        return candidate
    if current[1] and not candidate[1]:
        return current
    held = current[0]
    assert held is not None
    now, then = held.bit_count(), mask.bit_count()
    if current[1] or now > narrowest or (now == narrowest == then) or (now < narrowest and now == then):
        return candidate if _fitter(policy, mask, held) else current
    if now == narrowest or then > narrowest:
        return current
    return candidate if then > now else current


def _fitter(policy: TopologyPolicy, mask: int, held: int) -> bool:
    if mask.bit_count() != held.bit_count():
        return mask.bit_count() < held.bit_count()
    if policy.distances is not None:
        far, near = _average(policy, mask), _average(policy, held)
        if far != near:
            return far < near
    return mask < held


def _average(policy: TopologyPolicy, mask: int) -> float:
    assert policy.distances is not None
    nodes = [n for n in range(policy.space.count) if mask >> n & 1]
    return sum(policy.distances[a][b] for a in nodes for b in nodes) / len(nodes) ** 2


def _random_policy(rng: random.Random, count: int) -> TopologyPolicy:
    name = rng.choice([BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE])
    distances = None
    if name != SINGLE_NUMA_NODE and rng.random() < 0.5:
        distances = tuple(tuple(10 if a == b else rng.choice([12, 20, 32]) for b in range(count)) for a in range(count))
    return TopologyPolicy(name=name, scope="container", space=mask_space(count), node_ids=tuple(range(count)), distances=distances)


def _random_hints(rng: random.Random, count: int) -> ResourceHints | None:
    if rng.random() < 0.1:
        return None
    if rng.random() < 0.1:
        return ResourceHints(0, 0)
    every = list(range(1, 1 << count))
    possible = sum(1 << mask for mask in rng.sample(every, rng.randint(1, len(every))))
    preferred = sum(1 << mask for mask in masks_of(possible) if rng.random() < 0.4)
    return ResourceHints(possible, preferred)


@pytest.mark.parametrize("seed", range(400))
def test_merge_is_the_plain_one(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([1, 2, 2, 3, 4])
    policy = _random_policy(rng, count)
    providers = [
        rng.choice([None, {f"r{p}{i}": _random_hints(rng, count) for i in range(rng.choice([1, 1, 2]))}])
        for p in range(rng.choice([1, 2, 3]))
    ]
    expected, admitted = plain_merge(policy, providers)
    hint, admit = policy.merge(providers)
    assert admit == admitted
    if admit:
        assert hint == expected
    elif policy.name == RESTRICTED:
        assert policy.best_refused(providers) == expected


@pytest.mark.parametrize("seed", range(60))
def test_intersections_are_those_of_every_combination(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([3, 4, 5])
    every = list(range(1, 1 << count))
    sets = [rng.sample(every, rng.randint(1, len(every))) for _ in range(rng.choice([1, 2, 3]))]
    reached = set()
    for combination in itertools.product(*sets):
        mask = (1 << count) - 1
        for part in combination:
            mask &= part
        reached.add(mask)
    assert intersections(mask_space(count), [sum(1 << m for m in masks) for masks in sets]) == sum(1 << m for m in reached)


@pytest.mark.parametrize("seed", range(60))
def test_masks_that_hold_a_request(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 6)
    amounts = tuple(rng.randrange(5) for _ in range(count))
    wanted = rng.randint(-1, 12)
    masks = [m for m in range(1, 1 << count) if sum(a for n, a in enumerate(amounts) if m >> n & 1) >= wanted]
    assert masks_of(masks_with_at_least(amounts, wanted)) == masks
    groups = tuple((rng.randrange(1 << count), rng.randrange(4)) for _ in range(3))
    reaching = [m for m in range(1, 1 << count) if sum(n for nodes, n in groups if nodes & m) >= wanted]
    assert masks_of(masks_with_devices(groups, count, wanted)) == reaching


def test_eight_numa_nodes_and_four_resources_take_milliseconds() -> None:
    """The kubelet itself merges 255^4 combinations here."""
    numa = [
        {"id": n, "cpus": [[n * 16 + c] for c in range(16)], "socket": n // 4, "memory_bytes": 64 * 2**30, "distances": [10] * 8}
        for n in range(8)
    ]
    devices = {
        "nvidia.com/gpu": [Device(id=f"gpu{i}", numa=(i,)) for i in range(8)],
        "rdma/hca": [Device(id=f"nic{i}", numa=(i,)) for i in range(8)],
    }
    pod = Pod.from_dict(
        {"name": "p", "containers": [{"name": "c", "limits": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 2, "rdma/hca": 1}}]}
    )
    for policy in ("restricted", "best-effort"):
        configuration = {
            "topologyManagerPolicy": policy,
            "cpuManagerPolicy": "static",
            "memoryManagerPolicy": "Static",
            "kubeReserved": {"cpu": "1", "memory": "924Mi"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        }
        kubelet = Kubelet.start(Machine.from_dict({"numa": numa}), configuration, devices)
        result, fastest = kubelet.copy().admit(pod), 1.0
        for _ in range(5):
            attempt = kubelet.copy()
            begin = time.process_time()
            result = attempt.admit(pod)
            fastest = min(fastest, time.process_time() - begin)
        assert result.admitted == (policy == "best-effort")
        assert fastest < 0.05
