"""The CPU manager's static policy: who gets exclusive CPUs, the hints for them, and what stays shared (cpumanager/policy_static.go)."""

from __future__ import annotations

from dataclasses import dataclass, field

from infra.kubelet.configuration.versions import VersionRules
from infra.kubelet.faults import AllocationError, EmptyPodSharedPoolError, SMTAlignmentError
from infra.kubelet.managers.cpu_assignment import Strategy, take_by_topology
from infra.kubelet.managers.cpu_topology import CPUTopology, cpu_list
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
from infra.kubelet.pods import GUARANTEED, Container, Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUManagerOptions:
    """cpuManagerPolicyOptions of the static policy."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


@dataclass(slots=True)
class CPUState:
    """The shared pool, and the CPUs of each pod's containers; `pods` are pod-level allocations (PodLevelResourceManagers)."""

    shared: int
    containers: dict[str, dict[str, int]] = field(default_factory=dict)
    pods: dict[str, int] = field(default_factory=dict)

    def copy(self) -> CPUState:
        # A pod's own dictionary is only written while the pod is being admitted, so copies may share it.
        return CPUState(self.shared, dict(self.containers), dict(self.pods))


class StaticCPUManager:
    """The static policy on one machine; it holds no state of its own, states are passed in."""

    def __init__(
        self,
        topology: CPUTopology,
        space: MaskSpace,
        reserved: int,
        options: CPUManagerOptions,
        rules: VersionRules,
        pod_level: PodLevelTreatment,
    ) -> None:
        self.topology = topology
        self.space = space
        self.reserved = reserved
        self.reserved_cores = topology.siblings(reserved)
        self.options = options
        self.pod_level = pod_level
        self.strategy = strategy_of(topology, options, rules)
        self._cpu_masks = space.submasks(topology.numa_with_cpus)

    def initial_state(self) -> CPUState:
        return CPUState(self.topology.all_cpus & ~self.reserved if self.options.strict_cpu_reservation else self.topology.all_cpus)

    # Requests
    def guaranteed_cpus(self, pod: Pod, qos: str, container: Container) -> int:
        """How many exclusive CPUs a container gets: its request if that is whole and the pod Guaranteed, else 0."""
        if qos != GUARANTEED:
            return 0
        if self.pod_level.managed and pod.has_pod_level_resources and not container.has_guaranteed_resources:
            return 0
        cpus, rest = divmod(container.requests.get("cpu", 0), 1000)
        return 0 if rest else cpus

    def pod_guaranteed_cpus(self, pod: Pod, qos: str) -> int:
        """The same for the pod as a whole (pod scope)."""
        if self.pod_level.managed and pod.has_pod_level_resources:
            cpus, rest = divmod((pod.pod_requests or {}).get("cpu", 0), 1000)
            return cpus if qos == GUARANTEED and not rest else 0
        widest = sidecars = 0
        for container in pod.init_containers:
            cpus = self.guaranteed_cpus(pod, qos, container)
            if container.is_sidecar:
                sidecars += cpus
            else:
                widest = max(widest, sidecars + cpus)
        return max(widest, sidecars + sum(self.guaranteed_cpus(pod, qos, container) for container in pod.containers))

    # Hints
    def container_hints(self, state: CPUState, pod: Pod, qos: str, container: Container, reusable: int) -> ProviderHints | None:
        requested = self.guaranteed_cpus(pod, qos, container)
        if requested == 0 or (pod.has_pod_level_resources and self.pod_level.skipped):
            return None
        return {"cpu": self._hints(state.shared & ~self.reserved, reusable, requested)}

    def pod_hints(self, state: CPUState, pod: Pod, qos: str) -> ProviderHints | None:
        requested = self.pod_guaranteed_cpus(pod, qos)
        if requested == 0:
            return None
        if pod.has_pod_level_resources and self.pod_level.skipped:
            return None
        if pod.has_pod_level_resources and self.pod_level.managed and self._empty_shared_pool(pod, qos):
            return {"cpu": UNSATISFIABLE}
        return {"cpu": self._hints(state.shared & ~self.reserved, 0, requested)}

    def _hints(self, available: int, reusable: int, requested: int) -> ResourceHints:
        space, topology = self.space, self.topology
        could_hold = masks_with_at_least(topology.numa_counts, requested) & self._cpu_masks
        narrowest = space.narrowest(could_hold) or topology.cpu_numa_count
        free = tuple([(cpus & available).bit_count() for cpus in topology.numa_cpus])
        possible = masks_with_at_least(free, requested - reusable.bit_count()) & self._cpu_masks
        if reusable:
            held = sum(1 << node for node, cpus in enumerate(topology.numa_cpus) if cpus & reusable)
            possible &= space.supersets(held)
        preferred = possible & space.by_count[narrowest]
        if self.options.align_by_socket:
            preferred |= self._socket_aligned(possible, narrowest)
        return ResourceHints(possible, preferred)

    def _socket_aligned(self, possible: int, narrowest: int) -> int:
        topology = self.topology
        nodes_per_socket = topology.cpu_numa_count // topology.socket_count  # 1 at least, or the kubelet does not start
        sockets = (narrowest + nodes_per_socket - 1) // nodes_per_socket
        return sum(1 << mask for mask in masks_of(possible) if len(self._sockets_of(mask)) == sockets)

    def _sockets_of(self, nodes: int) -> set[int]:
        return {socket for node in positions(nodes) for socket, _ in self.topology.sockets_in_numa[node]}

    # Allocation
    def allocate_container(
        self, state: CPUState, uid: str, pod: Pod, qos: str, container: Container, nodes: int | None, reusable: int
    ) -> int:
        """Gives the container its CPUs and returns what later containers of the pod may reuse."""
        count = self.guaranteed_cpus(pod, qos, container)
        if count == 0 or (pod.has_pod_level_resources and self.pod_level.skipped):
            return reusable
        self._check_smt(state, count)
        cpus = self._allocate(state, count, nodes, reusable)
        state.containers.setdefault(uid, {})[container.name] = cpus
        if container.is_init and not container.is_sidecar:
            return reusable | cpus
        return reusable & ~cpus

    def _check_smt(self, state: CPUState, count: int) -> None:
        if not self.options.full_pcpus_only:
            return
        per_core = self.topology.cpus_per_core
        if count % per_core:
            raise SMTAlignmentError(f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}")
        available = (state.shared & ~self.reserved_cores).bit_count()
        if count > available:
            raise SMTAlignmentError(
                "SMT Alignment Error: not enough free physical CPUs: "
                f"available physical CPUs = {available}, requested CPUs = {count}, CPUs per core = {per_core}"
            )

    def _allocate(self, state: CPUState, count: int, nodes: int | None, reusable: int) -> int:
        allocatable = (state.shared & ~self.reserved) | reusable
        taken = 0
        if nodes is not None:
            aligned = allocatable & self._aligned(nodes)
            taken = self._take(aligned, min(count, aligned.bit_count()))
        taken |= self._take(allocatable & ~taken, count - taken.bit_count())
        state.shared &= ~taken
        return taken

    def _aligned(self, nodes: int) -> int:
        cpus = 0
        if self.options.align_by_socket:
            for socket in self._sockets_of(nodes):
                cpus |= self.topology.socket_cpus[socket]
        else:
            for node in positions(nodes):
                cpus |= self.topology.numa_cpus[node]
        return cpus

    def _take(self, available: int, count: int) -> int:
        return take_by_topology(self.topology, available, count, self.strategy)

    # Pod-level resources (feature gate PodLevelResourceManagers, pod scope): one set of CPUs for the pod, divided among containers
    def allocate_pod(self, state: CPUState, uid: str, pod: Pod, qos: str, nodes: int | None) -> None:
        total = self.pod_guaranteed_cpus(pod, qos)
        if total == 0:
            return
        reason = self._empty_shared_pool(pod, qos)
        if reason:
            raise EmptyPodSharedPoolError(reason)
        self._check_smt(state, total)
        bubble = self._allocate(state, total, nodes, 0)
        state.pods[uid] = bubble
        exclusive: dict[str, int] = {}
        sidecars = 0
        for container in pod.init_containers:
            count = self.guaranteed_cpus(pod, qos, container)
            if count:
                exclusive[container.name] = self._take(bubble & ~sidecars, count)
                if container.is_sidecar:
                    sidecars |= exclusive[container.name]
            elif not container.is_sidecar:
                exclusive[container.name] = bubble & ~sidecars
        pool = bubble & ~sidecars
        for container in pod.containers:
            count = self.guaranteed_cpus(pod, qos, container)
            if count:
                exclusive[container.name] = self._take(pool, count)
                pool &= ~exclusive[container.name]
        state.containers[uid] = {container.name: exclusive.get(container.name, pool) for container in pod.all_containers}

    def _empty_shared_pool(self, pod: Pod, qos: str) -> str | None:
        total = self.pod_guaranteed_cpus(pod, qos)
        shares = False
        exclusive = 0
        for container in pod.all_containers:
            cpus = self.guaranteed_cpus(pod, qos, container)
            if container.is_init and not container.is_sidecar:
                if cpus == 0 and exclusive >= total:
                    return "pod rejected, pod has shared init containers but no cpus available for them"
            elif cpus == 0:
                shares = True
            else:
                exclusive += cpus
        if shares and exclusive >= total:
            return "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
        return None

    def release(self, state: CPUState, uid: str) -> None:
        """Returns a pod's CPUs to the shared pool, as the manager does when it finds the pod gone."""
        containers = state.containers.pop(uid, None)
        if not containers:
            # A pod-level allocation that failed half-way leaves no container behind, and the kubelet never looks at it again.
            return
        bubble = state.pods.pop(uid, None) if self.pod_level.managed else None
        if bubble is not None:
            state.shared |= bubble
            return
        for cpus in containers.values():
            state.shared |= cpus


def strategy_of(topology: CPUTopology, options: CPUManagerOptions, rules: VersionRules) -> Strategy:
    """How the options have CPUs taken."""
    return Strategy(
        spread_over_cores=options.distribute_cpus_across_cores,
        prefer_uncore_cache=options.prefer_align_cpus_by_uncorecache,
        distribute_over_numa=options.distribute_cpus_across_numa,
        group_size=topology.cpus_per_core if options.full_pcpus_only else 1,
        align_by_socket=options.align_by_socket and rules.distribution_knows_sockets,
        capped_shares=rules.distribution_knows_sockets,
        odd_requests_from_cache=rules.uncore_cache_takes_odd_requests,
    )


def reserve_cpus(topology: CPUTopology, specific: int, count: int, options: CPUManagerOptions, rules: VersionRules) -> int:
    """The reserved CPUs: those named, or the first `count` in the order of the allocator. AllocationError where they cannot be had."""
    if specific:
        reserved = specific
    else:
        try:
            reserved = take_by_topology(topology, topology.all_cpus, count, strategy_of(topology, options, rules))
        except AllocationError:
            reserved = 0
    if reserved.bit_count() != count:
        raise AllocationError(
            f"[cpumanager] unable to reserve the required amount of CPUs (size of {cpu_list(reserved)} did not equal {count})"
        )
    return reserved
