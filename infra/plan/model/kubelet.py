"""The kubelet configuration of a pool's nodes, with the kubelet's own defaults where a field is left out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.versions import NEWEST
from infra.kubelet.managers.topology import RESTRICTED, SINGLE_NUMA_NODE
from infra.units import parse_bytes


@dataclass(frozen=True, kw_only=True)
class KubeletPlan:
    """`fields` are those of KubeletConfiguration that are given (camelCase, values as in YAML); all others have the kubelet's defaults."""

    fields: Mapping[str, Any]

    def value_of(self, name: str) -> Any:
        """What holds in the kubelet: the field as it is given, or the default. A map that is given is not completed."""
        value = self.fields.get(name)
        return default_of(name) if value is None else value

    @property
    def topology_manager_policy(self) -> str:
        return self.value_of("topologyManagerPolicy")

    @property
    def topology_manager_scope(self) -> str:
        return self.value_of("topologyManagerScope")

    @property
    def cpu_manager_policy(self) -> str:
        return self.value_of("cpuManagerPolicy")

    @property
    def cpu_manager_policy_options(self) -> Mapping[str, str]:
        return self.value_of("cpuManagerPolicyOptions") or {}

    @property
    def memory_manager_policy(self) -> str:
        return self.value_of("memoryManagerPolicy")

    @property
    def aligns(self) -> bool:
        """Whether the topology manager refuses pods whose CPUs, memory and devices it cannot align."""
        return self.topology_manager_policy in (RESTRICTED, SINGLE_NUMA_NODE)

    @property
    def pins_cpus(self) -> bool:
        """Whether Guaranteed containers with whole CPUs get them to themselves."""
        return self.cpu_manager_policy == "static"

    @property
    def pins_memory(self) -> bool:
        """Whether Guaranteed pods get their memory on the NUMA nodes of the hint alone."""
        return self.memory_manager_policy == "Static"

    @property
    def reserved_memory(self) -> Mapping[int, int] | None:
        """reservedMemory in bytes by NUMA node; None where memory is not pinned."""
        if not self.pins_memory:
            return None
        reserved: dict[int, int] = {}
        for entry in self.value_of("reservedMemory") or ():
            node = int(entry.get("numaNode") or 0)  # null decodes as if it were left out, to 0
            reserved[node] = reserved.get(node, 0) + parse_bytes((entry.get("limits") or {}).get("memory") or 0)
        return reserved

    @property
    def config_hash(self) -> str:
        """Twelve hexadecimal digits that change exactly when the fields do; a node label's value."""
        canonical = json.dumps(self.fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def default_of(name: str) -> Any:
    """The kubelet's default of a field as it is decoded (durations in nanoseconds); None or empty where it has none."""
    return _defaults()[name]


@lru_cache(maxsize=1)
def _defaults() -> Mapping[str, Any]:
    return load({}, kubernetes_version=NEWEST).fields
