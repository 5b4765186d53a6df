"""A machine as the kubelet sees it: what cAdvisor reports of NUMA nodes, cores, caches, memory and huge pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.diagnosis import shown
from infra.errors import ConfigError
from infra.kubelet.quantity import parse_quantity

# On x86 the kernel offers both sizes everywhere, with a count of zero where nobody asked for pages.
_X86_HUGEPAGE_SIZES = (2 * 2**20, 2**30)


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node. `memory_bytes` includes the huge pages, as in sysfs; `distances` is None where cAdvisor found none."""

    id: int
    cores: tuple[tuple[int, ...], ...]
    core_sockets: tuple[int, ...]
    memory_bytes: int
    hugepages: tuple[tuple[int, int], ...]
    distances: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a device plugin; `numa` empty means that the plugin gave no topology."""

    id: str
    numa: tuple[int, ...] = ()
    healthy: bool = True

    @classmethod
    def from_dict(cls, document: Any, path: str = "device") -> Device:
        if not isinstance(document, Mapping):
            raise _wrong(path, document, 'an object like {"id": "gpu0", "numa": [0]}')
        identifier = document.get("id")
        if not isinstance(identifier, str):
            raise _wrong(f"{path}.id", identifier, "a string")
        numa = document.get("numa")
        if numa is not None and not (isinstance(numa, list | tuple) and all(type(node) is int for node in numa)):
            raise _wrong(f"{path}.numa", numa, "a list of NUMA node ids")
        healthy = document.get("healthy")
        if healthy is not None and not isinstance(healthy, bool):
            raise _wrong(f"{path}.healthy", healthy, "true or false")
        return cls(id=identifier, numa=tuple(numa or ()), healthy=healthy is not False)


@dataclass(frozen=True, slots=True)
class Machine:
    """NUMA nodes in the order of the kernel, and what cAdvisor adds up over them."""

    numa_nodes: tuple[NumaNode, ...]
    uncore_caches: tuple[tuple[int, ...], ...] = ()
    memory_capacity_bytes: int = 0
    hugepage_totals: tuple[tuple[int, int], ...] = field(default=())

    @classmethod
    def from_dict(cls, document: Any, path: str = "machine") -> Machine:
        """The `machine` object of a case; ConfigError names the path of what is wrong."""
        if not isinstance(document, Mapping):
            raise _wrong(path, document, 'an object with a list "numa"')
        exact = document.get("exact_hugepages") or False
        nodes = tuple(
            _numa_node(node, f"{path}.numa[{index}]", exact=bool(exact)) for index, node in enumerate(_list(document, "numa", path))
        )
        if len({node.id for node in nodes}) != len(nodes):
            raise _wrong(f"{path}.numa", [node.id for node in nodes], "nodes with different ids")
        totals: dict[int, int] = {}
        for node in nodes:
            for size_bytes, count in node.hugepages:
                totals[size_bytes] = totals.get(size_bytes, 0) + count
        caches = tuple(_cpus(cache, f"{path}.uncore_caches[{i}]") for i, cache in enumerate(_list(document, "uncore_caches", path)))
        capacity = _count(document.get("memory_capacity_bytes"), f"{path}.memory_capacity_bytes")
        return cls(
            numa_nodes=nodes,
            uncore_caches=caches,
            memory_capacity_bytes=capacity or sum(node.memory_bytes for node in nodes),
            hugepage_totals=tuple(sorted(totals.items())),
        )

    @property
    def cpu_count(self) -> int:
        return sum(len(threads) for node in self.numa_nodes for threads in node.cores)


def _numa_node(document: Any, path: str, *, exact: bool) -> NumaNode:
    if not isinstance(document, Mapping):
        raise _wrong(path, document, 'an object like {"id": 0, "cpus": [[0, 1]], "memory_bytes": 68719476736}')
    number = document.get("id", 0)
    if type(number) is not int or not 0 <= number < 64:
        raise _wrong(f"{path}.id", number, "an integer from 0 to 63, as the kubelet's masks hold")
    cores = _cores(_list(document, "cpus", path), path)
    socket = document.get("socket") or 0
    given = document.get("core_sockets") or ()
    if type(socket) is not int or not (isinstance(given, list | tuple) and all(type(s) is int for s in given)):
        raise _wrong(f"{path}.socket", given or socket, "socket ids")
    pages: dict[int, int] = dict.fromkeys(() if exact else _X86_HUGEPAGE_SIZES, 0)
    hugepages = document.get("hugepages") or {}
    if not isinstance(hugepages, Mapping):
        raise _wrong(f"{path}.hugepages", hugepages, 'counts by size, like {"1Gi": 4}')
    for size, count in hugepages.items():
        try:
            size_bytes = parse_quantity(str(size)).value
        except ValueError as error:
            raise _wrong(f"{path}.hugepages", size, f"a page size ({error})") from None
        pages[size_bytes] = _count(count, f"{path}.hugepages.{size}")
    distances = document.get("distances")
    return NumaNode(
        id=number,
        cores=cores,
        core_sockets=tuple(given[i] if i < len(given) else socket for i in range(len(cores))) if given else (socket,) * len(cores),
        memory_bytes=_count(document.get("memory_bytes"), f"{path}.memory_bytes"),
        hugepages=tuple(sorted(pages.items())),
        distances=None if distances is None else _cpus(distances, f"{path}.distances"),
    )


def _list(document: Mapping[str, Any], key: str, path: str) -> Sequence[Any]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise _wrong(f"{path}.{key}", value, "a list")
    return value


def _cores(listed: Sequence[Any], path: str) -> tuple[tuple[int, ...], ...]:
    return tuple(_cpus(core, f"{path}.cpus[{index}]") for index, core in enumerate(listed))


def _cpus(value: Any, path: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(path, value, "a list of integers")
    for item in value:
        if type(item) is not int or not 0 <= item < 2**20:
            raise _wrong(path, item, "a number from 0 up")
    return tuple(value)


def _count(value: Any, path: str) -> int:
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value < 2**64:
        raise _wrong(path, value, "a whole number from 0 up")
    return value


def _wrong(path: str, value: object, expected: str) -> ConfigError:
    error = ConfigError.one("BadCase", path, f"{shown(value)} is not {expected}.")
    assert isinstance(error, ConfigError)
    return error
