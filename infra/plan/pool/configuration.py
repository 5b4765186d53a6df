"""One candidate KubeletConfiguration: the user's fields, completed by what this candidate decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.catalog.types import NodeShape
from infra.plan.placement import PodShape
from infra.plan.pool.reserve import MemorySplit, Reservations

TOPOLOGY_POLICIES = ("single-numa-node", "restricted", "best-effort", "none")  # strictest first
# The topology manager looks at every combination of NUMA nodes. Above this many it would not come to an end, or not in time.
MOST_NUMA_NODES_MERGED, MOST_NUMA_NODES_ENUMERATED = 8, 16


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is tried: each field that the plan is free to choose, and the pods with the CPUs that they would get."""

    topology_policy: str
    scope: str
    memory_policy: str
    full_pcpus_only: bool
    distribute: bool
    split: MemorySplit | None
    shapes: tuple[PodShape, ...]


def configuration(
    candidate: Candidate,
    user: Mapping[str, Any],
    reservations: Reservations,
    shape: NodeShape,
    unavailable: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The effective fields: the user's own as they are, the rest decided. Options and quantities are strings.

    Of `unavailable` ones, which the platform cannot express, only the reservations stay: they stand in for the platform's own.
    """
    cpu_policy = user.get("cpuManagerPolicy", "static")
    fields: dict[str, Any] = {"cpuManagerPolicy": cpu_policy}
    cpu_options: dict[str, str] = {}
    if cpu_policy == "static" and "cpuManagerPolicyOptions" not in unavailable:
        if candidate.full_pcpus_only:
            cpu_options["full-pcpus-only"] = "true"
        cpu_options["strict-cpu-reservation"] = "true"
        if candidate.distribute:
            cpu_options["distribute-cpus-across-numa"] = "true"
    cpu_options.update(user.get("cpuManagerPolicyOptions") or {})
    if cpu_options:
        fields["cpuManagerPolicyOptions"] = dict(sorted(cpu_options.items()))
    fields["topologyManagerPolicy"] = candidate.topology_policy
    scoped = candidate.topology_policy != "none" and "topologyManagerScope" not in unavailable
    if scoped or "topologyManagerScope" in user:
        fields["topologyManagerScope"] = candidate.scope
    own_options = {} if "topologyManagerPolicyOptions" in unavailable else _topology_options(candidate, shape)
    topology_options = {**own_options, **(user.get("topologyManagerPolicyOptions") or {})}
    if topology_options:
        fields["topologyManagerPolicyOptions"] = dict(sorted(topology_options.items()))
    fields["memoryManagerPolicy"] = candidate.memory_policy
    fields.update(reservations.fields)
    if candidate.memory_policy == "Static":
        if "reservedMemory" in user:
            fields["reservedMemory"] = user["reservedMemory"]
        elif candidate.split is not None:
            fields["reservedMemory"] = candidate.split.entries
    for name, value in user.items():
        if name != "reservedMemory":
            fields.setdefault(name, value)
    return fields


def _topology_options(candidate: Candidate, shape: NodeShape) -> dict[str, str]:
    if candidate.topology_policy == "none":
        return {}
    options = {}
    count = len(shape.numa_nodes)
    if count > MOST_NUMA_NODES_MERGED:
        options["max-allowable-numa-nodes"] = str(count)
    spans = candidate.topology_policy in ("restricted", "best-effort") and count > 2
    if spans and all(node.distances and len(node.distances) == count for node in shape.numa_nodes):
        options["prefer-closest-numa-nodes"] = "true"
    return options


def policies_to_try(user: Mapping[str, Any], shape: NodeShape) -> tuple[tuple[str, ...], str | None]:
    """The topology policies in question, strictest first, and why some are left out before any proof."""
    if "topologyManagerPolicy" in user:
        return (user["topologyManagerPolicy"],), None
    count = len(shape.numa_nodes)
    if count > MOST_NUMA_NODES_ENUMERATED:
        return ("none",), (
            f"topologyManagerPolicy none: {shape.id} shows {count} NUMA nodes, and the topology manager would look at 2^{count} combinations of them "
            f"for every container (kubernetes/kubernetes#135541); up to {MOST_NUMA_NODES_ENUMERATED} it comes to an end."
        )
    if count > MOST_NUMA_NODES_MERGED:
        return ("single-numa-node", "none"), (
            f"restricted and best-effort would merge the hints of {count} NUMA nodes, (2^{count} - 1)^2 combinations and more a container: not considered."
        )
    return TOPOLOGY_POLICIES, None
