"""Warnings for configurations that start, and rules of earlier versions."""

from __future__ import annotations

from typing import Any

import pytest

from infra.errors import ConfigError
from infra.kubelet import Device, Kubelet, KubeletRefuses, Machine
from infra.kubelet.advice import advise, suggest_field
from infra.kubelet.configuration.versions import cpu_option_gate, rules_of, topology_option_gate
from tests.kubelet.build import GPU, configuration, gpus, machine, pod, static_memory


def codes(*, on: Machine | None = None, devices: dict | None = None, version: str = "1.37", **fields: Any) -> dict[str, str]:
    found = advise(
        on or machine(), configuration(**fields), gpus(0, 0, 1, 1) if devices is None else devices, kubernetes_version=version
    )
    return {problem.code: f"{problem.path}: {problem.message}" for problem in found}


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
