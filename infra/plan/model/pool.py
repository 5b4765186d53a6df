"""A pool of equal machines: hardware, nodes, effective kubelet configuration, and what is free on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.catalog.types import Vendor
from infra.plan.model.kubelet import KubeletPlan


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
class HardwarePlan:
    """What every machine of the pool is built of."""

    node_shape: str  # catalog id, or "inline"
    vendor: Vendor
    sku: str  # catalog id of the accelerator
    resource_name: str  # nvidia.com/gpu or amd.com/gpu
    product_label: tuple[str, str] | None  # the label by which feature discovery marks such nodes
    threads_per_core: int
    numa_nodes: tuple[NumaNodePlan, ...]
    reports_numa: bool = True  # False: a virtual machine hides on which NUMA node a GPU is


@dataclass(frozen=True, kw_only=True)
class TaintPlan:
    key: str
    value: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, kw_only=True)
class NodesPlan:
    """The pool's nodes in the cluster."""

    names: tuple[str, ...]
    names_given: bool  # False: planned by count alone; the names are the plan's own
    selector: Mapping[str, str]  # selects the pool's nodes, for DaemonSets and pods
    labels: Mapping[str, str]
    taints: tuple[TaintPlan, ...]

    @property
    def count(self) -> int:
        return len(self.names)


@dataclass(frozen=True, kw_only=True)
class Allocatable:
    """What the kubelet of one node offers to pods; CPUs are whole, memory is at the shape's lower bound."""

    cpu: int
    memory_bytes: int
    gpus: int


@dataclass(frozen=True, kw_only=True)
class RolloutWave:
    """Nodes that a kubelet-configuration change reaches at the same time."""

    wave: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RolloutPlan:
    """How a change of the kubelet configuration reaches the nodes."""

    max_unavailable: int
    canary: bool
    waves: tuple[RolloutWave, ...]


@dataclass(frozen=True, kw_only=True)
class DevicePluginPlan:
    mode: Literal["managed", "operator", "existing"]
    pass_device_specs: bool
    image: str  # with tag or digest, as the pods pull it
    device_groups: tuple[int, ...] = ()  # AMD: numeric groups of /dev/kfd and /dev/dri on the hosts


@dataclass(frozen=True, kw_only=True)
class CoTenantPlan:
    """Pods of others on every node of the pool."""

    name: str
    per_node: int
    cpu: str  # Kubernetes quantities
    memory: str
    qos_class: Literal["Guaranteed", "Burstable", "BestEffort"]


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """A pool of equal machines and what is decided for it."""

    name: str
    platform: str
    hardware: HardwarePlan
    nodes: NodesPlan
    kubelet: KubeletPlan
    allocatable: Allocatable
    idle_gpus: int = 0  # free GPUs of the whole pool
    stranded_gpus: int = 0  # idle ones that no planned size could use
    rollout: RolloutPlan
    device_plugin: DevicePluginPlan
    co_tenants: tuple[CoTenantPlan, ...]
    reasons: tuple[str, ...]
