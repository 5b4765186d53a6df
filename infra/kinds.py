"""The one table of Kubernetes kinds that a stack declares or looks at: group and version, plural, scope, and the order in which objects are applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`order`: 0 to 9; what a pod or a rule of the cluster refers to comes before it."""

    kind: str
    api_version: str
    plural: str
    namespaced: bool
    order: int

    @property
    def group(self) -> str:
        """`apps` of apps/v1; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def builtin(self) -> bool:
        """Whether every API server serves it; others come with a CustomResourceDefinition."""
        return "." not in self.group or self.group.endswith(".k8s.io")

    def path(self, namespace: str = "", name: str = "") -> str:
        """The API path of the collection, or of one object of it."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{middle}/{self.plural}" + (f"/{name}" if name else "")


def _row(order: int, api_version: str, kind: str, plural: str, *, namespaced: bool = True) -> Kind:
    return Kind(kind=kind, api_version=api_version, plural=plural, namespaced=namespaced, order=order)


_RBAC = "rbac.authorization.k8s.io/v1"
KINDS: tuple[Kind, ...] = (
    _row(0, "v1", "Namespace", "namespaces", namespaced=False),
    _row(0, "v1", "Node", "nodes", namespaced=False),
    _row(1, "v1", "ServiceAccount", "serviceaccounts"),
    _row(1, _RBAC, "ClusterRole", "clusterroles", namespaced=False),
    _row(1, _RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    _row(1, _RBAC, "Role", "roles"),
    _row(1, _RBAC, "RoleBinding", "rolebindings"),
    _row(2, "v1", "ConfigMap", "configmaps"),
    _row(2, "v1", "Secret", "secrets"),
    _row(2, "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    _row(3, "networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    _row(4, "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    _row(5, "apps/v1", "DaemonSet", "daemonsets"),
    _row(6, "apps/v1", "Deployment", "deployments"),
    _row(6, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets"),
    _row(7, "v1", "Service", "services"),
)
_BY_NAME = {(row.api_version, row.kind): row for row in KINDS}


class UnknownKind(LookupError):
    """An object of a kind that has no row: a mistake in the program that renders it, not in its input."""


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """The row of an object's apiVersion and kind."""
    try:
        return _BY_NAME[manifest["apiVersion"], manifest["kind"]]
    except KeyError:
        raise UnknownKind(f"{manifest.get('apiVersion')} {manifest.get('kind')} has no row in infra/kinds.py") from None


def kind_named(kind: str) -> Kind:
    """The row of a kind by its name alone; names are unique in the table."""
    return next(row for row in KINDS if row.kind == kind)


@dataclass(frozen=True, kw_only=True)
class ObjectKey:
    """An object's identity; `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"

    @property
    def path(self) -> str:
        """The API path of the object."""
        return kind_named(self.kind).path(self.namespace, self.name)


def key_of(manifest: Mapping[str, Any]) -> ObjectKey:
    metadata = manifest["metadata"]
    return ObjectKey(kind=kind_of(manifest).kind, namespace=metadata.get("namespace", ""), name=metadata["name"])
