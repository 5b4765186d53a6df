"""Namespaces: the system namespace always, the models' only where the stack file says `create: true`."""

from __future__ import annotations

from infra.plan.model import ClusterPlan
from infra.render.labels import owner
from infra.render.manifest import Manifest, metadata


def system_namespace(plan: ClusterPlan) -> Manifest:
    """Holds DaemonSets that mount host paths and, for NVIDIA, run privileged: no stricter Pod Security level admits them."""
    return _namespace(plan.system_namespace, plan, "privileged")


def model_namespace(plan: ClusterPlan) -> Manifest | None:
    """None where the namespace exists already: it is then never relabelled or deleted."""
    return _namespace(plan.namespace, plan, plan.pod_security) if plan.create_namespace else None


def namespaces(plan: ClusterPlan) -> tuple[Manifest, ...]:
    created = model_namespace(plan)
    return (system_namespace(plan), *((created,) if created else ()))


def _namespace(name: str, plan: ClusterPlan, level: str) -> Manifest:
    version = f"v{plan.kubernetes_version}"
    pod_security = {
        f"pod-security.kubernetes.io/{mode}{suffix}": value
        for mode in ("enforce", "audit", "warn")
        for suffix, value in (("", level), ("-version", version))
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(name, {**owner(plan.stack), **pod_security})}
