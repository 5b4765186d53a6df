"""Reads the kubelet's own state files from nodes, by a short-lived pod that sees /var/lib/kubelet read-only."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from infra.errors import MissingError
from infra.observe.client import ApiError, Client
from infra.plan.daemons import OWN_PODS
from infra.plan.model import ImagesPlan

KUBELET_FOLDER = "/var/lib/kubelet"
FILES = ("cpu_manager_state", "memory_manager_state", "device-plugins/kubelet_internal_checkpoint")
_MARK = "=== numawise "
_AT_A_TIME = 16
_WAIT_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class NodeFiles:
    """The text of each file of FILES; missing files are left out. `why`: the reason where none could be read."""

    node: str
    texts: Mapping[str, str]
    why: str = ""


def reader_pod(node: str, namespace: str, *, images: ImagesPlan, labels: Mapping[str, str]) -> dict[str, Any]:
    """The pod that prints the files. The kubelet's files are root's: it runs as root with no capability and a read-only mount."""
    pull_secrets = [{"name": name} for name in images.pull_secrets]
    script = "; ".join(f"echo '{_MARK}{name}'; cat '/kubelet/{name}' 2>/dev/null; echo" for name in FILES)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "numawise-verify-", "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _WAIT_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **({"imagePullSecrets": pull_secrets} if pull_secrets else {}),
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "read",
                    "image": images.node_reader,
                    "command": ["sh", "-c", script],
                    "resources": OWN_PODS["node-reader"].resources,
                    "securityContext": {
                        "runAsUser": 0,
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "volumeMounts": [{"name": "kubelet", "mountPath": "/kubelet", "readOnly": True}],
                }
            ],
            "volumes": [{"name": "kubelet", "hostPath": {"path": KUBELET_FOLDER, "type": "Directory"}}],
        },
    }


def read_node_files(
    client: Client, nodes: tuple[str, ...], namespace: str, *, images: ImagesPlan, labels: Mapping[str, str]
) -> dict[str, NodeFiles]:
    """The state files of each node; with the reason where a node could not be read. The reader pods are deleted, come what may."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        files = pool.map(
            lambda node: _read(client, reader_pod(node, namespace, images=images, labels=labels), node, namespace), nodes
        )
        return {entry.node: entry for entry in files}


def _read(client: Client, pod: dict[str, Any], node: str, namespace: str) -> NodeFiles:
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        name = client.request("POST", path, body=pod)["metadata"]["name"]
    except ApiError as error:
        return NodeFiles(node=node, texts={}, why=f"the reader pod was refused: {error}")
    try:
        why = _wait(client, f"{path}/{name}")
        if why:
            return NodeFiles(node=node, texts={}, why=why)
        return NodeFiles(node=node, texts=split_files(client.get(f"{path}/{name}/log", query={"container": "read"})))
    except (ApiError, MissingError) as error:
        return NodeFiles(node=node, texts={}, why=str(error))
    finally:
        client.request("DELETE", f"{path}/{name}", body={"gracePeriodSeconds": 0, "apiVersion": "v1", "kind": "DeleteOptions"})


def _wait(client: Client, path: str) -> str:
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        status = client.get(path).get("status") or {}
        if status.get("phase") == "Succeeded":
            return ""
        if status.get("phase") == "Failed":
            return f"the reader pod failed: {status.get('message') or status.get('reason') or json.dumps(status.get('containerStatuses'))[:200]}"
        time.sleep(0.2)
    return f"the reader pod did not end within {_WAIT_SECONDS} s"


def split_files(log: Any) -> dict[str, str]:
    """The reader pod's output by file; a file that is empty or absent is left out."""
    texts: dict[str, str] = {}
    # A log that is one JSON document is parsed by the client already; ours never is, since it begins with a mark.
    for part in str(log).split(_MARK)[1:]:
        name, _, text = part.partition("\n")
        if text.strip():
            texts[name.strip()] = text.strip()
    return texts
