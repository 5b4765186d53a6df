"""The one table of kinds: paths of the API, and the kinds of everything that a stack can declare."""

from __future__ import annotations

import pytest

from components.apply import _type_of
from infra.kinds import KINDS, ObjectKey, UnknownKind, key_of, kind_named, kind_of


@pytest.mark.parametrize(
    ("key", "path"),
    [
        (ObjectKey(kind="Namespace", namespace="", name="inference"), "/api/v1/namespaces/inference"),
        (ObjectKey(kind="ConfigMap", namespace="a", name="b"), "/api/v1/namespaces/a/configmaps/b"),
        (ObjectKey(kind="Deployment", namespace="a", name="b"), "/apis/apps/v1/namespaces/a/deployments/b"),
        (ObjectKey(kind="ClusterRole", namespace="", name="b"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/b"),
        (
            ObjectKey(kind="LeaderWorkerSet", namespace="a", name="b"),
            "/apis/leaderworkerset.x-k8s.io/v1/namespaces/a/leaderworkersets/b",
        ),
    ],
)
def test_an_objects_path_is_the_api_servers(key: ObjectKey, path: str) -> None:
    assert key.path == path


def test_a_collections_path_has_no_name() -> None:
    assert kind_named("Node").path() == "/api/v1/nodes"
    assert kind_named("Role").path("a") == "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles"


def test_a_kind_without_a_row_is_told_by_name() -> None:
    with pytest.raises(UnknownKind, match="batch/v2 Job has no row"):
        kind_of({"apiVersion": "batch/v2", "kind": "Job", "metadata": {"name": "x"}})


def test_the_key_of_a_cluster_scoped_object_has_no_namespace() -> None:
    assert str(key_of({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})) == "Namespace/x"
    assert str(key_of({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "y"}})) == "Secret/y/x"


def test_every_kind_stands_once_and_has_an_order_of_one_digit() -> None:
    assert len({row.kind for row in KINDS}) == len(KINDS)
    assert all(0 <= row.order <= 9 for row in KINDS)


def test_what_pods_refer_to_comes_before_them_and_services_after() -> None:
    order = {row.kind: row.order for row in KINDS}
    for kind in ("Namespace", "ServiceAccount", "ConfigMap", "Secret", "PersistentVolumeClaim"):
        for workload in ("DaemonSet", "Deployment", "LeaderWorkerSet"):
            assert order[kind] < order[workload] < order["Service"]


@pytest.mark.parametrize("row", [row for row in KINDS if row.builtin], ids=lambda row: row.kind)
def test_every_builtin_kind_has_a_type_of_the_provider(row) -> None:
    assert _type_of(row).__name__ == row.kind


def test_only_kinds_of_other_groups_come_with_a_definition() -> None:
    assert {row.kind for row in KINDS if not row.builtin} == {"LeaderWorkerSet"}
