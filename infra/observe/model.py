"""What was seen in the cluster in one look: frozen, so that check() is a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.kinds import ObjectKey
from infra.observe.node_fit import Taint


@dataclass(frozen=True, kw_only=True)
class ObservedNode:
    name: str
    labels: Mapping[str, str]
    ready: bool
    ready_message: str
    unschedulable: bool
    kubelet_version: str
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    kubelet: Mapping[str, Any] | None  # configz; None where it could not be read
    kubelet_unreadable: str = ""  # why
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ObservedPod:
    """A pod that is bound to a node and has not ended."""

    namespace: str
    name: str
    node: str
    labels: Mapping[str, str]
    qos_class: str
    owner_kind: str
    requests: Mapping[str, str]  # devices and CPUs summed over the containers


@dataclass(frozen=True, kw_only=True)
class ObservedPlugin:
    """A DaemonSet that looks like a device plugin, by its image."""

    key: ObjectKey
    image: str
    labels: Mapping[str, str]
    pod: Mapping[str, Any] = field(default_factory=dict)  # the spec of its pods: nodeSelector, affinity and tolerations alone


@dataclass(frozen=True, kw_only=True)
class ObservedGroupController:
    """What the cluster knows of LeaderWorkerSets."""

    defined: bool  # whether the version that we render is served
    restart_policies: tuple[str, ...]  # that its schema accepts; () where the schema does not say
    runs: bool  # whether the controller's webhook is registered


@dataclass(frozen=True, kw_only=True)
class ClusterObservation:
    server_version: str  # v1.37.2
    nodes: tuple[ObservedNode, ...]  # all nodes of the cluster
    pods: tuple[ObservedPod, ...]  # pods on the planned nodes
    objects: Mapping[ObjectKey, Mapping[str, str]] = field(
        default_factory=dict
    )  # those of the plan's objects that exist: their labels
    namespaces: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # labels of the namespaces that the plan names and that exist
    claims: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)  # (namespace, claim) -> access modes
    # (namespace, Secret) that a model names -> the names of its keys; None where it may not be read. Values are never kept.
    secrets: Mapping[tuple[str, str], tuple[str, ...] | None] = field(default_factory=dict)
    device_plugins: tuple[ObservedPlugin, ...] = ()
    group_controller: ObservedGroupController | None = None  # None where no model needs it, or where it may not be read

    def node(self, name: str) -> ObservedNode | None:
        return next((node for node in self.nodes if node.name == name), None)
