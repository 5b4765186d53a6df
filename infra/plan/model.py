"""What a plan is: frozen, printable, comparable; made by plan(), read by render, observe, verify and the components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.config.cluster import Connection
from infra.config.models import Storage
from infra.config.pools import CoTenant, Rollout, Taint
from infra.diagnosis import Diagnosis
from infra.plan.memory.types import MemoryEstimate

QosClass = Literal["Guaranteed", "Burstable", "BestEffort"]
Vendor = Literal["nvidia", "amd"]


@dataclass(frozen=True, kw_only=True)
class NumaNodePlan:
    """One NUMA node of every machine of a pool, with what the kubelet keeps back there."""

    id: int
    cpus: tuple[int, ...]
    reserved_cpus: tuple[int, ...]
    memory_bytes: int  # lower bound of the kernel's MemTotal of the node
    allocatable_memory_bytes: int
    gpus: tuple[int, ...]
    nics: tuple[str, ...] = ()
    cores: tuple[tuple[int, ...], ...] = ()  # physical cores: the logical CPUs of each


@dataclass(frozen=True, kw_only=True)
class RolloutWave:
    """Nodes that a kubelet-configuration change reaches at the same time."""

    wave: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DevicePluginPlan:
    mode: Literal["managed", "operator", "existing"]
    pass_device_specs: bool
    image: str  # with tag or digest, from the catalog
    device_groups: tuple[int, ...] = ()  # AMD: numeric groups of /dev/kfd and /dev/dri on the hosts


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """A pool of equal machines, its effective kubelet configuration and what is free on them."""

    name: str
    platform: str
    node_shape: str  # catalog id, or "inline"
    vendor: Vendor
    sku: str  # catalog id of the accelerator
    resource_name: str  # nvidia.com/gpu or amd.com/gpu
    product_label: tuple[str, str] | None  # the label by which feature discovery marks such nodes
    nodes: tuple[str, ...]
    node_names_given: bool  # False: planned by count alone; the names are the plan's own
    node_selector: Mapping[str, str]  # selects the pool's nodes, for DaemonSets and pods
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    threads_per_core: int
    numa_nodes: tuple[NumaNodePlan, ...]
    kubelet: Mapping[str, Any]  # the effective KubeletConfiguration fields that are rolled out (camelCase)
    kubelet_config_hash: str  # changes exactly when `kubelet` does
    allocatable_cpu: int
    allocatable_memory_bytes: int
    allocatable_gpus: int
    idle_gpus: int = 0  # free GPUs of the whole pool
    stranded_gpus: int = 0  # idle ones that no planned size could use
    rollout: Rollout
    rollout_waves: tuple[RolloutWave, ...]
    device_plugin: DevicePluginPlan
    co_tenants: tuple[CoTenant, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place for one pod on a machine. CPU ids depend on the order in which pods start: only an example is given."""

    numa_nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    cpu_count: int
    cpus_example: tuple[int, ...]
    memory_numa: tuple[int, ...] = ()  # nodes that the Static memory manager pins; empty without it


@dataclass(frozen=True, kw_only=True)
class SlotGroup:
    """Equal machines with equal slots: `nodes` of them each hold all of `slots`."""

    nodes: int
    slots: tuple[Slot, ...]
    node_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RankBinding:
    """Which NUMA node each local rank is bound to, by the entry step of the main container."""

    numa_node_of_rank: tuple[int, ...]
    cpus_per_numa_node: Mapping[int, int]  # exclusive CPUs that the pod is proven to hold there
    memory_nodes: tuple[int, ...]  # NUMA nodes on which the pod may allocate memory


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """One model: sizes, resources, slots and how it is rolled out."""

    name: str
    node_pool: str
    namespace: str
    model: str  # hub name, or the name given with modelConfig
    served_model_name: str
    replicas: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    enable_expert_parallel: bool
    pods_per_replica: int
    gpus_per_pod: int
    resource_name: str
    vendor: Vendor
    image: str
    vllm_version: str
    gpu_memory_utilization: float
    max_model_len: int
    block_size: int | None  # None: the engine's own choice
    engine_args: Mapping[str, Any]  # further vLLM flags without dashes, the user's and those that the plan adds
    env: Mapping[str, str]
    cpu: int  # whole CPUs of the main container, requests = limits
    memory_bytes: int
    shared_memory_bytes: int
    init_containers: tuple[Mapping[str, Any], ...]
    sidecars: tuple[Mapping[str, Any], ...]
    qos_class: QosClass
    storage: Storage
    pod_anti_affinity: Literal["required", "preferred", "none"]
    max_surge: int
    max_unavailable: int
    startup_budget_seconds: int
    progress_deadline_seconds: int
    create_timeout_seconds: int
    update_timeout_seconds: int
    rank_binding: RankBinding | None  # None: the pod fits one NUMA node and the cpuset alone holds it there
    memory: MemoryEstimate
    slots: tuple[SlotGroup, ...]
    places: tuple[Slot, ...] = ()  # all that a pod can come to lie in on any node, in whatever order pods start; CPU ids left open
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """The whole decision for one stack."""

    stack: str
    kubernetes_version: str
    connection: Connection | None
    adopt: tuple[str, ...]
    namespace: str
    create_namespace: bool
    pod_security: Literal["restricted", "baseline", "privileged"]
    system_namespace: str
    node_feature_discovery: Literal["managed", "existing"]
    node_pools: tuple[PoolPlan, ...]
    models: tuple[ModelPlan, ...]
    warnings: tuple[Diagnosis, ...] = field(default=())

    def pool(self, name: str) -> PoolPlan:
        """The pool with this name; KeyError where there is none."""
        return next(pool for pool in self.node_pools if pool.name == name)

    def models_of(self, pool: str) -> tuple[ModelPlan, ...]:
        return tuple(model for model in self.models if model.node_pool == pool)
