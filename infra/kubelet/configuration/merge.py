"""The configuration in force on a node: base file, drop-in files, flags, merged as the kubelet merges them.

What surprises people: the base file gets its defaults before the merge, so a drop-in's evictionHard adds to the default thresholds;
maps merge by key, lists replace, null deletes; an empty list of the base file is the default again after a merge; field names of
drop-ins are matched whatever their case; a drop-in that is empty or without apiVersion and kind stops the kubelet, and so does a
missing directory. Flags win over files, and a map or list given as a flag replaces the one in the files (feature gates excepted).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.diagnosis import did_you_mean, shown
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.fields import FIELDS, HEADER
from infra.kubelet.configuration.flags import OTHER_FLAGS, FieldFlag, field_flag, field_flags
from infra.kubelet.faults import KubeletRefuses
from infra.kubelet.quantity import parse_json_quantity

DROP_IN_SUFFIX = ".conf"
_STAGE = "load"
# Without --config the kubelet starts from the defaults of the time before configuration files.
_FLAGS_ONLY = {
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "readOnlyPort": 10255,
    "evictionHard": {},
}


@dataclass(frozen=True, slots=True)
class EffectiveConfiguration:
    """`document` is a KubeletConfiguration that means the same alone; `applied` and `skipped` are drop-ins, `unknown` base fields."""

    document: Mapping[str, Any]
    applied: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def read_drop_ins(folder: Path) -> dict[str, str]:
    """All files below a --config-dir by relative path; KubeletRefuses where it is missing, as the kubelet does."""
    if not folder.is_dir():
        raise KubeletRefuses(_STAGE, (f"--config-dir {folder}: there is no such directory; create it or leave the flag out",))
    return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("*")) if file.is_file()}


def effective_configuration(
    *, base: str | None, drop_ins: Mapping[str, str] | None = None, flags: Sequence[str] = (), kubernetes_version: str = "1.37"
) -> EffectiveConfiguration:
    """What is in force. `base` is the text of --config (None: no file), `drop_ins` text by path relative to --config-dir (None:
    not set), `flags` the command line. KubeletRefuses at stage `load` where the kubelet would stop."""
    unknown: tuple[str, ...] = ()
    if base is None:
        document = copy.deepcopy(_FLAGS_ONLY)
        if drop_ins is not None:
            document["evictionHard"] = {}
    else:
        given = _parse(base, "--config")
        _check_header(given, "--config")
        document = {name: value for name, value in given.items() if name in FIELDS}
        unknown = tuple(name for name in given if name not in FIELDS and name not in HEADER)
        _defaults_of_base(document, kubernetes_version)
    paths = sorted(drop_ins or (), key=lambda path: path.split("/"))
    applied = [path for path in paths if path.endswith(DROP_IN_SUFFIX)]
    skipped = [path for path in paths if not path.endswith(DROP_IN_SUFFIX)]
    if drop_ins is not None:
        document = _with_drop_ins(document, [_drop_in(drop_ins[path], path) for path in applied])
    document.pop("mergeDefaultEvictionSettings", None)
    if document.get("evictionHard") is None:
        document["evictionHard"] = {}
    _apply_flags(document, flags)
    load(document, kubernetes_version=kubernetes_version)
    return EffectiveConfiguration(document, tuple(applied), tuple(skipped), unknown)


def merged(base: Mapping[str, Any], drop_in: Mapping[str, Any], *, kubernetes_version: str) -> dict[str, Any]:
    """A base configuration and one drop-in, both as documents with or without apiVersion and kind, as one KubeletConfiguration that means the same.

    KubeletRefuses where the kubelet could not load the base; what it refuses of the result is for its caller to find.
    """
    document = {name: value for name, value in base.items() if name in FIELDS}
    _defaults_of_base(document, kubernetes_version)
    return _with_drop_ins(document, (drop_in,))


def _with_drop_ins(document: dict[str, Any], drop_ins: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A base with its defaults, and drop-ins over it in order."""
    found = _as_marshalled(document)
    for drop_in in drop_ins:
        found = merge_patch(found, drop_in)
    found = _unmarshal(found)
    found.setdefault("evictionHard", {})
    return found


def merge_patch(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386): maps merge by key, null deletes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _parse(text: str, path: str) -> dict[str, Any]:
    if not text:
        raise KubeletRefuses(_STAGE, (f"{path}: is empty; write apiVersion and kind at least, or remove the file",))
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise KubeletRefuses(_STAGE, (f"{path}: is no YAML: {' '.join(str(error).split())}",)) from None
    if document is not None and not isinstance(document, dict):
        raise KubeletRefuses(_STAGE, (f"{path}: holds a {type(document).__name__}, not a KubeletConfiguration",))
    return document or {}


def _check_header(document: Mapping[str, Any], path: str) -> None:
    given = {name: document.get(name) for name in HEADER}
    if given == HEADER:
        return
    missing = next((name for name, value in given.items() if not value), None)
    if missing:
        begin = " and ".join(f"{name}: {value}" for name, value in HEADER.items())
        raise KubeletRefuses(_STAGE, (f"{path}: has no {missing}; begin it with {begin}",))
    raise KubeletRefuses(
        _STAGE, (f"{path}: is {' '.join(map(str, given.values()))}; the kubelet takes {' '.join(HEADER.values())}",)
    )


def _drop_in(text: str, path: str) -> dict[str, Any]:
    document = _parse(text, path)
    _check_header(document, path)
    return document


def _defaults_of_base(document: dict[str, Any], kubernetes_version: str) -> None:
    """The defaults that depend on other fields or that a later merge would add to; the rest can wait."""
    loaded = load(document, kubernetes_version=kubernetes_version)
    document["evictionHard"] = dict(loaded["evictionHard"])
    document["serializeImagePulls"] = loaded["serializeImagePulls"]
    if loaded.gates["KubeletEnsureSecretPulledImages"]:
        document["imagePullCredentialsVerificationPolicy"] = loaded["imagePullCredentialsVerificationPolicy"]
    if loaded["crashLoopBackOff"]["maxContainerRestartPeriod"] is not None:
        back_off = dict(document.get("crashLoopBackOff") or {})
        back_off.setdefault("maxContainerRestartPeriod", "5m0s")
        document["crashLoopBackOff"] = back_off
    if not document.get("nodeStatusReportFrequency") and document.get("nodeStatusUpdateFrequency"):
        document["nodeStatusReportFrequency"] = document["nodeStatusUpdateFrequency"]
    if not document.get("enforceNodeAllocatable") and document.get("enforceNodeAllocatable") != []:
        document["enforceNodeAllocatable"] = ["pods"]


def _as_marshalled(document: Mapping[str, Any]) -> dict[str, Any]:
    """As the kubelet writes its base configuration before the merge: empty maps and lists are left out, quantities canonical."""
    found = {name: value for name, value in copy.deepcopy(dict(document)).items() if value not in ({}, [], None, "")}
    for entry in found.get("reservedMemory") or ():
        if isinstance(entry, dict) and isinstance(entry.get("limits"), dict):
            entry["limits"] = {name: str(parse_json_quantity(value).value) for name, value in entry["limits"].items()}
    return found


def _unmarshal(document: Mapping[str, Any]) -> dict[str, Any]:
    """Go matches the names of fields whatever their case, in the order of the keys; a later one wins, maps add up."""
    canonical = {name.lower(): name for name in FIELDS}
    found: dict[str, Any] = {}
    for name in sorted(document):
        field = canonical.get(name.lower())
        if field is None:
            continue
        value = document[name]
        if field in found and isinstance(found[field], dict) and isinstance(value, Mapping):
            found[field] = {**found[field], **value}
        else:
            found[field] = value
    return found


# Flags
def _apply_flags(document: dict[str, Any], flags: Sequence[str]) -> None:
    values: dict[str, list[str]] = {}
    waiting = list(flags)
    while waiting:
        word = waiting.pop(0)
        if not re.match(r"--?[A-Za-z]", word):
            raise KubeletRefuses("flags", (f"{shown(word)} is no flag; the kubelet takes no other arguments",))
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        flag = field_flag(name)
        if flag is None and name not in OTHER_FLAGS:
            raise KubeletRefuses("flags", (f"unknown flag: --{name}.{did_you_mean(name, [*field_flags(), *OTHER_FLAGS])}",))
        if not equals:
            if (flag.syntax if flag else OTHER_FLAGS[name]) == "bool":
                value = "true"
            elif waiting:
                value = waiting.pop(0)
            else:
                raise KubeletRefuses("flags", (f"flag needs an argument: --{name}",))
        if flag is not None:
            values.setdefault(flag.name, []).append(value)
    for name, texts in values.items():
        flag = field_flag(name)
        assert flag is not None
        _set(document, flag, texts)


def _set(document: dict[str, Any], flag: FieldFlag, texts: list[str]) -> None:
    try:
        value = flag.parse(texts)
    except ValueError as error:
        raise KubeletRefuses("flags", (f"--{flag.name}: {error}",)) from None
    *above, last = flag.field.split(".")
    target = document
    for name in above:
        inner = target.get(name)
        target[name] = dict(inner) if isinstance(inner, Mapping) else {}
        target = target[name]
    if flag.field == "featureGates":
        value = {**(target.get(last) or {}), **value}
    target[last] = value
