"""A started kubelet: what it offers, pods that come and go, copies and states."""

from __future__ import annotations

import itertools

import pytest

from infra.errors import ConfigError
from infra.kubelet import Kubelet, KubeletRefuses, Machine, Pod
from tests.kubelet.build import GIB, GPU, configuration, container, gpus, kubelet, machine, pod, static_memory


def test_capacity_allocatable_and_reservations() -> None:
    started = kubelet(devices=gpus(0, 0, 1, 1), **static_memory(n0="512Mi", n1="512Mi"))
    assert started.capacity["cpu"] == 32000
    assert started.allocatable["cpu"] == 30000
    assert started.allocatable["memory"] == 127 * GIB
    assert started.allocatable[GPU] == 4
    assert started.allocatable["pods"] == 110
    assert started.reserved_cpus == {0, 16}
    assert started.allocatable_memory_bytes == {0: 64 * GIB - 2**29, 1: 64 * GIB - 2**29}


def test_a_pod_gets_what_lies_together() -> None:
    started = kubelet(devices=gpus(0, 0, 1, 1), **static_memory(n0="1Gi"))
    result = started.admit(pod("a", cpu=4, memory="8Gi", gpu=2))
    assert result.admitted
    assert result.qos == "Guaranteed"
    only = result.containers[0]
    assert (only.topology, only.memory_numa, only.devices[GPU]) == ((0,), (0,), ("gpu0", "gpu1"))
    assert only.cpus == {1, 2, 17, 18}
    refused = started.admit(pod("b", cpu=4, memory="8Gi", gpu=3))
    assert (refused.admitted, refused.reason, refused.handler) == (False, "TopologyAffinityError", "topologymanager")


def test_a_refused_pod_leaves_nothing_behind() -> None:
    started = kubelet(devices=gpus(0, 0, 1, 1), **static_memory(n0="1Gi"))
    before = started.state_key()
    for refused in (
        pod("a", cpu=40, memory="1Gi"),
        pod("b", container("x", cpu=2, memory="1Gi", gpu=2), container("y", cpu=2, memory="200Gi")),
        pod("Bad", cpu=1),
    ):
        assert not started.admit(refused).admitted
        assert started.state_key() == before


def test_removal_gives_everything_back() -> None:
    started = kubelet(devices=gpus(0, 0, 1, 1), **static_memory(n0="1Gi"))
    before = started.state_key()
    started.admit(pod("a", cpu=4, memory="8Gi", gpu=2))
    started.admit(pod("b", cpu=4, memory="8Gi", gpu=2))
    assert started.pods == ("a", "b")
    assert started.remove("a")
    assert not started.remove("a")
    assert started.remove("b")
    assert started.state_key() == before


def test_a_copy_goes_its_own_way() -> None:
    started = kubelet(devices=gpus(0, 0, 1, 1), **static_memory(n0="1Gi"))
    started.admit(pod("a", container("x", cpu=2, memory="4Gi", gpu=1), init=[container("i", cpu=4, memory="2Gi")]))
    before = started.state_key()
    other = started.copy()
    assert other.state_key() == before
    other.admit(pod("b", cpu=2, memory="1Gi", gpu=1))
    other.remove("a")
    assert started.state_key() == before
    assert other.state_key() != before
    assert started.admit(pod("c", cpu=2, memory="1Gi", gpu=1)).containers[0].devices[GPU] == ("gpu1",)


def test_states_that_differ_only_in_names_are_equal() -> None:
    started = kubelet(devices=gpus(0, 0, 1, 1))
    one, other = started.copy(), started.copy()
    one.admit(pod("a", cpu=4, memory="1Gi", gpu=1))
    one.admit(pod("b", cpu=4, memory="1Gi", gpu=1))
    other.admit(pod("y", cpu=4, memory="1Gi", gpu=1))
    other.admit(pod("x", cpu=4, memory="1Gi", gpu=1))
    assert one.state_key() == other.state_key()
    other.remove("x")
    assert one.state_key() != other.state_key()


def test_equal_states_answer_alike() -> None:
    """Whatever the order of two pods, where the states are equal all that comes later is equal too."""
    sizes = [{"cpu": 2, "memory": "1Gi", "gpu": 1}, {"cpu": 3, "memory": "9Gi"}, {"cpu": 6, "memory": "2Gi", "gpu": 2}]
    seen: dict[object, list[bool]] = {}
    for order in itertools.permutations(range(3)):
        started = kubelet(devices=gpus(0, 0, 1, 1), **static_memory(n0="1Gi"))
        for index in order:
            started.admit(pod(f"p{index}", **sizes[index]))
        key = started.state_key()
        later = [started.admit(pod(f"q{i}", cpu=4, memory="20Gi", gpu=1)).admitted for i in range(3)]
        assert seen.setdefault(key, later) == later


def test_admission_of_a_prepared_pod() -> None:
    started = kubelet()
    prepared = Pod.from_dict(pod("a", cpu=2, memory="1Gi"))
    assert started.admit(prepared) == started.copy().admit(pod("a", cpu=2, memory="1Gi")) or started.pods == ("a",)
    assert started.pods == ("a",)


@pytest.mark.parametrize(
    ("init", "main", "admitted"),
    [("1", "62", False), ("1", "61", True), ("500m", "62", True)],
)
def test_sidecars_count_with_the_containers(init: str, main: str, admitted: bool) -> None:
    """kubernetes/kubernetes#119407: pod scope adds restartable init containers; only whole CPUs are aligned."""
    big = machine(2, 32, gib=256)
    started = Kubelet.start(big, configuration(topologyManagerScope="pod", reservedSystemCPUs="0,32,64,96", kubeReserved={}), {})
    sidecar = {**container("s", cpu=init, memory="1Gi"), "restartPolicy": "Always"}
    assert started.admit(pod("a", container("m", cpu=main, memory="1Gi"), init=[sidecar])).admitted == admitted


def test_pod_scope_adds_up_what_container_scope_lays_apart() -> None:
    fields = {"cpuManagerPolicy": "none", **static_memory(n0="512Mi", n1="512Mi")}
    two = pod("a", container("m", cpu=1, memory="50Gi"), container("s", cpu=1, memory="20Gi"))
    assert not kubelet(topologyManagerScope="pod", **fields).admit(two).admitted
    apart = kubelet(**fields).admit(two)
    assert [c.memory_numa for c in apart.containers] == [(0,), (1,)]


def test_a_reservation_on_one_node_makes_the_second_replica_unplaceable() -> None:
    """kubernetes/kubernetes#120733: 2 x 96 GiB, 10340Mi reserved."""
    host = machine(2, 24, gib=96)
    fields = {"kubeReserved": {"cpu": "2", "memory": "10240Mi"}, "cpuManagerPolicyOptions": {}}
    replicas = [pod(f"r{i}", cpu=8, memory="88Gi") for i in range(2)]
    lopsided = Kubelet.start(host, configuration(**fields, **static_memory(n0="10340Mi")), {})
    assert [lopsided.admit(r).admitted for r in replicas] == [True, False]
    split = Kubelet.start(host, configuration(**fields, **static_memory(n0="5170Mi", n1="5170Mi")), {})
    assert [split.admit(r).admitted for r in replicas] == [True, True]


def test_best_effort_with_static_memory_can_still_refuse() -> None:
    """kubernetes/kubernetes#138495: nodes that serve single-node pods cannot be joined for a larger one."""
    fields = {"policy": "best-effort", **static_memory(n0="512Mi", n1="512Mi")}
    small, large = [pod(f"s{i}", cpu=2, memory="40Gi") for i in range(2)], pod("l", cpu=2, memory="45Gi")
    started = kubelet(**fields)
    assert all(started.admit(p).admitted for p in small)
    refused = started.admit(large)
    assert (refused.reason, refused.handler) == ("UnexpectedAdmissionError", "topologymanager")


def test_devices_without_a_numa_node_bind_nothing_and_unknown_ones_forbid_everything() -> None:
    wide = pod("a", cpu=2, memory="1Gi", gpu=4)
    assert kubelet(devices=gpus(None, None, None, None)).admit(wide).containers[0].topology == (0,)
    assert not kubelet(devices=gpus(-1, -1, -1, -1)).admit(wide).admitted
    assert not kubelet(devices=gpus(0, 0, 1, 1)).admit(wide).admitted


def test_a_critical_pod_evicts_the_smallest_that_makes_room() -> None:
    started = kubelet(policy="none", cpuManagerPolicy="none")
    for name, cpu in (("big", 16), ("small", 6), ("tiny", 2)):
        assert started.admit(pod(name, cpu=cpu, memory="1Gi")).admitted
    result = started.admit({**pod("critical", cpu=10, memory="1Gi"), "priority": 2_000_000_000})
    assert (result.admitted, result.preempted) == (True, ("small",))
    assert started.pods == ("big", "tiny", "critical")


def test_a_wrong_case_is_named_by_its_path() -> None:
    with pytest.raises(ConfigError, match=r"machine\.numa\[0\]\.memory_bytes"):
        Machine.from_dict({"numa": [{"id": 0, "cpus": [[0]], "memory_bytes": "64Gi"}]})
    with pytest.raises(ConfigError, match=r"containers\[0\]\.limits\.cpu"):
        Pod.from_dict({"name": "a", "containers": [{"name": "c", "limits": {"cpu": "four"}}]})
    with pytest.raises(ConfigError, match=r"nvidia\.com/gpu"):
        Kubelet.start(machine(), configuration(), {"gpu": []})
    with pytest.raises(ConfigError, match=r"1\.37"):
        Kubelet.start(machine(), configuration(), {}, kubernetes_version="1.22")


def test_more_than_eight_numa_nodes_need_the_option() -> None:
    wide = machine(9, 1)
    with pytest.raises(KubeletRefuses, match='max-allowable-numa-nodes: "9"') as refusal:
        Kubelet.start(wide, configuration(), {})
    assert refusal.value.stage == "topologymanager"
    allowed = configuration(topologyManagerPolicyOptions={"max-allowable-numa-nodes": "9"})
    assert Kubelet.start(wide, allowed, {}).admit(pod("a", cpu=1, memory="1Gi")).admitted
