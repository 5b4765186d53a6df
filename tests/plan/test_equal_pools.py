"""Pools and models that are equal but for names are decided once, and each reads as if it had been decided alone."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from infra.config.load import parse_cluster_document
from infra.config.pools import CoTenant
from infra.diagnosis import Diagnosis
from infra.errors import NumawiseError, PlanError
from infra.plan.cluster import plan_stack
from infra.plan.equal_pools import EqualPools
from infra.plan.model import ClusterPlan
from infra.plan.pool.decision import PoolDecision, decide_pool, settle_pool
from infra.plan.pool.messages import PodNames, PoolNames
from infra.plan.pool.requirements import PoolRequirements
from tests.support.documents import small_document
from tests.support.gpu_pools import node_shape, pod_shape, pool_names, requirements


def plan(document: dict[str, Any]) -> ClusterPlan:
    return plan_stack(parse_cluster_document(document))


def copies(document: dict[str, Any], count: int) -> dict[str, Any]:
    """The document's pool and model again and again, under other names."""
    many = deepcopy(document)
    many["nodePools"] = [
        {**document["nodePools"][0], "name": f"pool-{i}", "nodeNames": [f"n{i}-a", f"n{i}-b"]} for i in range(count)
    ]
    many["models"] = [{**document["models"][0], "name": f"model-{i}", "nodePool": f"pool-{i}"} for i in range(count)]
    return many


def alone(document: dict[str, Any], index: int) -> ClusterPlan:
    one = deepcopy(document)
    one["nodePools"], one["models"] = [document["nodePools"][index]], [document["models"][index]]
    return plan(one)


def test_each_of_many_equal_pools_is_planned_as_if_it_were_alone() -> None:
    document = copies(small_document(), 3)
    together = plan(document)
    for index in range(3):
        single = alone(document, index)
        assert together.node_pools[index] == single.node_pools[0]
        assert together.models[index] == single.models[0]


def test_warnings_carry_the_paths_of_their_own_pool_and_model() -> None:
    document = small_document()
    document["models"][0]["resources"] = {"cpu": "8", "memory": "128Gi"}
    warnings = plan(copies(document, 2)).warnings
    below = [warning.path for warning in warnings if warning.code == "BelowCpuFloor"]
    assert below == ["models[0].resources.cpu", "models[1].resources.cpu"]


def test_errors_carry_the_paths_of_their_own_pool_and_model() -> None:
    document = small_document()
    document["models"][0]["replicas"] = 3
    with pytest.raises(NumawiseError) as caught:
        plan(copies(document, 2))
    assert {problem.path.split(".")[0] for problem in caught.value.problems} == {"models[0]", "models[1]"}
    assert len({problem.message for problem in caught.value.problems}) == 1


SMALL = node_shape(cpus=16, memory="64Gi", gpus=2, name="small")
LARGE = pod_shape(gpus=2, cpu=8, memory="16Gi", anti_affinity="none")
MIXED = (LARGE, pod_shape(gpus=1, cpu=4, memory="8Gi", copies=2, anti_affinity="none"))
TENANT = CoTenant.model_validate({"name": "agent", "cpu": "1", "memory": "1Gi", "qosClass": "Guaranteed", "perNode": 2})


@pytest.mark.parametrize(
    "required",
    [
        requirements(SMALL, *MIXED),  # loads, refusals and warnings name both models
        requirements(SMALL, *MIXED, kubelet={"topologyManagerPolicy": "restricted"}),  # an error does
        requirements(SMALL, *MIXED, nodes=5, co_tenants=(TENANT,), platform="gke"),
        requirements(SMALL, pod_shape(gpus=4, cpu=20, memory="8Gi"), MIXED[1], nodes=2),  # a model may stay Pending
        requirements(SMALL, replace(LARGE, copies=9), nodes=2),
        requirements(SMALL, LARGE, kubelet={"nonsense": 1, "evictionHard": {"memory.available": "x"}}),
    ],
)
def test_every_pool_of_a_kind_reads_as_if_it_had_been_decided_alone(required: PoolRequirements) -> None:
    pools = EqualPools()
    for path, pods in [("nodePools[0]", "ab"), ("nodePools[12]", "xy"), ("nodePools[1]", "ba")]:
        names = PoolNames(
            path=path, pods=tuple(PodNames(f"{pod}-model", f"models[{ord(pod)}]") for pod in pods[: len(required.pods)])
        )
        assert outcome(lambda: pools.decide(required, names)) == outcome(lambda: decide_pool(required, names))  # noqa: B023


def outcome(decide: Callable[[], PoolDecision]) -> PoolDecision | tuple[Diagnosis, ...]:
    try:
        return decide()
    except PlanError as error:
        return error.problems


def test_only_the_first_pool_of_a_kind_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[PoolRequirements] = []
    monkeypatch.setattr("infra.plan.equal_pools.settle_pool", lambda required: settled.append(required) or settle_pool(required))
    pools, first = EqualPools(), requirements(node_shape(), pod_shape(sidecars=({"name": "a", "resources": {}},)))
    with pytest.raises(PlanError):
        pools.decide(first, pool_names(1))
    good = [requirements(node_shape(), pod_shape()) for _ in range(3)]
    for path, required in enumerate(good):
        pools.decide(required, pool_names(1, f"nodePools[{path}]"))
    assert len(settled) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"nodes": 2},
        {"shape": node_shape(memory="1Ti")},
        {"kubernetes_version": "1.36"},
        {"user_kubelet": {"maxPods": 60}},
        {"pods": (pod_shape(cpu=16),)},
        {"pods": (pod_shape(sidecars=({"name": "s"},)),)},
        {"pods": (pod_shape(init_containers=({"name": "s"},)),)},
        {"resource_name": "amd.com/gpu"},
        {"co_tenants": (TENANT,)},
        {"platform": "gke"},
    ],
)
def test_requirements_that_differ_in_anything_have_another_key(other: dict[str, Any]) -> None:
    required = requirements(node_shape(), pod_shape())
    assert required.key == requirements(node_shape(), pod_shape()).key
    assert required.key != replace(required, **other).key


def test_models_of_one_name_in_two_namespaces_of_a_pool_are_kept_apart() -> None:
    document = small_document()
    document["models"] = [{**document["models"][0], "namespace": name, "replicas": 1} for name in ("team-a", "team-b")]
    document["models"][1] |= {"maxModelLen": 2048, "resources": {"cpu": "24", "memory": "96Gi"}}
    first, second = plan(document).models
    assert (first.name, first.resources.cpu != second.resources.cpu, second.resources.cpu) == (second.name, True, 24)


def test_pools_that_differ_in_their_kubelet_are_decided_apart() -> None:
    document = copies(small_document(), 2)
    document["nodePools"][1]["kubelet"] = {"topologyManagerPolicy": "best-effort"}
    first, second = plan(document).node_pools
    assert (first.kubelet.topology_manager_policy, second.kubelet.topology_manager_policy) == ("single-numa-node", "best-effort")
    assert replace(first, name=second.name) != second
