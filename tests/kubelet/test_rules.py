"""Rules about machines and pods one by one: sets of NUMA nodes, names, defaults, node fit, preemption, what a refusal says."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import pytest

from infra.errors import ConfigError
from infra.kubelet import Kubelet, KubeletHangs, Machine, Pod, simulate_case
from infra.kubelet.admission import pod_validation
from infra.kubelet.admission.node_fit import NodeAllocatable, preempt, shortages
from infra.kubelet.admission.pod_defaults import with_pod_level_defaults
from infra.kubelet.configuration.validate import parse_cpu_set
from infra.kubelet.configuration.versions import rules_of
from infra.kubelet.managers.cpu_assignment import _thousandths
from infra.kubelet.managers.cpu_topology import cpu_ids, cpu_list
from infra.kubelet.managers.hints import MaskSpace, ResourceHints, mask_space, masks_of, masks_with_at_least, positions
from infra.kubelet.managers.topology import BEST_EFFORT, TopologyHint, TopologyPolicy
from infra.kubelet.resource_names import is_extended_resource, is_native_resource, is_qualified_name, is_scalar_resource
from tests.kubelet.agreement import case_of
from tests.kubelet.build import GIB, configuration, container, gpus, kubelet, machine, pod, static_memory


@pytest.mark.parametrize("seed", range(20))
def test_a_cpu_list_says_the_set_and_nothing_twice(seed: int) -> None:
    rng = random.Random(seed)
    cpus = sorted(rng.sample(range(70), rng.randint(0, 40)))
    mask = sum(1 << cpu for cpu in cpus)
    assert list(cpu_ids(mask)) == cpus
    assert parse_cpu_set(cpu_list(mask)) == mask
    assert all(int(b) - int(a) > 1 for a, b in itertools.pairwise(cpu_list(mask).replace(",", " ").split()) if "-" not in a + b)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 11])
def test_masks_over_numa_nodes(count: int) -> None:
    space = MaskSpace(count)
    masks = range(1, 1 << count)
    assert space.full == (1 << count) - 1
    for size in range(1, count + 1):
        assert space.by_count[size] == sum(1 << mask for mask in masks if mask.bit_count() == size)
    assert masks_of(space.singles) == [1 << node for node in range(count)]
    rng = random.Random(count)
    for mask in {1, space.full, *(rng.randrange(1, 1 << count) for _ in range(6))}:
        every = [0, *masks]
        assert space.submasks(mask) == sum(1 << other for other in every if other & mask == other)
        assert space.touching(mask) == sum(1 << other for other in every if other & mask)
        assert space.supersets(mask) == sum(1 << other for other in every if other & mask == mask)
        assert list(positions(mask)) == [node for node in range(count) if mask >> node & 1]
    assert space.narrowest(0) == 0
    assert space.narrowest(1 << space.full) == count
    assert space.narrowest((1 << space.full) | 1 << 1) == 1


def test_twenty_numa_nodes_are_the_most() -> None:
    assert MaskSpace(0).singles == 0
    assert MaskSpace(20).by_count[20] == 1 << (2**20 - 1)
    with pytest.raises(KubeletHangs, match="2\\^21 sets"):
        MaskSpace(21)


def test_hints_that_only_meet_on_more_nodes_than_wanted() -> None:
    """Of two providers that each want two nodes and one, sets that have nodes in common are three nodes wide."""
    policy = TopologyPolicy(name=BEST_EFFORT, scope="container", space=mask_space(6), node_ids=tuple(range(6)), distances=None)
    one = ResourceHints(1 << 0b000011 | 1 << 0b011100, 1 << 0b000011)
    other = ResourceHints(1 << 0b100000 | 1 << 0b011100, 1 << 0b100000)
    assert policy.merge([{"a": one}, {"b": other}]) == (TopologyHint(0b011100, False), True)
    assert policy.merge([{"a": one}, {"b": one}]) == (TopologyHint(0b000011, True), True)


def test_cpu_numbers_have_twenty_bits() -> None:
    for cpu, right in ((2**20 - 1, True), (2**20, False), (-1, False)):
        document = {"numa": [{"id": 0, "cpus": [[cpu]], "socket": 0, "memory_bytes": 1}]}
        if right:
            assert Machine.from_dict(document).cpu_count == 1
        else:
            with pytest.raises(ConfigError, match=r"numa\[0\]\.cpus\[0\]"):
                Machine.from_dict(document)


@pytest.mark.parametrize(
    ("name", "qualified", "native", "extended", "scalar"),
    [
        ("cpu", True, True, False, False),
        ("nvidia.com/gpu", True, False, True, True),
        ("hugepages-1Gi", True, True, False, True),
        ("attachable-volumes-x", True, True, False, True),
        ("kubernetes.io/x", True, True, False, True),
        ("x.kubernetes.io/x", True, True, False, True),
        ("requests.a.b/c", True, False, False, False),
        ("a/b/c", False, False, False, False),
        ("/b", False, False, False, False),
        ("a/", False, False, False, False),
        ("A.b/c", False, False, False, False),
        ("a.b/" + "c" * 63, True, False, True, True),
        ("a.b/" + "c" * 64, False, False, False, False),
        ("a" * 244 + "/c", True, False, True, True),
        ("a" * 245 + "/c", True, False, False, False),
        ("a" * 254 + "/c", False, False, False, False),
        ("", False, True, False, False),
    ],
)
def test_names_of_resources(name: str, qualified: bool, native: bool, extended: bool, scalar: bool) -> None:
    found = is_qualified_name(name), is_native_resource(name), is_extended_resource(name), is_scalar_resource(name)
    assert found == (qualified, native, extended, scalar)


def test_priorities_have_32_bits() -> None:
    for priority in (-(2**31), 2**31 - 1):
        assert Pod.from_dict({**pod("a", cpu=1), "priority": priority}).priority == priority
    for priority in (-(2**31) - 1, 2**31, True, "1", 1.0):
        with pytest.raises(ConfigError, match=r"pod\.priority"):
            Pod.from_dict({**pod("a", cpu=1), "priority": priority})


@pytest.mark.parametrize(
    ("mine", "other", "preempts"),
    [(2_000_000_000, 1_999_999_999, True), (2_000_000_000, None, True), (1_999_999_999, None, False),
     (5, 4, True), (5, 5, False), (4, 5, False),
     (2_000_000_000, 2_000_000_000, False), (2_000_001_000, 2_000_000_000, True), (None, 0, False)],
)  # fmt: skip
def test_who_may_push_out_whom(mine: int | None, other: int | None, preempts: bool) -> None:
    one, two = ({**pod(name, cpu=1), "priority": priority} for name, priority in (("a", mine), ("b", other)))
    assert Pod.from_dict(one).preempts(Pod.from_dict(two)) == preempts
    assert Pod.from_dict(one).is_critical == (mine is not None and mine >= 2_000_000_000)


@pytest.mark.parametrize("seed", range(150))
def test_the_short_way_of_validation_says_what_the_long_one_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [Pod.from_dict(step) for step in case_of("crowded", 50_000 + seed)["pods"] if not step.get("remove")]
    short = [pod_validation.pod_errors(p, rules_of("1.37"), pod_level=True) for p in pods]
    monkeypatch.setattr(pod_validation, "_plainly_valid", lambda requests, limits: False)
    assert [pod_validation.pod_errors(p, rules_of("1.37"), pod_level=True) for p in pods] == short


@pytest.mark.parametrize(
    ("requests", "limits", "plain"),
    [({"cpu": 1}, {"cpu": 1}, True), ({"cpu": 2}, {"cpu": 1}, False), ({}, {"cpu": 1}, True), ({"cpu": -1}, {}, False), ({"cpu": 0}, {}, True),
     ({"cpu": 0}, {"cpu": 0}, True), ({}, {"cpu": 0}, True), ({}, {"cpu": -1}, False), ({"a.b/c": 1000}, {"a.b/c": 1000}, True), ({"a.b/c": 0}, {"a.b/c": 0}, True), ({"a.b/c": 500}, {"a.b/c": 500}, False),
     ({"a.b/c": -1000}, {"a.b/c": -1000}, False), ({"a.b/c": 1000}, {}, False), ({"a.b/c": 1000}, {"a.b/c": 2000}, False), ({"memory": 1}, {}, True)],
)  # fmt: skip
def test_which_requirements_are_plain(requests: dict[str, int], limits: dict[str, int], plain: bool) -> None:
    assert pod_validation._plainly_valid(requests, limits) == plain


def test_no_devices_at_pod_level() -> None:
    level = {"nvidia.com/gpu": "1"}
    result = kubelet().admit({**pod("a", cpu=1, memory="1Gi"), "resources": {"requests": level, "limits": level}})
    assert result.reason == "InvalidPod"
    assert "Unsupported value at pod level" in result.message


@pytest.mark.parametrize(
    ("level", "fixed", "requests", "limits"),
    [
        ({"limits": {"cpu": "4"}}, True, {"cpu": 2000, "memory": 2**30 * 1000}, {"cpu": 4000, "memory": 2**31 * 1000}),
        ({"limits": {"cpu": "4"}}, False, {"cpu": 2000, "memory": 2**30 * 1000}, {"cpu": 4000}),
        ({"requests": {"memory": "4Gi"}}, True, {"cpu": 2000, "memory": 2**32 * 1000}, {"cpu": 3000, "memory": 2**32 * 1000}),
        ({"requests": {"memory": "4Gi"}}, False, {"memory": 2**32 * 1000}, {}),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "8"}}, False, {"cpu": 1000, "memory": 2**30 * 1000}, {"cpu": 8000}),
        ({}, True, {}, {}),
    ],
)
def test_what_the_api_server_fills_in_at_pod_level(level: dict, fixed: bool, requests: dict, limits: dict) -> None:
    one = {"name": "c", "requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "2Gi"}}
    filled = with_pod_level_defaults(
        Pod.from_dict({"name": "a", "containers": [one], "resources": level}), rules_of("1.37"), fixed=fixed
    )
    assert (filled.pod_requests, filled.pod_limits) == (requests, limits)


def test_no_limit_is_filled_in_where_a_container_has_none() -> None:
    containers = [{"name": "c", "limits": {"cpu": "1"}}, {"name": "d"}]
    filled = with_pod_level_defaults(
        Pod.from_dict({"name": "a", "containers": containers, "resources": {"requests": {"cpu": "2"}}}),
        rules_of("1.37"),
        fixed=True,
    )
    assert (filled.pod_requests, filled.pod_limits) == ({"cpu": 2000}, {})


def test_a_pod_without_pod_level_resources_stays_the_same() -> None:
    plain = Pod.from_dict(pod("a", cpu=1))
    assert with_pod_level_defaults(plain, rules_of("1.37"), fixed=True) is plain


def test_shortages_are_named_in_the_kubelets_order() -> None:
    allocatable = NodeAllocatable(pods=1, amounts={"cpu": 1000, "memory": 10, "a.b/c": 1, "hugepages-1Gi": 0})
    requests = {"a.b/c": 2, "hugepages-1Gi": 1, "memory": 11, "cpu": 1001, "ephemeral-storage": 1, "storage": 5}
    found = shortages(requests, {"a.b/c": 1}, 1, allocatable)
    assert [s.reason for s in found] == [
        "OutOfpods",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfa.b/c",
        "OutOfhugepages-1Gi",
    ]
    assert found[4].message == "Node didn't have enough resource: a.b/c, requested: 2, used: 1, capacity: 1"
    assert found[4].missing == 2
    assert shortages({"cpu": 1000, "memory": 10, "a.b/c": 1}, {}, 0, allocatable) == []
    assert shortages({"cpu": 0}, {"cpu": 5000}, 0, allocatable) == []


def _preempted(short: dict[str, int], pods: list[tuple[str, dict[str, Any], int | None]]) -> Any:
    critical = Pod.from_dict({**pod("x", cpu=1), "priority": 2_000_000_000})
    others = []
    for qos, limits, priority in pods:
        others.append((Pod.from_dict({**pod("p", container(**limits)), "priority": priority}), qos))
    allocatable = NodeAllocatable(pods=110, amounts={})
    missing = [s for s in shortages(short, {}, 0, allocatable) if s.resource in short]
    return preempt(critical, others, missing, pod_level=True)


@pytest.mark.parametrize(
    ("short", "pods", "evicted"),
    [
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1}, 0), ("Burstable", {"cpu": 1}, 0), ("BestEffort", {"cpu": 1}, 0)], (2,)),
        ({"cpu": 1500}, [("Guaranteed", {"cpu": 1}, 0), ("Burstable", {"cpu": 1}, 0), ("BestEffort", {"cpu": 1}, 0)], (2, 1)),
        ({"cpu": 3000}, [("Guaranteed", {"cpu": 1}, 0), ("Burstable", {"cpu": 1}, 0), ("BestEffort", {"cpu": 1}, 0)], (2, 1, 0)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 3}, 0), ("Guaranteed", {"cpu": 1}, 0), ("Guaranteed", {"cpu": 2}, 0)], (1,)),
        ({"cpu": 4000}, [("Guaranteed", {"cpu": 3}, 0), ("Guaranteed", {"cpu": 1}, 0), ("Guaranteed", {"cpu": 2}, 0)], (0, 1)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1, "memory": 9}, 0), ("Guaranteed", {"cpu": 1, "memory": 1}, 0)], (1,)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1, "memory": 1}, 0), ("Guaranteed", {"cpu": 1}, 0)], (1,)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1}, 0), ("Guaranteed", {"cpu": 1, "memory": 1}, 0)], (0,)),
        ({"memory": 1000}, [("Guaranteed", {"cpu": "1m", "memory": 1000}, 0), ("Guaranteed", {"memory": 1000}, 0)], (1,)),
        ({"memory": 1000}, [("Guaranteed", {"memory": 1000}, 0), ("Guaranteed", {"cpu": "1m", "memory": 1000}, 0)], (0,)),
        ({"cpu": 1000, "memory": 2}, [("Guaranteed", {"cpu": 1}, 0), ("Guaranteed", {"cpu": 1, "memory": 2}, 0)], (1,)),
        ({"cpu": 1000}, [("Guaranteed", {"cpu": 1}, 2_000_000_000)], ()),
        ({"cpu": 2}, [("Guaranteed", {"cpu": "1m"}, 0), ("Guaranteed", {"cpu": "2m"}, 0)], (1,)),
        (
            {"cpu": 3},
            [("Guaranteed", {"memory": 1}, 0), ("Guaranteed", {"cpu": "1m", "memory": 5}, 0), ("Guaranteed", {"cpu": "2m"}, 0)],
            (2, 1),
        ),
    ],
)
def test_the_smallest_pods_go_first(short: dict[str, int], pods: list, evicted: tuple[int, ...]) -> None:
    found = _preempted(short, pods)
    assert found.evicted == evicted
    assert (found.error is None) == bool(evicted)


def test_where_no_pod_can_make_room_the_rest_is_named() -> None:
    assert "res: cpu, q: 500" in _preempted({"cpu": 1500}, [("Burstable", {"cpu": 1}, 0)]).error


def test_a_pod_that_does_not_fit_its_numa_node_says_so() -> None:
    wide = pod("a", cpu=20, memory="1Gi")
    assert kubelet().admit(wide).message == "Resources cannot be allocated with Topology locality"
    level = {"requests": {"cpu": "20", "memory": "2Gi"}, "limits": {"cpu": "20", "memory": "2Gi"}}
    gates: dict[str, Any] = {"featureGates": {"PodLevelResourceManagers": True}}
    assert "Resources cannot be" in kubelet(topologyManagerScope="pod", **gates).admit(wide).message
    assert "pod-scope topology manager" in kubelet(topologyManagerScope="pod", **gates).admit({**wide, "resources": level}).message
    assert "container-level topology manager" in kubelet(**gates).admit({**wide, "resources": level}).message


def test_pod_level_resources_are_refused_where_the_gate_is_off() -> None:
    off = {"PodLevelResources": False, "PodLevelResourceManagers": False, "InPlacePodLevelResourcesVerticalScaling": False}
    off |= {"PodLevelResourcesFixDefaulting": False, "PodLevelResourcesFixKubeletQOSClass": False}
    level = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    result = kubelet(featureGates=off).admit({**pod("a", cpu=1, memory="1Gi"), "resources": level})
    assert (result.reason, result.handler) == ("PodLevelResourcesNotSupported", "podfeatures")


def test_devices_that_are_not_healthy_are_given_to_nobody() -> None:
    from infra.kubelet import Device

    devices = {"nvidia.com/gpu": [Device(id="a", numa=(0,), healthy=False), Device(id="b", numa=(0,)), Device(id="b", numa=(1,))]}
    started = Kubelet.start(machine(), configuration(), devices)
    assert (started.capacity["nvidia.com/gpu"], started.allocatable["nvidia.com/gpu"]) == (2, 1)
    got = started.admit(pod("a", cpu=2, memory="1Gi", gpu=1)).containers[0]
    assert (got.devices["nvidia.com/gpu"], got.topology) == (("b",), (1,))


def test_memory_leaves_out_huge_pages_and_reservations() -> None:
    host = Machine.from_dict(
        {"numa": [{"id": 0, "cpus": [[0, 1], [2, 3]], "socket": 0, "memory_bytes": 8 * GIB, "hugepages": {"1Gi": 2, "2Mi": 3}}]}
    )
    started = Kubelet.start(
        host, configuration("none", kubeReserved={"cpu": "1", "memory": "924Mi"}, **static_memory(n0="1Gi")), gpus()
    )
    assert started.allocatable_memory_bytes == {0: 5 * GIB - 6 * 2**20}
    assert started.capacity["hugepages-1Gi"] == 2 * GIB


def test_a_negative_reservation_moves_huge_pages_between_nodes() -> None:
    """Only the sum over the nodes has to be right; what the kubelet then does was recorded."""
    numa = [
        {"id": n, "cpus": [[2 * n], [2 * n + 1]], "socket": n, "memory_bytes": 8 * GIB, "hugepages": {"1Gi": 2}} for n in range(2)
    ]
    moved = [
        {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1Gi": "1Gi"}},
        {"numaNode": 1, "limits": {"hugepages-1Gi": "-1Gi"}},
    ]
    fields = configuration(kubeReserved={"cpu": "1", "memory": "924Mi"}, memoryManagerPolicy="Static", reservedMemory=moved)
    started = Kubelet.start(Machine.from_dict({"numa": numa}), fields, {})
    wide = {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-1Gi": "2Gi"}}
    results = [started.admit({"name": name, "containers": [{"name": "c", **wide}]}) for name in "ab"]
    assert results[0].containers[0].memory_numa == (1,)
    assert (results[1].admitted, results[1].reason) == (False, "UnexpectedAdmissionError")


def _pod_level_pod(sidecar: str, main: str | None) -> dict[str, Any]:
    level = {"cpu": "4", "memory": "4Gi"}
    init = [{**container("side", cpu=sidecar, memory="1Gi"), "restartPolicy": "Always"}, {"name": "shared-init"}]
    containers = [container("main", cpu=main, memory="1Gi")] if main else []
    resources = {"requests": level, "limits": level}
    return {"name": "a", "initContainers": init, "containers": [*containers, {"name": "shared"}], "resources": resources}


@pytest.mark.parametrize(
    ("sidecar", "main", "words"),
    [
        ("4", None, "shared init containers but no cpus"),
        ("3", None, ""),
        ("1", "3", "equals pod budget, leaving no cpus"),
        ("1", "2", ""),
    ],
)
def test_a_shared_pool_of_a_pod_must_not_be_empty(sidecar: str, main: str | None, words: str) -> None:
    fields: dict[str, Any] = {"topologyManagerScope": "pod", "featureGates": {"PodLevelResourceManagers": True}}
    result = kubelet(policy="best-effort", **fields).admit(_pod_level_pod(sidecar, main))
    assert result.admitted == (words == "")
    assert words in result.message
    assert result.reason == ("EmptyPodSharedPoolError" if words else "")


def test_a_reservation_above_a_nodes_memory_wraps_around() -> None:
    """As the kubelet's unsigned arithmetic does; only the sum over the nodes is checked."""
    fields = configuration(kubeReserved={"cpu": "1", "memory": "1436Mi"}, **static_memory(n0="1536Mi"))
    started = Kubelet.start(machine(2, 4, gib=1), fields, {})
    assert started.allocatable_memory_bytes == {0: 2**64 - 2**29, 1: GIB}


def test_an_answer_says_its_time_in_milliseconds() -> None:
    begin = time.perf_counter()
    spent = [simulate_case(case_of("ordinary", seed))["ms"] for seed in range(5)]
    assert 0.02 < sum(spent) <= (time.perf_counter() - begin) * 1000 + 0.01
    assert spent == [round(ms, 3) for ms in spent]


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.0625, 0.063), (0.0624, 0.062), (0.1875, 0.188), (1.0, 1.0), (2.0004, 2.0), (2.0006, 2.001), (0.0, 0.0)],
)
def test_thousandths_round_halves_away_from_zero(value: float, rounded: float) -> None:
    assert _thousandths(value) == rounded


def test_amounts_of_a_machine_have_64_bits() -> None:
    for size, right in ((2**64 - 1, True), (2**64, False), (-1, False), (0, True)):
        document = {"numa": [{"id": 0, "cpus": [[0]], "socket": 0, "memory_bytes": size}]}
        if right:
            assert Machine.from_dict(document).memory_capacity_bytes == size
        else:
            with pytest.raises(ConfigError, match="a whole number from 0 up"):
                Machine.from_dict(document)


@pytest.mark.parametrize(("pages", "panics"), [("hugepages-64Ki", True), ("hugepages-32Mi", True), ("hugepages-1Gi", False)])
def test_pages_that_some_node_does_not_know_crash_the_kubelet(pages: str, panics: bool) -> None:
    sizes = [{"1Gi": 1}, {"1Gi": 1, "64Ki": 16}]
    numa = [{"id": n, "cpus": [[2 * n], [2 * n + 1]], "socket": n, "memory_bytes": 2**34, "hugepages": sizes[n]} for n in range(2)]
    fields = configuration("none", kubeReserved={"cpu": "1", "memory": "924Mi"}, **static_memory(n0="1Gi"))
    started = Kubelet.start(Machine.from_dict({"numa": numa}), fields, {})
    result = started.admit({"name": "a", "containers": [{"name": "c", "limits": {"cpu": "1", "memory": "1Gi", pages: "1Gi"}}]})
    assert (result.reason == "KubeletPanic") == panics


@pytest.mark.parametrize(
    ("amounts", "wanted", "masks"),
    [
        ((2**63, 2**63), 1, [1, 2]),
        ((2**63, 2**63 - 1), 1, [1, 2, 3]),
        ((2**63, 2**63), 2**63, [1, 2]),
        ((2**63, 2**63, 5), 5, [1, 2, 4, 5, 6, 7]),
    ],
)
def test_sums_over_numa_nodes_wrap_at_64_bits(amounts: tuple[int, ...], wanted: int, masks: list[int]) -> None:
    assert masks_of(masks_with_at_least(amounts, wanted)) == masks


def test_overhead_counts_where_nothing_is_requested() -> None:
    prepared = Pod.from_dict({"name": "a", "containers": [{"name": "c"}], "overhead": {"cpu": "250m"}})
    assert prepared.total_requests(pod_level=True) == {"cpu": 250}
    assert prepared.total_requests(pod_level=True, overhead=False) == {}


def test_the_widest_moment_of_a_pod() -> None:
    """A sidecar runs beside the init containers after it, and beside the containers."""
    init = [container("i", cpu=3), {**container("s", cpu=2), "restartPolicy": "Always"}, container("j", cpu=4)]
    prepared = Pod.from_dict({"name": "a", "initContainers": init, "containers": [container("c", cpu=1), container("d", memory=5)]})
    assert prepared.total_requests(pod_level=True) == {"cpu": 6000, "memory": 5000}
    assert prepared.total_limits() == {"cpu": 6000, "memory": 5000}


def test_a_numa_node_without_id_is_the_first() -> None:
    assert Machine.from_dict({"numa": [{"cpus": [[0]], "memory_bytes": 1}]}).numa_nodes[0].id == 0


def test_without_the_static_policy_no_pool_of_cpus_is_told() -> None:
    started = kubelet(policy="none", cpuManagerPolicy="none")
    assert (started.shared_cpus_mask, started.shared_cpus, started.reserved_cpus) == (0, frozenset(), frozenset())
    assert kubelet().shared_cpus == frozenset(range(32))


def test_debug_tells_every_managers_hints_and_their_merge() -> None:
    numa = [
        {"id": 3 + n, "cpus": [[2 * n], [2 * n + 1]], "socket": n, "memory_bytes": 2**34, "distances": [10] * 5} for n in range(2)
    ]
    limits = {"cpu": "1", "memory": "1Gi", "example.com/x": "1"}
    case = {
        "machine": {"numa": numa},
        "kubelet": configuration("restricted", kubeReserved={"cpu": "1", "memory": "924Mi"}),
        "devices": {"example.com/x": [{"id": "x0", "numa": [4]}], "example.com/y": [{"id": "y0"}]},
        "pods": [
            {"name": "a", "containers": [{"name": "c", "limits": limits}]},
            {"name": "b", "containers": [{"name": "c", "limits": {"example.com/y": "1"}}]},
        ],
        "debug": True,
    }
    first, second = (entry["hints"] for entry in simulate_case(case)["pods"])
    both = [{"numa": [4], "preferred": True}, {"numa": [3, 4], "preferred": False}]
    assert first == [
        {"container": "c", "provider": "device", "hints": {"example.com/x": [{"numa": [4], "preferred": True}]}},
        {"container": "c", "provider": "cpu", "hints": {"cpu": [{"numa": [3], "preferred": True}, *both]}},
        {"container": "c", "provider": "memory"},
        {"container": "c", "provider": "merged", "merged": {"numa": [4], "preferred": True}, "admit": True},
    ]
    assert second[0] == {"container": "c", "provider": "device", "hints": {"example.com/y": None}}
    assert second[1] == {"container": "c", "provider": "cpu"}
    assert second[3]["admit"]
