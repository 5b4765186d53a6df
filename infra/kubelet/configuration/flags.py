"""The kubelet's command line: flags that stand for a field (from the table of fields), all others, and how a flag's text is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from infra.diagnosis import shown
from infra.kubelet.configuration.fields import FIELDS

# Flags that stand for no field of the configuration, with the syntax of their value.
OTHER_FLAGS = {
    **dict.fromkeys(
        [
            "config",
            "config-dir",
            "kubeconfig",
            "bootstrap-kubeconfig",
            "hostname-override",
            "node-ip",
            "cert-dir",
            "cloud-provider",
            "root-dir",
            "node-labels",
            "lock-file",
            "minimum-container-ttl-duration",
            "maximum-dead-containers-per-container",
            "maximum-dead-containers",
            "experimental-mounter-path",
            "runtime-cgroups",
            "image-credential-provider-config",
            "image-credential-provider-bin-dir",
            "housekeeping-interval",
        ],
        "string",
    ),
    **dict.fromkeys(
        ["seccomp-default", "exit-on-lock-contention", "experimental-allocatable-ignore-eviction", "help", "version"], "bool"
    ),
}


@dataclass(frozen=True, slots=True)
class FieldFlag:
    """A flag for a field; `field` is its path in the configuration, `syntax` what its value looks like."""

    name: str
    field: str
    syntax: str

    def parse(self, texts: list[str]) -> Any:
        """The value after all occurrences of the flag; ValueError says what is wrong with one."""
        parse_one = _COLLECTIONS.get(self.syntax)
        if parse_one is None:
            return _SCALARS.get(self.syntax, str)(texts[-1])
        if self.syntax == "taints":  # the one list that a later occurrence replaces
            return parse_one(texts[-1])
        if self.syntax in ("list", "memory", "patterns"):
            return [item for text in texts for item in parse_one(text)]
        if self.syntax == "headers":
            headers: dict[str, list[str]] = {}
            for name, value in (pair for text in texts for pair in parse_one(text)):
                headers.setdefault(name, []).append(value)
            return headers
        return {name: value for text in texts for name, value in parse_one(text)}


@cache
def field_flags() -> dict[str, FieldFlag]:
    """All flags for fields, by name without dashes in front."""
    found: dict[str, FieldFlag] = {}
    for field in FIELDS.values():
        for name, member in field.flags.items():
            path = f"{field.name}.{member}" if member else field.name
            found[name] = FieldFlag(name, path, field.kind.at(member).flag_syntax)
    return found


def field_flag(name: str) -> FieldFlag | None:
    return field_flags().get(name)


def flag_meant(name: str) -> FieldFlag | None:
    """The flag that a name stands for which is no field: the flag itself, with dashes, underscores or in camel case (reservedCPUs)."""
    return field_flag(re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name.lstrip("-")).replace("_", "-").lower())


def _boolean(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise ValueError(f"{shown(text)} must be true or false")


def _integer(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"{shown(text)} must be a whole number") from None


def _items(text: str) -> list[str]:
    return text.split(",") if text else []


def _pairs(text: str, sign: str = "=") -> list[tuple[str, str]]:
    found = []
    for item in filter(None, text.split(",")):
        name, separator, value = item.partition(sign)
        if not separator:
            raise ValueError(f"{shown(item)} must look like name{sign}value")
        found.append((name.strip(), value.strip()))
    return found


def _pair(text: str) -> list[tuple[str, str]]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"{shown(text)} must look like name=value")
    return [(name.strip(), value.strip())]


def _gates(text: str) -> list[tuple[str, bool]]:
    return [(name, _boolean(value)) for name, value in _pairs(text)]


def _memory(text: str) -> list[dict[str, Any]]:
    found = []
    for reservation in text.split(";") if text else ():
        node, colon, limits = reservation.partition(":")
        if not colon or ":" in limits or not re.fullmatch(r"[+-]?\d+", node, re.ASCII):
            raise ValueError(f"{shown(reservation)} must look like 0:memory=1Gi,hugepages-1Gi=2Gi")
        amounts = dict(_pairs(limits))
        for name in amounts:
            if name != "memory" and not name.startswith("hugepages-"):
                raise ValueError(f"{shown(name)} is neither memory nor hugepages-<size>")
        found.append({"numaNode": int(node), "limits": amounts})
    return found


def _taints(text: str) -> list[dict[str, str]]:
    found = []
    for item in filter(None, text.split(",")):
        named, colon, effect = item.partition(":")
        key, _, value = named.partition("=")
        if not colon or not key:
            raise ValueError(f"{shown(item)} must look like key=value:NoSchedule")
        found.append({"key": key, "value": value, "effect": effect})
    return found


def _patterns(text: str) -> list[dict[str, Any]]:
    return [{"filePattern": pattern, "verbosity": _integer(level)} for pattern, level in _pairs(text)]


_SCALARS: dict[str, Callable[[str], Any]] = {"bool": _boolean, "int": _integer}
_COLLECTIONS: dict[str, Callable[[str], Any]] = {
    "list": _items,
    "map": _pairs,
    "pair": _pair,
    "thresholds": lambda text: _pairs(text, "<"),
    "gates": _gates,
    "headers": lambda text: _pairs(text, ":"),
    "memory": _memory,
    "patterns": _patterns,
    "taints": _taints,
}
