"""The proof over every order, against brute force over the kubelet's exact states on small machines."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from infra.kubelet import Device, Kubelet, Machine
from infra.plan.pool.bound import NumaRoom, never_blocked
from infra.plan.pool.proof import ContainerFootprint, Event, Footprint, NumaMap, Proof, Refusal, Resident, Undecided, fill, prove

GPU = "nvidia.com/gpu"


def machine(numa_nodes: int, cores: int, gpus: int) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    total = numa_nodes * cores
    numa = [
        {
            "id": node,
            "cpus": [[node * cores + core, node * cores + core + total] for core in range(cores)],
            "socket": node,
            "memory_bytes": 16 << 30,
        }
        for node in range(numa_nodes)
    ]
    devices = [{"id": f"gpu{gpu}", "numa": [gpu // gpus]} for gpu in range(numa_nodes * gpus)]
    return {"numa": numa}, {GPU: devices}


def kubelet(document: dict[str, Any], devices: dict[str, list[dict[str, Any]]], **fields: Any) -> Kubelet:
    base = {
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "single-numa-node",
        "kubeReserved": {"memory": "1Gi"},
        "reservedSystemCPUs": "0,4",
        "evictionHard": {"memory.available": "0%"},
    }
    taken = {name: [Device.from_dict(device) for device in listed] for name, listed in devices.items()}
    return Kubelet.start(Machine.from_dict(document), {**base, **fields}, taken)


def resident(number: int, count: int, cpu: int, gpus: int, memory: str = "1Gi") -> Resident:
    sizes = {"cpu": str(cpu), "memory": memory, **({GPU: str(gpus)} if gpus else {})}
    return Resident(number=number, pod={"containers": [{"name": "c", "requests": sizes, "limits": sizes}]}, count=count)


def refused_somewhere(start: Kubelet, residents: list[Resident], most: int = 3000) -> bool | None:
    """Brute force: every exact state, CPU and device ids included. None where there are too many."""
    queue: deque[tuple[Kubelet, frozenset[tuple[int, int]]]] = deque([(start, frozenset())])
    seen = set()
    while queue:
        state, running = queue.popleft()
        for kind, kind_of in enumerate(residents):
            for index in range(kind_of.count):
                pod = (kind, index)
                following = state.copy()
                if pod in running:
                    following.remove(f"{kind}-{index}")
                    after = running - {pod}
                else:
                    if not following.admit({"name": f"{kind}-{index}", **kind_of.pod}).admitted:
                        return True
                    after = running | {pod}
                key = (following.state_key(), after)
                if key not in seen:
                    seen.add(key)
                    queue.append((following, after))
        if len(seen) > most:
            return None
    return False


def test_a_pod_that_always_fits_is_proven():
    document, devices = machine(2, 4, 2)
    outcome = prove(kubelet(document, devices), [resident(0, 2, 2, 2)], NumaMap(document, devices))
    assert isinstance(outcome, Proof)
    assert {place.container("c").devices for place in outcome.footprints[0]} == {((0, 2),), ((1, 2),)}


def test_the_shortest_order_that_is_refused_is_told():
    document, devices = machine(2, 4, 2)
    outcome = prove(kubelet(document, devices), [resident(0, 1, 2, 2), resident(1, 2, 2, 1)], NumaMap(document, devices))
    assert isinstance(outcome, Refusal)
    assert outcome.reason == "TopologyAffinityError"
    assert outcome.events == (
        Event("start", 0, (0,)),
        Event("start", 1, (1,)),
        Event("end", 0, (0,)),
        Event("start", 1, (0,)),
    )
    state = kubelet(document, devices)
    pair, one = resident(0, 1, 2, 2).pod, resident(1, 2, 2, 1).pod
    assert state.admit({"name": "pair", **pair}).admitted
    assert state.admit({"name": "one-0", **one}).admitted
    state.remove("pair")
    assert state.admit({"name": "one-1", **one}).admitted
    assert not state.admit({"name": "pair", **pair}).admitted


def test_too_many_states_are_said_and_not_taken_for_a_proof():
    document, devices = machine(2, 4, 2)
    outcome = prove(kubelet(document, devices), [resident(0, 4, 1, 1)], NumaMap(document, devices), most_states=3)
    assert isinstance(outcome, Undecided)
    assert outcome.limit == 3


def test_fill_leaves_the_start_untouched():
    document, devices = machine(2, 4, 2)
    start = kubelet(document, devices)
    before = start.state_key()
    filled, admitted = fill(start, [resident(0, 2, 2, 2)], NumaMap(document, devices))
    assert [a.devices["c"] for a in admitted[0]] == [("gpu0", "gpu1"), ("gpu2", "gpu3")]
    assert start.state_key() == before != filled.state_key()


def resident_fits(start: Kubelet, one: Resident) -> bool:
    """The node fit only: the pods as Burstable ones, which no manager looks at."""
    sizes = one.pod["containers"][0]["requests"]
    pod = {"containers": [{"name": "c", "requests": {name: sizes[name] for name in ("cpu", "memory")}}]}
    return all(start.admit({"name": f"{one.number}-{index}", **pod}).admitted for index in range(one.count))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    kinds=st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([2, 4]), st.integers(0, 2), st.sampled_from(["1Gi", "5Gi", "9Gi"])),
        min_size=1,
        max_size=2,
    ),
    pinned=st.booleans(),
)
def test_the_condition_on_counts_never_promises_what_the_kubelet_refuses(kinds, pinned):
    document, devices = machine(2, 5, 2)
    fields: dict[str, Any] = {"reservedSystemCPUs": "0,5,10,15", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    if pinned:
        fields |= {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}
    residents = [resident(i, *kind) for i, kind in enumerate(kinds)]
    start = kubelet(document, devices, **fields)
    fitting = start.copy()
    assume(all(resident_fits(fitting, one) for one in residents))
    memory = start.allocatable_memory_bytes
    rooms = [NumaRoom(id=node, gpus=2, cpus=8, memory_bytes=memory.get(node) if pinned else None) for node in (0, 1)]
    places = never_blocked(rooms, residents, GPU)
    if places is not None:
        outcome = prove(start, residents, NumaMap(document, devices))
        assert isinstance(outcome, Proof), outcome
        assert all(outcome.footprints[number] <= there for number, there in places.items())


def test_the_condition_on_counts_holds_for_equal_pods_and_not_for_mixed_sizes():
    rooms = [NumaRoom(id=node, gpus=4, cpus=110, memory_bytes=1000 << 30) for node in (0, 1)]
    assert never_blocked(rooms, [resident(0, 8, 8, 1, "64Gi")], GPU) is not None
    assert never_blocked(rooms, [resident(0, 2, 8, 3, "64Gi")], GPU) is not None
    assert never_blocked(rooms, [resident(0, 1, 8, 4, "64Gi"), resident(1, 4, 8, 1, "64Gi")], GPU) is None
    assert never_blocked(rooms, [resident(0, 2, 8, 1, "999Gi")], GPU) is not None
    assert never_blocked(rooms, [resident(0, 2, 8, 1, "1001Gi")], GPU) is None
    assert never_blocked(rooms, [resident(0, 3, 8, 3, "1Gi")], GPU) is None


pods = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(0, 2), st.sampled_from(["1Gi", "7Gi", "9Gi", "20Gi"]))


POLICIES = ("single-numa-node", "restricted", "best-effort", "none")


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(kinds=st.lists(pods, min_size=1, max_size=2), data=st.data())
def test_counting_by_numa_node_decides_as_exact_states_do(policy, kinds, data):
    compare_with_exact_states(policy, kinds, data)


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=1500, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(kinds=st.lists(pods, min_size=1, max_size=3), data=st.data())
def test_thousands_of_mixtures_against_exact_states(policy, kinds, data):
    compare_with_exact_states(policy, kinds, data)


def compare_with_exact_states(policy: str, kinds: list[tuple[int, int, int, str]], data: st.DataObject) -> None:
    """With and without whole cores, pinned memory, distribution and pod scope."""
    options = {name: "true" for name in ("full-pcpus-only", "distribute-cpus-across-numa") if data.draw(st.booleans(), label=name)}
    fields: dict[str, Any] = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": data.draw(st.sampled_from(["container", "pod"]), label="scope"),
        "cpuManagerPolicyOptions": options,
    }
    if data.draw(st.booleans(), label="static memory"):
        fields |= {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}
    document, devices = machine(2, 4, 2)
    residents = [resident(i, *kind) for i, kind in enumerate(kinds)]
    start = kubelet(document, devices, **fields)
    expected = refused_somewhere(start, residents)
    outcome = prove(start, residents, NumaMap(document, devices))
    if expected is not None:
        assert isinstance(outcome, Refusal) == expected, (outcome, fields)


def test_a_kubelet_that_gives_nothing_to_itself_has_one_place():
    document, devices = machine(2, 4, 2)
    outcome = prove(kubelet(document, devices, cpuManagerPolicy="none"), [resident(3, 2, 1, 0)], NumaMap(document, devices))
    assert isinstance(outcome, Proof)
    assert (outcome.states, outcome.share_cores) == (3, frozenset())
    (place,) = outcome.footprints[3]
    assert place.numa_nodes == ()


def test_states_are_counted_up_to_which_of_equal_pods_runs():
    document, devices = machine(2, 4, 2)
    numa, start = NumaMap(document, devices), kubelet(document, devices)
    outcome = prove(start, [resident(0, 2, 2, 2)], numa)
    assert isinstance(outcome, Proof) and outcome.states == 4  # none, one on either node, both
    assert isinstance(prove(start, [resident(0, 2, 2, 2)], numa, most_states=4), Proof)
    assert prove(start, [resident(0, 2, 2, 2)], numa, most_states=3) == Undecided(3, outcome.footprints)


def test_parts_of_cores_are_seen():
    document, devices = machine(2, 4, 2)
    numa = NumaMap(document, devices)
    assert numa.split_cores([1, 9, 2]) == ((0, 1),)
    assert numa.split_cores([1, 2, 5]) == ((0, 2), (1, 1))
    assert numa.split_cores([1, 9]) == ()
    outcome = prove(kubelet(document, devices), [resident(0, 1, 1, 1), resident(1, 1, 2, 1)], numa)
    assert isinstance(outcome, Proof)
    assert outcome.share_cores == {0}


def test_devices_without_a_numa_node_are_counted_under_minus_one():
    document, devices = machine(2, 4, 2)
    nowhere = {GPU: [{"id": device["id"], "numa": []} for device in devices[GPU]]}
    outcome = prove(kubelet(document, nowhere), [resident(0, 1, 2, 2)], NumaMap(document, nowhere))
    assert isinstance(outcome, Proof)
    assert {place.container("c").devices for place in outcome.footprints[0]} == {((-1, 2),)}
    assert {place.numa_nodes for place in outcome.footprints[0]} == {(0,)}


def test_a_footprint_lies_where_cpus_devices_or_memory_do():
    def at(cpus: int, devices: int, memory: int) -> ContainerFootprint:
        return ContainerFootprint(name="c", cpus=((cpus, 4),), devices=((devices, 1),), memory_numa=(memory,), topology=())

    assert Footprint((at(3, 1, 2), at(3, -1, 0))).numa_nodes == (0, 1, 2, 3)


def test_filling_stops_at_the_first_refusal_of_a_kind_and_goes_on_with_the_next():
    document, devices = machine(2, 4, 2)
    _, admitted = fill(kubelet(document, devices), [resident(5, 3, 2, 2), resident(6, 1, 2, 0)], NumaMap(document, devices))
    assert {number: len(pods) for number, pods in admitted.items()} == {5: 2, 6: 1}
