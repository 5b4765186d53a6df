"""Feature gates: which a kubelet of a Kubernetes version knows, their defaults, and what setting them does.

`feature_gates.json` holds each gate's history as the kubelet's own registry lists it (recorded from v1.37.2), so that defaults
of earlier versions follow from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from infra.diagnosis import did_you_mean
from infra.kubelet.configuration.versions import parse_version

_REGISTRY = Path(__file__).with_name("feature_gates.json")
_ALL_ALPHA, _ALL_BETA = "AllAlpha", "AllBeta"


class Gate(NamedTuple):
    """A gate at one version: its default, whether it may still be changed, and its stage ("" is general availability)."""

    default: bool
    stage: str
    locked: bool


class FeatureGates:
    """Which gates are on."""

    __slots__ = ("_enabled", "_known")

    def __init__(self, known: Mapping[str, Gate], enabled: Mapping[str, bool]) -> None:
        self._known = known
        self._enabled = enabled

    def __getitem__(self, name: str) -> bool:
        on = self._enabled.get(name)
        if on is not None:
            return on
        gate = self._known.get(name)
        # A gate that the version does not know yet is off.
        return gate.default if gate is not None else False


@cache
def _registry() -> tuple[dict[str, list[list]], dict[str, list[str]]]:
    document = json.loads(_REGISTRY.read_text())
    return document["gates"], document["dependencies"]


@cache
def known_gates(kubernetes_version: str) -> Mapping[str, Gate]:
    """All gates of a version such as "1.37"."""
    wanted = parse_version(kubernetes_version)
    gates: dict[str, Gate] = {}
    for name, history in _registry()[0].items():
        for version, default, stage, locked in history:
            if parse_version(version) <= wanted:
                gates[name] = Gate(default, stage, locked)
    return gates


@cache
def _defaults(kubernetes_version: str) -> FeatureGates:
    return FeatureGates(known_gates(kubernetes_version), {})


def gates_of(kubernetes_version: str, settings: Mapping[str, bool]) -> tuple[FeatureGates, tuple[str, ...]]:
    """The gates under `settings`, and why the kubelet would not take those (featuregate.SetFromMap)."""
    if not settings:
        return _defaults(kubernetes_version), ()
    known = known_gates(kubernetes_version)
    enabled: dict[str, bool] = {}
    errors = []
    for name, value in settings.items():
        gate = known.get(name)
        if gate is None:
            errors.append(f"unrecognized feature gate: {name}.{did_you_mean(name, known)}")
        elif gate.locked and gate.default != value:
            errors.append(
                f"cannot set feature gate {name} to {str(value).lower()}, feature is locked to {str(gate.default).lower()}"
            )
        elif name in (_ALL_ALPHA, _ALL_BETA):
            stage = name.removeprefix("All").upper()
            for other, spec in known.items():
                if spec.stage == stage and other not in settings:
                    enabled[other] = value
            enabled[name] = value
        else:
            enabled[name] = value
    gates = FeatureGates(known, enabled)
    if not errors:
        for name, needs in _registry()[1].items():
            off = [need for need in needs if not gates[need]]
            if off and gates[name]:
                errors.append(f"{name} is enabled, but depends on features that are disabled: {off}")
    return gates, tuple(errors)
