"""What stands on a GPU node beside the models: our own small pods, row by row, and an allowance for the platform's DaemonSets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.units import parse_bytes, parse_millicpu


@dataclass(frozen=True, kw_only=True)
class DaemonPod:
    """One of our own pods, at most one a node. `cpu` and `memory` are its requests, Kubernetes quantities.

    Burstable on purpose, without a CPU limit: a Guaranteed pod would be pinned by the memory manager and take room of a planned slot.
    """

    cpu: str
    memory: str
    memory_limit: str

    @property
    def resources(self) -> dict[str, dict[str, str]]:
        """As a container has them."""
        return {"requests": {"cpu": self.cpu, "memory": self.memory}, "limits": {"memory": self.memory_limit}}


# By the label app.kubernetes.io/component of their pods; what render and verify write, and what the proof counts.
OWN_PODS: Mapping[str, DaemonPod] = {
    "device-plugin": DaemonPod(cpu="50m", memory="64Mi", memory_limit="256Mi"),
    # One in the cluster; it prefers other nodes, and may find none.
    "guard": DaemonPod(cpu="20m", memory="32Mi", memory_limit="128Mi"),
    # One a node, for the moment in which `verify` reads the kubelet's state files.
    "node-reader": DaemonPod(cpu="10m", memory="16Mi", memory_limit="32Mi"),
}


@dataclass(frozen=True, kw_only=True)
class NodeOverhead:
    """Requests of pods on one node that are no planned ones."""

    millicpu: int
    memory_bytes: int
    pods: int


# The platform's own: network plugin, kube-proxy, storage driver, feature discovery, metrics and GPU exporters, log and security
# agents. Nine pods of about 100 thousandths of a CPU and 215 MiB each; a node that has more of them declares the rest as coTenants
# of its pool.
PLATFORM_PODS = NodeOverhead(millicpu=920, memory_bytes=parse_bytes("1936Mi"), pods=9)


def node_overhead() -> NodeOverhead:
    """What the node fit counts on every GPU node before the models: our own pods and the platform's allowance."""
    ours = OWN_PODS.values()
    return NodeOverhead(
        millicpu=PLATFORM_PODS.millicpu + sum(parse_millicpu(pod.cpu) for pod in ours),
        memory_bytes=PLATFORM_PODS.memory_bytes + sum(parse_bytes(pod.memory) for pod in ours),
        pods=PLATFORM_PODS.pods + len(ours),
    )
