"""The kubelet's state files: who holds which CPUs, memory nodes and devices.

Forms read: cpu_manager_state of 1.8 to 1.37 (container to CPUs; the dual form of 1.37 with the authoritative content as a string
under `data`), memory_manager_state of 1.21 to 1.37, kubelet_internal_checkpoint before and since 1.20 (a list of device ids, or
ids by NUMA node). Checksums are hashes over Go structs and are not checked here. Source: kubernetes pkg/kubelet/cm/*/state and
pkg/kubelet/cm/devicemanager/checkpoint, v1.37.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.diagnosis import Diagnosis
from infra.errors import ConfigError, NumawiseError
from infra.units import format_cpu_list, parse_cpu_list

# The kubelet's own key for devices whose plugin reported no NUMA node (devicemanager nodeWithoutTopology).
NO_NUMA_NODE = -1

# pod UID -> container -> resource -> NUMA node (NO_NUMA_NODE: not reported) -> device ids
DeviceAllocations = dict[str, dict[str, dict[str, dict[int, tuple[str, ...]]]]]


@dataclass(frozen=True, kw_only=True)
class CpuManagerState:
    """`default_cpus` are the shared pool; `assignments` the exclusive CPUs by pod UID and container.

    `pod_cpus` holds what a pod with pod-level resources owns as a whole (1.37), `baselines` the CPUs at admission before a resize.
    """

    policy: str
    default_cpus: tuple[int, ...] = ()
    assignments: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    pod_cpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    baselines: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    version: int = 2

    def findings(self) -> tuple[Diagnosis, ...]:
        """CPUs that two containers hold, or that a container holds and the shared pool too."""
        found: list[Diagnosis] = []
        shared = set(self.default_cpus)
        owner: dict[int, str] = {}
        for pod, containers in self.assignments.items():
            for container, cpus in containers.items():
                who = f"{pod}/{container}"
                if both := shared.intersection(cpus):
                    found.append(
                        Diagnosis(
                            code="CpusShared",
                            path=who,
                            message=f"CPUs {format_cpu_list(both)} of container {container} are in the shared pool too; "
                            f"the kubelet will not start from this file.",
                            remedy=_cpu_remedy(),
                        )
                    )
                twice = {owner[cpu] for cpu in cpus if cpu in owner and not owner[cpu].startswith(f"{pod}/")}
                if twice:
                    found.append(
                        Diagnosis(
                            code="CpusHeldTwice",
                            path=who,
                            message=f"CPUs of container {container} are held by {', '.join(sorted(twice))} too.",
                            remedy=_cpu_remedy(),
                        )
                    )
                owner.update(dict.fromkeys(cpus, who))
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class MemoryTable:
    """One resource (`memory`, `hugepages-1Gi`) of one NUMA node, in bytes."""

    total_bytes: int
    system_reserved_bytes: int
    allocatable_bytes: int
    reserved_bytes: int
    free_bytes: int


@dataclass(frozen=True, kw_only=True)
class NumaMemoryState:
    """One NUMA node: its tables by resource, its number of assignments, and the nodes that containers hold together with it."""

    assignments: int
    tables: Mapping[str, MemoryTable]
    cells: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class MemoryBlock:
    """`size_bytes` of `resource`, pinned to `numa_nodes` together."""

    numa_nodes: tuple[int, ...]
    resource: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class MemoryManagerState:
    """`nodes` by NUMA node id; `assignments` by pod UID and container; `pod_blocks` of pods with pod-level resources (1.37)."""

    policy: str
    nodes: Mapping[int, NumaMemoryState] = field(default_factory=dict)
    assignments: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]] = field(default_factory=dict)
    pod_blocks: Mapping[str, tuple[MemoryBlock, ...]] = field(default_factory=dict)
    version: int = 1


@dataclass(frozen=True, kw_only=True)
class DeviceCheckpoint:
    """`allocations` as DeviceAllocations; `registered` device ids by resource, as the plugins last reported them healthy."""

    allocations: DeviceAllocations
    registered: Mapping[str, tuple[str, ...]]

    def straddling_pods(self) -> tuple[str, ...]:
        """UIDs of pods with a container whose devices of one resource lie on more than one NUMA node, sorted."""
        return tuple(
            sorted(
                pod
                for pod, containers in self.allocations.items()
                if any(
                    len({numa for numa, ids in by_numa.items() if ids and numa != NO_NUMA_NODE}) > 1
                    for resources in containers.values()
                    for by_numa in resources.values()
                )
            )
        )

    def findings(self) -> tuple[Diagnosis, ...]:
        """Containers over several NUMA nodes, devices without a NUMA node, a device that two containers hold."""
        found: list[Diagnosis] = []
        owner: dict[tuple[str, str], str] = {}
        for pod, containers in self.allocations.items():
            for container, resources in containers.items():
                who = f"{pod}/{container}"
                for resource, by_numa in resources.items():
                    found += _device_findings(who, resource, by_numa)
                    for device in (device for ids in by_numa.values() for device in ids):
                        other = owner.setdefault((resource, device), who)
                        if other != who:
                            found.append(
                                Diagnosis.warning(
                                    code="DeviceHeldTwice",
                                    path=who,
                                    message=f"{resource} {device} is held by {other} too.",
                                    remedy="One of the two is a terminated pod or a shared (time-sliced) device; compare "
                                    "with `kubectl get pods`.",
                                )
                            )
        return tuple(found)


def _device_findings(who: str, resource: str, by_numa: Mapping[int, tuple[str, ...]]) -> list[Diagnosis]:
    found: list[Diagnosis] = []
    nodes = sorted(numa for numa, ids in by_numa.items() if ids and numa != NO_NUMA_NODE)
    if len(nodes) > 1:
        counts = ", ".join(f"{len(by_numa[numa])} on node {numa}" for numa in nodes)
        found.append(
            Diagnosis.warning(
                code="DevicesStraddleNumaNodes",
                path=who,
                message=f"the {sum(len(by_numa[n]) for n in nodes)} {resource} of this container lie on {len(nodes)} NUMA "
                f"nodes ({counts}).",
                remedy="Set topologyManagerPolicy: single-numa-node (or restricted) on the pool, and recreate the pod.",
            )
        )
    if by_numa.get(NO_NUMA_NODE):
        found.append(
            Diagnosis.warning(
                code="DevicesWithoutNumaNode",
                path=who,
                message=f"the device plugin reported no NUMA node for {len(by_numa[NO_NUMA_NODE])} {resource}: the "
                f"topology manager cannot align them.",
                remedy="`cat /sys/bus/pci/devices/*/numa_node` shows -1 where the firmware or the hypervisor gives none.",
            )
        )
    return found


def parse_cpu_manager_state(text: str, *, source: str = "cpu_manager_state") -> CpuManagerState:
    """Reads /var/lib/kubelet/cpu_manager_state; ConfigError names `source` and what is wrong with it."""
    outer = _document(text, source)
    inner, is_dual = _authoritative(outer, source)
    entries = _mapping(inner.get("entries"), f"{source}: entries")
    version = 4 if is_dual else 3 if "podEntries" in inner else 2
    if entries and any(isinstance(value, str) for value in entries.values()):
        # The first form (before 1.18) was keyed by container id alone; pods are not known from it.
        return CpuManagerState(
            policy=_policy(inner, source),
            default_cpus=_cpus(inner.get("defaultCpuSet"), f"{source}: defaultCpuSet"),
            assignments={"": {str(key): _cpus(value, f"{source}: entries.{key}") for key, value in entries.items()}},
            version=1,
        )
    return CpuManagerState(
        policy=_policy(inner, source),
        default_cpus=_cpus(inner.get("defaultCpuSet"), f"{source}: defaultCpuSet"),
        assignments={
            str(pod): {
                str(container): _cpus(cpus, f"{source}: entries.{pod}.{container}")
                for container, cpus in _mapping(containers, f"{source}: entries.{pod}").items()
            }
            for pod, containers in entries.items()
        },
        pod_cpus={
            str(pod): _cpus(_mapping(entry, f"{source}: podEntries.{pod}").get("cpuSet"), f"{source}: podEntries.{pod}")
            for pod, entry in _mapping(inner.get("podEntries"), f"{source}: podEntries").items()
        },
        baselines={
            str(pod): {
                str(container): _cpus(
                    _mapping(entry, f"{source}: baselines").get("baseline"), f"{source}: baselines.{pod}.{container}"
                )
                for container, entry in _mapping(containers, f"{source}: baselines.{pod}").items()
            }
            for pod, containers in _mapping(inner.get("baselines"), f"{source}: baselines").items()
        },
        version=version,
    )


def parse_memory_manager_state(text: str, *, source: str = "memory_manager_state") -> MemoryManagerState:
    """Reads /var/lib/kubelet/memory_manager_state; ConfigError names `source` and what is wrong with it."""
    outer = _document(text, source)
    inner, is_dual = _authoritative(outer, source)
    nodes: dict[int, NumaMemoryState] = {}
    for key, node in _mapping(inner.get("machineState"), f"{source}: machineState").items():
        where = f"{source}: machineState.{key}"
        node = _mapping(node, where)
        tables = {
            str(resource): _memory_table(_mapping(table, f"{where}.{resource}"), f"{where}.{resource}")
            for resource, table in _mapping(node.get("memoryMap"), f"{where}.memoryMap").items()
        }
        nodes[_whole(key, where)] = NumaMemoryState(
            assignments=_whole(node.get("numberOfAssignments", 0), f"{where}.numberOfAssignments"),
            tables=tables,
            cells=tuple(_whole(cell, f"{where}.cells") for cell in _sequence(node.get("cells"), f"{where}.cells")),
        )
    assignments = {
        str(pod): {
            str(container): _blocks(blocks, f"{source}: entries.{pod}.{container}")
            for container, blocks in _mapping(containers, f"{source}: entries.{pod}").items()
        }
        for pod, containers in _mapping(inner.get("entries"), f"{source}: entries").items()
    }
    pod_blocks = {
        str(pod): _blocks(_mapping(entry, f"{source}: podEntries.{pod}").get("memoryBlocks"), f"{source}: podEntries.{pod}")
        for pod, entry in _mapping(inner.get("podEntries"), f"{source}: podEntries").items()
    }
    version = 3 if is_dual else 2 if "podEntries" in inner else 1
    return MemoryManagerState(
        policy=_policy(inner, source), nodes=nodes, assignments=assignments, pod_blocks=pod_blocks, version=version
    )


def read_device_checkpoint(text: str, *, source: str = "kubelet_internal_checkpoint") -> DeviceCheckpoint:
    """Reads /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint; ConfigError names `source` and what is wrong with it."""
    data = _mapping(_document(text, source).get("Data"), f"{source}: Data")
    if "PodDeviceEntries" not in data and "RegisteredDevices" not in data:
        raise _unreadable(source, "it has no PodDeviceEntries and no RegisteredDevices: it is no kubelet_internal_checkpoint")
    allocations: DeviceAllocations = {}
    for index, entry in enumerate(_sequence(data.get("PodDeviceEntries"), f"{source}: PodDeviceEntries")):
        where = f"{source}: PodDeviceEntries[{index}]"
        entry = _mapping(entry, where)
        names = [entry.get(name) for name in ("PodUID", "ContainerName", "ResourceName")]
        if not all(isinstance(name, str) and name for name in names):
            raise _unreadable(where, "PodUID, ContainerName and ResourceName must be there")
        pod, container, resource = map(str, names)
        by_numa = allocations.setdefault(pod, {}).setdefault(container, {}).setdefault(resource, {})
        for numa, ids in _ids_by_numa(entry.get("DeviceIDs"), where).items():
            by_numa[numa] = (*by_numa.get(numa, ()), *ids)
    registered = {
        str(resource): tuple(map(str, _sequence(ids, f"{source}: RegisteredDevices.{resource}")))
        for resource, ids in _mapping(data.get("RegisteredDevices"), f"{source}: RegisteredDevices").items()
    }
    return DeviceCheckpoint(allocations=allocations, registered=registered)


def parse_device_checkpoint(text: str, *, source: str = "kubelet_internal_checkpoint") -> DeviceAllocations:
    """Who holds which devices: pod UID -> container -> resource -> NUMA node (-1: not reported) -> device ids."""
    return read_device_checkpoint(text, source=source).allocations


def _cpu_remedy() -> str:
    return "Drain the node, stop the kubelet, remove /var/lib/kubelet/cpu_manager_state, start the kubelet."


def _unreadable(where: str, why: str) -> NumawiseError:
    return ConfigError.one("UnreadableState", where, f"cannot be read: {why}.")


def _document(text: str, source: str) -> Mapping[str, Any]:
    start = text.find("{")
    if start < 0:
        raise _unreadable(source, "it is empty" if not text.strip() else "it holds no JSON object")
    try:
        document, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError) as error:
        at = f" at character {start + error.pos} of {len(text)}" if isinstance(error, json.JSONDecodeError) else ""
        raise _unreadable(source, f"its JSON is broken{at}, perhaps cut; copy the whole file") from None
    return _mapping(document, source)


def _authoritative(outer: Mapping[str, Any], source: str) -> tuple[Mapping[str, Any], bool]:
    """The content that the kubelet would use, and whether it came from the string under `data` (1.37 writes both forms)."""
    data = outer.get("data")
    if not isinstance(data, str) or not data:
        return outer, False
    return _document(data, f"{source}: data"), True


def _policy(document: Mapping[str, Any], source: str) -> str:
    policy = document.get("policyName")
    if not isinstance(policy, str):
        raise _unreadable(source, "it has no policyName: it is no state file of the CPU or memory manager")
    return policy


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _unreadable(where, f"an object was expected, not {type(value).__name__} {str(value)[:40]!r}")
    return value


def _sequence(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _unreadable(where, f"a list was expected, not {type(value).__name__} {str(value)[:40]!r}")
    return value


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _unreadable(where, f"a whole number was expected, not {str(value)[:40]!r}")
    try:
        return int(value)
    except ValueError:
        raise _unreadable(where, f"a whole number was expected, not {value[:40]!r}") from None  # type: ignore[index]


def _cpus(value: Any, where: str) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, str):
        raise _unreadable(where, f"a CPU list was expected, not {str(value)[:40]!r}")
    try:
        return parse_cpu_list(value)
    except ValueError as error:
        raise _unreadable(where, str(error)) from None


def _memory_table(table: Mapping[str, Any], where: str) -> MemoryTable:
    def size(name: str) -> int:
        return _whole(table.get(name, 0), f"{where}.{name}")

    return MemoryTable(
        total_bytes=size("total"),
        system_reserved_bytes=size("systemReserved"),
        allocatable_bytes=size("allocatable"),
        reserved_bytes=size("reserved"),
        free_bytes=size("free"),
    )


def _blocks(value: Any, where: str) -> tuple[MemoryBlock, ...]:
    blocks = []
    for block in _sequence(value, where):
        block = _mapping(block, where)
        blocks.append(
            MemoryBlock(
                numa_nodes=tuple(_whole(numa, f"{where}.numaAffinity") for numa in _sequence(block.get("numaAffinity"), where)),
                resource=str(block.get("type", "")),
                size_bytes=_whole(block.get("size", 0), f"{where}.size"),
            )
        )
    return tuple(blocks)


def _ids_by_numa(value: Any, where: str) -> dict[int, tuple[str, ...]]:
    if isinstance(value, list):
        # Before 1.20 the checkpoint held no NUMA nodes.
        return {NO_NUMA_NODE: tuple(map(str, value))}
    return {
        _whole(numa, f"{where}.DeviceIDs"): tuple(map(str, _sequence(ids, f"{where}.DeviceIDs.{numa}")))
        for numa, ids in _mapping(value, f"{where}.DeviceIDs").items()
    }
