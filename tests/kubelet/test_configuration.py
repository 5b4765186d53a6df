"""The start of a kubelet: what it refuses, at which stage, and that the message says the way out."""

from __future__ import annotations

from typing import Any

import pytest

from infra.kubelet import Kubelet, KubeletRefuses
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.go_types import parse_duration
from infra.kubelet.configuration.validate import parse_cpu_set
from infra.kubelet.quantity import format_quantity, parse_quantity
from tests.kubelet.build import configuration, machine, static_memory


def refusal(**fields: Any) -> tuple[str, str]:
    with pytest.raises(KubeletRefuses) as refused:
        Kubelet.start(machine(), configuration(**fields), {})
    return refused.value.stage, "\n".join(refused.value.errors)


@pytest.mark.parametrize(
    ("fields", "stage", "words"),
    [
        (static_memory(n0="1536Mi") | {"kubeReserved": {"cpu": "1", "memory": "1Gi"}, "systemReserved": {"memory": "512Mi"}},
         "memorymanager", ["1536Mi", "1636Mi", "kubeReserved 1Gi", "systemReserved 512Mi", "evictionHard 100Mi"]),
        (static_memory(n0="1Gi", n7="1Gi"), "memorymanager", ["NUMA node 7", "0, 1"]),
        (static_memory(), "memorymanager", ['"0"', "1Gi"]),
        ({"cpuManagerPolicy": "Static"}, "cpumanager", ["'Static'", "Did you mean 'static'"]),
        ({"memoryManagerPolicy": "static"}, "memorymanager", ["Did you mean 'Static'"]),
        ({"topologyManagerPolicy": "Restricted"}, "validate", ["Did you mean 'restricted'"]),
        ({"topologyManagerScope": "Pod"}, "validate", ["Did you mean 'pod'"]),
        ({"kubeReserved": {}}, "cpumanager", ["greater than zero", "reservedSystemCPUs"]),
        ({"reservedSystemCPUs": "28-35"}, "reservedSystemCPUs", ["32-35", "0-31"]),
        ({"reservedSystemCPUs": "3-1"}, "validate", ["runs backwards"]),
        ({"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "true"}}, "topologymanager", ["integer of at least 8"]),
        ({"cpuManagerPolicyOptions": {"full-pcpus-only": True}}, "load", ["full-pcpus-only", "quotes"]),
        ({"cpuManagerPolicyOptions": {"full-pcpu-only": "true"}}, "cpumanager", ["Did you mean 'full-pcpus-only'"]),
        ({"cpuManagerPolicyOptions": {"align-by-socket": "true"}}, "cpumanager", ["CPUManagerPolicyAlphaOptions"]),
        ({"featureGates": {"PodLevelResourceManager": True}}, "load", ["Did you mean", "PodLevelResourceManagers"]),
        ({"featureGates": {"NodeSwap": False}}, "load", ["locked"]),
        ({"kubeReserved": {"cpu": "1", "gpu": "1"}}, "kubeReserved", ["gpu"]),
        ({"kubeReserved": {"cpu": "1", "memory": "1 Gi"}}, "kubeReserved", ["1 Gi"]),
        ({"systemReserved": {"cpu": "-1"}}, "systemReserved", ["negative"]),
        ({"evictionHard": {"memory.avail": "1Gi"}}, "evictionHard", ["Did you mean 'memory.available'"]),
        ({"evictionHard": {"memory.available": "110%"}}, "evictionHard", ["between 0% and 100%"]),
        ({"kubeReserved": {"cpu": "40"}}, "cpumanager", ["40"]),
        ({"kubeReserved": {"cpu": "1", "memory": "200Gi"}}, "nodeAllocatable", ["204900Mi", "128Gi"]),
        ({"maxPods": "110"}, "load", ["maxPods", "whole number"]),
        ({"shutdownGracePeriod": 30}, "load", ["duration", "10s"]),
    ],
)  # fmt: skip
def test_refusals_name_stage_numbers_and_the_way_out(fields: dict[str, Any], stage: str, words: list[str]) -> None:
    at, message = refusal(**fields)
    assert at == stage
    for word in words:
        assert word in message


def test_a_reservation_that_is_no_int64_is_refused_with_the_right_spelling() -> None:
    """1.5Gi is an arbitrary-precision decimal inside Kubernetes; the memory manager only takes int64."""
    stage, message = refusal(kubeReserved={"cpu": "1", "memory": "1436Mi"}, **static_memory(n0="1.5Gi"))
    assert stage == "memorymanager"
    assert "1536Mi" in message


def test_unknown_fields_stop_nobody() -> None:
    loaded = load(configuration(reservedCpus="0-1"), kubernetes_version="1.37")
    assert loaded.unknown == ("reservedCpus",)
    assert Kubelet.start(machine(), configuration(reservedCpus="0-1"), {}).reserved_cpus == {0, 16}


def test_all_errors_of_the_validation_come_at_once() -> None:
    _, message = refusal(topologyManagerPolicy="x", topologyManagerScope="y", maxPods=-1)
    assert message.count("\n") == 2


@pytest.mark.parametrize(
    ("hard", "merge", "kept"),
    [(None, False, 100), ({}, False, 0), ({"nodefs.available": "10%"}, False, 0), ({"nodefs.available": "10%"}, True, 100),
     ({"memory.available": "500Mi"}, False, 500), ({"memory.available": "0%"}, False, 0)],
)  # fmt: skip
def test_what_the_threshold_reserves(hard: dict | None, merge: bool, kept: int) -> None:
    fields: dict[str, Any] = {"mergeDefaultEvictionSettings": merge} | ({} if hard is None else {"evictionHard": hard})
    started = Kubelet.start(machine(), configuration(**fields), {})
    assert started.node.reservation["memory"] == (924 + kept) * 2**20


def test_named_cpus_take_the_place_of_counts() -> None:
    started = Kubelet.start(machine(), configuration(reservedSystemCPUs="3,19", kubeReserved={"cpu": "8"}), {})
    assert started.reserved_cpus == {3, 19}
    assert started.node.reservation["cpu"] == 2000


@pytest.mark.parametrize(
    ("text", "nano", "int64"),
    [("1Gi", 2**30 * 10**9, 2**30), ("1.5Gi", 3 * 2**29 * 10**9, None), ("100Ti", 100 * 2**40 * 10**9, None), ("16Ti", 2**44 * 10**9, 2**44),
     ("500m", 5 * 10**8, None), ("1e3", 10**12, 1000), ("0", 0, 0), ("2G", 2 * 10**18, 2 * 10**9), ("-1", -(10**9), -1), (".5", 5 * 10**8, None)],
)  # fmt: skip
def test_quantities(text: str, nano: int, int64: int | None) -> None:
    assert parse_quantity(text) == (nano, int64)


@pytest.mark.parametrize("text", ["", "1 Gi", "GiB", "1KiB", "0x10", "1e", "--1", "1Gi5"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="quantit"):
        parse_quantity(text)


def test_durations_cpu_sets_and_texts() -> None:
    assert parse_duration("1h30m") == 5400 * 10**9
    assert parse_duration("-1.5s") == -15 * 10**8
    with pytest.raises(ValueError, match="no duration"):
        parse_duration("5")
    assert parse_cpu_set("0-2,8") == 0b100000111
    with pytest.raises(ValueError, match="without spaces"):
        parse_cpu_set("0, 1")
    assert format_quantity(1536 * 2**20 * 10**9, binary=True) == "1536Mi"
    assert format_quantity(1500 * 10**6, binary=False) == "1500m"
