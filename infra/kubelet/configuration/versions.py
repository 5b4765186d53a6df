"""What differs between the kubelets of Kubernetes 1.33 to 1.37, in one table.

Read in k8s.io/kubernetes v1.33.0, v1.34.0, v1.35.0, v1.36.0 and v1.37.2 (cpumanager and topologymanager policy_options.go,
devicemanager/topology_hints.go, cpumanager/cpu_assignment.go, k8s.io/kubelet config/v1beta1/types.go). Feature gates have a table of
their own (feature_gates.json). The simulator is proven against 1.37; for earlier versions it follows this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from infra.errors import ConfigError

SUPPORTED = ("1.33", "1.34", "1.35", "1.36", "1.37")
PROVEN = "1.37"
ALPHA, BETA, STABLE = "alpha", "beta", "stable"
Version = tuple[int, int]

# Stage of each policy option by the version since which it has it.
_CPU_OPTIONS: dict[str, dict[str, str]] = {
    "full-pcpus-only": {"1.33": STABLE},
    "strict-cpu-reservation": {"1.33": BETA, "1.35": STABLE},
    "prefer-align-cpus-by-uncorecache": {"1.33": ALPHA, "1.34": BETA, "1.36": STABLE},
    "distribute-cpus-across-numa": {"1.33": BETA},
    "align-by-socket": {"1.33": ALPHA},
    "distribute-cpus-across-cores": {"1.33": ALPHA},
}
_TOPOLOGY_OPTIONS: dict[str, dict[str, str]] = {
    "prefer-closest-numa-nodes": {"1.33": STABLE},
    "max-allowable-numa-nodes": {"1.33": BETA, "1.35": STABLE},
}
# Fields of KubeletConfiguration that an earlier kubelet does not know, and so ignores.
_FIELDS_SINCE = {"memoryReservationPolicy": "1.36", "tlsCurvePreferences": "1.36", "defaultPodSysctls": "1.37"}


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


@lru_cache(maxsize=8)
def rules_of(kubernetes_version: str) -> VersionRules:
    """The rules of a version such as "1.37" or "v1.36.2"; ConfigError for one that is not supported."""
    match = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.\d+.*)?", kubernetes_version)
    version = f"{match[1]}.{match[2]}" if match else kubernetes_version
    if version not in SUPPORTED:
        raise ConfigError.one(
            "UnsupportedVersion",
            "kubernetesVersion",
            f"{kubernetes_version!r} is not supported; use one of {', '.join(SUPPORTED)}.",
        )
    number = parse_version(version)
    return VersionRules(
        version=version,
        cpu_options={name: _stage(history, number) for name, history in _CPU_OPTIONS.items()},
        topology_options={name: _stage(history, number) for name, history in _TOPOLOGY_OPTIONS.items()},
        unknown_fields=frozenset(name for name, since in _FIELDS_SINCE.items() if parse_version(since) > number),
        device_hints_on_device_nodes_only=number >= (1, 36),
        distribution_knows_sockets=number >= (1, 37),
        uncore_cache_takes_odd_requests=number >= (1, 34),
    )


def parse_version(text: str) -> Version:
    """Major and minor of a version."""
    major, minor = text.removeprefix("v").split(".")[:2]
    return int(major), int(minor)


def _stage(history: Mapping[str, str], version: Version) -> str:
    return [stage for since, stage in history.items() if parse_version(since) <= version][-1]


def cpu_option_gate(name: str, kubernetes_version: str) -> str | None:
    """The feature gate that a CPU manager option needs on a version; None where it needs none."""
    return _gate("CPUManager", rules_of(kubernetes_version).cpu_options[name])


def topology_option_gate(name: str, kubernetes_version: str) -> str | None:
    """The feature gate that a topology manager option needs on a version; None where it needs none."""
    return _gate("TopologyManager", rules_of(kubernetes_version).topology_options[name])


def _gate(manager: str, stage: str) -> str | None:
    return None if stage == STABLE else f"{manager}Policy{stage.capitalize()}Options"
