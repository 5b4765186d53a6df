"""What the engine's state says of the last update, and whether the cluster is still the one that it describes."""

from __future__ import annotations

from typing import Any

import pytest

from infra.kinds import ObjectKey
from infra.observe.client import ApiError, Client
from infra.observe.remembered import Remembered, cluster_uid, rebuilt, remembered
from tests.observe.stub_client import StubClient

POD_URN = "urn:pulumi:s::numawise::numawise:gpu:NodePool$kubernetes:core/v1:NodePatch::"
CLAIMED = ObjectKey(kind="ConfigMap", namespace="a", name="b")


def config_map(uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "a", "uid": uid}}


def test_labels_objects_and_the_cluster_are_read_from_the_state() -> None:
    found = remembered(
        {
            "urn:pulumi:s::numawise::pulumi:pulumi:Stack::numawise-s": {
                "type": "pulumi:pulumi:Stack",
                "outputs": {"cluster": {"uid": "u"}, "releasedNodes": ["gone"]},
            },
            f"{POD_URN}h100-node/gpu-a": {
                "type": "kubernetes:core/v1:NodePatch",
                "outputs": {"metadata": {"name": "gpu-a", "uid": "1"}},
            },
            "urn:pulumi:s::numawise::x$kubernetes:core/v1:ConfigMap::c": {
                "type": "kubernetes:core/v1:ConfigMap",
                "outputs": config_map("7"),
            },
            "urn:pulumi:s::numawise::x$kubernetes:y/v1:Unknown::c": {
                "type": "kubernetes:y/v1:Unknown",
                "outputs": {"apiVersion": "y/v1", "kind": "Unknown", "metadata": {"name": "b", "uid": "8"}},
            },
            "urn:pulumi:s::numawise::x$kubernetes:core/v1:ConfigMap::pending": {"type": "kubernetes:core/v1:ConfigMap"},
            "urn:pulumi:s::numawise::numawise:gpu:NodePool::h100": {"type": "numawise:gpu:NodePool", "outputs": {}},
        }
    )
    assert found == Remembered(
        cluster_uid="u", label_resources={"gpu-a": ("h100-node/gpu-a",)}, released=frozenset({"gone"}), objects={CLAIMED: "7"}
    )
    assert remembered({}) == Remembered()


@pytest.mark.parametrize(
    ("known", "now", "live", "told"),
    [
        ("one", "one", None, False),
        ("one", "two", None, True),
        ("one", "two", "8", True),  # made anew by somebody
        ("one", "two", "7", False),  # refreshed: the state describes this cluster
        ("", "two", None, False),
        ("one", "", None, False),
    ],
)
def test_another_cluster_is_told_while_the_state_describes_the_old_one(known: str, now: str, live: str | None, told: bool) -> None:
    client = StubClient({CLAIMED.path: config_map(live)} if live else {})
    problems = list(rebuilt(Remembered(cluster_uid=known, objects={CLAIMED: "7"}), now, client))
    assert bool(problems) is told
    if told:
        assert "`pulumi refresh`" in problems[0].message and "ConfigMap/a/b" in problems[0].message


def test_a_state_without_objects_fits_every_cluster() -> None:
    assert list(rebuilt(Remembered(cluster_uid="one"), "two", StubClient({}))) == []


def test_the_cluster_is_known_by_kube_system_where_that_may_be_read() -> None:
    assert cluster_uid(StubClient({"/api/v1/namespaces/kube-system": {"metadata": {"uid": "u"}}})) == "u"
    assert cluster_uid(StubClient({})) == ""

    class Refusing(StubClient):
        status = 403

        def find(self, path: str, **_: Any) -> Any:
            raise ApiError(self.status, "no")

    refusing: Client = Refusing({})
    assert cluster_uid(refusing) == ""
    Refusing.status = 500
    with pytest.raises(ApiError):
        cluster_uid(refusing)
