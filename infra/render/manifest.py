"""What a manifest is, and the few forms that all object families share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from infra.plan.model import ClusterPlan, PoolPlan

Manifest = dict[str, Any]
"""A Kubernetes object as kubectl takes it: nested camelCase mappings."""


def metadata(name: str, labels: Mapping[str, str], *, namespace: str | None = None) -> dict[str, Any]:
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(labels)}


def config_map(name: str, namespace: str, labels: Mapping[str, str], files: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(name, labels, namespace=namespace),
        "data": dict(files),
    }


def service_account(name: str, namespace: str, labels: Mapping[str, str]) -> Manifest:
    """An account without rights and without a token in the pods that use it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(name, labels, namespace=namespace),
        "automountServiceAccountToken": False,
    }


def checksum(files: Mapping[str, Any]) -> str:
    """Changes when any byte of the files, or of any document, does; put on a pod template, it restarts the pods that read them."""
    return hashlib.sha256(json.dumps(dict(files), sort_keys=True).encode()).hexdigest()[:16]


def tolerations(pools: Iterable[PoolPlan]) -> list[dict[str, str]]:
    """One for each taint key and effect; operator Exists, so that a changed taint value locks nothing out."""
    found = {(taint.key, taint.effect) for pool in pools for taint in pool.nodes.taints}
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in sorted(found)]


def image_pull_secrets(plan: ClusterPlan) -> list[dict[str, str]]:
    """The Secrets with which every pod of the stack pulls its images; they exist in each namespace."""
    return [{"name": name} for name in plan.images.pull_secrets]
