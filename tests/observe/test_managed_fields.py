"""What the owner of an object has set of it: not what the API server filled in, nor what others set."""

from __future__ import annotations

from typing import Any

import pytest

from infra.kinds import ObjectKey
from infra.observe.managed_fields import fields_of_owner, fields_set_by_owner

OURS = {"numawise.dev/stack": "local"}
OWN_LABELS = {"f:labels": {"f:numawise.dev/stack": {}}}


def raw(spec: dict[str, Any], *entries: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"labels": OURS if labels is None else labels, "managedFields": list(entries)}, "spec": spec}


def entry(spec: dict[str, Any], *, labelled: bool = True, **more: Any) -> dict[str, Any]:
    fields = {"f:spec": spec, **({"f:metadata": OWN_LABELS} if labelled else {})}
    return {"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields, **more}


@pytest.mark.parametrize(
    ("live", "fields", "owned"),
    [
        pytest.param({"a": 1, "b": 2}, {"f:a": {}}, {"a": 1}, id="a field that the API server filled in"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"f:a": {}}, {"a": {"x": 1, "y": 2}}, id="a value that is owned whole"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"f:a": {".": {}, "f:y": {}}}, {"a": {"y": 2}}, id="a part of a map"),
        pytest.param({"a": {"x": 1}}, {"f:a": {".": {}}}, {"a": {}}, id="a map of which every entry is another's"),
        pytest.param({}, {"f:a": {}}, {}, id="a field that is gone"),
        pytest.param(
            {"c": [{"name": "injected", "image": "i"}, {"name": "vllm", "image": "v", "tty": False}]},
            {"f:c": {'k:{"name":"vllm"}': {".": {}, "f:name": {}, "f:image": {}}}},
            {"c": [{"name": "vllm", "image": "v"}]},
            id="an item by its key",
        ),
        pytest.param(
            {"ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]},
            {"f:ports": {'k:{"containerPort":80,"protocol":"UDP"}': {".": {}, "f:containerPort": {}}}},
            {"ports": [{"containerPort": 80}]},
            id="an item by two keys",
        ),
        pytest.param(
            {"names": ["b", "a", "c"]}, {"f:names": {'v:"a"': {}, 'v:"b"': {}}}, {"names": ["b", "a"]}, id="items of a set"
        ),
        pytest.param({"l": [5, 6, 7]}, {"f:l": {"i:1": {}}}, {"l": [6]}, id="an item by its place"),
    ],
)
def test_only_what_the_owner_set_is_seen(live: dict[str, Any], fields: dict[str, Any], owned: dict[str, Any]) -> None:
    found = fields_set_by_owner(raw(live, entry(fields)), OURS)
    assert found is not None
    assert found["spec"] == owned


def test_a_manager_that_did_not_set_our_labels_is_another() -> None:
    seen = raw({"a": 1, "b": 2, "c": 3}, entry({"f:a": {}}), entry({"f:b": {}}, labelled=False))
    assert (fields_set_by_owner(seen, OURS) or {})["spec"] == {"a": 1}


def test_a_field_that_two_managers_of_ours_set_is_seen_once_and_a_status_is_not_a_field() -> None:
    both = raw({"a": {"x": 1, "y": 2}}, entry({"f:a": {"f:x": {}}}), entry({"f:a": {"f:y": {}}}))
    assert (fields_set_by_owner(both, OURS) or {})["spec"] == {"a": {"x": 1, "y": 2}}
    scaled = raw({"a": 1, "replicas": 2}, entry({"f:a": {}}), entry({"f:replicas": {}}, subresource="scale"))
    assert (fields_set_by_owner(scaled, OURS) or {})["spec"] == {"a": 1}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(raw({"a": 1}, entry({"f:a": {}}), labels={}), id="no label"),
        pytest.param(raw({"a": 1}, entry({"f:a": {}}), labels={"numawise.dev/stack": "other"}), id="another stack's"),
        pytest.param(raw({"a": 1}, entry({"f:a": {}}, labelled=False)), id="labels that nobody is known to have set"),
        pytest.param(raw({"a": 1}), id="no managed fields"),
        pytest.param({"metadata": {}, "spec": {}}, id="nothing"),
    ],
)
def test_what_is_not_this_owners_has_no_fields_of_it(seen: dict[str, Any]) -> None:
    assert fields_set_by_owner(seen, OURS) is None


def test_objects_that_are_about_to_go_are_left_out() -> None:
    key, going = (ObjectKey(kind="Deployment", namespace="inference", name=name) for name in ("a", "b"))
    seen = raw({"a": 1}, entry({"f:a": {}}))
    ending = {**seen, "metadata": {**seen["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert set(fields_of_owner({key: seen, going: ending}, OURS)) == {key}
