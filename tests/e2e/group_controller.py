"""The real LeaderWorkerSet controller on an embedded cluster, as a pod of its own, with its definition and webhooks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import yaml

from infra.observe.client import ApiError, Client
from tests.e2e.cluster_fixture import is_ready, wait_for
from tools.cluster.layout import Layout
from tools.toolchain import binary

NAMESPACE = "lws-system"
_GROUP = "leaderworkerset.x-k8s.io"
_HOST_PATH = "/var/lib/lws"
_PORT = 9443  # of the webhook; port and target port are one, since no kube-proxy runs here
_CERTIFICATE = "lws-webhook-server-cert"
_CONFIGURATION = {
    "apiVersion": "config.lws.x-k8s.io/v1alpha1",
    "kind": "Configuration",
    "leaderElection": {"leaderElect": False},
    "internalCertManagement": {"enable": True},
    "webhook": {"certDir": "/certificates"},
}
_EVERYTHING = ["create", "delete", "get", "list", "patch", "update", "watch"]
_CHANGE = ["get", "list", "patch", "update", "watch"]


def run_group_controller(client: Client, layout: Layout, node: str) -> None:
    """Applies everything and waits until the webhook answers."""
    folder = layout.node(node) / _HOST_PATH.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(binary("lws"), folder / "lws")
    (folder / "lws").chmod(0o755)
    for manifest in (_definition(), *_access(), *_webhooks(), _pod(node)):
        _create(client, manifest)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/lws-controller"
    wait_for(lambda: is_ready(client.get(path)), describe=lambda: json.dumps(client.get(path).get("status")))
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{_CERTIFICATE}"
    wait_for(lambda: "tls.crt" in (client.get(secret).get("data") or {}))
    # A kubelet renews a mounted Secret when it looks at the pod again: once a minute, or at any change of the pod.
    body = {"metadata": {"annotations": {"certificate": "written"}}}
    client.request("PATCH", path, body=body, content_type="application/merge-patch+json")
    wait_for(lambda: "DNS-1035" in _answer_to_a_bad_name(client), describe=lambda: _answer_to_a_bad_name(client))


def _definition() -> dict[str, Any]:
    return yaml.safe_load(binary("lws").with_name("leaderworkerset.x-k8s.io_leaderworkersets.yaml").read_text())


def _access() -> Iterator[dict[str, Any]]:
    """Namespace, account, and the rights that the controller uses."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "lws", "namespace": NAMESPACE}}
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _CERTIFICATE, "namespace": NAMESPACE}}
    text = json.dumps(_CONFIGURATION)
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lws", "namespace": NAMESPACE}, "data": {"lws.yaml": text}}
    rules = [
        ("", ["pods", "services"], _EVERYTHING),
        ("", ["events"], ["create", "patch"]),
        ("events.k8s.io", ["events"], ["create", "patch"]),
        ("", ["nodes"], ["get", "list", "watch"]),
        ("", ["secrets"], _CHANGE),
        ("", ["pods/finalizers"], ["update"]),
        ("apps", ["statefulsets", "controllerrevisions"], _EVERYTHING),
        ("apps", ["statefulsets/status", "statefulsets/finalizers"], _CHANGE),
        (_GROUP, ["leaderworkersets"], _EVERYTHING),
        (_GROUP, ["leaderworkersets/status", "leaderworkersets/finalizers"], _CHANGE),
        ("admissionregistration.k8s.io", ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"], _CHANGE),
        ("authentication.k8s.io", ["tokenreviews"], ["create"]),
        ("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    ]
    rbac = "rbac.authorization.k8s.io"
    yield {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "lws"},
        "rules": [{"apiGroups": [group], "resources": resources, "verbs": verbs} for group, resources, verbs in rules],
    }
    yield {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "lws"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "lws"},
        "subjects": [{"kind": "ServiceAccount", "name": "lws", "namespace": NAMESPACE}],
    }
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "lws-webhook-service", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "lws"}, "ports": [{"port": _PORT, "targetPort": _PORT}]},
    }


def _webhooks() -> Iterator[dict[str, Any]]:
    """The controller's certificate rotation looks for these two names and writes its authority into them."""
    sets = {"apiGroups": [_GROUP], "apiVersions": ["v1"], "resources": ["leaderworkersets"], "operations": ["CREATE", "UPDATE"]}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    # Only pods of a set: the others do not wait for this controller.
    of_a_set = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}
    for verb, kind in (("mutate", "MutatingWebhookConfiguration"), ("validate", "ValidatingWebhookConfiguration")):
        hooks = [(f"/{verb}-leaderworkerset-x-k8s-io-v1-leaderworkerset", sets, {}), (f"/{verb}--v1-pod", pods, of_a_set)]
        yield {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": f"lws-{'mutating' if verb == 'mutate' else 'validating'}-webhook-configuration"},
            "webhooks": [
                {
                    "name": f"{path.strip('/').replace('--', '-')}.kb.io",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "clientConfig": {
                        "service": {"name": "lws-webhook-service", "namespace": NAMESPACE, "path": path, "port": _PORT}
                    },
                    "rules": [rule],
                    "objectSelector": selector,
                }
                for path, rule, selector in hooks
            ],
        }


def _pod(node: str) -> dict[str, Any]:
    container = {
        "name": "manager",
        "image": "debian:12",
        "command": [f"{_HOST_PATH}/lws", "--config", "/configuration/lws.yaml"],
        "volumeMounts": [
            {"name": "program", "mountPath": _HOST_PATH},
            {"name": "configuration", "mountPath": "/configuration"},
            {"name": "certificates", "mountPath": "/certificates"},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "lws-controller", "namespace": NAMESPACE, "labels": {"app": "lws"}},
        "spec": {
            "nodeName": node,
            "serviceAccountName": "lws",
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": [
                {"name": "program", "hostPath": {"path": _HOST_PATH}},
                {"name": "configuration", "configMap": {"name": "lws"}},
                {"name": "certificates", "secret": {"secretName": _CERTIFICATE}},
            ],
        },
    }


def _create(client: Client, manifest: dict[str, Any]) -> None:
    group = manifest["apiVersion"]
    metadata = manifest["metadata"]
    plural = f"{manifest['kind'].lower()}s"
    root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    middle = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    client.request("POST", f"{root}{middle}/{plural}", body=manifest)


def _answer_to_a_bad_name(client: Client) -> str:
    """What is said of a set whose name the API server alone would take; the validating webhook refuses it."""
    template = {"spec": {"containers": [{"name": "c", "image": "c"}]}}
    body = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "7b", "namespace": NAMESPACE},
        "spec": {"leaderWorkerTemplate": {"workerTemplate": template}, "rolloutStrategy": {"rollingUpdateConfiguration": {}}},
    }
    try:
        client.request("POST", f"/apis/{_GROUP}/v1/namespaces/{NAMESPACE}/leaderworkersets?dryRun=All", body=body)
    except ApiError as error:
        return str(error)
    return "no webhook asked"
