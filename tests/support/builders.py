"""Plans built by hand for tests of what comes after planning: two DGX H100 and one eight-GPU MI300X machine."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from infra.catalog.names import find_accelerator, find_model
from infra.config.cluster import Connection
from infra.config.models import Storage
from infra.config.pools import Rollout, Taint
from infra.plan.architecture.partition import ParallelSizes
from infra.plan.architecture.reading import architecture_of
from infra.plan.memory.estimate import estimate_memory
from infra.plan.memory.options import EngineOptions
from infra.plan.memory.types import MemoryEstimate
from infra.plan.model import (
    ClusterPlan,
    DevicePluginPlan,
    ModelPlan,
    NumaNodePlan,
    PoolPlan,
    RankBinding,
    RolloutWave,
    Slot,
    SlotGroup,
)
from infra.units import GIB, parse_cpu_list


def _numa_nodes() -> tuple[NumaNodePlan, ...]:
    return tuple(
        NumaNodePlan(
            id=node,
            cpus=parse_cpu_list(cpus),
            reserved_cpus=parse_cpu_list(reserved),
            memory_bytes=1007 * GIB,
            allocatable_memory_bytes=1000 * GIB,
            gpus=gpus,
        )
        for node, cpus, reserved, gpus in (
            (0, "0-55,112-167", "0,112", (0, 1, 2, 3)),
            (1, "56-111,168-223", "56,168", (4, 5, 6, 7)),
        )
    )


def pool_plan(name: str, *, vendor: Any = "nvidia", policy: str = "single-numa-node", **changes: Any) -> PoolPlan:
    """A pool of eight-GPU machines with two NUMA nodes."""
    nvidia = vendor == "nvidia"
    nodes = changes.pop("nodes", ("gpu-a", "gpu-b") if nvidia else ("gpu-c",))
    pool = PoolPlan(
        name=name,
        platform="existing",
        node_shape="dgx-h100" if nvidia else "inline",
        vendor=vendor,
        sku="h100-sxm5-80gb" if nvidia else "mi300x",
        resource_name=f"{vendor}.com/gpu",
        product_label=None,
        nodes=nodes,
        node_names_given=True,
        node_selector={"numawise.dev/pool": name},
        labels={},
        taints=(Taint(key=f"{vendor}.com/gpu", value="present", effect="NoSchedule"),),
        threads_per_core=2,
        numa_nodes=_numa_nodes(),
        kubelet={
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
            "reservedSystemCPUs": "0,56,112,168",
            "topologyManagerPolicy": policy,
        },
        kubelet_config_hash="3f2a91c07d5e" if nvidia else "9be04417aa21",
        allocatable_cpu=220,
        allocatable_memory_bytes=2000 * GIB,
        allocatable_gpus=8,
        rollout=Rollout(),
        rollout_waves=tuple(RolloutWave(wave=index, nodes=(node,)) for index, node in enumerate(nodes)),
        device_plugin=DevicePluginPlan(
            mode="managed",
            pass_device_specs=True,
            image="nvcr.io/nvidia/k8s-device-plugin:v0.20.0" if nvidia else "docker.io/rocm/k8s-device-plugin:1.31.0.9",
        ),
        co_tenants=(),
        reasons=(),
    )
    return replace(pool, **changes)


@lru_cache(maxsize=8)
def memory_estimate(sku: str) -> MemoryEstimate:
    """Llama 3 70B with tensor parallel 4 and a context of 4096 tokens."""
    architecture = architecture_of(find_model("meta-llama/Meta-Llama-3-70B-Instruct"))
    options = EngineOptions(gpu_memory_utilization=0.9, max_model_len=4096)
    return estimate_memory(architecture, find_accelerator(sku), ParallelSizes(tensor_parallel_size=4), options)


def model_plan(name: str, pool: PoolPlan, **changes: Any) -> ModelPlan:
    """A model with tensor parallel 4 on one NUMA node of each machine of the pool."""
    slot = Slot(numa_nodes=(0,), gpus=(0, 1, 2, 3), cpu_count=32, cpus_example=parse_cpu_list("1-16,113-128"), memory_numa=(0,))
    model = ModelPlan(
        name=name,
        node_pool=pool.name,
        namespace="inference",
        model="meta-llama/Meta-Llama-3-70B-Instruct",
        served_model_name="meta-llama/Meta-Llama-3-70B-Instruct",
        replicas=2,
        tensor_parallel_size=4,
        pipeline_parallel_size=1,
        data_parallel_size=1,
        enable_expert_parallel=False,
        pods_per_replica=1,
        gpus_per_pod=4,
        resource_name=pool.resource_name,
        vendor=pool.vendor,
        image="docker.io/vllm/vllm-openai:v0.33.0",
        vllm_version="0.33.0",
        gpu_memory_utilization=0.9,
        max_model_len=4096,
        block_size=None,
        engine_args={},
        env={},
        cpu=32,
        memory_bytes=128 * GIB,
        shared_memory_bytes=16 * GIB,
        init_containers=(),
        sidecars=(),
        qos_class="Guaranteed",
        storage=Storage.model_validate(
            {"existingClaim": "pvc-llama-models", "mountPath": "/models", "modelPath": "Meta-Llama-3-70B-Instruct"}
        ),
        pod_anti_affinity="required",
        max_surge=0,
        max_unavailable=1,
        startup_budget_seconds=1055,
        progress_deadline_seconds=1300,
        create_timeout_seconds=2100,
        update_timeout_seconds=3000,
        rank_binding=None,
        memory=memory_estimate(pool.sku),
        slots=(SlotGroup(nodes=len(pool.nodes), slots=(slot,), node_names=pool.nodes),),
        reasons=(),
    )
    return replace(model, **changes)


def whole_node_model(name: str, pool: PoolPlan, **changes: Any) -> ModelPlan:
    """A model with tensor parallel 8 over both NUMA nodes, its ranks bound."""
    slot = Slot(numa_nodes=(0, 1), gpus=tuple(range(8)), cpu_count=48, cpus_example=parse_cpu_list("1-12,57-68,113-124,169-180"))
    whole = {
        "replicas": 1,
        "model": "Qwen/Qwen2.5-72B-Instruct",
        "served_model_name": "Qwen/Qwen2.5-72B-Instruct",
        "tensor_parallel_size": 8,
        "gpus_per_pod": 8,
        "image": "docker.io/vllm/vllm-openai-rocm:v0.33.0",
        "max_model_len": 32768,
        "block_size": 32,
        "cpu": 48,
        "memory_bytes": 256 * GIB,
        "storage": Storage.model_validate({"existingClaim": "pvc-llama-models", "modelPath": "Qwen2.5-72B-Instruct"}),
        "rank_binding": RankBinding(
            numa_node_of_rank=(0, 0, 0, 0, 1, 1, 1, 1), cpus_per_numa_node={0: 24, 1: 24}, memory_nodes=(0, 1)
        ),
        "slots": (SlotGroup(nodes=1, slots=(slot,), node_names=pool.nodes),),
    }
    return model_plan(name, pool, **{**whole, **changes})


def cluster_plan(**changes: Any) -> ClusterPlan:
    """Two pools, one of each vendor, with one model each."""
    h100, mi300x = pool_plan("h100"), pool_plan("mi300x", vendor="amd", policy="restricted")
    plan = ClusterPlan(
        stack="local",
        kubernetes_version="1.37",
        connection=Connection.model_validate({"kubeconfig": ".state/cluster/kubeconfig", "context": "numawise-local"}),
        adopt=(),
        namespace="inference",
        create_namespace=False,
        pod_security="restricted",
        system_namespace="numawise-system",
        node_feature_discovery="existing",
        node_pools=(h100, mi300x),
        models=(model_plan("llama-70b", h100), whole_node_model("qwen-72b", mi300x)),
    )
    return replace(plan, **changes)
