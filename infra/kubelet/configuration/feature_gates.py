"""Feature gates: which a kubelet of a Kubernetes version knows, their defaults, and what setting them does.

`feature_gates.json` holds what the kubelet of each supported version registers: a kubelet's own history of a gate does not say what an
earlier one did, since gates are dropped and histories rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from infra.diagnosis import did_you_mean
from infra.kubelet.configuration.versions import in_force

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
        # A gate that the version does not know is off.
        return gate.default if gate is not None else False

    def refuses(self, name: str) -> bool:
        """Whether the version has the gate, and it is off."""
        return name in self._known and not self[name]


@cache
def _registry() -> tuple[dict[str, dict[str, list | None]], dict[str, dict[str, list[str]]]]:
    document = json.loads(_REGISTRY.read_text())
    return document["gates"], document["dependencies"]


@cache
def dependencies(kubernetes_version: str) -> Mapping[str, tuple[str, ...]]:
    """Which other gates a gate of a version needs; checked since 1.35."""
    found = {name: in_force(history, kubernetes_version) for name, history in _registry()[1].items()}
    return {name: tuple(needs) for name, needs in found.items() if needs}


@cache
def known_gates(kubernetes_version: str) -> Mapping[str, Gate]:
    """All gates of a version such as "1.37"."""
    found = {name: in_force(history, kubernetes_version) for name, history in _registry()[0].items()}
    return {name: Gate(*spec) for name, spec in found.items() if spec}


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
        for name, needs in dependencies(kubernetes_version).items():
            off = [need for need in needs if not gates[need]]
            if off and gates[name]:
                errors.append(f"{name} is enabled, but depends on features that are disabled: {off}")
    return gates, tuple(errors)
