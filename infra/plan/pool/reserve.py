"""What a node keeps for itself: whole cores on each NUMA node, and memory that adds up to the byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.catalog.types import NodeShape
from infra.diagnosis import Diagnosis
from infra.units import MIB, format_bytes, format_cpu_list, parse_bytes, parse_cpu_list, parse_quantity

DEFAULT_MAX_PODS = 110
# Defaults of Kubernetes on Linux (pkg/kubelet/eviction/defaults_linux.go). A map in the file replaces all of them: a signal left
# out becomes 0.
DEFAULT_EVICTION_HARD: Mapping[str, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
# Amazon's EKS image reserves 255Mi and 11Mi a pod for the kubelet and container runtime; OpenShift keeps 1Gi for the system's own
# services.
_KUBE_BASE_BYTES, _KUBE_BYTES_PER_POD, _SYSTEM_BYTES = 255 * MIB, 11 * MIB, 1024 * MIB


@dataclass(frozen=True)
class Summand:
    """One part of the memory reservation, and where it comes from."""

    name: str
    value_bytes: int
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.name} {mebibytes(self.value_bytes)}{f' ({self.origin})' if self.origin else ''}"


@dataclass(frozen=True, kw_only=True)
class Reservations:
    """The fields that reserve, as they will be rolled out, without reservedMemory.

    `summands` add up to what reservedMemory has to list; None where an eviction threshold in percent makes that unknown before the node is seen.
    """

    fields: Mapping[str, Any]
    summands: tuple[Summand, ...] | None
    reasons: tuple[str, ...]

    @property
    def memory_bytes(self) -> int | None:
        return None if self.summands is None else sum(part.value_bytes for part in self.summands)

    @property
    def sum_in_words(self) -> str:
        return " + ".join(str(part) for part in self.summands or ())


def mebibytes(value_bytes: int) -> str:
    """Memory as the issue reports and documents write it: 1636Mi; plain bytes where it is no whole number of them."""
    return f"{value_bytes // MIB}Mi" if value_bytes % MIB == 0 else format_bytes(value_bytes)


def reserve(
    user: Mapping[str, Any], shape: NodeShape, path: str, *, platform_millicpu: int | None = None
) -> tuple[Reservations, list[Diagnosis]]:
    """kubeReserved, systemReserved, evictionHard and reservedSystemCPUs: the user's values, completed where something is missing.

    CPUs: one physical core of each NUMA node by number, unless the user reserves CPUs in any of the three ways, or the platform does
    (`platform_millicpu`: then the kubelet takes as many CPUs, from NUMA node 0 up). Memory: a public rule, unless kubeReserved or systemReserved names
    memory.
    """
    problems: list[Diagnosis] = []
    reasons: list[str] = []
    fields: dict[str, Any] = {name: dict(user.get(name) or {}) for name in ("kubeReserved", "systemReserved")}
    max_pods = user.get("maxPods", DEFAULT_MAX_PODS)
    summands: list[Summand] = []
    for name, values in fields.items():
        for resource, value in values.items():
            try:
                if parse_quantity(value) < 0:
                    raise ValueError(f"{value} is negative")
            except ValueError as error:
                problems.append(Diagnosis(f"{path}.{name}.{resource}", "WrongQuantity", f"{error}."))
    if not problems and not any("memory" in values for values in fields.values()):
        kube_bytes = _KUBE_BASE_BYTES + _KUBE_BYTES_PER_POD * max(int(max_pods), 0)
        fields["kubeReserved"]["memory"] = mebibytes(kube_bytes)
        fields["systemReserved"]["memory"] = format_bytes(_SYSTEM_BYTES)
        reasons.append(
            f"kubeReserved.memory {mebibytes(kube_bytes)} is 255Mi and 11Mi for each of {max_pods} pods, the rule of Amazon's EKS node image; "
            f"systemReserved.memory {format_bytes(_SYSTEM_BYTES)} is OpenShift's default."
        )
    if not problems:
        summands += [Summand(name, parse_bytes(values["memory"])) for name, values in fields.items() if "memory" in values]
    eviction = _eviction(user, fields, path, problems, reasons)
    if platform_millicpu is None:
        _reserve_cpus(user, fields, shape, path, problems, reasons)
    else:
        fields["kubeReserved"]["cpu"] = f"{platform_millicpu}m"
    known = eviction is not None and not problems
    reservations = Reservations(
        fields={name: value for name, value in fields.items() if value != {}},
        summands=(*summands, eviction) if known and eviction is not None else None,
        reasons=tuple(reasons),
    )
    return reservations, problems


def _eviction(
    user: Mapping[str, Any], fields: dict[str, Any], path: str, problems: list[Diagnosis], reasons: list[str]
) -> Summand | None:
    """Completes evictionHard and returns its share of the reservation; None where that is a percentage."""
    given: Mapping[str, str] = user.get("evictionHard") or {}
    fields["evictionHard"] = {**DEFAULT_EVICTION_HARD, **given}
    if given:
        added = [signal for signal in DEFAULT_EVICTION_HARD if signal not in given]
        if added:
            reasons.append(
                f"evictionHard keeps the kubelet's defaults for {', '.join(added)}: a map that leaves a signal out turns it off."
            )
    threshold = fields["evictionHard"]["memory.available"]
    if threshold in ("0%", "100%"):  # both switch the signal off
        return Summand("evictionHard", 0, threshold)
    if threshold.endswith("%"):
        return None
    try:
        value_bytes = parse_bytes(threshold)
        if value_bytes < 0:
            raise ValueError(f"{threshold} is negative")
    except ValueError as error:
        problems.append(Diagnosis(f"{path}.evictionHard.memory.available", "WrongQuantity", f"{error}."))
        return None
    return Summand("evictionHard", value_bytes, "" if "memory.available" in given else "default")


def _reserve_cpus(
    user: Mapping[str, Any], fields: dict[str, Any], shape: NodeShape, path: str, problems: list[Diagnosis], reasons: list[str]
) -> None:
    all_cpus = {cpu for node in shape.numa_nodes for cpu in node.cpus or ()}
    if user.get("reservedSystemCPUs"):
        text = user["reservedSystemCPUs"]
        fields["reservedSystemCPUs"] = text
        where = f"{path}.reservedSystemCPUs"
        try:
            reserved = set(parse_cpu_list(text))
        except ValueError as error:
            problems.append(Diagnosis(where, "WrongCpuList", f"{error}."))
            return
        outside = sorted(reserved - all_cpus)
        if outside:
            ids = ", ".join(str(cpu) for cpu in outside[:16]) + (", ..." if len(outside) > 16 else "")
            problems.append(
                Diagnosis(
                    where,
                    "CpusOutsideMachine",
                    f"{text} names {len(outside)} CPUs that {shape.id} does not have ({ids}); its {len(all_cpus)} CPUs are {format_cpu_list(all_cpus)}.",
                )
            )
        elif reserved >= all_cpus:
            problems.append(
                Diagnosis(
                    where,
                    "NoCpusLeft",
                    f"reserves all {len(all_cpus)} CPUs of {shape.id}; leave some for pods, for example {example(shape)}.",
                )
            )
        split = [core for node in shape.numa_nodes for core in node.cores or () if 0 < len(reserved & set(core)) < len(core)]
        if split and not outside:
            reasons.append(
                f"reservedSystemCPUs takes single threads of {len(split)} physical cores ({format_cpu_list(split[0])} first): pods cannot use the rest of "
                "such a core while full-pcpus-only is on."
            )
        return
    if any("cpu" in fields[name] for name in ("kubeReserved", "systemReserved")):
        if problems:
            return
        total = sum(parse_quantity(fields[name]["cpu"]) for name in ("kubeReserved", "systemReserved") if "cpu" in fields[name])
        reasons.append(
            f"kubeReserved and systemReserved keep {float(total):g} CPUs as the stack file says; the kubelet chooses which, from NUMA node 0 up."
        )
        return
    cores = reserved_cores(shape)
    fields["reservedSystemCPUs"] = format_cpu_list(cpu for core in cores for cpu in core)
    reasons.append(
        f"reservedSystemCPUs {fields['reservedSystemCPUs']}: the first physical core of each NUMA node with CPUs "
        f"({sum(map(len, cores))} of {len(all_cpus)} CPUs), so that every NUMA node has the same room for pods."
    )


def reserved_cores(shape: NodeShape) -> tuple[tuple[int, ...], ...]:
    """The core with the lowest CPU of each NUMA node that has CPUs, all its threads."""
    return tuple(min(node.cores) for node in shape.numa_nodes if node.cores)


def example(shape: NodeShape) -> str:
    return format_cpu_list(cpu for core in reserved_cores(shape) for cpu in core)


@dataclass(frozen=True, kw_only=True)
class MemorySplit:
    """reservedMemory by NUMA node id, and why it is divided so."""

    by_node: Mapping[int, int]
    reason: str

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [
            {"numaNode": node, "limits": {"memory": mebibytes(value_bytes)}}
            for node, value_bytes in sorted(self.by_node.items())
            if value_bytes
        ]


def memory_splits(total_bytes: int, shape: NodeShape) -> tuple[MemorySplit, ...]:
    """Ways to divide the reservation over NUMA nodes, best first: what remains is as equal as can be; all of it on one node.

    Every way adds up to the byte: the kubelet compares the sum only, and lets each node serve what is left of it.
    """
    nodes = [node for node in shape.numa_nodes if node.cpus and node.memory_bytes]
    splits: list[MemorySplit] = []
    level = _level(total_bytes, {node.id: usable_bytes(node.memory_bytes or 0, node.hugepages) for node in nodes})
    if level is not None:
        text = ", ".join(f"{mebibytes(value)} on NUMA node {node}" for node, value in sorted(level.items()) if value)
        splits.append(
            MemorySplit(
                by_node=level,
                reason=f"reservedMemory is divided so that the NUMA nodes have equal room left ({text}): with all of it on one node, of two equal "
                "pods one would not fit (kubernetes/kubernetes#120733)."
                if len(nodes) > 1
                else f"reservedMemory is {text}.",
            )
        )
    for node in nodes:
        if len(nodes) > 1 and total_bytes < usable_bytes(node.memory_bytes or 0, node.hugepages):
            splits.append(
                MemorySplit(
                    by_node={node.id: total_bytes},
                    reason=f"reservedMemory lies on NUMA node {node.id} alone: the planned pods need the whole of another node.",
                )
            )
    return tuple(splits)


def usable_bytes(memory_bytes: int, hugepages: Sequence[tuple[str, int]]) -> int:
    """Memory of a NUMA node without its huge pages, which belong to another resource."""
    return memory_bytes - sum(parse_bytes(size) * count for size, count in hugepages)


def _level(total_bytes: int, usable: Mapping[int, int]) -> dict[int, int] | None:
    """Takes `total_bytes` from the fullest nodes so that what remains is as equal as possible, in whole MiB but for one node."""
    if not usable or total_bytes >= sum(usable.values()):
        return None
    units, rest = divmod(total_bytes, MIB)
    order = sorted(usable, key=lambda node: (-usable[node], node))
    taken = dict.fromkeys(usable, 0)
    for count in range(1, len(order) + 1):
        group = order[:count]
        floor_bytes = usable[order[count]] if count < len(order) else 0
        room = sum((usable[node] - floor_bytes) // MIB for node in group)
        if room >= units or count == len(order):
            remaining_each = (sum(usable[node] for node in group) // MIB - units) // count
            for node in group:
                taken[node] = max(0, usable[node] // MIB - remaining_each)
            surplus = sum(taken.values()) - units
            for node in reversed(group):
                cut = min(surplus, taken[node])
                taken[node] -= cut
                surplus -= cut
            break
    level = {node: value * MIB for node, value in taken.items()}
    level[order[0]] += rest
    return level if all(level[node] < usable[node] or not level[node] for node in level) else None


def check_reserved_memory(user: Mapping[str, Any], reservations: Reservations, path: str) -> list[Diagnosis]:
    """The user's reservedMemory against kubeReserved, systemReserved and evictionHard, as the kubelet compares them at start."""
    where = f"{path}.reservedMemory"
    total = 0
    for index, entry in enumerate(user["reservedMemory"]):
        limits = entry.get("limits")
        if not isinstance(limits, Mapping):
            return [
                Diagnosis(
                    f"{where}[{index}].limits", "WrongType", 'is missing; write it like {numaNode: 0, limits: {memory: "1Gi"}}.'
                )
            ]
        try:
            total += parse_bytes(limits.get("memory", 0))
        except ValueError as error:
            return [Diagnosis(f"{where}[{index}].limits.memory", "WrongQuantity", f"{error}.")]
    wanted = reservations.memory_bytes
    if wanted is None or total == wanted:
        return []
    return [
        Diagnosis(
            where,
            "ReservedMemoryMismatch",
            f"sums to {mebibytes(total)}, must be {mebibytes(wanted)} = {reservations.sum_in_words}; the kubelet does not start otherwise. "
            "Correct it, or leave reservedMemory out and the plan divides it.",
        )
    ]
