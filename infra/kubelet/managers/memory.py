"""The memory manager's static policy: memory and huge pages of Guaranteed pods by NUMA node (memorymanager/policy_static.go).

A NUMA node either serves allocations of its own or belongs to one group of nodes that are allocated from together; a pod that
needs two nodes can therefore be refused although the sum would do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from infra.kubelet.configuration.versions import VersionRules
from infra.kubelet.faults import AllocationError, EmptyPodSharedPoolError, KubeletPanics
from infra.kubelet.machine import Machine
from infra.kubelet.managers.hints import (
    UNSATISFIABLE,
    MaskSpace,
    ProviderHints,
    ResourceHints,
    masks_of,
    masks_with_at_least,
    positions,
)
from infra.kubelet.managers.pod_level import PodLevelTreatment
from infra.kubelet.managers.topology import TopologyHint
from infra.kubelet.pods import GUARANTEED, Container, Pod
from infra.kubelet.quantity import NANO, format_quantity
from infra.kubelet.resource_names import is_memory

_UINT64 = 2**64
_INT64_ERROR = "[memorymanager] failed to represent quantity as int64"

Reusable = dict[int, dict[str, int]]


class Block(NamedTuple):
    """Memory of one kind that a container holds on a set of NUMA nodes."""

    nodes: int
    resource: str
    size: int


@dataclass(slots=True)
class MemoryState:
    """Per NUMA node: how many blocks lie on it, the group it belongs to (a mask), and what is free and taken per resource."""

    assignments: list[int]
    groups: list[int]
    free: dict[str, list[int]]
    reserved: dict[str, list[int]]
    blocks: dict[str, dict[str, list[Block]]] = field(default_factory=dict)
    pod_blocks: dict[str, list[Block]] = field(default_factory=dict)

    def copy(self) -> MemoryState:
        return MemoryState(
            list(self.assignments),
            list(self.groups),
            {resource: list(amounts) for resource, amounts in self.free.items()},
            {resource: list(amounts) for resource, amounts in self.reserved.items()},
            dict(self.blocks),
            dict(self.pod_blocks),
        )


class StaticMemoryManager:
    """The static policy on one machine. `reserved` is what reservedMemory keeps per node (by position) and resource, in bytes."""

    def __init__(
        self,
        machine: Machine,
        space: MaskSpace,
        reserved: dict[int, dict[str, int]],
        rules: VersionRules,
        pod_level: PodLevelTreatment,
    ) -> None:
        self.space = space
        self.pod_level = pod_level
        self._skips_empty_requests = rules.memory_manager_skips_empty_requests
        nodes = sorted(machine.numa_nodes, key=lambda node: node.id)
        self.allocatable: dict[str, tuple[int, ...]] = {}
        tables: list[dict[str, int]] = []
        for position, node in enumerate(nodes):
            reserved_there = reserved.get(position, {})
            table: dict[str, int] = {}
            pages_bytes = 0
            for size_bytes, count in node.hugepages:
                name = hugepages_name(size_bytes)
                pages_bytes += size_bytes * count
                table[name] = (size_bytes * count - reserved_there.get(name, 0)) % _UINT64
            table["memory"] = (node.memory_bytes - reserved_there.get("memory", 0) - pages_bytes) % _UINT64
            tables.append(table)
        names = sorted({name for table in tables for name in table})
        # A resource that some node does not know makes the kubelet dereference nil there.
        self.partial = {name for name in names if any(name not in table for table in tables)}
        self.allocatable = {name: tuple(table.get(name, 0) for table in tables) for name in names}
        self.count = len(nodes)

    def initial_state(self) -> MemoryState:
        return MemoryState(
            assignments=[0] * self.count,
            groups=[1 << position for position in range(self.count)],
            free={name: list(amounts) for name, amounts in self.allocatable.items()},
            reserved={name: [0] * self.count for name in self.allocatable},
        )

    # Requests
    def container_request(self, pod: Pod, container: Container) -> dict[str, int]:
        """Memory and huge pages that a container has to itself, in bytes; AllocationError where one is no int64."""
        if self.pod_level.managed and pod.has_pod_level_resources and not container.has_guaranteed_resources:
            return {}
        return _as_int64({name: container.int64[name] for name in container.requests if is_memory(name)})

    def pod_request(self, pod: Pod) -> dict[str, int]:
        """The same for the pod as a whole (pod scope)."""
        if self.pod_level.managed and pod.has_pod_level_resources:
            requests = _as_int64({name: pod.pod_int64[name] for name in pod.pod_requests or {} if is_memory(name)})
            return {name: size for name, size in requests.items() if size > 0}
        widest: dict[str, int] = {}
        sidecars: dict[str, int] = {}
        for container in pod.init_containers:
            for name, size in self.container_request(pod, container).items():
                if container.is_sidecar:
                    sidecars[name] = sidecars.get(name, 0) + size
                else:
                    widest[name] = max(widest.get(name, 0), sidecars.get(name, 0) + size)
        app: dict[str, int] = {}
        for container in pod.containers:
            for name, size in self.container_request(pod, container).items():
                app[name] = app.get(name, 0) + size
        return {name: max(size + sidecars.get(name, 0), widest.get(name, 0)) for name, size in app.items()}

    # Hints
    def container_hints(
        self, state: MemoryState, pod: Pod, qos: str, container: Container, reusable: Reusable
    ) -> ProviderHints | None:
        if qos != GUARANTEED or (pod.has_pod_level_resources and self.pod_level.skipped):
            return None
        try:
            requested = self.container_request(pod, container)
        except AllocationError:
            return None
        return self._provider_hints(state, requested, reusable) if requested else None

    def pod_hints(self, state: MemoryState, pod: Pod, qos: str) -> ProviderHints | None:
        if qos != GUARANTEED:
            return None
        try:
            requested = self.pod_request(pod)
        except AllocationError:
            return None
        if pod.has_pod_level_resources and self.pod_level.skipped:
            return None
        if pod.has_pod_level_resources and self.pod_level.managed and self._empty_shared_pool(pod):
            return dict.fromkeys(requested, UNSATISFIABLE)
        return self._provider_hints(state, requested, {}) if requested else None

    def _provider_hints(self, state: MemoryState, requested: dict[str, int], reusable: Reusable) -> ProviderHints | None:
        """One set of hints for all kinds of memory; where no set of nodes will do, the kubelet states no preference."""
        hints = self._hints(state, requested, reusable)
        return dict.fromkeys(requested, hints) if hints.possible else None

    def _hints(self, state: MemoryState, requested: dict[str, int], reusable: Reusable) -> ResourceHints:
        space = self.space
        could_hold = -1
        for name, size in requested.items():
            if name not in self.allocatable or name in self.partial:
                raise KubeletPanics(f"runtime error: invalid memory address or nil pointer dereference: a NUMA node has no {name}")
            could_hold &= masks_with_at_least(self.allocatable[name], size)
        narrowest = (space.narrowest(could_hold) or space.count) if requested else 1
        possible = could_hold & self._usable(state)
        for name, size in requested.items():
            enough = masks_with_at_least(tuple(state.free[name]), size)
            for nodes, amounts in reusable.items():
                if amounts.get(name) and sum(state.free[name][node] for node in positions(nodes)) + amounts[name] >= size:
                    enough |= 1 << nodes
            possible &= enough
        return ResourceHints(possible, possible & space.by_count[narrowest])

    def _usable(self, state: MemoryState) -> int:
        """Masks that neither split a group nor join a node that serves allocations of its own."""
        space = self.space
        untouched = own = grouped = 0
        for node, group in enumerate(state.groups):
            alone = group.bit_count() < 2
            if alone:
                own |= 1 << (1 << node)
            if not state.assignments[node]:
                untouched |= 1 << node
            elif not alone:
                grouped |= 1 << group
        usable = own | (space.submasks(untouched) & ~space.singles & ~1)
        for group in masks_of(grouped):
            taken = [node for node in positions(group) if state.assignments[node]]
            if all(state.groups[node] == group for node in taken):
                usable |= 1 << group
        return usable

    # Allocation
    def allocate_container(
        self, state: MemoryState, uid: str, pod: Pod, qos: str, container: Container, hint: TopologyHint, reusable: Reusable
    ) -> None:
        """Gives the container its memory; `reusable` (what earlier init containers leave to the pod) is updated."""
        if qos != GUARANTEED or (pod.has_pod_level_resources and self.pod_level.skipped):
            return
        requested = self.container_request(pod, container)
        if not requested and self._skips_empty_requests:
            return
        nodes = self._settle(state, requested, hint, reusable)
        here = reusable.get(nodes, {})
        for name, size in requested.items():
            self._occupy(state, nodes, name, max(0, size - here.get(name, 0)))
        blocks = [Block(nodes, name, size) for name, size in requested.items()]
        if container.is_init and not container.is_sidecar:
            here = reusable.setdefault(nodes, {})
            for block in blocks:
                here[block.resource] = max(here.get(block.resource, 0), block.size)
        else:
            for block in blocks:
                if here.get(block.resource):
                    here[block.resource] = max(0, here[block.resource] - block.size)
        mine = state.blocks.setdefault(uid, {})
        mine[container.name] = blocks
        self._shrink_init_blocks(mine, pod, container, blocks)

    def _settle(self, state: MemoryState, requested: dict[str, int], hint: TopologyHint, reusable: Reusable) -> int:
        """The nodes to allocate from: the merged hint, or what the policy makes of it where it is absent or too small."""
        nodes, preferred = hint
        if nodes is None:
            possible = self._hints(state, requested, reusable)
            if not possible.possible or not requested:
                raise AllocationError(
                    "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
                )
            nodes, found_preferred = self._best(possible)
            if preferred and not found_preferred:
                raise AllocationError("[memorymanager] failed to find the default preferred hint")
            preferred = found_preferred
        if not self._satisfies(state, nodes, requested):
            possible = self._hints(state, requested, reusable)
            # Only hints for plain memory are looked at; without such a request there is nothing to extend to.
            wider = possible.possible & self.space.supersets(nodes) if "memory" in requested else 0
            if not wider:
                raise AllocationError("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
            nodes, found_preferred = self._best(ResourceHints(wider, possible.preferred & wider))
            if preferred and not found_preferred:
                raise AllocationError("[memorymanager] failed to find the extended preferred hint")
        if self._violates(state, nodes):
            raise AllocationError("[memorymanager] preferred hint violates NUMA node allocation")
        return nodes

    def _best(self, hints: ResourceHints) -> tuple[int, bool]:
        masks, preferred = (hints.preferred, True) if hints.preferred else (hints.possible, False)
        smallest = masks & self.space.by_count[self.space.narrowest(masks)]
        return (smallest & -smallest).bit_length() - 1, preferred

    def _satisfies(self, state: MemoryState, nodes: int, requested: dict[str, int]) -> bool:
        return all(sum(state.free[name][node] for node in positions(nodes)) % _UINT64 >= size for name, size in requested.items())

    @staticmethod
    def _violates(state: MemoryState, nodes: int) -> bool:
        if nodes.bit_count() < 2:
            return False
        return any(state.assignments[node] and state.groups[node] != nodes for node in positions(nodes))

    @staticmethod
    def _occupy(state: MemoryState, nodes: int, name: str, size: int) -> None:
        free, reserved = state.free[name], state.reserved[name]
        for node in positions(nodes):
            state.assignments[node] += 1
            state.groups[node] = nodes
            taken = min(size, free[node])
            free[node] -= taken
            reserved[node] += taken
            size -= taken

    @staticmethod
    def _shrink_init_blocks(mine: dict[str, list[Block]], pod: Pod, container: Container, blocks: list[Block]) -> None:
        """What is reused is counted once: the blocks of earlier init containers on the same nodes lose it."""
        for block in blocks:
            left = block.size
            for earlier in pod.init_containers:
                if earlier.name == container.name or left == 0:
                    break
                held = mine.get(earlier.name)
                if earlier.is_sidecar or not held:
                    continue
                for index, other in enumerate(held):
                    if other.size and other.resource == block.resource and other.nodes == block.nodes:
                        reused = min(left, other.size)
                        held[index] = other._replace(size=other.size - reused)
                        left -= reused

    def container_started(self, state: MemoryState, uid: str, pod: Pod, container: Container) -> None:
        """Init containers before this one have ended, and their memory is free again (those that stay excepted)."""
        for earlier in pod.init_containers:
            if earlier.name == container.name:
                return
            if not earlier.is_sidecar:
                self._remove(state, uid, earlier.name)

    def release(self, state: MemoryState, uid: str) -> None:
        """Frees what a pod held."""
        for name in list(state.blocks.get(uid, ())):
            self._remove(state, uid, name)

    def _remove(self, state: MemoryState, uid: str, name: str) -> None:
        mine = state.blocks.get(uid)
        if mine is None or name not in mine:
            return
        blocks = mine[name]
        # A copy of the state may share the dictionary.
        mine = {other: held for other, held in mine.items() if other != name}
        if mine:
            state.blocks[uid] = mine
        else:
            del state.blocks[uid]
        of_pod = state.pod_blocks.get(uid) if self.pod_level.managed else None
        if of_pod is not None:
            if uid not in state.blocks:
                self._free(state, of_pod)
                del state.pod_blocks[uid]
            return
        self._free(state, blocks)

    @staticmethod
    def _free(state: MemoryState, blocks: list[Block]) -> None:
        for block in blocks:
            size = block.size
            free, reserved = state.free[block.resource], state.reserved[block.resource]
            for node in positions(block.nodes):
                state.assignments[node] -= 1
                if state.assignments[node] == 0:
                    state.groups[node] = 1 << node
                freed = min(size, reserved[node])
                free[node] += freed
                reserved[node] -= freed
                size -= freed

    # Pod-level resources (feature gate PodLevelResourceManagers, pod scope)
    def allocate_pod(self, state: MemoryState, uid: str, pod: Pod, qos: str, hint: TopologyHint) -> None:
        if qos != GUARANTEED:
            return
        try:
            total = self.pod_request(pod)
        except AllocationError:
            return
        reason = self._empty_shared_pool(pod)
        if reason:
            raise EmptyPodSharedPoolError(reason)
        nodes = self._settle(state, total, hint, {})
        exclusive: dict[str, list[Block]] = {}
        sidecars: dict[str, int] = {}
        for container in pod.init_containers:
            requested = self.container_request(pod, container)
            if requested:
                exclusive[container.name] = _blocks(nodes, requested)
                if container.is_sidecar:
                    for name, size in requested.items():
                        sidecars[name] = sidecars.get(name, 0) + size
            elif not container.is_sidecar:
                exclusive[container.name] = _blocks(nodes, _minus(total, sidecars))
        pool = _minus(total, sidecars)
        for container in pod.containers:
            requested = self.container_request(pod, container)
            if requested:
                exclusive[container.name] = _blocks(nodes, requested)
                pool = _minus({**dict.fromkeys(requested, 0), **pool}, requested)
        for name, size in total.items():
            self._occupy(state, nodes, name, size)
        state.pod_blocks[uid] = [Block(nodes, name, size) for name, size in total.items()]
        shared = _blocks(nodes, pool)
        state.blocks[uid] = {container.name: list(exclusive.get(container.name, shared)) for container in pod.all_containers}

    def _empty_shared_pool(self, pod: Pod) -> str | None:
        try:
            total = self.pod_request(pod)
            requests = [(container, self.container_request(pod, container)) for container in pod.all_containers]
        except AllocationError as error:
            return str(error)
        exclusive: dict[str, int] = {}
        shares = False
        for container, requested in requests:
            if container.is_init and not container.is_sidecar:
                short = next((name for name, size in total.items() if exclusive.get(name, 0) >= size), None)
                if not requested and short:
                    return f"pod rejected, pod has shared init containers but no {short} available for them"
            elif not requested:
                shares = True
            else:
                for name, size in requested.items():
                    exclusive[name] = exclusive.get(name, 0) + size
        short = next((name for name, size in total.items() if exclusive.get(name, 0) >= size), None)
        if shares and short:
            return f"pod rejected, sum of exclusive container {short} requests equals pod budget, leaving no memory for shared containers"
        return None


def hugepages_name(size_bytes: int) -> str:
    """The resource of a page size: hugepages-1Gi."""
    return f"hugepages-{format_quantity(size_bytes * NANO, binary=True)}"


def _as_int64(requests: dict[str, int | None]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, size in requests.items():
        if size is None:
            raise AllocationError(_INT64_ERROR)
        found[name] = size
    return found


def _blocks(nodes: int, amounts: dict[str, int]) -> list[Block]:
    return [Block(nodes, name, size) for name, size in amounts.items() if size > 0]


def _minus(amounts: dict[str, int], taken: dict[str, int]) -> dict[str, int]:
    return {name: (size - taken.get(name, 0)) % _UINT64 for name, size in amounts.items()}
