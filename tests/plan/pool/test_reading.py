"""What is wrong with a pool's requirements before anything is searched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.plan.model.kubelet import KubeletPlan
from infra.plan.pool.reading import check_reserved_memory, read_pool
from infra.plan.pool.reserve import reserve
from infra.units import MIB
from tests.support.gpu_pools import node_shape, pod_shape, pool_names, requirements


def problems(**fields: Any) -> dict[str, tuple[str, str]]:
    read = read_pool(requirements(fields.pop("shape", node_shape()), *fields.pop("pods", (pod_shape(),)), **fields))
    assert (read.pool is None) == bool(read.problems)
    found = [problem.worded(pool_names(2)) for problem in read.problems]
    return {problem.path: (problem.code, problem.message) for problem in found}


def codes(**fields: Any) -> dict[str, str]:
    return {path: code for path, (code, _) in problems(**fields).items()}


def test_fields_hardware_platform_and_containers_are_looked_at_together():
    exporter = {"name": "exporter", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    found = codes(
        shape=replace(node_shape(), numa_nodes=()),
        pods=(pod_shape(), pod_shape(init_containers=({}, exporter))),
        platform="aks",
        kubelet={"nonsense": 1, "memoryManagerPolicy": "Static"},
    )
    assert found == {
        "nodePools[0].kubelet.nonsense": "UnknownField",
        "nodePools[0].kubelet.memoryManagerPolicy": "NotOnPlatform",
        "nodePools[0].nodeShape": "UnknownHardware",
        "models[1].initContainers[0].resources": "NotGuaranteed",
        "models[1].initContainers[1].resources": "NotGuaranteed",
    }
    inline = replace(node_shape(), numa_nodes=(), id="inline")
    assert codes(shape=inline) == {"nodePools[0].topology": "UnknownHardware"}


def test_reservations_are_looked_at_where_the_fields_are_right():
    settings = {"kubeReserved": {"memory": "-1Gi"}, "reservedSystemCPUs": "1-0", "evictionHard": {"memory.available": "x"}}
    assert codes(kubelet=settings) == {
        "nodePools[0].kubelet.kubeReserved.memory": "WrongQuantity",
        "nodePools[0].kubelet.reservedSystemCPUs": "WrongCpuList",
        "nodePools[0].kubelet.evictionHard.memory.available": "WrongQuantity",
    }
    assert codes(kubelet={**settings, "maxPods": "many"}) == {"nodePools[0].kubelet.maxPods": "WrongType"}


ENTRY = [{"numaNode": 0, "limits": {"memory": "2589Mi"}}]


@pytest.mark.parametrize(
    ("kubelet", "wrong"),
    [
        ({"memoryManagerPolicy": "Static"}, True),
        ({"reservedMemory": ENTRY}, True),
        ({"reservedMemory": ENTRY, "memoryManagerPolicy": "None"}, False),
        ({}, False),
    ],
)
def test_pinned_memory_and_a_threshold_in_percent_exclude_each_other(kubelet, wrong):
    found = codes(kubelet={"evictionHard": {"memory.available": "5%"}, **kubelet})
    assert found == ({"nodePools[0].kubelet.evictionHard.memory.available": "PercentWithStaticMemory"} if wrong else {})


def test_reserved_memory_without_a_manager_is_left_out_with_a_warning():
    read = read_pool(requirements(node_shape(), kubelet={"memoryManagerPolicy": "None", "reservedMemory": [{"numaNode": 7}]}))
    assert read.pool is not None
    assert read.pool.user == KubeletPlan(fields={"memoryManagerPolicy": "None"})
    (warning,) = [found.worded(pool_names(0)) for found in read.warnings]
    assert (warning.path, warning.code, warning.severity) == ("nodePools[0].kubelet.reservedMemory", "WithoutEffect", "warning")
    kept = read_pool(requirements(node_shape(), kubelet={"reservedMemory": ENTRY}))
    assert kept.pool is not None and kept.pool.user_sets("reservedMemory")
    assert not kept.warnings


@pytest.mark.parametrize(
    ("entries", "path", "code", "words"),
    [
        ([{"numaNode": 0}], "k.reservedMemory[0].limits", "WrongType", "is missing"),
        ([*ENTRY, {"limits": "1Gi"}], "k.reservedMemory[1].limits", "WrongType", "is missing"),
        ([{"limits": {"memory": "1GB"}}], "k.reservedMemory[0].limits.memory", "WrongQuantity", "1GB"),
        ([{"limits": {"memory": "2588Mi"}}], "k.reservedMemory", "ReservedMemoryMismatch", "sums to 2588Mi, must be 2589Mi = kubeReserved 1465Mi"),
        ([{"limits": {"hugepages-1Gi": "4"}}], "k.reservedMemory", "ReservedMemoryMismatch", "sums to 0Mi"),
    ],
)  # fmt: skip
def test_reserved_memory_adds_up_with_the_other_reservations(entries, path, code, words):
    user = KubeletPlan(fields={"reservedMemory": entries})
    (problem,) = check_reserved_memory(user, reserve(user, node_shape(), "k")[0], "k")
    assert (problem.path, problem.code) == (path, code)
    assert words in problem.message


def test_reserved_memory_that_adds_up_over_nodes_is_right():
    user = KubeletPlan(fields={"reservedMemory": [{"limits": {"memory": "2588Mi"}}, {"limits": {"memory": MIB}}]})
    assert not check_reserved_memory(user, reserve(user, node_shape(), "k")[0], "k")


@pytest.mark.parametrize(("platform", "cpu"), [("existing", None), ("eks", None), ("gke", "630m"), ("aks", "630m")])
def test_a_platform_that_reserves_cpus_itself_is_estimated_by_its_rule(platform, cpu):
    pool = read_pool(requirements(node_shape(), platform=platform)).pool
    assert pool is not None
    assert pool.reservations.fields["kubeReserved"].get("cpu") == cpu
    assert ("reservedSystemCPUs" in pool.reservations.fields) == (cpu is None)
