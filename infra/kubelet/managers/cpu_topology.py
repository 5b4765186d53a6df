"""How CPUs lie in cores, caches, sockets and NUMA nodes, as the kubelet's cpumanager/topology discovers it.

A set of CPUs is an int with bit i for CPU i; a NUMA node is its position among the machine's nodes in order of id.
"""

from __future__ import annotations

from functools import lru_cache

from infra.kubelet.machine import Machine


@lru_cache(maxsize=32)
def discover(machine: Machine) -> CPUTopology:
    """The topology of a machine; CPUTopologyError where the kubelet cannot make sense of its cores."""
    return CPUTopology(machine)


class CPUTopologyError(Exception):
    """The kubelet cannot make sense of the machine's cores and does not start."""


class CPUTopology:
    """Sets of CPUs by what they share. The kubelet names a core by its lowest CPU; a cache that is not reported is its socket."""

    __slots__ = (
        "all_cpus",
        "cores",
        "cores_in_numa",
        "cores_in_socket",
        "cpu_count",
        "cpu_numa_count",
        "cpus_per_core",
        "cpus_per_socket",
        "cpus_per_uncore",
        "numa_counts",
        "numa_cpus",
        "numa_first",
        "numa_with_cpus",
        "smallest_core",
        "smallest_numa",
        "smallest_socket",
        "socket_count",
        "socket_cpus",
        "sockets_in_numa",
        "uncore_cpus",
        "uniform_cores",
    )

    def __init__(self, machine: Machine) -> None:
        self.cpu_count = machine.cpu_count
        if self.cpu_count == 0:
            raise CPUTopologyError("could not detect number of cpus")
        nodes = sorted(machine.numa_nodes, key=lambda node: node.id)
        cache_of = {cpu: number for number, cache in enumerate(machine.uncore_caches) for cpu in cache}
        sockets: dict[int, int] = {}
        uncore: dict[int, int] = {}
        seen = 0
        cores_in_numa: list[list[tuple[int, int]]] = []
        cores_in_socket: dict[int, list[tuple[int, int]]] = {}
        numa: list[int] = []
        for node in nodes:
            cores: list[tuple[int, int]] = []
            together = threads_in_node = 0
            for threads, socket in zip(node.cores, node.core_sockets, strict=True):
                if not threads:
                    raise CPUTopologyError("no cpus provided")
                core = 0
                for cpu in threads:
                    core |= 1 << cpu
                numbered = (min(threads), core)
                cores.append(numbered)
                together |= core
                threads_in_node += len(threads)
                if socket in sockets:
                    sockets[socket] |= core
                    cores_in_socket[socket].append(numbered)
                else:
                    sockets[socket] = core
                    cores_in_socket[socket] = [numbered]
                if cache_of:
                    # A cache that is not reported is named like its socket, and mixes with a cache of that number.
                    cache = cache_of.get(threads[0], socket)
                    uncore[cache] = uncore.get(cache, 0) | core
            if together.bit_count() != threads_in_node or together & seen:
                raise CPUTopologyError(f"cpus provided are not unique: a CPU of NUMA node {node.id} stands in two places")
            seen |= together
            cores.sort()
            cores_in_numa.append(cores)
            numa.append(together)
        for members in cores_in_socket.values():
            members.sort()
        uncore = uncore or sockets
        every_core = [numbered for cores in cores_in_numa for numbered in cores]
        sizes = {core.bit_count() for _, core in every_core}
        self.all_cpus = seen
        self.cores = sorted(every_core)
        self.socket_count = len(sockets)
        self.numa_cpus = numa
        self.numa_counts = tuple([cpus.bit_count() for cpus in numa])
        self.numa_with_cpus = sum(1 << position for position, cpus in enumerate(numa) if cpus)
        self.cpu_numa_count = self.numa_with_cpus.bit_count()
        self.socket_cpus = sockets
        self.sockets_in_numa = [[(s, cpus) for s, cpus in sorted(sockets.items()) if cpus & node_cpus] for node_cpus in numa]
        self.uncore_cpus = uncore
        self.cores_in_numa = [[core for _, core in members] for members in cores_in_numa]
        self.cores_in_socket = {socket: [core for _, core in members] for socket, members in cores_in_socket.items()}
        self.cpus_per_core = self.cpu_count // len(every_core)
        self.cpus_per_socket = self.cpu_count // self.socket_count
        self.cpus_per_uncore = self.cpu_count // len(uncore)
        # A machine whose NUMA nodes hold one or more sockets each is filled by NUMA node first, else by socket.
        self.numa_first = self.socket_count >= self.cpu_numa_count
        self.smallest_numa = min(count for count in self.numa_counts if count)
        self.smallest_socket = min(cpus.bit_count() for cpus in sockets.values())
        self.smallest_core = min(sizes)
        self.uniform_cores = sizes == {self.cpus_per_core}

    def siblings(self, cpus: int) -> int:
        """All CPUs of the cores that have a CPU in `cpus`."""
        together = 0
        for _, core in self.cores:
            if core & cpus:
                together |= core
        return together


def cpu_list(cpus: int) -> str:
    """A set of CPUs as the kubelet prints it: 0-3,8."""
    runs: list[str] = []
    start = 0
    while cpus:
        skip = (cpus & -cpus).bit_length() - 1
        cpus >>= skip
        start += skip
        length = (~cpus & (cpus + 1)).bit_length() - 1
        runs.append(str(start) if length == 1 else f"{start}-{start + length - 1}")
        cpus >>= length
        start += length
    return ",".join(runs)


def cpu_ids(cpus: int) -> list[int]:
    """The CPUs of a set, in order."""
    ids = []
    while cpus:
        lowest = cpus & -cpus
        ids.append(lowest.bit_length() - 1)
        cpus ^= lowest
    return ids
