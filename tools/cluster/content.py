"""What a cluster's owner has put into the cluster before any stack: namespaces, model volumes, the API server's right to kubelets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tools.cluster.api import Api
from tools.cluster.control_plane import KUBELET_CLIENT
from tools.cluster.layout import Layout
from tools.cluster.machines import MachineSet, Node

VOLUMES_IN_NODE = "/mnt/volumes"


def shared_folders(layout: Layout, machines: MachineSet) -> list[dict[str, str]]:
    """The folders of all claims, which every node sees at the same place; made where they are missing."""
    folders = []
    for claim in machines.claims:
        source = layout.shared / claim["namespace"] / claim["name"]
        source.mkdir(parents=True, exist_ok=True)
        folders.append({"source": str(source), "target": volume_path(claim)})
    return folders


def volume_path(claim: Mapping[str, Any]) -> str:
    return f"{VOLUMES_IN_NODE}/{claim['namespace']}/{claim['name']}"


def apply_content(api: Api, machines: MachineSet) -> None:
    """Applies all of it; again without a change."""
    api.apply(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kube-apiserver-kubelet-client",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kube-apiserver-kubelet-client"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": KUBELET_CLIENT}],
        },
    )
    for namespace in machines.namespaces:
        name = namespace["name"]
        metadata = {"name": name, "labels": dict(namespace.get("labels", {}))}
        api.apply(f"/api/v1/namespaces/{name}", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    for claim in machines.claims:
        for path, manifest in claim_manifests(claim):
            api.apply(path, manifest)


def claim_manifests(claim: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """A ReadWriteMany volume that every node sees, and the claim bound to it."""
    namespace, name, storage = claim["namespace"], claim["name"], claim.get("storage", "4Ti")
    volume = f"{namespace}-{name}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    return [
        (
            f"/api/v1/persistentvolumes/{volume}",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume},
                "spec": common
                | {
                    "capacity": {"storage": storage},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": volume_path(claim), "type": "Directory"},
                    "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name},
                },
            },
        ),
        (
            f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": namespace},
                "spec": common | {"volumeName": volume, "resources": {"requests": {"storage": storage}}},
            },
        ),
    ]


def label_node(api: Api, node: Node) -> None:
    """The labels that feature discovery or a cluster's owner would set; a kubelet may not set all of them itself."""
    if node.labels:
        api.merge(f"/api/v1/nodes/{node.name}", {"metadata": {"labels": dict(node.labels)}})


def node_problem(api: Api, node: Node, kubelet_started: float | None) -> str | None:
    """Why a node is not ready for use yet; None when it is: its kubelet answers, it is Ready, it has its devices and labels.

    `kubelet_started` is when the kubelet's process started, in seconds of the epoch. A kubelet that will not come up answers for a moment too, and the
    API server keeps what the one before it had reported: only a report of this kubelet counts.
    """
    if kubelet_started is None:
        return "its kubelet does not run"
    found = api.get(f"/api/v1/nodes/{node.name}")
    if found is None:
        return "not registered"
    if api.request("GET", f"/api/v1/nodes/{node.name}/proxy/healthz", seconds=3) != "ok":
        return "its kubelet does not answer"
    ready = next((entry for entry in found["status"].get("conditions", []) if entry["type"] == "Ready"), None)
    if ready is None or ready["status"] != "True":
        return f"not Ready: {ready['message'] if ready else 'no condition yet'}"
    if not reported_since(ready["lastHeartbeatTime"], kubelet_started):
        return "its kubelet has not reported yet"
    for resource, count in node.device_counts().items():
        allocatable = int(found["status"].get("allocatable", {}).get(resource, "0"))
        if allocatable != count:
            return f"{allocatable} of {count} {resource} allocatable"
    missing = sorted(set(node.labels.items()) - set(found["metadata"].get("labels", {}).items()))
    return f"label {missing[0][0]} is not set" if missing else None


def reported_since(heartbeat: str, kubelet_started: float) -> bool:
    """Whether a heartbeat (RFC 3339, whole seconds) is of the kubelet that started then. In its first second nobody can tell."""
    reported = datetime.fromisoformat(heartbeat.replace("Z", "+00:00")).timestamp()
    return reported >= int(kubelet_started) + 1 or (reported >= int(kubelet_started) and time.time() - kubelet_started > 2)


def unbound_claim(api: Api, machines: MachineSet) -> str | None:
    for claim in machines.claims:
        found = api.get(f"/api/v1/namespaces/{claim['namespace']}/persistentvolumeclaims/{claim['name']}")
        if found is None or found.get("status", {}).get("phase") != "Bound":
            return f"claim {claim['namespace']}/{claim['name']} is not bound"
    return None
