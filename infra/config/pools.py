"""`nodePools`: the GPU nodes of one kind, their kubelet configuration, rollout, device plugin and co-tenants."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from infra.config.base import (
    CpuQuantity,
    DnsLabel,
    DnsSubdomain,
    FieldError,
    LabelKey,
    Labels,
    LabelValue,
    MemoryQuantity,
    NonNegativeInt,
    PositiveInt,
    Wire,
)
from infra.config.topology import InlineTopology
from infra.diagnosis import shown

MOST_PODS = 1024  # of a node; kubelets run 110 by default, providers allow up to 737
MOST_NODES = 100_000  # of one stack; Kubernetes is tested with 5,000, the largest clusters of providers have 65,000 to 100,000
Platform = Literal["existing", "kubeadm", "eks", "gke", "aks", "karpenter", "cluster-api", "openshift", "rke2", "k3s", "talos"]


class Taint(Wire):
    key: LabelKey
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Drain(Wire):
    force: bool = False
    delete_empty_dir_data: bool = False


class Rollout(Wire):
    max_unavailable: PositiveInt = 1
    canary: bool = True
    allow_downtime: bool = False
    revert: bool = False
    generation: PositiveInt = 1
    drain: Drain = Drain()


class DevicePlugin(Wire):
    mode: Literal["managed", "operator", "existing"] = "managed"
    pass_device_specs: bool = True
    device_groups: tuple[NonNegativeInt, ...] = Field(default=(), strict=False)  # AMD: groups of /dev/kfd and /dev/dri (numbers)


class CoTenant(Wire):
    """Other pods that are known to run on every node of the pool."""

    name: DnsLabel
    per_node: Annotated[PositiveInt, Field(le=MOST_PODS)] = 1
    cpu: CpuQuantity
    memory: MemoryQuantity
    qos_class: Literal["Guaranteed", "Burstable", "BestEffort"] = "Burstable"


class NodePool(Wire):
    name: DnsLabel
    platform: Platform = "existing"
    node_shape: str | None = None
    topology: InlineTopology | None = None
    node_names: tuple[DnsSubdomain, ...] = Field(default=(), strict=False)
    node_selector: Labels = Field(default_factory=dict)
    nodes: Annotated[PositiveInt, Field(le=MOST_NODES)] | None = None
    labels: Labels = Field(default_factory=dict)
    taints: tuple[Taint, ...] = Field(default=(), strict=False)
    kubelet: dict[str, Any] = Field(default_factory=dict)
    rollout: Rollout = Rollout()
    device_plugin: DevicePlugin = DevicePlugin()
    co_tenants: tuple[CoTenant, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _one_source_of_each_fact(self) -> NodePool:
        if (self.node_shape is None) == (self.topology is None):
            raise ValueError("give the hardware once: nodeShape (a catalog entry) or topology (the same facts inline)")
        if not self.node_names and self.nodes is None:
            raise ValueError("give nodeNames, or nodes with the count of machines")
        if self.node_names and self.nodes is not None and self.nodes != len(self.node_names):
            raise FieldError(
                "nodes", f"is {self.nodes}, but nodeNames has {len(self.node_names)} names; make them equal or leave nodes out"
            )
        if twice := [name for name, times in Counter(self.node_names).items() if times > 1]:
            raise FieldError("nodeNames", f"names {shown(', '.join(sorted(twice)))[1:-1]} twice; a node is one machine")
        tainted: set[tuple[str, str]] = set()
        for index, taint in enumerate(self.taints):
            if (taint.key, taint.effect) in tainted:
                raise FieldError(
                    f"taints[{index}]", f"is a second {taint.effect} taint of {taint.key}; a node takes one of each key and effect"
                )
            tainted.add((taint.key, taint.effect))
        return self

    @property
    def names_of_nodes(self) -> tuple[str, ...]:
        """The nodes by name; where only a count is given, the names that a plan uses (h100-0, h100-1)."""
        return self.node_names or tuple(f"{self.name}-{index}" for index in range(self.nodes or 0))
