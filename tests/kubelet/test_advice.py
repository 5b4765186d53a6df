"""Warnings for configurations that start, and rules of earlier versions."""

from __future__ import annotations

from typing import Any

import pytest

from infra.errors import ConfigError
from infra.kubelet import Device, Kubelet, KubeletRefuses, Machine
from infra.kubelet.advice import admission_seconds, advise, suggest_field
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.versions import cpu_option_gate, rules_of, topology_option_gate
from tests.kubelet.build import GPU, configuration, gpus, machine, pod, static_memory


def codes(*, on: Machine | None = None, devices: dict | None = None, version: str = "1.37", **fields: Any) -> dict[str, str]:
    found = advise(
        on or machine(), configuration(**fields), gpus(0, 0, 1, 1) if devices is None else devices, kubernetes_version=version
    )
    return {problem.code: f"{problem.path}: {problem.sentence}" for problem in found}


def test_a_good_configuration_is_left_alone() -> None:
    assert codes(reservedSystemCPUs="0,8,16,24", kubeReserved={"memory": "924Mi"}, cpuManagerPolicyOptions={"strict-cpu-reservation": "true"},
                 **static_memory(n0="512Mi", n1="512Mi")).keys() == {"PodLevelResourcesNotPinned"}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"reservedCpus": "0-1"}, "IgnoredField", ["reservedCpus", "reservedSystemCPUs"]),
        ({"topologyManagerpolicy": "x"}, "IgnoredField", ["'topologyManagerPolicy'"]),
        ({"evictionHard": {"memory.available": "500Mi"}}, "NoDiskEviction", ["nodefs.available", "imagefs.available"]),
        ({"evictionHard": {"memory.available": "1%"}, **static_memory(n0=str(924 * 2**20 + 1374389504))}, "PercentEviction", ["1%", "137438953472"]),
        ({"reservedSystemCPUs": "0-1", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, "HalfReservedCores", ["16-17", "0-1,16-17"]),
        ({"reservedSystemCPUs": "0,16"}, "SharedReservedCPUs", ["strict-cpu-reservation"]),
        ({"reservedSystemCPUs": "0,16"}, "NoEffect", ["kubeReserved.cpu"]),
        (static_memory(n0="1Gi"), "UnevenMemory", ["NUMA node 0"]),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}, "NoEffect", ["memoryManagerPolicy None"]),
        ({"evictionSoft": {"memory.available": "1Gi"}}, "StopsAtStart", ["evictionSoftGracePeriod.memory.available"]),
        ({"policy": "none", "topologyManagerScope": "pod"}, "NoEffect", ["topologyManagerScope"]),
        ({"reservedSystemCPUs": "0", "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}},
         "MayLoopForEver", ["0,16"]),
    ],
)  # fmt: skip
def test_warnings(fields: dict[str, Any], code: str, words: list[str]) -> None:
    found = codes(**fields)
    assert code in found
    for word in words:
        assert word in found[code]


def test_devices_that_cannot_be_aligned() -> None:
    assert "DevicesWithoutTopology" in codes(devices=gpus(None, None))
    stray = codes(devices={GPU: [Device(id="a", numa=(-1,))]})
    assert "-1" in stray["UnknownNumaNode"]
    assert "refuses" in stray["UnknownNumaNode"]
    assert "NoEffect" in codes(devices=gpus(None), cpuManagerPolicy="none")


def test_admission_that_takes_seconds() -> None:
    wide = machine(8, 4)
    found = codes(on=wide, policy="restricted", devices=gpus(*range(8)), **static_memory(n0="1Gi"))
    assert "about 5 s" in found["SlowAdmission"]
    assert "SlowAdmission" not in codes(on=wide, devices=gpus(*range(8)), **static_memory(n0="1Gi"))


def test_suggestions() -> None:
    assert "reservedSystemCPUs" in suggest_field("reserved-cpus")
    assert "reservedSystemCPUs" in suggest_field("reservedCpus")
    assert "topologyManagerPolicy" in suggest_field("topologyManagerPolicies")


@pytest.mark.parametrize(
    ("option", "version", "gate"),
    [
        ("strict-cpu-reservation", "1.33", "CPUManagerPolicyBetaOptions"),
        ("strict-cpu-reservation", "1.35", None),
        ("prefer-align-cpus-by-uncorecache", "1.33", "CPUManagerPolicyAlphaOptions"),
        ("prefer-align-cpus-by-uncorecache", "1.36", None),
        ("align-by-socket", "1.37", "CPUManagerPolicyAlphaOptions"),
    ],
)
def test_options_by_version(option: str, version: str, gate: str | None) -> None:
    assert cpu_option_gate(option, version) == gate


def test_versions() -> None:
    assert topology_option_gate("max-allowable-numa-nodes", "v1.34.2") == "TopologyManagerPolicyBetaOptions"
    with pytest.raises(ConfigError, match=r"1\.33, 1\.34"):
        rules_of("1.32")
    early = configuration(cpuManagerPolicyOptions={"prefer-align-cpus-by-uncorecache": "true"})
    with pytest.raises(KubeletRefuses, match="CPUManagerPolicyAlphaOptions"):
        Kubelet.start(machine(), early, {}, kubernetes_version="1.33")
    assert Kubelet.start(machine(), early, {}, kubernetes_version="1.34")
    assert "FieldOfLaterVersion" in codes(version="1.34", memoryReservationPolicy="None")
    with pytest.raises(KubeletRefuses, match="PodLevelResourceManagers"):
        Kubelet.start(machine(), configuration(featureGates={"PodLevelResourceManagers": True}), {}, kubernetes_version="1.35")


def test_device_hints_before_1_36_reach_over_all_nodes() -> None:
    """A request for CPUs of two NUMA nodes and a GPU of one: best-effort kept both nodes, and since 1.36 narrows to the GPU's."""
    asked = pod("a", cpu=20, memory="1Gi", gpu=1)
    found = {}
    for version in ("1.35", "1.36"):
        started = Kubelet.start(machine(), configuration("best-effort"), gpus(0), kubernetes_version=version)
        found[version] = started.admit(asked).containers[0].topology
    assert found == {"1.35": (0, 1), "1.36": (0,)}


CLEAN = {
    "reservedSystemCPUs": "0,8,16,24",
    "kubeReserved": {"memory": "924Mi"},
    "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"},
}


@pytest.mark.parametrize(
    ("fields", "code", "path", "warned"),
    [
        ({"policy": "none", "topologyManagerScope": "pod"}, "NoEffect", "topologyManagerScope", True),
        ({"policy": "restricted", "topologyManagerScope": "pod"}, "NoEffect", "topologyManagerScope", False),
        ({"policy": "none", "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}}, "NoEffect", "topologyManagerPolicyOptions", True),
        ({"policy": "none", "topologyManagerPolicyOptions": {}}, "NoEffect", "topologyManagerPolicyOptions", False),
        *(
            ({"topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": text}}, "NoEffect", "topologyManagerPolicyOptions.prefer-closest-numa-nodes", warned)
            for text, warned in (("true", True), ("1", True), ("t", True), ("T", True), ("True", True), ("false", False), ("0", False))
        ),
        ({"policy": "restricted", "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}}, "NoEffect",
         "topologyManagerPolicyOptions.prefer-closest-numa-nodes", False),
        ({"reservedSystemCPUs": "0,16", "kubeReserved": {"memory": "924Mi"}}, "NoEffect", "kubeReserved.cpu", False),
        ({"reservedSystemCPUs": "0,16", "kubeReserved": {"memory": "924Mi"}, "systemReserved": {"cpu": "1"}}, "NoEffect", "systemReserved.cpu", True),
        ({"systemReserved": {"cpu": "1"}}, "NoEffect", "systemReserved.cpu", False),
        (static_memory(n0="512Mi", n1="512Mi"), "NoEffect", "reservedMemory", False),
        (static_memory(n0="512Mi", n1="512Mi"), "UnevenMemory", "reservedMemory", False),
        ({"evictionHard": {"memory.available": "0%", "nodefs.available": "10%"}}, "NoMemoryEviction", "evictionHard.memory.available", True),
        ({"evictionHard": {"memory.available": "100%"}}, "NoMemoryEviction", "evictionHard.memory.available", True),
        ({"evictionHard": {"memory.available": "1%"}}, "PercentEviction", "evictionHard.memory.available", False),
        ({"evictionHard": {"nodefs.available": "10%"}}, "NoMemoryEviction", "evictionHard", True),
        ({"evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%"}}, "NoDiskEviction", "evictionHard", False),
        ({"evictionHard": {"memory.available": "1Mi"}, "mergeDefaultEvictionSettings": True}, "NoDiskEviction", "evictionHard", False),
        ({"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}}, "StopsAtStart", "evictionSoft.memory.available", False),
        ({"evictionSoft": {"memory": "1Gi"}}, "StopsAtStart", "evictionSoft.memory", True),
        ({"reservedSystemCPUs": "0,16", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, "HalfReservedCores", "reservedSystemCPUs", False),
        ({"reservedSystemCPUs": "0-1"}, "HalfReservedCores", "reservedSystemCPUs", False),
        (CLEAN, "SharedReservedCPUs", "reservedSystemCPUs", False),
        ({}, "SharedReservedCPUs", "reservedSystemCPUs", False),
        ({"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}, "reservedSystemCPUs": "0,16"}, "MayLoopForEver",
         "cpuManagerPolicyOptions.distribute-cpus-across-numa", False),
        ({"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}, "reservedSystemCPUs": "0"}, "MayLoopForEver",
         "cpuManagerPolicyOptions.distribute-cpus-across-numa", False),
        ({"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "reservedSystemCPUs": "0"}, "MayLoopForEver",
         "cpuManagerPolicyOptions.distribute-cpus-across-numa", False),
        ({**static_memory(n0="512Mi", n1="512Mi"), "featureGates": {"PodLevelResourceManagers": True}}, "PodLevelResourcesNotPinned", "memoryManagerPolicy", False),
    ],
)  # fmt: skip
def test_what_is_warned_of_and_what_is_not(fields: dict[str, Any], code: str, path: str, warned: bool) -> None:
    arguments: dict[str, Any] = dict(fields)
    found = advise(machine(), configuration(**arguments), gpus(0, 0, 1, 1))
    assert ((code, path) in {(problem.code, problem.path) for problem in found}) == warned


@pytest.mark.parametrize(("sockets", "warned"), [(1, True), (2, False)])
def test_sockets_of_one_numa_node_need_no_alignment(sockets: int, warned: bool) -> None:
    options = {"cpuManagerPolicyOptions": {"align-by-socket": "true"}, "featureGates": {"CPUManagerPolicyAlphaOptions": True}}
    arguments: dict[str, Any] = {"policy": "restricted", **options}
    found = advise(machine(4, per_socket=sockets), configuration(**arguments), {})
    assert any(problem.path == "cpuManagerPolicyOptions.align-by-socket" for problem in found) == warned


def test_a_mixed_lot_of_devices_is_told_apart() -> None:
    assert "DevicesWithoutTopology" not in codes(devices=gpus(0, None))
    assert "DevicesWithoutTopology" not in codes(devices={GPU: []})
    assert "DevicesWithoutTopology" not in codes(devices=gpus(None), policy="none")
    assert "UnknownNumaNode" not in codes(devices=gpus(0, 1))
    assert "refuses" not in codes(devices=gpus(7), policy="best-effort")["UnknownNumaNode"]
    assert "node 7" in codes(devices=gpus(7), policy="best-effort")["UnknownNumaNode"]


@pytest.mark.parametrize(
    ("fields", "devices", "warned"),
    [({"cpuManagerPolicy": "none"}, {}, True), ({}, {}, False), ({"cpuManagerPolicy": "none"}, gpus(0), False),
     ({"cpuManagerPolicy": "none", **static_memory(n0="512Mi", n1="512Mi")}, {}, False), ({"cpuManagerPolicy": "none", "policy": "none"}, {}, False)],
)  # fmt: skip
def test_a_policy_that_aligns_nothing(fields: dict[str, Any], devices: dict, warned: bool) -> None:
    arguments: dict[str, Any] = dict(fields)
    found = advise(machine(), configuration(**arguments), devices)
    assert any(problem.path == "topologyManagerPolicy" and problem.code == "NoEffect" for problem in found) == warned


@pytest.mark.parametrize(
    ("fields", "nodes", "devices", "combinations"),
    [({"policy": "none"}, 4, {}, 0), ({"policy": "single-numa-node"}, 4, {}, 0), ({"policy": "restricted"}, 4, {}, 15),
     ({"policy": "best-effort", "cpuManagerPolicy": "none"}, 4, {}, 1), ({"policy": "restricted", **static_memory(n0="1Gi")}, 4, {}, 225),
     ({"policy": "restricted"}, 4, gpus(0, 0, 1), 45), ({"policy": "restricted"}, 4, gpus(None), 15)],
)  # fmt: skip
def test_how_many_combinations_a_container_takes(fields: dict[str, Any], nodes: int, devices: dict, combinations: int) -> None:
    arguments: dict[str, Any] = dict(fields)
    seconds = admission_seconds(load(configuration(**arguments), kubernetes_version="1.37"), machine(nodes, 4), devices)
    assert seconds == pytest.approx(combinations * 3e-7)


@pytest.mark.parametrize(
    ("nodes", "policy", "warned"), [(8, "single-numa-node", False), (9, "single-numa-node", True), (9, "none", False)]
)
def test_many_numa_nodes_are_warned_of(nodes: int, policy: str, warned: bool) -> None:
    options: dict[str, Any] = {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"}} if policy != "none" else {}
    found = codes(on=machine(nodes, 1), policy=policy, devices={}, **options)
    assert ("ManyNumaNodes" in found) == warned


def test_page_sizes_that_only_some_nodes_have_are_named() -> None:
    pages = [{"1Gi": 1}, {"1Gi": 1, "64Ki": 16}]
    numa = [
        {"id": n, "cpus": [[2 * n], [2 * n + 1]], "socket": n, "memory_bytes": 2**34, "hugepages": pages[n], "distances": [10, 21]}
        for n in range(2)
    ]
    found = codes(
        on=Machine.from_dict({"numa": numa}), devices={}, kubeReserved={"cpu": "1", "memory": "924Mi"}, **static_memory(n0="1Gi")
    )
    assert "hugepages-64Ki" in found["MayCrash"]
    assert "hugepages-1Gi" not in found["MayCrash"]
    assert "MayCrash" not in codes(**static_memory(n0="1Gi"))


@pytest.mark.parametrize(
    ("name", "words"),
    [("reserved-cpus", "--reserved-cpus is a flag; the field is 'reservedSystemCPUs'"), ("--max_pods", "--max-pods is a flag; the field is 'maxPods'"),
     ("reservedCPUs", "Did you mean 'reservedSystemCPUs'?"), ("anonymousAuth", "Did you mean 'authentication.anonymous.enabled'?"), ("zzzzzz", "")],
)  # fmt: skip
def test_what_is_suggested_for_a_name(name: str, words: str) -> None:
    assert words in suggest_field(name)
    assert bool(words) == bool(suggest_field(name))
