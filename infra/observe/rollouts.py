"""The workloads of a stack and their pods in one look, and how far each has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.kinds import ObjectKey, kind_named
from infra.observe.client import ApiError, Client

Raw = Mapping[str, Any]
WORKLOAD_KINDS = ("Deployment", "LeaderWorkerSet")
_REVISION = "deployment.kubernetes.io/revision"
_TEMPLATE_HASH = "pod-template-hash"
_GROUP_NAME = "leaderworkerset.sigs.k8s.io/name"


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """What was seen at one moment; objects as the API server gives them. `pods`, `replica_sets` and `nodes` are empty where only workloads were looked at."""

    workloads: Mapping[ObjectKey, Raw]
    pods: tuple[Raw, ...] = ()
    replica_sets: tuple[Raw, ...] = ()
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # labels of every node

    def pods_of(self, key: ObjectKey) -> tuple[Raw, ...]:
        """All pods of a workload, those of older templates and those that are about to go too."""
        workload = self.workloads.get(key)
        return () if workload is None else tuple(pod for pod in self.pods if owns(workload, pod))

    def newest_pods_of(self, key: ObjectKey) -> tuple[Raw, ...]:
        """Those of the newest template that are to stay."""
        workload = self.workloads.get(key)
        staying = tuple(pod for pod in self.pods_of(key) if not is_going(pod))
        if workload is None or key.kind != "Deployment":
            return staying
        identity = workload["metadata"]
        revision = (identity.get("annotations") or {}).get(_REVISION)
        hashes = {
            (replica_set["metadata"].get("labels") or {}).get(_TEMPLATE_HASH)
            for replica_set in self.replica_sets
            if (replica_set["metadata"].get("annotations") or {}).get(_REVISION) == revision
            and any(owner.get("uid") == identity.get("uid") for owner in replica_set["metadata"].get("ownerReferences") or ())
        }
        return tuple(pod for pod in staying if (pod["metadata"].get("labels") or {}).get(_TEMPLATE_HASH) in hashes)

    def leaving(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Pods of the stack that are about to go from these nodes: ending, or of an older template of a workload that is being updated."""
        wanted, found = set(nodes), []
        for key, workload in self.workloads.items():
            newest = {pod["metadata"]["name"] for pod in self.newest_pods_of(key)}
            shrinking = (workload.get("status") or {}).get("replicas", 0) > workload["spec"].get("replicas", 1)
            for pod in self.pods_of(key):
                about_to_go = is_going(pod) or shrinking or pod["metadata"]["name"] not in newest
                if about_to_go and (pod.get("spec") or {}).get("nodeName") in wanted and not has_ended(pod):
                    found.append(pod["metadata"]["name"])
        return tuple(sorted(found))


def look_at_rollouts(client: Client, labels: Mapping[str, str], *, pods: bool) -> Rollouts:
    """One look at all workloads with these labels, with `pods` also at their pods, ReplicaSets and nodes."""
    query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
    workloads: dict[ObjectKey, Raw] = {}
    for kind in WORKLOAD_KINDS:
        try:
            found = list(client.list(kind_named(kind).path(), query=query))
        except ApiError as error:
            if error.status == 404 and not kind_named(kind).builtin:
                continue
            raise
        for raw in found:
            key = ObjectKey(kind=kind, namespace=raw["metadata"]["namespace"], name=raw["metadata"]["name"])
            workloads[key] = raw
    if not pods:
        return Rollouts(workloads=workloads)
    return Rollouts(
        workloads=workloads,
        pods=tuple(client.list("/api/v1/pods", query=query)),
        replica_sets=tuple(client.list("/apis/apps/v1/replicasets", query=query)),
        nodes={node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in client.list("/api/v1/nodes")},
    )


def owns(workload: Raw, pod: Raw) -> bool:
    """Whether a pod belongs to a workload: by the Deployment's selector, by the LeaderWorkerSet's name."""
    labels = pod["metadata"].get("labels") or {}
    if pod["metadata"].get("namespace") != workload["metadata"]["namespace"]:
        return False
    selector = ((workload.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if selector is None:
        return labels.get(_GROUP_NAME) == workload["metadata"]["name"]
    return selector.items() <= labels.items() and _GROUP_NAME not in labels


def is_going(pod: Raw) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def has_ended(pod: Raw) -> bool:
    """Whether it holds nothing of its node any more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_rolled_out(workload: Raw) -> bool:
    """All wanted replicas are of the newest template and available, and no old one is left. How many are wanted an autoscaler may decide."""
    status, wanted = workload.get("status") or {}, workload["spec"].get("replicas", 1)
    ready = "readyReplicas" if workload.get("kind") == "LeaderWorkerSet" else "availableReplicas"
    return (
        status.get("observedGeneration", 0) >= workload["metadata"].get("generation", 0)
        and status.get("updatedReplicas", 0) == wanted
        and status.get(ready, 0) == wanted
        and status.get("replicas", 0) == wanted
    )


def ready_replicas(workload: Raw) -> int:
    """Ready ones of any template."""
    return (workload.get("status") or {}).get("readyReplicas", 0)


def has_given_up(workload: Raw) -> bool:
    """The controller saw no progress within progressDeadlineSeconds."""
    status = workload.get("status") or {}
    if status.get("observedGeneration", 0) < workload["metadata"].get("generation", 0):
        return False
    return any(
        condition["type"] == "Progressing"
        and condition["status"] == "False"
        and condition.get("reason") == "ProgressDeadlineExceeded"
        for condition in status.get("conditions") or ()
    )
