"""One candidate KubeletConfiguration: the user's fields, completed by what this candidate decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.plan.model.kubelet import KubeletPlan
from infra.plan.pod_shape import PodShape
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.memory_split import MemorySplit

TOPOLOGY_POLICIES = ("single-numa-node", "restricted", "best-effort", "none")  # strictest first
# The topology manager looks at every combination of NUMA nodes. Above this many it would not come to an end, or not in time.
MOST_NUMA_NODES_MERGED, MOST_NUMA_NODES_ENUMERATED = 8, 16


@dataclass(frozen=True, kw_only=True)
class CandidateConfiguration:
    """What is tried: each field that the plan is free to choose, and the pods with the CPUs that they would get."""

    topology_policy: str
    scope: str
    memory_policy: str
    full_pcpus_only: bool
    distribute: bool
    split: MemorySplit | None
    shapes: tuple[PodShape, ...]

    @property
    def admits_unaligned(self) -> bool:
        """Whether the topology manager admits pods whose CPUs, memory and devices it cannot align."""
        return self.topology_policy in ("best-effort", "none")

    def completing(self, pool: GpuPool) -> KubeletPlan:
        """The effective fields: the user's own as they are, the rest decided. Options and quantities are strings.

        Of those that the platform cannot express only the reservations stay: they stand in for the platform's own.
        """
        user = pool.user.fields
        fields: dict[str, Any] = {"cpuManagerPolicy": pool.cpu_manager_policy}
        cpu_options = {**self._cpu_options(pool), **pool.user.cpu_manager_policy_options}
        if cpu_options:
            fields["cpuManagerPolicyOptions"] = dict(sorted(cpu_options.items()))
        fields["topologyManagerPolicy"] = self.topology_policy
        scoped = self.topology_policy != "none" and "topologyManagerScope" not in pool.unavailable
        if scoped or "topologyManagerScope" in user:
            fields["topologyManagerScope"] = self.scope
        topology_options = {**self._topology_options(pool), **(pool.user.value_of("topologyManagerPolicyOptions") or {})}
        if topology_options:
            fields["topologyManagerPolicyOptions"] = dict(sorted(topology_options.items()))
        fields["memoryManagerPolicy"] = self.memory_policy
        fields.update(pool.reservations.fields)
        if self.split is not None:
            fields["reservedMemory"] = self.split.entries
        fields |= {name: value for name, value in user.items() if name not in fields}
        return KubeletPlan(fields=fields, base=pool.user.base)

    def _cpu_options(self, pool: GpuPool) -> Mapping[str, str]:
        if not pool.chooses_cpu_options:
            return {}
        options = {
            "full-pcpus-only": self.full_pcpus_only,
            "strict-cpu-reservation": True,
            "distribute-cpus-across-numa": self.distribute,
        }
        return {name: "true" for name, on in options.items() if on}

    def _topology_options(self, pool: GpuPool) -> Mapping[str, str]:
        if self.topology_policy == "none" or "topologyManagerPolicyOptions" in pool.unavailable:
            return {}
        options = {}
        nodes = pool.shape.numa_nodes
        if len(nodes) > MOST_NUMA_NODES_MERGED:
            options["max-allowable-numa-nodes"] = str(len(nodes))
        spans = self.topology_policy in ("restricted", "best-effort") and len(nodes) > 2
        if spans and all(node.distances and len(node.distances) == len(nodes) for node in nodes):
            options["prefer-closest-numa-nodes"] = "true"
        return options


def policies_to_try(pool: GpuPool) -> tuple[tuple[str, ...], str | None]:
    """The topology policies in question, strictest first, and why some are left out before any proof."""
    if pool.user_sets("topologyManagerPolicy"):
        return (pool.user.topology_manager_policy,), None
    shape, count = pool.shape, len(pool.shape.numa_nodes)
    if count > MOST_NUMA_NODES_ENUMERATED:
        return ("none",), (
            f"topologyManagerPolicy none: {shape.name} shows {count} NUMA nodes, and the topology manager would look at 2^{count} combinations of them "
            f"for every container (kubernetes/kubernetes#135541); up to {MOST_NUMA_NODES_ENUMERATED} it comes to an end."
        )
    if count > MOST_NUMA_NODES_MERGED:
        return ("single-numa-node", "none"), (
            f"restricted and best-effort would merge the hints of {count} NUMA nodes, (2^{count} - 1)^2 combinations and more a container: not considered."
        )
    return TOPOLOGY_POLICIES, None
