"""What the engine's state of the last update says: which cluster it was, whose labels lie on which node, which objects were made. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.diagnosis import Diagnosis
from infra.kinds import ObjectKey, UnknownKind, key_of
from infra.observe.client import ApiError, Client

_PATCH_TYPE, _STACK_TYPE = "kubernetes:core/v1:NodePatch", "pulumi:pulumi:Stack"
CLUSTER_OUTPUT, RELEASED_OUTPUT = "cluster", "releasedNodes"


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """Empty for a stack that was never updated, or by a release that kept nothing."""

    cluster_uid: str = ""  # of the namespace kube-system, which lives as long as its cluster
    label_resources: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # node -> names of the resources that hold its labels
    released: frozenset[str] = frozenset()  # nodes whose labels the state drops without asking the cluster
    objects: Mapping[ObjectKey, str] = field(default_factory=dict)  # of the kinds that we declare: their uids


def remembered(resources: Mapping[str, Mapping[str, Any]]) -> Remembered:
    """From URN -> {type, outputs}."""
    labels: dict[str, list[str]] = {}
    objects: dict[ObjectKey, str] = {}
    exports: Mapping[str, Any] = {}
    for urn, resource in resources.items():
        kind, outputs = resource.get("type", ""), resource.get("outputs") or {}
        metadata = outputs.get("metadata") or {}
        if kind == _STACK_TYPE:
            exports = outputs
        elif kind == _PATCH_TYPE and metadata.get("name"):
            labels.setdefault(metadata["name"], []).append(urn.rpartition("::")[2])
        elif kind.startswith("kubernetes:") and metadata.get("uid"):
            try:
                objects[key_of(outputs)] = metadata["uid"]
            except (UnknownKind, KeyError):
                continue
    return Remembered(
        cluster_uid=(exports.get(CLUSTER_OUTPUT) or {}).get("uid", ""),
        label_resources={node: tuple(names) for node, names in labels.items()},
        released=frozenset(exports.get(RELEASED_OUTPUT) or ()),
        objects=objects,
    )


def cluster_uid(client: Client) -> str:
    """The uid of the namespace kube-system; empty where it may not be read."""
    try:
        found = client.find("/api/v1/namespaces/kube-system") or {}
    except ApiError as error:
        if error.status == 403:
            return ""
        raise
    return (found.get("metadata") or {}).get("uid", "")


def rebuilt(before: Remembered, uid: str, client: Client) -> Iterator[Diagnosis]:
    """An error where the state describes objects of another cluster than the one that is connected: an update would find nothing to do."""
    if not before.cluster_uid or not uid or before.cluster_uid == uid:
        return
    lost = [key for key, known in sorted(before.objects.items(), key=str) if _uid_of(client, key) != known]
    if lost:
        yield Diagnosis(
            "connection",
            "AnotherCluster",
            f"leads to another cluster than the last update did (kube-system has uid {uid}, then {before.cluster_uid}), and {len(lost)} of the "
            f"{len(before.objects)} objects of the state are not there ({lost[0]}, for one). If the cluster was rebuilt, run `pulumi refresh`, which takes "
            "from the state what is gone, and then `pulumi up` (a refresh within the update, --refresh, comes too late for this look); if the kubeconfig or its context is the wrong one, correct that",
        )


def _uid_of(client: Client, key: ObjectKey) -> str:
    return ((client.find(key.path) or {}).get("metadata") or {}).get("uid", "")
