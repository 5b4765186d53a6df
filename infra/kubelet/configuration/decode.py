"""A KubeletConfiguration (v1beta1) as the kubelet loads it: decoded into Go's types, unknown fields left out, defaults applied.

The kubelet decodes strictly first and falls back to a lenient decoding with a warning in its log: a misspelt field stops nobody,
it is just not there. Types are another matter: a number where a string belongs stops the kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.kubelet.configuration.feature_gates import FeatureGates, gates_of
from infra.kubelet.configuration.fields import FIELDS, HEADER
from infra.kubelet.configuration.go_types import SECOND, WrongType
from infra.kubelet.configuration.versions import VersionRules, rules_of
from infra.kubelet.faults import KubeletRefuses

# eviction.DefaultEvictionHard on Linux: what holds where evictionHard is absent.
DEFAULT_EVICTION_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """A decoded and defaulted configuration: `fields` by their names in YAML (durations in nanoseconds), and the feature gates."""

    fields: Mapping[str, Any]
    gates: FeatureGates
    rules: VersionRules
    unknown: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def load(document: Mapping[str, Any], *, kubernetes_version: str) -> Configuration:
    """Decodes and defaults a configuration; KubeletRefuses at stage `load` where the kubelet could not."""
    rules = rules_of(kubernetes_version)
    fields = dict(rules.initial)
    unknown = []
    try:
        for name, value in document.items():
            if name in HEADER:
                continue
            known = FIELDS.get(name)
            if known is None or name in rules.unknown_fields:
                unknown.append(str(name))
                continue
            decoded = known.kind.decode(value, str(name))
            if known.default is None or decoded != known.kind.zero:
                fields[name] = decoded
    except WrongType as wrong:
        raise KubeletRefuses("load", (str(wrong),)) from None
    gates, errors = gates_of(rules.version, fields["featureGates"] or {})
    if errors:
        raise KubeletRefuses("load", errors)
    _conditional_defaults(fields, gates)
    return Configuration(fields, gates, rules, tuple(unknown))


def _conditional_defaults(fields: dict[str, Any], gates: FeatureGates) -> None:
    pulls = fields["maxParallelImagePulls"]
    if fields["serializeImagePulls"] is None:
        fields["serializeImagePulls"] = pulls is None or pulls < 2
    if gates["KubeletCrashLoopBackOffMax"] and fields["crashLoopBackOff"]["maxContainerRestartPeriod"] is None:
        fields["crashLoopBackOff"] = {"maxContainerRestartPeriod": 300 * SECOND}
    if gates["KubeletEnsureSecretPulledImages"] and not fields["imagePullCredentialsVerificationPolicy"]:
        fields["imagePullCredentialsVerificationPolicy"] = "NeverVerifyPreloadedImages"
    eviction = fields["evictionHard"]
    if eviction is None:
        fields["evictionHard"] = DEFAULT_EVICTION_HARD
    elif fields["mergeDefaultEvictionSettings"]:
        fields["evictionHard"] = {**DEFAULT_EVICTION_HARD, **eviction}
    frequency = fields["nodeStatusUpdateFrequency"]
    if fields["nodeStatusReportFrequency"] == FIELDS["nodeStatusReportFrequency"].default and frequency != 10 * SECOND:
        fields["nodeStatusReportFrequency"] = frequency
    _access_defaults(fields)
    if not fields["logging"]["format"]:
        fields["logging"] = {**fields["logging"], "format": "text"}
    if not fields["logging"]["flushFrequency"]:
        fields["logging"] = {**fields["logging"], "flushFrequency": 5 * SECOND}


def _access_defaults(fields: dict[str, Any]) -> None:
    anonymous, webhook = fields["authentication"]["anonymous"], fields["authentication"]["webhook"]
    fields["authentication"] = {
        **fields["authentication"],
        "anonymous": {"enabled": bool(anonymous["enabled"])},
        "webhook": {"enabled": webhook["enabled"] is not False, "cacheTTL": webhook["cacheTTL"] or 120 * SECOND},
    }
    rules = fields["authorization"]["webhook"]
    fields["authorization"] = {
        "mode": fields["authorization"]["mode"] or "Webhook",
        "webhook": {
            "cacheAuthorizedTTL": rules["cacheAuthorizedTTL"] or 300 * SECOND,
            "cacheUnauthorizedTTL": rules["cacheUnauthorizedTTL"] or 30 * SECOND,
        },
    }
