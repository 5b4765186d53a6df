"""A manifest as a typed resource of pulumi_kubernetes; a kind without a type becomes a CustomResource."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.observe.look import key_of
from infra.render.manifest import Manifest

_FORCE = "pulumi.com/patchForce"

# Attribute access is lazy: only the modules of the kinds that a stack uses are imported.
_TYPES = {
    ("v1", "ConfigMap"): lambda: kubernetes.core.v1.ConfigMap,
    ("v1", "Namespace"): lambda: kubernetes.core.v1.Namespace,
    ("v1", "Secret"): lambda: kubernetes.core.v1.Secret,
    ("v1", "Service"): lambda: kubernetes.core.v1.Service,
    ("v1", "ServiceAccount"): lambda: kubernetes.core.v1.ServiceAccount,
    ("apps/v1", "DaemonSet"): lambda: kubernetes.apps.v1.DaemonSet,
    ("apps/v1", "Deployment"): lambda: kubernetes.apps.v1.Deployment,
    ("batch/v1", "Job"): lambda: kubernetes.batch.v1.Job,
    ("networking.k8s.io/v1", "NetworkPolicy"): lambda: kubernetes.networking.v1.NetworkPolicy,
    ("policy/v1", "PodDisruptionBudget"): lambda: kubernetes.policy.v1.PodDisruptionBudget,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): lambda: kubernetes.rbac.v1.ClusterRole,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): lambda: kubernetes.rbac.v1.ClusterRoleBinding,
    ("rbac.authorization.k8s.io/v1", "Role"): lambda: kubernetes.rbac.v1.Role,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): lambda: kubernetes.rbac.v1.RoleBinding,
}


def apply(name: str, manifest: Manifest, opts: pulumi.ResourceOptions, *, adopt: Collection[str] = ()) -> pulumi.CustomResource:
    """One resource for one object. Only top-level keywords are snake_case; what is nested stays as Kubernetes writes it.

    `adopt` are the objects (Kind/namespace/name) whose fields are taken from whoever set them: with server-side apply the first update of
    somebody else's object would end in a conflict.
    """
    content: dict[str, Any] = dict(manifest)
    if str(key_of(manifest)) in adopt:
        metadata = manifest["metadata"]
        content["metadata"] = {**metadata, "annotations": {**metadata.get("annotations", {}), _FORCE: "true"}}
    api_version, kind = content.pop("apiVersion"), content.pop("kind")
    typed = _TYPES.get((api_version, kind))
    if typed is None:
        return kubernetes.apiextensions.CustomResource(name, api_version=api_version, kind=kind, opts=opts, **content)
    return typed()(name, opts=opts, **{_snake_case(key): value for key, value in content.items()})


def _snake_case(key: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower()
