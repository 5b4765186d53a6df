"""What a manager of an object has set of it, by the field sets that the API server keeps. Pure.

Source: kubernetes-sigs/structured-merge-diff, fieldpath/serialize-pe.go: `f:NAME` a field, `k:{...}` a list's item by its keys, `v:VALUE` an item of a
set, `i:N` one by its place, `.` the object or item itself; a path without further ones stands for the whole value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.kinds import ObjectKey

Fields = Mapping[str, Any]


def fields_set_by_owner(raw: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any] | None:
    """The fields of an object that whoever set these labels has set, beside its status; None where the object does not have the labels.

    What the API server filled in, what admission changed and what other managers set is not in it.
    """
    metadata = raw["metadata"]
    if not labels.items() <= (metadata.get("labels") or {}).items():
        return None
    owned: Fields = {}
    for entry in metadata.get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        set_labels = (fields.get("f:metadata") or {}).get("f:labels") or {}
        if not entry.get("subresource") and all(f"f:{name}" in set_labels for name in labels):
            owned = _union(owned, fields)
    return {**_part(raw, owned), "status": raw.get("status") or {}} if owned else None


def fields_of_owner(raws: Mapping[ObjectKey, Mapping[str, Any]], labels: Mapping[str, str]) -> dict[ObjectKey, dict[str, Any]]:
    """The same of many; without those that are not the owner's, or are about to go."""
    found = {key: fields_set_by_owner(raw, labels) for key, raw in raws.items() if "deletionTimestamp" not in raw["metadata"]}
    return {key: fields for key, fields in found.items() if fields is not None}


def _union(one: Fields, other: Fields) -> Fields:
    return {name: _union(one.get(name, {}), other.get(name, {})) for name in (*one, *(name for name in other if name not in one))}


def _part(value: Any, fields: Fields) -> Any:
    """`value` without what is not in `fields`."""
    if not fields:
        return value
    if isinstance(value, Mapping):
        return {name: _part(inner, fields[f"f:{name}"]) for name, inner in value.items() if f"f:{name}" in fields}
    if isinstance(value, list):
        found = ((item, _fields_of_item(item, place, fields)) for place, item in enumerate(value))
        return [_part(item, inner) for item, inner in found if inner is not None]
    return value


def _fields_of_item(item: Any, place: int, fields: Fields) -> Fields | None:
    for path, inner in fields.items():
        kind, _, text = path.partition(":")
        if kind == "k" and isinstance(item, Mapping) and json.loads(text).items() <= item.items():
            return inner
        if (kind == "v" and json.loads(text) == item) or (kind == "i" and int(text) == place):
            return inner
    return None
