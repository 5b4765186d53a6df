"""The guard against storms of refused pods: one small Deployment a stack, and the rights that it needs."""

from __future__ import annotations

import json
from typing import Any

from infra.agents.source import source_of
from infra.catalog.load import pins
from infra.plan.model import ClusterPlan
from infra.render import names
from infra.render.labels import CHECKSUM, KUBELET_CONFIG, POOL, field_manager, label_value, labels, selector
from infra.render.manifest import Manifest, checksum, config_map, metadata, service_account, tolerations
from infra.render.nodes import pool_labels

_APPLICATION, _MOUNT = "refusal-guard", "/etc/numawise"
_USER = 65532  # any user without a name; the image's own is root


def refusal_guard(plan: ClusterPlan) -> tuple[Manifest, ...]:
    """Nothing where no pool's kubelet could refuse for topology, or no node is known by name."""
    if not guarded_nodes(plan):
        return ()
    all_labels = labels(stack=plan.stack, name=_APPLICATION, instance=plan.stack, component="guard")
    name, cluster_name, namespace = names.GUARD, names.cluster_scoped(plan, names.GUARD), plan.system_namespace
    files = {"guard.py": source_of("guard"), "plan.json": json.dumps(_expected(plan), indent=1) + "\n"}
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
    objects.append(_deployment(plan, all_labels, files))
    return tuple(objects)


def guarded_nodes(plan: ClusterPlan) -> dict[str, dict[str, Any]]:
    """Node -> what the guard has to know of it."""
    return {
        node: {
            "labels": pool_labels(pool),
            "resource": pool.resource_name,
            "devices": pool.allocatable_gpus,
        }
        for pool in plan.node_pools
        if pool.node_names_given
        and pool.kubelet.get("topologyManagerPolicy") in ("restricted", "single-numa-node")
        and plan.models_of(pool.name)
        for node in pool.nodes
    }


def _namespaces(plan: ClusterPlan) -> list[str]:
    return sorted({model.namespace for model in plan.models})


def _expected(plan: ClusterPlan) -> dict[str, Any]:
    return {
        "stack": label_value(plan.stack),
        "label": KUBELET_CONFIG,
        "fieldManager": field_manager(plan.stack),
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


def _deployment(plan: ClusterPlan, all_labels: dict[str, str], files: dict[str, str]) -> Manifest:
    pod_labels = selector(_APPLICATION, plan.stack)
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
                            "image": pins()["rollout-agent"].pinned_reference,
                            "command": ["python3", "-I", f"{_MOUNT}/guard.py", f"{_MOUNT}/plan.json"],
                            # Burstable, as our DaemonSets: a Guaranteed pod would be pinned by the memory manager.
                            "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
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
