"""What a plan is: frozen, printable, comparable records; made by plan_stack(), read by observe, render, verify, report and the components."""

from infra.plan.model.cluster import ClusterPlan, ImagesPlan, NamespacePlan
from infra.plan.model.kubelet import KubeletPlan
from infra.plan.model.placement import PlacementPlan, RankBinding, Slot, SlotGroup
from infra.plan.model.pool import (
    Allocatable,
    CoTenantPlan,
    DevicePluginPlan,
    HardwarePlan,
    NodesPlan,
    NumaNodePlan,
    PoolPlan,
    RolloutPlan,
    RolloutWave,
    TaintPlan,
)
from infra.plan.model.serving import (
    EnginePlan,
    MemoryPlan,
    ModelIdentity,
    ModelPlan,
    ParallelismPlan,
    ResourcesPlan,
    StoragePlan,
    TimesPlan,
)

__all__ = [
    "Allocatable",
    "ClusterPlan",
    "CoTenantPlan",
    "DevicePluginPlan",
    "EnginePlan",
    "HardwarePlan",
    "ImagesPlan",
    "KubeletPlan",
    "MemoryPlan",
    "ModelIdentity",
    "ModelPlan",
    "NamespacePlan",
    "NodesPlan",
    "NumaNodePlan",
    "ParallelismPlan",
    "PlacementPlan",
    "PoolPlan",
    "RankBinding",
    "ResourcesPlan",
    "RolloutPlan",
    "RolloutWave",
    "Slot",
    "SlotGroup",
    "StoragePlan",
    "TaintPlan",
    "TimesPlan",
]
