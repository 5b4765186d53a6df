"""The kubelet configuration of a pool's nodes, with the kubelet's own defaults where a field is left out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property, lru_cache
from typing import Any

from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.drop_in import drop_in_of
from infra.kubelet.configuration.merge import merged
from infra.kubelet.configuration.versions import NEWEST
from infra.kubelet.managers.topology import RESTRICTED, SINGLE_NUMA_NODE
from infra.units import parse_bytes


@dataclass(frozen=True, kw_only=True)
class KubeletPlan:
    """`fields` are those of KubeletConfiguration that are given (camelCase, values as in YAML); all others are as in `base`, or the kubelet's defaults.

    `base` is what the nodes' own configuration file is known to say.
    """

    fields: Mapping[str, Any]
    base: Mapping[str, Any] = dataclass_field(default_factory=dict)

    @cached_property
    def drop_in(self) -> Mapping[str, Any]:
        """The fields as the drop-in that is written to the nodes: completed so that no base file can contradict them."""
        return drop_in_of(self.fields)

    @cached_property
    def effective(self) -> Mapping[str, Any]:
        """What a kubelet of these nodes runs: base and drop-in as it merges them."""
        return merged(self.base, self.drop_in, kubernetes_version=NEWEST) if self.base else self.fields

    def value_of(self, name: str) -> Any:
        """What holds in the kubelet: the field as it is given or as the base has it, or the default. A map that is given is not completed."""
        value = self.effective.get(name)
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
        """Twelve hexadecimal digits that change exactly when the fields do; a node label's value. How a drop-in keeps a base off them does not count."""
        canonical = json.dumps(self.fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def default_of(name: str) -> Any:
    """The kubelet's default of a field as it is decoded (durations in nanoseconds); None or empty where it has none."""
    return _defaults()[name]


@lru_cache(maxsize=1)
def _defaults() -> Mapping[str, Any]:
    return load({}, kubernetes_version=NEWEST).fields
