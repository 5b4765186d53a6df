"""What differs between the kubelets of Kubernetes 1.33 to 1.37, in one place.

Read in k8s.io/kubernetes v1.33.0, v1.34.0, v1.35.0, v1.36.0 and v1.37.2 (cpumanager and topologymanager policy_options.go,
devicemanager/topology_hints.go, cpumanager/cpu_assignment.go). Which fields and options a version knows stands in fields.py; feature
gates have a table of their own (feature_gates.json). The simulator is proven against 1.37; for earlier versions it follows this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from infra.diagnosis import shown
from infra.errors import ConfigError
from infra.kubelet.configuration.fields import FIELDS, STABLE, Field

SUPPORTED = ("1.33", "1.34", "1.35", "1.36", "1.37")
PROVEN = "1.37"
Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class VersionRules:
    """The rules of one version."""

    version: str
    cpu_options: Mapping[str, str]
    topology_options: Mapping[str, str]
    unknown_fields: frozenset[str]
    # Since 1.36 the masks of device hints hold only NUMA nodes that have such devices; before, every node of the machine.
    device_hints_on_device_nodes_only: bool
    # Since 1.37 align-by-socket takes part in distribute-cpus-across-numa, and no node is asked for more than it has.
    distribution_knows_sockets: bool
    # Since 1.34 a request of an odd number of CPUs may be cut from one cache.
    uncore_cache_takes_odd_requests: bool


@cache
def rules_of(kubernetes_version: str) -> VersionRules:
    """The rules of a version such as "1.37" or "v1.36.2"; ConfigError for one that is not supported."""
    match = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.\d+.*)?", kubernetes_version)
    version = f"{match[1]}.{match[2]}" if match else kubernetes_version
    if version not in SUPPORTED:
        raise ConfigError.one(
            "UnsupportedVersion",
            "kubernetesVersion",
            f"{shown(kubernetes_version)} is not supported; use one of {', '.join(SUPPORTED)}.",
        )
    number = parse_version(version)
    return VersionRules(
        version=version,
        cpu_options=_stages("cpuManagerPolicyOptions", number),
        topology_options=_stages("topologyManagerPolicyOptions", number),
        unknown_fields=frozenset(name for name, field in FIELDS.items() if not _knows(field, number)),
        device_hints_on_device_nodes_only=number >= (1, 36),
        distribution_knows_sockets=number >= (1, 37),
        uncore_cache_takes_odd_requests=number >= (1, 34),
    )


def parse_version(text: str) -> Version:
    """Major and minor of a version."""
    major, minor = text.removeprefix("v").split(".")[:2]
    return int(major), int(minor)


def _knows(field: Field, version: Version) -> bool:
    later = bool(field.since) and parse_version(field.since) > version
    return not later and not (field.removed and parse_version(field.removed) <= version)


def _stages(field: str, version: Version) -> dict[str, str]:
    """The policy options of a field that a version knows, with their stages there."""
    known: dict[str, str] = {}
    for name, history in FIELDS[field].options.items():
        for since, stage in history.items():
            if parse_version(since) <= version:
                known[name] = stage
    return known


def cpu_option_gate(name: str, kubernetes_version: str) -> str | None:
    """The feature gate that a CPU manager option needs on a version; None where it needs none."""
    return _gate("CPUManager", rules_of(kubernetes_version).cpu_options[name])


def topology_option_gate(name: str, kubernetes_version: str) -> str | None:
    """The feature gate that a topology manager option needs on a version; None where it needs none."""
    return _gate("TopologyManager", rules_of(kubernetes_version).topology_options[name])


def _gate(manager: str, stage: str) -> str | None:
    return None if stage == STABLE else f"{manager}Policy{stage.capitalize()}Options"
