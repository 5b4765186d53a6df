"""Workloads and pods of a stack as the API server gives them."""

from __future__ import annotations

from typing import Any

from infra.kinds import ObjectKey
from infra.observe.rollouts import Rollouts

POOL = {"numawise.dev/pool": "h100"}
KEY = ObjectKey(kind="Deployment", namespace="inference", name="m")


def deployment(name: str = "m", *, wanted: int = 2, revision: str = "1", generation: int = 3, **status: Any) -> dict[str, Any]:
    """Rolled out unless `status` says otherwise."""
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), wanted)
    return {
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": "inference",
            "uid": f"uid-{name}",
            "generation": generation,
            "annotations": {"deployment.kubernetes.io/revision": revision},
        },
        "spec": {"replicas": wanted, "selector": {"matchLabels": {"app": name}}},
        "status": {"observedGeneration": generation, **counts, **status},
    }


def replica_set(owner: str = "m", *, revision: str = "1") -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{owner}-{revision}",
            "labels": {"app": owner, "pod-template-hash": revision},
            "annotations": {"deployment.kubernetes.io/revision": revision},
            "ownerReferences": [{"uid": f"uid-{owner}"}],
        }
    }


def pod(
    name: str, *, of: str = "m", revision: str = "1", node: str = "gpu-a", going: bool = False, **status: Any
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "inference", "labels": {"app": of, "pod-template-hash": revision}}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": node, "nodeSelector": POOL}, "status": {"phase": "Running", **status}}


def unscheduled(
    name: str, message: str = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", **options: Any
) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(name, node="", phase="Pending", conditions=[condition], **options)


def refused(name: str, reason: str = "TopologyAffinityError") -> dict[str, Any]:
    return pod(name, phase="Failed", reason=reason, message="Pod was rejected: no locality")


def container(name: str, **state: Any) -> dict[str, Any]:
    """A pod whose container is in this state."""
    return pod(name, phase="Pending", containerStatuses=[{"name": "vllm", "image": "vllm:1", **state}])


def seen(
    *workloads: dict[str, Any], pods: tuple[dict[str, Any], ...] = (), replica_sets: tuple[dict[str, Any], ...] = ()
) -> Rollouts:
    """One look; by default each Deployment has a ReplicaSet of its revision. gpu-a is of the pool, gpu-z is not."""
    found = {ObjectKey(kind=w["kind"], namespace="inference", name=w["metadata"]["name"]): w for w in workloads}
    sets = replica_sets or tuple(
        replica_set(w["metadata"]["name"], revision=w["metadata"]["annotations"]["deployment.kubernetes.io/revision"])
        for w in workloads
        if w["kind"] == "Deployment"
    )
    return Rollouts(workloads=found, pods=pods, replica_sets=sets, nodes={"gpu-a": POOL, "gpu-z": {}})
