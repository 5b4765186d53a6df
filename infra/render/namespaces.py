"""Namespaces: the system namespace always, the models' only where the stack file says `create: true`."""

from __future__ import annotations

from infra.plan.model import ClusterPlan
from infra.render.labels import owner
from infra.render.manifest import Manifest, metadata
from infra.render.part import Object, Part, key_of_part

_TOKEN, _NAME = "numawise:cluster:Namespaces", "namespaces"
NAMESPACES_PART = key_of_part(_TOKEN, _NAME)


def namespaces_part(plan: ClusterPlan, *, stack: str) -> Part:
    """The namespaces that are ours. They outlive the stack: claims may lie in them."""
    children = tuple(
        Object(manifest=manifest, name=manifest["metadata"]["name"], retain=True) for manifest in _namespaces(plan, stack)
    )
    return Part(token=_TOKEN, name=_NAME, facts={"namespaces": [child.name for child in children]}, children=children)


def _namespaces(plan: ClusterPlan, stack: str) -> tuple[Manifest, ...]:
    """The system namespace holds DaemonSets that mount host paths and, for NVIDIA, run privileged: no stricter Pod Security level admits them.

    A models' namespace that exists already is never relabelled or deleted.
    """
    system = _namespace(plan.system_namespace, plan, stack, "privileged")
    return (
        (system, _namespace(plan.namespace.name, plan, stack, plan.namespace.pod_security)) if plan.namespace.create else (system,)
    )


def _namespace(name: str, plan: ClusterPlan, stack: str, level: str) -> Manifest:
    version = f"v{plan.kubernetes_version}"
    pod_security = {
        f"pod-security.kubernetes.io/{mode}{suffix}": value
        for mode in ("enforce", "audit", "warn")
        for suffix, value in (("", level), ("-version", version))
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(name, {**owner(stack), **pod_security})}
