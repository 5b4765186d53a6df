"""What differs between the kubelets of Kubernetes 1.33 to 1.37, in one place.

Read in k8s.io/kubernetes v1.33.13, v1.34.4, v1.35.4, v1.36.3 and v1.37.2 (policy_options.go of the CPU and topology manager,
devicemanager/topology_hints.go, cpumanager/cpu_assignment.go, policy_static.go of the CPU and memory manager, apis/core/v1/defaults.go,
apis/core/validation, kubelet/apis/config/validation, lifecycle/handlers.go). Which fields and options a version knows stands in fields.py;
feature gates have a table of their own (feature_gates.json).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from infra.diagnosis import shown
from infra.errors import ConfigError
from infra.kubelet.configuration.fields import FIELDS, STABLE, Field

SUPPORTED = ("1.33", "1.34", "1.35", "1.36", "1.37")
NEWEST = SUPPORTED[-1]
Version = tuple[int, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VersionRules:
    """The rules of one version."""

    version: str
    cpu_options: Mapping[str, str]
    topology_options: Mapping[str, str]
    unknown_fields: frozenset[str]
    # What holds of each field where a configuration does not name it.
    initial: Mapping[str, Any]
    # showHiddenMetricsForVersion takes this one alone.
    previous: str
    # Since 1.36 the masks of device hints hold only NUMA nodes that have such devices; before, every node of the machine.
    device_hints_on_device_nodes_only: bool
    # Since 1.37 align-by-socket takes part in distribute-cpus-across-numa, and no node is asked for more than it has.
    distribution_knows_sockets: bool
    # Since 1.34 a request of an odd number of CPUs may be cut from one cache.
    uncore_cache_takes_odd_requests: bool
    # Since 1.34 a kubelet with the gate PodLevelResources off refuses pods with such resources; before, it overlooks them.
    refuses_unsupported_pod_level: bool
    # Since 1.34 requests of the pod level only have to cover the resources that they name, and hugepages- limits those of the
    # containers; before, they had to cover every request, and a hugepages- limit was completed beside a request too.
    pod_level_covers_only_named: bool
    # Without PodLevelResourceManagers, the CPU and memory manager let pods with resources of the pod level be: never before 1.34,
    # up to 1.35 where the gate PodLevelResources is on.
    managers_skip_pod_level: bool
    managers_skip_pod_level_where_off: bool
    # Since 1.37 the memory manager lets a container be that requests no memory of its own; before, it looked for nodes for nothing.
    memory_manager_skips_empty_requests: bool
    # Since 1.36 imageMinimumGCAge must not be negative.
    checks_minimum_image_age: bool
    # Since 1.37 memoryThrottlingFactor has no default, and needs the gate MemoryQoS where it is not the former one.
    throttling_needs_gate: bool
    # Since 1.35 logging.flushFrequency must not be negative.
    checks_flush_frequency: bool
    # Since 1.36 preloadedImagesVerificationAllowlist takes short names of images; before, each was written with its registry.
    takes_short_image_names: bool
    # Since 1.37 reserved CPUs are rounded to the nearest thousandth.
    rounds_reserved_cpus: bool


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
        initial={name: in_force(field.earlier, version, field.initial) for name, field in FIELDS.items()},
        previous=f"{number[0]}.{number[1] - 1}",
        device_hints_on_device_nodes_only=number >= (1, 36),
        distribution_knows_sockets=number >= (1, 37),
        uncore_cache_takes_odd_requests=number >= (1, 34),
        refuses_unsupported_pod_level=number >= (1, 34),
        pod_level_covers_only_named=number >= (1, 34),
        managers_skip_pod_level=number >= (1, 34),
        managers_skip_pod_level_where_off=number >= (1, 36),
        memory_manager_skips_empty_requests=number >= (1, 37),
        checks_minimum_image_age=number >= (1, 36),
        throttling_needs_gate=number >= (1, 37),
        checks_flush_frequency=number >= (1, 35),
        takes_short_image_names=number >= (1, 36),
        rounds_reserved_cpus=number >= (1, 37),
    )


def parse_version(text: str) -> Version:
    """Major and minor of a version."""
    major, minor = text.removeprefix("v").split(".")[:2]
    return int(major), int(minor)


def in_force(history: Mapping[str, T], kubernetes_version: str, otherwise: T | None = None) -> T | None:
    """The entry of the latest version (the keys, in ascending order) that is not newer than this one; `otherwise` where all are newer."""
    number = parse_version(kubernetes_version)
    found = otherwise
    for since, entry in history.items():
        if parse_version(since) <= number:
            found = entry
    return found


def _knows(field: Field, version: Version) -> bool:
    later = bool(field.since) and parse_version(field.since) > version
    return not later and not (field.removed and parse_version(field.removed) <= version)


def _stages(field: str, version: Version) -> dict[str, str]:
    """The policy options of a field that a version knows, with their stages there."""
    number = f"{version[0]}.{version[1]}"
    found = {name: in_force(history, number) for name, history in FIELDS[field].options.items()}
    return {name: stage for name, stage in found.items() if stage is not None}


def cpu_option_gate(name: str, kubernetes_version: str) -> str | None:
    """The feature gate that a CPU manager option needs on a version; None where it needs none."""
    return _gate("CPUManager", rules_of(kubernetes_version).cpu_options[name])


def topology_option_gate(name: str, kubernetes_version: str) -> str | None:
    """The feature gate that a topology manager option needs on a version; None where it needs none."""
    return _gate("TopologyManager", rules_of(kubernetes_version).topology_options[name])


def _gate(manager: str, stage: str) -> str | None:
    return None if stage == STABLE else f"{manager}Policy{stage.capitalize()}Options"
