"""The configurations that are tried for a topology policy, and the fields that each gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.catalog.types import NodeShape, NumaNode
from infra.config.pools import CoTenant
from infra.plan.pod_shape import PodShape
from infra.plan.pool.candidate import CandidateConfiguration, policies_to_try
from infra.plan.pool.candidates import candidates
from infra.units import GIB, MIB
from tests.support.gpu_pools import gpu_pool, node_shape, pod_shape

SMALL = node_shape(cpus=16, memory="64Gi", gpus=2, name="small")
EVEN = {0: 1295 * MIB, 1: 1294 * MIB}
COMPANION = {"name": "shipper", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}


def pod(gpus: int = 2, cpu: int | None = 8, memory: str | None = "8Gi", **fields: Any) -> PodShape:
    return pod_shape(gpus=gpus, cpu=cpu, memory=memory, **fields)


def tried(policy: str, *pods: PodShape, shape: NodeShape = SMALL, **fields: Any) -> list[CandidateConfiguration]:
    return list(candidates(gpu_pool(shape, *(pods or (pod(),)), **fields), policy))


def memory_choices(found: list[CandidateConfiguration]) -> list[tuple[str, dict[int, int] | None]]:
    return [(one.memory_policy, None if one.split is None else dict(one.split.by_node)) for one in found]


def test_pinned_memory_comes_before_memory_of_any_node():
    found = tried("single-numa-node")
    assert memory_choices(found) == [("Static", EVEN), ("None", None)]
    assert {(one.topology_policy, one.scope, one.full_pcpus_only, one.distribute) for one in found} == {
        ("single-numa-node", "container", True, False)
    }


@pytest.mark.parametrize(
    ("kubelet", "choices"),
    [
        ({"memoryManagerPolicy": "None"}, [("None", None)]),
        ({"memoryManagerPolicy": "Static"}, [("Static", EVEN)]),
        ({"evictionHard": {"memory.available": "5%"}}, [("None", None)]),
        ({"reservedMemory": [{"numaNode": 1, "limits": {"memory": "2589Mi"}}]}, [("Static", None)]),
    ],
)
def test_what_the_user_says_of_memory_leaves_fewer_choices(kubelet, choices):
    assert memory_choices(tried("single-numa-node", kubelet=kubelet)) == choices


@pytest.mark.parametrize(("platform", "policies"), [("eks", ["Static", "None"]), ("gke", ["None"]), ("aks", ["None"])])
def test_a_platform_without_reserved_memory_pins_none(platform, policies):
    assert [one.memory_policy for one in tried("single-numa-node", platform=platform)] == policies


def test_memory_is_not_pinned_over_more_numa_nodes_than_come_to_an_end():
    for numa_nodes, policies in [(16, ["Static", "None"]), (17, ["None"])]:
        shape = node_shape(numa_nodes=numa_nodes, cpus=4, memory="16Gi", gpus=1)
        assert [one.memory_policy for one in tried("none", pod(gpus=1, cpu=2), shape=shape)] == policies


def test_a_reservation_that_no_split_can_hold_is_left_to_the_kubelet_to_refuse():
    shape = node_shape(numa_nodes=1, cpus=16, memory="2Gi", gpus=2)
    assert memory_choices(tried("none", pod(memory="1Mi"), shape=shape)) == [("None", None)]
    assert memory_choices(tried("none", pod(memory="1Mi"), shape=shape, kubelet={"memoryManagerPolicy": "Static"})) == [
        ("Static", None)
    ]


@pytest.mark.parametrize(("memory", "splits"), [(64 * GIB - 1295 * MIB, 1), (64 * GIB - 1295 * MIB + 1, 3)])
def test_splits_that_leave_a_node_whole_are_tried_where_a_pod_needs_more_than_the_even_one_leaves(memory, splits):
    found = tried("single-numa-node", replace(pod(), memory_bytes=memory))
    assert [one.memory_policy for one in found] == ["Static"] * splits + ["None"]


def test_a_small_node_without_cpus_asks_for_no_other_split():
    third = NumaNode(id=2, cpus=(), cores=(), memory_bytes=GIB, gpus=())
    shape = replace(SMALL, numa_nodes=(*SMALL.numa_nodes, third))
    assert [one.memory_policy for one in tried("single-numa-node", shape=shape)] == ["Static", "None"]


def test_pods_that_need_two_nodes_get_cpus_on_both_and_as_required_where_that_is_admitted_too():
    wide = pod(gpus=4, cpu=None)
    for policy, cpus, distribute in [
        ("single-numa-node", [12, 12], [False, False]),
        ("restricted", [20, 20, 18, 18], [True] * 4),
        ("best-effort", [20, 20, 18, 18, 12, 12], [True] * 4 + [False] * 2),
        ("none", [20, 20, 18, 18, 12, 12], [True] * 4 + [False] * 2),
    ]:
        found = tried(policy, wide)
        assert [one.shapes[0].cpu for one in found] == cpus
        assert [one.distribute for one in found] == distribute
    assert [one.shapes[0].cpu for one in tried("best-effort", pod(gpus=4, cpu=20))] == [20, 20]
    assert [one.shapes[0].cpu for one in tried("best-effort", wide, kubelet={"cpuManagerPolicy": "none"})] == [12, 12]


@pytest.mark.parametrize(
    ("options", "distribute"),
    [
        ({}, True),
        ({"full-pcpus-only": "true"}, True),
        ({"align-by-socket": "true"}, False),
        ({"prefer-align-cpus-by-uncorecache": "true"}, False),
    ],
)
def test_cpus_are_distributed_unless_the_users_options_exclude_it(options, distribute):
    found = tried("restricted", pod(gpus=4, cpu=20), kubelet={"cpuManagerPolicyOptions": options})
    assert {one.distribute for one in found} == {distribute}


@pytest.mark.parametrize(("gpus", "cpu", "distribute"), [(4, 16, False), (4, 18, True), (2, 18, False)])
def test_only_cpus_of_several_nodes_for_gpus_of_several_nodes_are_distributed(gpus, cpu, distribute):
    assert {one.distribute for one in tried("best-effort", pod(gpus=gpus, cpu=cpu))} == {distribute}


@pytest.mark.parametrize(
    ("cpus", "fields", "whole"),
    [
        (8, {}, True),
        (9, {}, False),
        (9, {"kubelet": {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}}, True),
        (8, {"kubelet": {"cpuManagerPolicyOptions": {"full-pcpus-only": "false"}}}, False),
        (8, {"kubelet": {"cpuManagerPolicy": "none"}}, False),
        (8, {"platform": "gke"}, False),
        (8, {"co_tenants": (CoTenant.model_validate({"name": "a", "cpu": "1", "memory": "1Gi"}),)}, True),
        (8, {"co_tenants": (CoTenant.model_validate({"name": "a", "cpu": "1", "memory": "1Gi", "qosClass": "Guaranteed"}),)}, False),
    ],
)  # fmt: skip
def test_whole_cores_only_where_every_guaranteed_pod_asks_for_whole_cores(cpus, fields, whole):
    assert {one.full_pcpus_only for one in tried("single-numa-node", pod(cpu=cpus), **fields)} == {whole}


@pytest.mark.parametrize(
    ("kubelet", "whole"),
    [
        ({}, True),
        ({"reservedSystemCPUs": "0"}, False),
        ({"reservedSystemCPUs": "0,16"}, True),
        ({"kubeReserved": {"cpu": "2"}}, True),
        ({"kubeReserved": {"cpu": "1"}}, False),
        ({"kubeReserved": {"cpu": "1500m"}, "systemReserved": {"cpu": "500m"}}, True),
        ({"kubeReserved": {"cpu": "1001m"}}, True),
        ({"kubeReserved": {"cpu": "2001m"}}, False),
    ],
)
def test_distribution_and_whole_cores_never_meet_half_reserved_ones(kubelet, whole):
    assert {one.full_pcpus_only for one in tried("restricted", pod(gpus=4, cpu=20), kubelet=kubelet)} == {whole}
    assert {one.full_pcpus_only for one in tried("restricted", pod(gpus=2, cpu=8), kubelet=kubelet)} == {True}


def test_the_pods_scope_is_tried_first_where_a_pod_has_several_containers():
    assert [one.scope for one in tried("restricted", pod(sidecars=(COMPANION,)))] == ["pod", "container"] * 2
    assert [one.scope for one in tried("restricted", pod(), pod(init_containers=(COMPANION,)))] == ["pod", "container"] * 2
    assert {one.scope for one in tried("restricted", pod(sidecars=(COMPANION,)), platform="aks")} == {"container"}
    assert {one.scope for one in tried("restricted", kubelet={"topologyManagerScope": "pod"})} == {"pod"}


@pytest.mark.parametrize(
    ("numa_nodes", "policies", "words"),
    [
        (8, ("single-numa-node", "restricted", "best-effort", "none"), None),
        (9, ("single-numa-node", "none"), "would merge the hints of 9 NUMA nodes, (2^9 - 1)^2 combinations"),
        (16, ("single-numa-node", "none"), "would merge the hints of 16 NUMA nodes"),
        (17, ("none",), "shows 17 NUMA nodes, and the topology manager would look at 2^17 combinations"),
    ],
)
def test_policies_strictest_first_as_far_as_they_come_to_an_end(numa_nodes, policies, words):
    shape = node_shape(numa_nodes=numa_nodes, cpus=4, memory="16Gi", gpus=1)
    found, reason = policies_to_try(gpu_pool(shape))
    assert found == policies
    assert (words is None) == (reason is None)
    assert words is None or words in (reason or "")
    assert policies_to_try(gpu_pool(shape, kubelet={"topologyManagerPolicy": "restricted"})) == (("restricted",), None)


def options_of(policy: str, shape: NodeShape, **fields: Any) -> dict[str, Any]:
    pool = gpu_pool(shape, pod(gpus=1, cpu=2), **fields)
    return dict(next(iter(candidates(pool, policy))).completing(pool).fields)


@pytest.mark.parametrize(
    ("policy", "numa_nodes", "distances", "options"),
    [
        ("single-numa-node", 8, True, None),
        ("single-numa-node", 9, True, {"max-allowable-numa-nodes": "9"}),
        ("none", 9, True, None),
        ("restricted", 2, True, None),
        ("restricted", 3, True, {"prefer-closest-numa-nodes": "true"}),
        ("best-effort", 3, True, {"prefer-closest-numa-nodes": "true"}),
        ("restricted", 3, False, None),
    ],
)
def test_options_of_the_topology_manager(policy, numa_nodes, distances, options):
    shape = node_shape(numa_nodes=numa_nodes, cpus=4, memory="16Gi", gpus=1, distances=distances)
    fields = options_of(policy, shape)
    assert fields.get("topologyManagerPolicyOptions") == options
    assert fields.get("topologyManagerScope") == (None if policy == "none" else "container")


def test_distances_to_some_nodes_only_are_not_enough():
    shape = node_shape(numa_nodes=3, cpus=4, memory="16Gi", gpus=1)
    partly = replace(shape, numa_nodes=(*shape.numa_nodes[:2], replace(shape.numa_nodes[2], distances=(10, 21))))
    assert "topologyManagerPolicyOptions" not in options_of("restricted", partly)


def test_the_users_fields_and_options_stand_beside_the_decided_ones():
    shape = node_shape(numa_nodes=3, cpus=4, memory="16Gi", gpus=1)
    given = {
        "maxPods": 60,
        "topologyManagerScope": "pod",
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "false"},
        "cpuManagerPolicyOptions": {"full-pcpus-only": "false"},
        "kubeReserved": {"memory": "1Gi"},
    }
    fields = options_of("restricted", shape, kubelet=given)
    assert {name: fields[name] for name in given if name != "cpuManagerPolicyOptions"} == {
        name: value for name, value in given.items() if name != "cpuManagerPolicyOptions"
    }
    assert fields["cpuManagerPolicyOptions"] == {"full-pcpus-only": "false", "strict-cpu-reservation": "true"}
    assert options_of("none", shape, kubelet={"topologyManagerScope": "pod"})["topologyManagerScope"] == "pod"


def test_a_cpu_manager_that_is_off_gets_no_options():
    fields = options_of("single-numa-node", SMALL, kubelet={"cpuManagerPolicy": "none"})
    assert "cpuManagerPolicyOptions" not in fields
    assert fields["cpuManagerPolicy"] == "none"


def test_a_platform_gets_no_field_that_it_cannot_express_but_the_reservations_that_stand_in_for_its_own():
    fields = options_of("single-numa-node", node_shape(numa_nodes=9, cpus=4, memory="16Gi", gpus=1), platform="aks")
    assert set(fields) == {
        "cpuManagerPolicy",
        "topologyManagerPolicy",
        "memoryManagerPolicy",
        "kubeReserved",
        "systemReserved",
        "evictionHard",
    }
