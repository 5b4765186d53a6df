"""On which nodes a candidate is proven, and how far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.config.pools import CoTenant
from infra.plan.placement import NodeCapacity
from infra.plan.pod_shape import MAIN_CONTAINER, PodShape
from infra.plan.pool.admission_proof import AdmissionProof
from infra.plan.pool.gpu_pool import capacity_of, start_kubelet
from infra.plan.model.kubelet import KubeletPlan
from infra.plan.pool.search import ProvenConfiguration, search
from infra.units import GIB, MIB
from tests.support.gpu_pools import gpu_pool, node_shape, pod_shape

SMALL = node_shape(cpus=16, memory="64Gi", gpus=2, name="small")
LEAST = 64 * GIB - 1295 * MIB  # what the even split leaves on the fuller of both nodes


def pod(gpus: int = 2, cpu: int = 8, memory: str = "8Gi", **fields: Any) -> PodShape:
    return pod_shape(gpus=gpus, cpu=cpu, memory=memory, **{"anti_affinity": "none", **fields})


def found(*pods: PodShape, shape: Any = SMALL, **fields: Any) -> ProvenConfiguration:
    proven, _ = search(gpu_pool(shape, *pods, **fields))
    assert proven is not None
    return proven


def proof(*pods: PodShape, **fields: Any) -> AdmissionProof:
    return found(*pods, **fields).proof


def tenant(memory_bytes: int, count: int = 1, qos: str = "Guaranteed") -> CoTenant:
    return CoTenant.model_validate({"name": "cache", "cpu": "2", "memory": str(memory_bytes), "qosClass": qos, "perNode": count})


@pytest.mark.parametrize(
    ("memory_bytes", "tenants", "states"),
    [
        (8 * GIB, (), 2),
        (LEAST, (), 2),
        (LEAST + 1, (), 8),  # on four machines: at the bound, with more memory on both nodes, and on either
        (LEAST - 8 * GIB, (tenant(4 * GIB, 2),), 6),
        (LEAST - 8 * GIB + 1, (tenant(4 * GIB, 2),), 36),
    ],
)
def test_more_memory_is_tried_where_a_node_could_be_too_full(memory_bytes, tenants, states):
    candidate = proof(replace(pod(), memory_bytes=memory_bytes), co_tenants=tenants)
    assert candidate.states == states
    assert not candidate.bounded


def test_more_memory_that_lets_more_pods_on_a_node_is_tried_too():
    assert proof(pod(gpus=1, cpu=2, memory="31Gi", copies=4), nodes=2).loads == ((4,), (3,))


def test_where_memory_is_not_pinned_one_machine_with_much_of_it_is_enough():
    assert proof(pod(memory="63Gi"), kubelet={"memoryManagerPolicy": "None"}).states == 2


@pytest.mark.parametrize(("policy", "states"), [("single-numa-node", 2), ("restricted", 4), ("best-effort", 4), ("none", 4)])
def test_both_ends_of_the_list_of_devices_are_tried_where_a_pod_may_get_a_part_of_several_nodes(policy, states):
    assert proof(pod(), kubelet={"topologyManagerPolicy": policy}).states == states


def lying(places: Any) -> set[tuple[int, ...]]:
    return {footprint.numa_nodes for footprint in places}


def test_a_condition_on_counts_stands_in_for_thousands_of_states():
    eight = node_shape(numa_nodes=8, cpus=16, memory="64Gi", gpus=2, threads=1, name="eight")
    candidate = found(pod(gpus=1, cpu=2, memory="1Gi", copies=16), shape=eight)
    assert candidate.candidate.topology_policy == "single-numa-node"
    assert candidate.proof.bounded
    assert candidate.proof.states == 400
    assert lying(candidate.proof.footprints[0]) == {(node,) for node in range(8)}
    assert {footprint.container(MAIN_CONTAINER).devices[0][1] for footprint in candidate.proof.footprints[0]} == {1}


def test_policies_that_never_refuse_need_no_look_at_every_state():
    sizes = [pod(gpus=1, cpu=2 * size, memory="1Gi", copies=3) for size in (1, 2, 3)]
    settings = {"topologyManagerPolicy": "best-effort", "memoryManagerPolicy": "None"}
    candidate = proof(*sizes, shape=node_shape(cpus=48, memory="64Gi"), nodes=2, kubelet=settings)
    assert candidate.bounded
    assert candidate.states % 100 == 0


def test_what_runs_on_every_node_is_taken_from_what_pods_may_have():
    pool = gpu_pool(
        SMALL,
        co_tenants=(tenant(GIB, 2), tenant(3 * GIB, 1, "Burstable"), tenant(5 * GIB, 4, "BestEffort")),
        kubelet={"maxPods": 50},
    )
    kubelet = start_kubelet(pool, KubeletPlan(fields={"kubeReserved": {"cpu": "1", "memory": "1Gi"}, "maxPods": 50}))
    assert capacity_of(pool, kubelet) == NodeCapacity(
        millicpu=32_000 - 1_000 - 1_000 - 6_000,
        memory_bytes=128 * GIB - GIB - 100 * MIB - 2 * GIB - 5 * GIB,
        gpus=4,
        pods=50 - 12 - 7,
    )


def test_empty_numa_nodes_are_left_out_only_where_no_manager_looks_at_them():
    bare = replace(SMALL.numa_nodes[0], id=2, cpus=(), cores=(), memory_bytes=0, gpus=(), distances=None)
    pool = gpu_pool(replace(SMALL, numa_nodes=(*SMALL.numa_nodes, bare)))
    off: dict[str, Any] = {"kubeReserved": {"cpu": "1", "memory": "1Gi"}}
    pinned = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}]}
    for fields, nodes in [
        (off, 2),
        (off | {"topologyManagerPolicy": "best-effort"}, 3),
        (off | pinned, 3),
    ]:
        assert len(start_kubelet(pool, KubeletPlan(fields=fields)).node.numa_ids) == nodes
