"""Go's types as a KubeletConfiguration uses them: how a value from YAML or JSON is decoded, and how a flag spells it.

A type is a `Kind`; `pointer`, `list_of`, `map_of` and `struct` make kinds of kinds, as Go's types do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from infra.diagnosis import shown
from infra.kubelet.quantity import ZERO, parse_json_quantity

SECOND = 10**9
_DURATION_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_DURATION_PART = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


class WrongType(Exception):
    """A value that Go cannot decode into the field."""


class Kind(NamedTuple):
    """A Go type.

    `decode(value, path)` raises WrongType. `zero` is Go's zero value, None for what Go calls nil. `form` is what people write:
    "string", "map of strings", ... `flag_syntax` names the form of a flag's text (flags.py); empty: no flag has this type.
    """

    decode: Callable[[Any, str], Any]
    zero: Any
    go: str
    form: str
    flag_syntax: str = ""
    members: Mapping[str, Kind] | None = None  # of a struct, or of the structs that a list, map or pointer holds

    def at(self, path: str) -> Kind:
        """The kind of a member of a struct by its dotted path; the empty path is the kind itself."""
        kind = self
        for name in filter(None, path.split(".")):
            assert kind.members is not None, f"{self.go} has no member {path}"
            kind = kind.members[name]
        return kind


def parse_duration(text: str) -> int:
    """time.ParseDuration, in nanoseconds; ValueError where Go finds none."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total, end = 0, 0
    for part in _DURATION_PART.finditer(body):
        whole, fraction, unit = part.group(1), part.group(2) or "", part.group(3)
        if part.start() != end or not (whole or fraction):
            break
        total += int(whole or "0") * _DURATION_UNITS[unit]
        total += int(fraction or "0") * _DURATION_UNITS[unit] // 10 ** len(fraction)
        end = part.end()
    if not body or end != len(body) or total >= 2**63:
        raise ValueError(f"{shown(text)} is no duration; write it like 10s, 5m or 1h30m")
    return -total if text.startswith("-") else total


# Plain types
def _string(value: Any, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WrongType(f"{path}: {_json_name(value)} {shown(value)} where the kubelet takes a string; put it in quotes")
    return value


def _bool(value: Any, path: str) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise WrongType(f"{path}: {shown(value)} where the kubelet takes true or false (no quotes)")
    return value


def _integer(bits: int, *, signed: bool = True) -> Callable[[Any, str], int]:
    lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)

    def decode(value: Any, path: str) -> int:
        if value is None:
            return 0
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
            value = int(value)
        if type(value) is not int:
            raise WrongType(f"{path}: {shown(value)} where the kubelet takes a whole number (no quotes)")
        if not lowest <= value <= highest:
            raise WrongType(f"{path}: {value} does not fit into {'' if signed else 'u'}int{bits} ({lowest} to {highest})")
        return value

    return decode


def _float(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongType(f"{path}: {shown(value)} where the kubelet takes a number")
    return float(value)


def _duration(value: Any, path: str) -> int:
    if not isinstance(value, str):
        raise WrongType(f"{path}: {shown(value)} where the kubelet takes a duration in quotes, like 10s")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise WrongType(f"{path}: {error}") from None


def _flush_frequency(value: Any, path: str) -> int:
    return _duration(value, path) if isinstance(value, str) else _integer(64)(value, path)


def _quantity(value: Any, path: str) -> Any:
    try:
        return parse_json_quantity(value)
    except ValueError as error:
        raise WrongType(f"{path}: {shown(value)}: {error}") from None


def _time(value: Any, path: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", value):
        raise WrongType(f"{path}: {shown(value)} where the kubelet takes a time like 2026-01-31T12:00:00Z")
    return value


def _json_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "list" if isinstance(value, list | tuple) else "map"


# Types of types
def pointer(kind: Kind) -> Kind:
    """A field that can be told from one that is left out."""
    return kind._replace(
        decode=lambda value, path: None if value is None else kind.decode(value, path), zero=None, go=f"*{kind.go}"
    )


def list_of(kind: Kind, *, flag_syntax: str = "") -> Kind:
    """A list; nil where it is left out or null."""

    def decode(value: Any, path: str) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise WrongType(f"{path}: {_json_name(value)} where the kubelet takes a list")
        return [kind.decode(item, f"{path}[{index}]") for index, item in enumerate(value)]

    plural = {"string": "strings", "integer": "integers"}.get(kind.form, "objects")
    return Kind(decode, None, f"[]{kind.go}", f"list of {plural}", flag_syntax, kind.members)


def map_of(kind: Kind, *, flag_syntax: str = "") -> Kind:
    """A map by strings; nil where it is left out or null."""

    def decode(value: Any, path: str) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise WrongType(f"{path}: {_json_name(value)} where the kubelet takes a map")
        return {str(key): kind.decode(item, f"{path}.{key}") for key, item in value.items()}

    form = {"string": "map of strings", "boolean": "map of booleans"}.get(kind.form, "object")
    return Kind(decode, None, f"map[string]{kind.go}", form, flag_syntax, kind.members)


def struct(**members: Kind) -> Kind:
    """A struct; unknown members are left out, as by the kubelet's lenient decoding."""
    zero = {name: kind.zero for name, kind in members.items()}

    def decode(value: Any, path: str) -> dict[str, Any]:
        if value is None:
            return dict(zero)
        if not isinstance(value, Mapping):
            raise WrongType(f"{path}: {_json_name(value)} where the kubelet takes a map")
        found = dict(zero)
        for name, item in value.items():
            kind = members.get(name)
            if kind is not None:
                found[name] = kind.decode(item, f"{path}.{name}")
        return found

    return Kind(decode, zero, "struct", "object", members=members)


STRING = Kind(_string, "", "string", "string", "string")
BOOL = Kind(_bool, False, "bool", "boolean", "bool")
INT32 = Kind(_integer(32), 0, "int32", "integer", "int")
INT64 = Kind(_integer(64), 0, "int64", "integer", "int")
UINT32 = Kind(_integer(32, signed=False), 0, "uint32", "integer", "int")
FLOAT64 = Kind(_float, 0.0, "float64", "number")
DURATION = Kind(_duration, 0, "Duration", "duration", "duration")
FLUSH_FREQUENCY = Kind(_flush_frequency, 0, "TimeOrMetaDuration", "duration", "duration")
QUANTITY = Kind(_quantity, ZERO, "Quantity", "string", "string")
TIME = Kind(_time, None, "*Time", "string")
STRINGS = list_of(STRING, flag_syntax="list")
STRING_MAP = map_of(STRING, flag_syntax="map")
