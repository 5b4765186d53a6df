"""Which CPUs a request gets: the kubelet's cpumanager/cpu_assignment.go, with sets of CPUs as ints.

Two strategies: packed (fill sockets, NUMA nodes, caches, cores, then threads) and distributed (even shares over NUMA nodes).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt

from infra.kubelet.faults import AllocationError, KubeletHangs
from infra.kubelet.managers.cpu_topology import CPUTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What the static policy's options make of an allocation."""

    spread_over_cores: bool
    prefer_uncore_cache: bool
    distribute_over_numa: bool
    group_size: int
    align_by_socket: bool
    capped_shares: bool
    odd_requests_from_cache: bool


def take_by_topology(topology: CPUTopology, available: int, count: int, strategy: Strategy) -> int:
    """`count` CPUs out of `available`; AllocationError with the kubelet's words where there are too few."""
    if strategy.distribute_over_numa:
        return _take_distributed(topology, available, count, strategy)
    uncore = strategy.prefer_uncore_cache
    odd = strategy.odd_requests_from_cache
    return _take_packed(topology, available, count, spread=strategy.spread_over_cores, uncore=uncore, odd=odd)


class _Accumulator:
    """CPUs claimed so far (`result`), those still free (`free`) and how many are still wanted (`needed`)."""

    __slots__ = ("free", "needed", "result", "topology")

    def __init__(self, topology: CPUTopology, available: int, count: int) -> None:
        self.topology = topology
        self.free = available & topology.all_cpus
        self.needed = count
        self.result = 0

    def take(self, cpus: int) -> None:
        self.result |= cpus
        self.free &= ~cpus
        self.needed -= cpus.bit_count()

    # Orders: whatever has the fewest free CPUs comes first, equal ones by id; what has none is left out.
    def numa_nodes(self) -> list[int]:
        free, numa_cpus = self.free, self.topology.numa_cpus
        if self.topology.numa_first:
            counts = [((cpus & free).bit_count(), node) for node, cpus in enumerate(numa_cpus)]
            return [node for count, node in sorted(counts) if count]
        order: list[int] = []
        for socket in self.sockets():
            here = self.topology.socket_cpus[socket] & free
            inside = ((cpus & free).bit_count() if cpus & here else 0 for cpus in numa_cpus)
            order += [node for _, node in sorted((n, i) for i, n in enumerate(inside) if n)]
        return order

    def sockets(self) -> list[int]:
        free, topology = self.free, self.topology
        if not topology.numa_first:
            counts = ((cpus & free).bit_count() for cpus in topology.socket_cpus.values())
            return [s for _, s in sorted((n, s) for n, s in zip(counts, topology.socket_cpus, strict=True) if n)]
        order: list[int] = []
        for node in self.numa_nodes():
            here = topology.numa_cpus[node] & free
            order += [s for _, s in sorted(((c & free).bit_count(), s) for s, c in topology.sockets_in_numa[node] if c & here)]
        return order

    def core_groups(self) -> Iterator[list[int]]:
        """Cores by what lies above them, groups in order; within a group by id."""
        if self.topology.numa_first:
            for socket in self.sockets():
                yield self.topology.cores_in_socket[socket]
        else:
            for node in self.numa_nodes():
                yield self.topology.cores_in_numa[node]

    def uncore_caches(self) -> list[int]:
        free, topology = self.free, self.topology
        order: list[int] = []
        for node in self.numa_nodes():
            here = topology.numa_cpus[node] & free
            order += [u for _, u in sorted(((c & free).bit_count(), u) for u, c in topology.uncore_cpus.items() if c & here)]
        return order

    # Steps, from the largest unit to the smallest.
    def take_full_numa_nodes(self) -> None:
        topology = self.topology
        if self.needed < topology.smallest_numa:
            return
        for node in [node for node in self.numa_nodes() if topology.numa_cpus[node] & self.free == topology.numa_cpus[node]]:
            if self.needed >= topology.numa_counts[node]:
                self.take(topology.numa_cpus[node])

    def take_full_sockets(self) -> None:
        topology, free = self.topology, self.free
        if self.needed < topology.smallest_socket:
            return
        for socket in [s for s in self.sockets() if (topology.socket_cpus[s] & free).bit_count() == topology.cpus_per_socket]:
            cpus = topology.socket_cpus[socket]
            if self.needed >= cpus.bit_count():
                self.take(cpus)

    def take_uncore_caches(self, *, odd: bool) -> None:
        for cache in self.uncore_caches():
            if self.needed >= self.topology.cpus_per_uncore:
                self._take_full_uncore_caches()
            if self.needed < 1:
                return
            self._take_partial_uncore_cache(cache, odd=odd)
            if self.needed < 1:
                return

    def _take_full_uncore_caches(self) -> None:
        caches = self.topology.uncore_cpus
        for cache in [cache for cache in self.uncore_caches() if caches[cache] & self.free == caches[cache]]:
            if self.needed >= caches[cache].bit_count():
                self.take(caches[cache])

    def _take_partial_uncore_cache(self, cache: int, *, odd: bool) -> None:
        topology = self.topology
        per_core = topology.cpus_per_core
        cores_needed = (self.needed + per_core - 1) // per_core if odd else self.needed // per_core
        inside = topology.uncore_cpus[cache] & self.free
        cpus = 0
        for core in [core for _, core in topology.cores if core & inside][:cores_needed]:
            cpus |= core & self.free
        if odd and self.needed % 2 and per_core > 1 and cpus.bit_count() > self.needed:
            cpus ^= 1 << (cpus.bit_length() - 1)
        if cpus.bit_count() == self.needed:
            self.take(cpus)

    def take_full_cores(self) -> None:
        topology, free = self.topology, self.free
        if self.needed < topology.smallest_core:
            return
        per_core = topology.cpus_per_core
        if not topology.uniform_cores:
            for core in [core for group in self.core_groups() for core in group if (core & free).bit_count() == per_core]:
                if self.needed >= core.bit_count():
                    self.take(core)
            return
        for group in list(self.core_groups()):
            for core in group:
                if core & free == core:
                    self.take(core)
                    if self.needed < per_core:
                        return

    def take_remaining_cpus(self, *, spread: bool) -> None:
        free = self.free
        if spread:
            groups = [topology_cpus & free for topology_cpus in map(self.topology.socket_cpus.__getitem__, self.sockets())]
        else:
            groups = self._free_threads(free, list(self.core_groups()))
        for cpus in groups:
            left = cpus
            while left:
                lowest = left & -left
                left ^= lowest
                self.take(lowest)
                if self.needed < 1:
                    return

    @staticmethod
    def _free_threads(free: int, groups: list[list[int]]) -> Iterator[int]:
        for group in groups:
            by_count: dict[int, list[int]] = {}
            for core in group:
                threads = core & free
                if threads:
                    by_count.setdefault(threads.bit_count(), []).append(threads)
            for count in sorted(by_count):
                yield from by_count[count]


def _take_packed(topology: CPUTopology, available: int, count: int, *, spread: bool, uncore: bool, odd: bool = True) -> int:
    if count < 1:
        return 0
    acc = _Accumulator(topology, available, count)
    if count > acc.free.bit_count():
        raise AllocationError(f"not enough cpus available to satisfy request: requested={count}, available={available.bit_count()}")
    first, second = acc.take_full_sockets, acc.take_full_numa_nodes
    if topology.numa_first:
        first, second = second, first
    steps: list[Callable[[], None]] = [first, second]
    if uncore:
        steps.append(lambda: acc.take_uncore_caches(odd=odd))
    if not spread:
        steps.append(acc.take_full_cores)
    for step in steps:
        step()
        if acc.needed < 1:
            return acc.result
    acc.take_remaining_cpus(spread=spread)
    if acc.needed < 1:
        return acc.result
    raise AllocationError("failed to allocate cpus")


class _Combination:
    """A combination in the form that the kubelet keeps it in: a view of an array that later combinations may overwrite.

    Its iterateCombinations appends to a shared slice, and Go's append reuses the array where there is room (from the fourth
    element on). What the kubelet remembers as its best choice is then the last sibling of that choice, and so it is here.
    """

    __slots__ = ("array", "length")

    def __init__(self, array: list[int], length: int) -> None:
        self.array = array
        self.length = length

    def nodes(self) -> list[int]:
        return self.array[: self.length]


def _combinations(items: list[int], size: int) -> Iterator[_Combination]:
    if size < 1:
        return
    yield from _extend(items, size, 0, [], 0)


def _extend(items: list[int], size: int, start: int, array: list[int], length: int) -> Iterator[_Combination]:
    if size == 0:
        yield _Combination(array, length)
        return
    for index in range(start, len(items) - size + 1):
        if length < len(array):
            longer = array
        else:
            capacity = max(1, 2 * len(array))
            longer = array + [0] * (capacity - len(array))
        longer[length] = items[index]
        yield from _extend(items, size - 1, index + 1, longer, length + 1)


def _take_distributed(topology: CPUTopology, available: int, count: int, strategy: Strategy) -> int:
    group, spread = strategy.group_size, strategy.spread_over_cores
    if count % group:
        return _take_packed(topology, available, count, spread=spread, uncore=False)
    if count < 1:
        return 0
    acc = _Accumulator(topology, available, count)
    if count > acc.free.bit_count():
        raise AllocationError(f"not enough cpus available to satisfy request: requested={count}, available={available.bit_count()}")
    numas = acc.numa_nodes()
    for size in range(*_numa_range(acc, group)):
        choice = _best_combination(acc, numas, size, strategy)
        if choice is not None:
            return _take_shares(acc, choice[0], choice[1], strategy)
    return _take_packed(topology, available, count, spread=spread, uncore=False)


def _numa_range(acc: _Accumulator, group: int) -> tuple[int, int]:
    """From the fewest NUMA nodes that could hold the request to the most that could take part (exclusive)."""
    topology = acc.topology
    groups = (topology.all_cpus.bit_count() - 1) // group + 1
    per_node = (groups - 1) // topology.cpu_numa_count + 1
    wanted = (acc.needed - 1) // group + 1
    with_free = sum(1 for cpus in topology.numa_cpus if cpus & acc.free)
    return (wanted - 1) // per_node + 1, min(wanted, with_free) + 1


def _best_combination(acc: _Accumulator, numas: list[int], size: int, strategy: Strategy) -> tuple[list[int], list[int]] | None:
    group, count = strategy.group_size, acc.needed
    free = {node: (acc.topology.numa_cpus[node] & acc.free).bit_count() for node in numas}
    best: _Combination | None = None
    best_remainder: _Combination | None = None
    best_balance = float("inf")
    best_in_socket = False
    for combination in _combinations(numas, size):
        if best_balance == 0 and (not strategy.align_by_socket or best_in_socket):
            break
        nodes = combination.nodes()
        if sum(free[node] // group for node in nodes) * group < count:
            continue
        share = count // size // group * group
        if strategy.align_by_socket:
            share = min([share, *(free[node] // group * group for node in nodes)])
        if any(free[node] < share for node in nodes):
            continue
        left = dict(free)
        for node in nodes:
            left[node] -= share
        remainder = count - share * size
        balance, subset = _balance(left, [node for node in nodes if left[node] >= group], remainder, group)
        in_socket = strategy.align_by_socket and _in_one_socket(acc.topology, nodes)
        better = balance < best_balance
        if strategy.align_by_socket and in_socket != best_in_socket:
            better = in_socket
        if better:
            best, best_remainder, best_balance = combination, subset, balance
            if strategy.align_by_socket:
                best_in_socket = in_socket
    if best is None:
        return None
    return best.nodes(), best_remainder.nodes() if best_remainder is not None else []


def _balance(left: dict[int, int], candidates: list[int], remainder: int, group: int) -> tuple[float, _Combination | None]:
    """The lowest deviation of what is left on the NUMA nodes, and the nodes that give the remainder."""
    if remainder == 0:
        return _deviation(list(left.values())), None
    best = float("inf")
    chosen: _Combination | None = None
    for size in range(len(candidates), 0, -1):
        for subset in _combinations(candidates, size):
            nodes = subset.nodes()
            if sum(left[node] for node in nodes) < remainder:
                continue
            after, rest = dict(left), remainder
            while rest > 0:
                before = rest
                for node in nodes:
                    if rest == 0:
                        break
                    if after[node] >= group:
                        after[node] -= group
                        rest -= group
                if rest == before:
                    raise KubeletHangs("the kubelet loops for ever over NUMA nodes that have less than one full core left")
            deviation = _deviation(list(after.values()))
            if deviation < best:
                best, chosen = deviation, subset
    return best, chosen


def _take_shares(acc: _Accumulator, nodes: list[int], remainder_nodes: list[int], strategy: Strategy) -> int:
    group, topology, count = strategy.group_size, acc.topology, acc.needed

    def on(node: int) -> int:
        return topology.numa_cpus[node] & acc.free

    def take(node: int, wanted: int) -> None:
        with contextlib.suppress(AllocationError):
            acc.take(_take_packed(topology, on(node), wanted, spread=strategy.spread_over_cores, uncore=False))

    share = count // len(nodes) // group * group
    if strategy.capped_shares:
        share = min([share, *(on(node).bit_count() // group * group for node in nodes)])
    for node in nodes:
        take(node, share)
    remainder = count - share * len(nodes)
    while remainder > 0:
        before = remainder
        for node in remainder_nodes:
            if remainder == 0:
                break
            if on(node).bit_count() >= group:
                take(node, group)
                remainder -= group
        if remainder == before:
            raise KubeletHangs("the kubelet loops for ever: no NUMA node of its choice has a full core left for the remainder")
    if acc.needed > 0:
        raise AllocationError(f"accounting error, not enough CPUs allocated, remaining: {acc.needed}")
    if acc.needed < 0:
        raise AllocationError(f"accounting error, too many CPUs allocated, remaining: {acc.needed}")
    return acc.result


def _in_one_socket(topology: CPUTopology, nodes: list[int]) -> bool:
    cpus = 0
    for node in nodes:
        cpus |= topology.numa_cpus[node]
    return sum(1 for socket in topology.socket_cpus.values() if socket & cpus) <= 1


def _deviation(values: list[int]) -> float:
    mean = _thousandths(sum(values) / len(values))
    total = 0.0
    for value in values:
        off = value - mean
        total += off * off
    return _thousandths(sqrt(total / len(values)))


def _thousandths(value: float) -> float:
    """Rounded to three digits, halves away from zero as Go does (Python rounds them to even)."""
    scaled = value * 1000
    whole = int(scaled)
    return (whole + (scaled - whole >= 0.5)) / 1000
