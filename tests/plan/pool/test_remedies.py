"""What would work where no configuration admits all pods."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config.pools import CoTenant
from infra.errors import PlanError
from tests.support.gpu_pools import decide, node_shape, pod_shape

SMALL = node_shape(cpus=48, memory="96Gi", name="small")
RESERVED: dict[str, Any] = {"kubeReserved": {"memory": "10240Mi"}, "evictionHard": {"memory.available": "100Mi"}}
ONE_SIDED = [{"numaNode": 0, "limits": {"memory": "10340Mi"}}]


def pod(gpus: int = 4, cpu: int = 16, memory: str = "64Gi", **fields: Any):
    return pod_shape(gpus=gpus, cpu=cpu, memory=memory, anti_affinity="none", **fields)


def remedy(shape: Any, *pods: Any, **fields: Any) -> str:
    """What stands behind the numbers of the pod's needs, or behind the sentence of a conflict."""
    with pytest.raises(PlanError) as raised:
        decide(shape, *pods, **fields)
    (problem,) = raised.value.problems
    return problem.sentence


OTHERS = " No other topologyManagerPolicy admits them in every order either."
SEPARATE = " Or give models of different size pools of their own, whose taints keep the others off."


@pytest.mark.parametrize(
    ("shape", "pods", "kubelet", "end"),
    [
        (
            SMALL,
            (pod(memory="88Gi", copies=2),),
            {**RESERVED, "reservedMemory": ONE_SIDED},
            OTHERS + " Leave reservedMemory out, and the plan writes 5170Mi on NUMA node 0 and 5170Mi on NUMA node 1.",
        ),
        (
            node_shape(),
            (pod(gpus=8, cpu=120, memory="8Gi"),),
            {"topologyManagerPolicy": "restricted", "memoryManagerPolicy": "Static"},
            " Write memoryManagerPolicy: None, or write topologyManagerPolicy: best-effort.",
        ),
        (
            node_shape(),
            (pod(), pod(gpus=1, cpu=4, memory="16Gi", copies=4)),
            {"topologyManagerPolicy": "single-numa-node"},
            " Write topologyManagerPolicy: best-effort, which admits all pods in every order." + SEPARATE,
        ),
        (
            node_shape(cpus=64, threads=1),
            (pod(cpu=64, sidecars=({"name": "s", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}},)),),
            {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod", "reservedSystemCPUs": "0"},
            " Write topologyManagerScope: container, which admits all pods in every order.",
        ),
        (
            node_shape(),
            (pod(cpu=33),),
            {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
            OTHERS + " Use 34, or leave cpuManagerPolicyOptions out.",
        ),
        (
            SMALL,
            (pod(gpus=1, memory="95Gi"), pod(gpus=1, cpu=2, memory="16Gi", copies=5)),
            {**RESERVED, "reservedMemory": ONE_SIDED, "topologyManagerPolicy": "single-numa-node"},
            " Leave reservedMemory out: without it all pods are admitted in every order.",
        ),
    ],
)  # fmt: skip
def test_the_first_field_of_the_user_without_which_all_pods_are_admitted_is_told(shape, pods, kubelet, end):
    assert remedy(shape, *pods, kubelet=kubelet).endswith(end)


def test_where_no_single_field_helps_models_of_one_pool_are_to_be_parted():
    """Under single-numa-node GPUs stand in the way, without it pinned memory does."""
    message = remedy(
        node_shape(memory="512Gi"),
        pod(cpu=8, memory="400Gi"),
        pod(gpus=1, cpu=8, memory="100Gi", copies=4),
        kubelet={"topologyManagerPolicy": "single-numa-node", "memoryManagerPolicy": "Static"},
    )
    assert message.endswith(
        "the pod needs 4 GPUs, 8 CPUs and 400.0 GiB. Leave topologyManagerPolicy out. Give the models pools of their own (taints keep others off)."
    )


def test_a_single_model_for_which_nothing_helps_gets_no_remedy():
    """Alone the pod is refused for its memory under every policy; full-pcpus-only is a second obstacle that the user set."""
    agent = CoTenant.model_validate({"name": "agent", "cpu": "3", "memory": "200Gi", "qosClass": "Guaranteed", "perNode": 2})
    settings = {"memoryManagerPolicy": "Static", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    message = remedy(node_shape(memory="512Gi"), pod(gpus=1, cpu=8, memory="400Gi"), co_tenants=(agent,), kubelet=settings)
    assert message.endswith(OTHERS)
