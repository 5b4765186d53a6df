"""The guard against storms of refused pods: one small Deployment a stack, and the rights that it needs."""

from __future__ import annotations

import json
from typing import Any

from infra.agents.source import source_of
from infra.plan.daemons import OWN_PODS
from infra.plan.model import ClusterPlan
from infra.render import names
from infra.render.labels import CHECKSUM, KUBELET_CONFIG, POOL, field_manager, label_value, labels, selector
from infra.render.manifest import Manifest, checksum, config_map, image_pull_secrets, metadata, service_account, tolerations
from infra.render.namespaces import NAMESPACES_PART
from infra.render.nodes import pool_labels
from infra.render.part import Object, Part, Wait, child, in_apply_order, key_of_part

_APPLICATION, _COMPONENT, _MOUNT = "refusal-guard", "guard", "/etc/numawise"
_USER = 65532  # any user without a name; the image's own is root


_TOKEN, _NAME = "numawise:cluster:RefusalGuard", "guard"
GUARD_PART = key_of_part(_TOKEN, _NAME)


def guard_part(plan: ClusterPlan, *, stack: str) -> Part:
    """A small Deployment that takes a node out of the models' reach while its kubelet refuses their pods.

    Without objects where no pool's kubelet could refuse for topology, or no node is known by name.
    """
    nodes = guarded_nodes(plan)
    children = tuple(_child(manifest) for manifest in _manifests(plan, stack)) if nodes else ()
    return Part(
        token=_TOKEN, name=_NAME, facts={"nodes": sorted(nodes)}, children=in_apply_order(children), after=(NAMESPACES_PART,)
    )


def _child(manifest: Manifest) -> Object:
    """Roles stand in every namespace that has models; all else is in the system namespace or in none."""
    kind = manifest["kind"]
    if kind == "Deployment":
        return child(manifest, wait=Wait(create_seconds=900, update_seconds=900))
    return child(manifest, name=f"{kind.lower()}-{manifest['metadata']['namespace']}" if kind in ("Role", "RoleBinding") else "")


def _manifests(plan: ClusterPlan, stack: str) -> tuple[Manifest, ...]:
    all_labels = labels(stack=stack, name=_APPLICATION, instance=stack, component=_COMPONENT)
    name, cluster_name, namespace = names.GUARD, names.cluster_scoped(stack, names.GUARD), plan.system_namespace
    files = {"guard.py": source_of("guard"), "plan.json": json.dumps(_expected(plan, stack), indent=1) + "\n"}
    subject = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    objects: list[Manifest] = [service_account(name, namespace, all_labels), config_map(name, namespace, all_labels, files)]
    objects.append(
        _role(
            "ClusterRole",
            metadata(cluster_name, all_labels),
            [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"], "resourceNames": sorted(guarded_nodes(plan))}],
        )
    )
    objects.append(_binding("ClusterRole", metadata(cluster_name, all_labels), cluster_name, subject))
    for models in _namespaces(plan):
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]}]
        objects.append(_role("Role", metadata(cluster_name, all_labels, namespace=models), rules))
        objects.append(_binding("Role", metadata(cluster_name, all_labels, namespace=models), cluster_name, subject))
    objects.append(_deployment(plan, stack, all_labels, files))
    return tuple(objects)


def guarded_nodes(plan: ClusterPlan) -> dict[str, dict[str, Any]]:
    """Node -> what the guard has to know of it."""
    return {
        node: {
            "labels": pool_labels(pool),
            "resource": pool.hardware.resource_name,
            "devices": pool.allocatable.gpus,
        }
        for pool in plan.node_pools
        if pool.nodes.names_given and pool.kubelet.aligns and plan.models_of(pool.name)
        for node in pool.nodes.names
    }


def _namespaces(plan: ClusterPlan) -> list[str]:
    return sorted({model.namespace for model in plan.models})


def _expected(plan: ClusterPlan, stack: str) -> dict[str, Any]:
    return {
        "stack": label_value(stack),
        "label": KUBELET_CONFIG,
        "fieldManager": field_manager(stack),
        "namespaces": _namespaces(plan),
        "nodes": guarded_nodes(plan),
    }


def _role(kind: str, object_metadata: dict[str, Any], rules: list[dict[str, Any]]) -> Manifest:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": object_metadata, "rules": rules}


def _binding(kind: str, object_metadata: dict[str, Any], role: str, subjects: list[dict[str, Any]]) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": object_metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": subjects,
    }


def _deployment(plan: ClusterPlan, stack: str, all_labels: dict[str, str], files: dict[str, str]) -> Manifest:
    pod_labels = selector(_APPLICATION, stack)
    pull_secrets = image_pull_secrets(plan)
    elsewhere = {"matchExpressions": [{"key": POOL, "operator": "DoesNotExist"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(names.GUARD, all_labels, namespace=plan.system_namespace),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 3,
            # Two guards at once would count one storm twice.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": pod_labels},
            "template": {
                "metadata": {"labels": dict(all_labels), "annotations": {CHECKSUM: checksum(files)}},
                "spec": {
                    "serviceAccountName": names.GUARD,
                    "automountServiceAccountToken": True,
                    **({"imagePullSecrets": pull_secrets} if pull_secrets else {}),
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": _USER,
                        "runAsGroup": _USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    # It may have no other place than a GPU node, but takes one where there is one.
                    "tolerations": tolerations(plan.node_pools),
                    "affinity": {
                        "nodeAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": elsewhere}]
                        }
                    },
                    "containers": [
                        {
                            "name": "guard",
                            "image": plan.images.guard,
                            "command": ["python3", "-I", f"{_MOUNT}/guard.py", f"{_MOUNT}/plan.json"],
                            "resources": OWN_PODS[_COMPONENT].resources,
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                                "readOnlyRootFilesystem": True,
                            },
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                            "volumeMounts": [{"name": "program", "mountPath": _MOUNT, "readOnly": True}],
                        }
                    ],
                    "volumes": [{"name": "program", "configMap": {"name": names.GUARD}}],
                },
            },
        },
    }
