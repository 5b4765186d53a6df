"""The fields of `kubelet:` in a stack file: names, kinds and spellings, before the kubelet's own validation sees them.

Which fields there are stands in infra/kubelet/configuration/fields.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.diagnosis import Diagnosis, below, did_you_mean, shown
from infra.kubelet.configuration.fields import FIELDS, HEADER
from infra.kubelet.configuration.flags import flag_meant
from infra.kubelet.configuration.go_types import Kind

_EXPECTED = {
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "duration": "a duration such as 5s or 100ms",
    "map of strings": "a map of names to values",
    "map of booleans": "a map of names to true or false",
    "list of strings": "a list of strings",
    "list of integers": "a list of whole numbers",
    "list of objects": "a list of maps",
    "object": "a map",
}


def read_user_fields(user_kubelet: Mapping[str, Any], path: str) -> tuple[dict[str, Any], list[Diagnosis]]:
    """The user's fields as the kubelet would take them, and what is wrong with their names, kinds and spellings.

    A field that is null counts as left out. Quantities and options may be written as numbers or booleans; the kubelet wants strings, so that is what they
    become. The kubelet itself ignores an unknown field (it decodes leniently after the strict attempt): here it is an error.
    """
    fields: dict[str, Any] = {}
    problems: list[Diagnosis] = []
    for name, value in user_kubelet.items():
        where = below(path, name)
        if name in HEADER:
            if value != HEADER[name]:
                problems.append(Diagnosis(where, "WrongKind", f"is {shown(value)}; only {HEADER[name]} can be planned."))
            continue
        field = FIELDS.get(name)
        if field is None:
            flag = flag_meant(str(name))
            hint = f' Did you mean "{flag.field}"?' if flag else did_you_mean(name, FIELDS)
            problems.append(
                Diagnosis(
                    where, "UnknownField", f"no field of KubeletConfiguration; a kubelet would ignore it without a word.{hint}"
                )
            )
        elif value is not None:
            taken = _take(field.kind.form, value)
            if taken is _WRONG:
                problems.append(Diagnosis(where, "WrongType", f"{shown(value)} is not {_EXPECTED[field.kind.form]}."))
            elif field.values and isinstance(taken, str) and taken not in field.values:
                known = ", ".join(field.values)
                problems.append(
                    Diagnosis(where, "WrongSpelling", f"{shown(taken)} is none of {known}.{did_you_mean(taken, field.values)}")
                )
            else:
                fields[name] = taken
                problems += _unknown_members(field.kind, taken, where)
    return fields, problems


def _unknown_members(kind: Kind, value: Any, path: str) -> Iterator[Diagnosis]:
    """Members of nested sections that no kubelet knows: it would leave them out without a word."""
    if kind.members is None:
        return
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _unknown_members(kind, item, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            member = kind.members.get(name)
            if member is not None:
                yield from _unknown_members(member, item, below(path, name))
                continue
            hint = did_you_mean(name, kind.members) or f" Known: {', '.join(kind.members)}."
            yield Diagnosis(
                below(path, name),
                "UnknownField",
                f"no field of KubeletConfiguration; a kubelet would ignore it without a word.{hint}",
            )


_WRONG = object()


def _take(form: str, value: Any) -> Any:
    if form in ("string", "duration"):
        return value if isinstance(value, str) else _WRONG
    if form == "boolean":
        return value if isinstance(value, bool) else _WRONG
    if form == "integer":
        return value if type(value) is int and -(2**31) <= value < 2**63 else _WRONG
    if form == "number":
        return value if isinstance(value, int | float) and not isinstance(value, bool) else _WRONG
    if form == "map of strings":
        return _map_of_strings(value)
    if form == "map of booleans":
        good = isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, bool) for k, v in value.items())
        return dict(value) if good else _WRONG
    if form == "object":
        return dict(value) if isinstance(value, Mapping) and all(isinstance(k, str) for k in value) else _WRONG
    item_types: dict[str, type] = {"list of strings": str, "list of integers": int, "list of objects": Mapping}
    if not isinstance(value, list | tuple) or not all(isinstance(i, item_types[form]) and not isinstance(i, bool) for i in value):
        return _WRONG
    return [dict(item) if isinstance(item, Mapping) else item for item in value]


def _map_of_strings(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _WRONG
    taken: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            return _WRONG
        if item is None:
            continue
        if isinstance(item, bool):
            taken[key] = "true" if item else "false"
        elif isinstance(item, int | float | str):
            taken[key] = str(item)
        else:
            return _WRONG
    return taken
