"""Plans built by hand for tests of what comes after planning: two DGX H100 and one eight-GPU MI300X machine."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from infra.catalog.names import find_accelerator, find_model
from infra.plan.architecture.partition import ParallelSizes
from infra.plan.architecture.reading import architecture_of
from infra.plan.images import pinned
from infra.plan.memory.estimate import estimate_memory
from infra.plan.memory.options import EngineOptions
from infra.plan.memory.types import MemoryEstimate
from infra.plan.model import (
    Allocatable,
    ClusterPlan,
    DevicePluginPlan,
    EnginePlan,
    HardwarePlan,
    ImagesPlan,
    KubeletPlan,
    MemoryPlan,
    ModelIdentity,
    ModelPlan,
    NamespacePlan,
    NodesPlan,
    NumaNodePlan,
    ParallelismPlan,
    PlacementPlan,
    PoolPlan,
    RankBinding,
    ResourcesPlan,
    RolloutPlan,
    RolloutWave,
    Slot,
    SlotGroup,
    StoragePlan,
    TaintPlan,
    TimesPlan,
)
from infra.units import GIB, parse_cpu_list

STACK = "local"
PlanRecord = TypeVar("PlanRecord")


def changed(record: PlanRecord, **changes: Any) -> PlanRecord:
    """The record with other values; each name is a field of its own or of one of the records in it."""
    own = {field.name for field in fields(cast(Any, record))}
    direct = {name: value for name, value in changes.items() if name in own}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        if name not in own:
            holders = [field.name for field in fields(cast(Any, record)) if _has_field(getattr(record, field.name), name)]
            assert len(holders) == 1, f"{type(record).__name__}: {name} is a field of {holders or 'none of its records'}"
            nested.setdefault(holders[0], {})[name] = value
    return replace(
        cast(Any, record), **direct, **{holder: replace(getattr(record, holder), **values) for holder, values in nested.items()}
    )


def _has_field(value: Any, name: str) -> bool:
    return is_dataclass(value) and name in {field.name for field in fields(value)}


@lru_cache
def estimate(
    model: str = "Meta-Llama-3-70B-Instruct", sku: str = "h100-sxm5-80gb", tensor_parallel_size: int = 4
) -> MemoryEstimate:
    return estimate_memory(
        architecture_of(find_model(model, "model")),
        find_accelerator(sku, "sku"),
        ParallelSizes(tensor_parallel_size=tensor_parallel_size),
        EngineOptions(gpu_memory_utilization=0.9, max_model_len=4096),
    )


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
        hardware=HardwarePlan(
            node_shape="dgx-h100" if nvidia else "inline",
            vendor=vendor,
            sku="h100-sxm5-80gb" if nvidia else "mi300x",
            resource_name=f"{vendor}.com/gpu",
            product_label=None,
            threads_per_core=2,
            numa_nodes=_numa_nodes(),
        ),
        nodes=NodesPlan(
            names=nodes,
            names_given=True,
            selector={"numawise.dev/pool": name},
            labels={},
            taints=(TaintPlan(key=f"{vendor}.com/gpu", value="present", effect="NoSchedule"),),
        ),
        kubelet=KubeletPlan(
            fields={
                "cpuManagerPolicy": "static",
                "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
                "memoryManagerPolicy": "Static",
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
                "reservedSystemCPUs": "0,56,112,168",
                "topologyManagerPolicy": policy,
            }
        ),
        allocatable=Allocatable(cpu=220, memory_bytes=2000 * GIB, gpus=8),
        rollout=RolloutPlan(
            max_unavailable=1,
            canary=True,
            waves=tuple(RolloutWave(wave=index, nodes=(node,)) for index, node in enumerate(nodes)),
        ),
        device_plugin=DevicePluginPlan(
            mode="managed",
            pass_device_specs=True,
            image="nvcr.io/nvidia/k8s-device-plugin:v0.20.0" if nvidia else "docker.io/rocm/k8s-device-plugin:1.31.0.9",
        ),
        co_tenants=(),
        reasons=(),
    )
    return changed(pool, **changes)


def model_plan(name: str, pool: PoolPlan, **changes: Any) -> ModelPlan:
    """A model with tensor parallel 4 on one NUMA node of each machine of the pool."""
    slot = Slot(numa_nodes=(0,), gpus=(0, 1, 2, 3), cpu_count=32, cpus_example=parse_cpu_list("1-16,113-128"), memory_numa=(0,))
    model = ModelPlan(
        identity=ModelIdentity(
            name=name,
            namespace="inference",
            node_pool=pool.name,
            model="meta-llama/Meta-Llama-3-70B-Instruct",
            served_model_name="meta-llama/Meta-Llama-3-70B-Instruct",
        ),
        parallelism=ParallelismPlan(
            tensor_parallel_size=4,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            enable_expert_parallel=False,
            pods_per_replica=1,
            gpus_per_pod=4,
        ),
        memory=MemoryPlan(gpu_memory_utilization=0.9, max_model_len=4096, block_size=None, estimate=estimate()),
        resources=ResourcesPlan(
            vendor=pool.hardware.vendor,
            resource_name=pool.hardware.resource_name,
            cpu=32,
            memory_bytes=128 * GIB,
            shared_memory_bytes=16 * GIB,
            qos_class="Guaranteed",
        ),
        engine=EnginePlan(
            image="docker.io/vllm/vllm-openai:v0.33.0",
            vllm_version="0.33.0",
            args={},
            env={},
            storage=StoragePlan(existing_claim="pvc-llama-models", mount_path="/models", model_path="Meta-Llama-3-70B-Instruct"),
        ),
        placement=PlacementPlan(
            replicas=2,
            pod_anti_affinity="required",
            max_surge=0,
            max_unavailable=1,
            slots=(SlotGroup(nodes=len(pool.nodes.names), slots=(slot,), node_names=pool.nodes.names),),
        ),
        times=TimesPlan(
            startup_budget_seconds=1055,
            progress_deadline_seconds=1300,
            create_timeout_seconds=2100,
            update_timeout_seconds=3000,
        ),
    )
    return changed(model, **changes)


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
        "storage": StoragePlan(existing_claim="pvc-llama-models", mount_path="/models", model_path="Qwen2.5-72B-Instruct"),
        "rank_binding": RankBinding(
            numa_node_of_rank=(0, 0, 0, 0, 1, 1, 1, 1), cpus_per_numa_node={0: 24, 1: 24}, memory_nodes=(0, 1)
        ),
        "slots": (SlotGroup(nodes=1, slots=(slot,), node_names=pool.nodes.names),),
    }
    return model_plan(name, pool, **{**whole, **changes})


def cluster_plan(**changes: Any) -> ClusterPlan:
    """Two pools, one of each vendor, with one model each."""
    h100, mi300x = pool_plan("h100"), pool_plan("mi300x", vendor="amd", policy="restricted")
    plan = ClusterPlan(
        kubernetes_version="1.37",
        namespace=NamespacePlan(name="inference", create=False, pod_security="restricted"),
        system_namespace="numawise-system",
        images=ImagesPlan(guard=pinned("rollout-agent", mirror=None), node_reader=pinned("node-reader", mirror=None)),
        node_pools=(h100, mi300x),
        models=(model_plan("llama-70b", h100), whole_node_model("qwen-72b", mi300x)),
    )
    return changed(plan, **changes)
