"""The topology manager: policies, their options, and how the hints of all providers become one (topologymanager/policy.go)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import NamedTuple

from infra.kubelet.faults import KubeletPanics
from infra.kubelet.machine import Machine
from infra.kubelet.managers.hints import MaskSpace, ProviderHints, ResourceHints, intersections, mask_space, masks_of, positions

NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "none", "best-effort", "restricted", "single-numa-node"
CONTAINER_SCOPE, POD_SCOPE = "container", "pod"
DEFAULT_MAX_NUMA_NODES = 8


class TopologyHint(NamedTuple):
    """The merged hint: a mask of NUMA nodes (None: anywhere) and whether all providers prefer it."""

    nodes: int | None
    preferred: bool


ANYWHERE = TopologyHint(None, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPolicy:
    """A policy on one machine. `distances` (per node, by id of the other) are only there with prefer-closest-numa-nodes."""

    name: str
    scope: str
    space: MaskSpace
    node_ids: tuple[int, ...] = ()
    distances: tuple[tuple[int, ...], ...] | None = None

    def merge(self, providers: Iterable[ProviderHints | None]) -> tuple[TopologyHint, bool]:
        """The best hint, and whether the policy admits it."""
        hints = [hint for provider in providers if provider for hint in provider.values() if hint is not None]
        if self.name == SINGLE_NUMA_NODE:
            return self._merge_single(hints)
        best = self._preferred(hints)
        if best is not None:
            return best, True
        if self.name == RESTRICTED:
            # Refused whatever the merged mask is, so it need not be computed.
            return TopologyHint(None, False), False
        return self._not_preferred(hints), True

    def best_refused(self, providers: Iterable[ProviderHints | None]) -> TopologyHint:
        """The hint that a policy refuses, for those who want to see it."""
        if self.name == SINGLE_NUMA_NODE:
            return TopologyHint(None, False)
        return self._not_preferred([hint for provider in providers if provider for hint in provider.values() if hint is not None])

    def _merge_single(self, hints: Sequence[ResourceHints]) -> tuple[TopologyHint, bool]:
        common = self.space.singles
        for hint in hints:
            common &= hint.preferred
        if not hints:
            return TopologyHint(None, True), True
        if not common:
            return TopologyHint(None, False), False
        node = (common & -common).bit_length() - 1
        return TopologyHint(None if node == self.space.full else node, True), True

    def _preferred(self, hints: Sequence[ResourceHints]) -> TopologyHint | None:
        """The hint that every provider prefers, if there is one: a mask that stands in all preferred sets."""
        if not hints:
            return TopologyHint(self.space.full, True) if self.space.full else None
        common = reduce(and_, (hint.preferred for hint in hints))
        return TopologyHint(self._fittest(common, self.space.narrowest(common)), True) if common else None

    def _not_preferred(self, hints: Sequence[ResourceHints]) -> TopologyHint:
        """Of all intersections the one as wide as the most demanding provider needs, else narrower, else wider."""
        space = self.space
        satisfiable = [hint.possible for hint in hints if hint.possible]
        wanted = max((space.narrowest(masks) for masks in satisfiable), default=0)
        reached = intersections(space, satisfiable) if satisfiable else (1 << space.full)
        for count in sorted(range(1, len(space.by_count)), key=lambda count: (count > wanted, abs(count - wanted))):
            if reached & space.by_count[count]:
                return TopologyHint(self._fittest(reached, count), False)
        return TopologyHint(space.full, False)

    def _fittest(self, masks: int, count: int) -> int:
        candidates = masks & self.space.by_count[count]
        lowest = candidates & -candidates
        if self.distances is None or candidates == lowest:
            return lowest.bit_length() - 1
        return min(masks_of(candidates), key=self._distance)

    def _distance(self, mask: int) -> tuple[int, int]:
        """How far the nodes of a mask lie apart; equal masks by their number."""
        assert self.distances is not None
        nodes = positions(mask)
        try:
            return sum(self.distances[a][self.node_ids[b]] for a in nodes for b in nodes), mask
        except IndexError:
            raise KubeletPanics("runtime error: index out of range: a NUMA node reports too few distances") from None


def topology_policy(machine: Machine, name: str, scope: str, *, closest: bool) -> TopologyPolicy:
    """The policy on this machine; `closest` asks for distances, which every NUMA node has to report."""
    nodes = sorted(machine.numa_nodes, key=lambda node: node.id)
    return TopologyPolicy(
        name=name,
        scope=scope,
        space=mask_space(len(nodes)),
        node_ids=tuple(node.id for node in nodes),
        distances=tuple(node.distances or () for node in nodes) if closest and name != SINGLE_NUMA_NODE else None,
    )
