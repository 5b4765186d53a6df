"""What a node keeps for itself: whole cores on each NUMA node, and memory that adds up to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from infra.catalog.types import NodeShape
from infra.diagnosis import Diagnosis
from infra.offers import LEFT_OUT, POOL, Offer
from infra.plan.model.kubelet import KubeletPlan, default_of
from infra.plan.pool.memory_split import mebibytes
from infra.units import MIB, format_bytes, format_cpu_list, parse_bytes, parse_cpu_list, parse_quantity

# Amazon's EKS image reserves 255Mi and 11Mi a pod for the kubelet and container runtime; OpenShift keeps 1Gi for the system's own
# services.
_KUBE_BASE_BYTES, _KUBE_BYTES_PER_POD, _SYSTEM_BYTES = 255 * MIB, 11 * MIB, 1024 * MIB
_AMOUNTS = ("kubeReserved", "systemReserved")
_MOST_CPUS_TOLD = 16


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


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Fields of one kind of reservation, with why they are so or what is wrong with them."""

    fields: Mapping[str, Any]
    reasons: tuple[str, ...] = ()
    problems: tuple[Diagnosis, ...] = ()


def reserve(
    user: KubeletPlan, shape: NodeShape, path: str, *, platform_millicpu: int | None = None
) -> tuple[Reservations, list[Diagnosis]]:
    """kubeReserved, systemReserved, evictionHard and reservedSystemCPUs: the user's values, completed where something is missing.

    CPUs: one physical core of each NUMA node by number, unless the user reserves CPUs in any of the three ways, or the platform does
    (`platform_millicpu`: then the kubelet takes as many CPUs, from NUMA node 0 up). Memory: a public rule, unless kubeReserved or systemReserved names
    memory.
    """
    amounts = _amounts(user, path, platform_millicpu)
    eviction, threshold = _eviction(user, path)
    cpus = _cpus(user, shape, path) if platform_millicpu is None else _Part(fields={})
    parts = (amounts, eviction, cpus)
    problems = [problem for part in parts for problem in part.problems]
    summands = None
    if threshold is not None and not problems:
        given = ((name, values) for name, values in amounts.fields.items() if "memory" in values)
        summands = (*(Summand(name, parse_bytes(values["memory"])) for name, values in given), threshold)
    fields = {name: value for part in parts for name, value in part.fields.items() if value != {}}
    return Reservations(fields=fields, summands=summands, reasons=tuple(r for part in parts for r in part.reasons)), problems


def _amounts(user: KubeletPlan, path: str, platform_millicpu: int | None) -> _Part:
    """kubeReserved and systemReserved."""
    fields: dict[str, dict[str, Any]] = {name: dict(user.fields.get(name) or {}) for name in _AMOUNTS}
    problems: list[Diagnosis] = []
    for name, values in fields.items():
        for resource, value in values.items():
            try:
                if parse_quantity(value) < 0:
                    raise ValueError(f"{value} is negative")
            except ValueError as error:
                problems.append(Diagnosis(f"{path}.{name}.{resource}", "WrongQuantity", f"{error}."))
    reasons: tuple[str, ...] = ()
    if not any("memory" in values for values in fields.values()):
        max_pods = user.value_of("maxPods")
        kube_bytes = _KUBE_BASE_BYTES + _KUBE_BYTES_PER_POD * max(max_pods, 0)
        fields["kubeReserved"]["memory"] = mebibytes(kube_bytes)
        fields["systemReserved"]["memory"] = format_bytes(_SYSTEM_BYTES)
        reasons = (
            f"kubeReserved.memory {mebibytes(kube_bytes)} is 255Mi and 11Mi for each of {max_pods} pods, the rule of Amazon's EKS node image; "
            f"systemReserved.memory {format_bytes(_SYSTEM_BYTES)} is OpenShift's default.",
        )
    if platform_millicpu is not None:
        fields["kubeReserved"]["cpu"] = f"{platform_millicpu}m"
    return _Part(fields=fields, reasons=reasons, problems=tuple(problems))


def _eviction(user: KubeletPlan, path: str) -> tuple[_Part, Summand | None]:
    """evictionHard, and its share of the memory reservation; None where that is a percentage or no quantity."""
    defaults, given = _thresholds_there(user), user.fields.get("evictionHard") or {}
    fields = {"evictionHard": {**defaults, **given}}
    added = [signal for signal in defaults if signal not in given]
    reasons: tuple[str, ...] = ()
    if given and added:
        reasons = (
            f"evictionHard keeps the kubelet's defaults for {', '.join(added)}: a map that leaves a signal out turns it off.",
        )
    part = _Part(fields=fields, reasons=reasons)
    threshold = fields["evictionHard"]["memory.available"]
    if threshold in ("0%", "100%"):  # both switch the signal off
        return part, Summand("evictionHard", 0, threshold)
    if threshold.endswith("%"):
        return part, None
    try:
        value_bytes = parse_bytes(threshold)
        if value_bytes < 0:
            raise ValueError(f"{threshold} is negative")
    except ValueError as error:
        problem = Diagnosis(f"{path}.evictionHard.memory.available", "WrongQuantity", f"{error}.")
        return replace(part, problems=(problem,)), None
    return part, Summand("evictionHard", value_bytes, "" if "memory.available" in given else "default")


def _thresholds_there(user: KubeletPlan) -> Mapping[str, str]:
    """The kubelet's default thresholds, and over them those of the nodes' own file."""
    return {**default_of("evictionHard"), **user.base.get("evictionHard", {})}


def _cpus(user: KubeletPlan, shape: NodeShape, path: str) -> _Part:
    """reservedSystemCPUs, unless kubeReserved or systemReserved name CPUs."""
    if user.fields.get("reservedSystemCPUs"):
        return _reserved_system_cpus(user.fields["reservedSystemCPUs"], shape, f"{path}.reservedSystemCPUs")
    amounts = [values["cpu"] for values in (user.fields.get(name) or {} for name in _AMOUNTS) if "cpu" in values]
    if amounts:
        return _Part(fields={}, reasons=_amounts_of_cpus(amounts))
    cores = reserved_cores(shape)
    text = format_cpu_list(cpu for core in cores for cpu in core)
    reason = (
        f"reservedSystemCPUs {text}: the first physical core of each NUMA node with CPUs "
        f"({sum(map(len, cores))} of {len(_all_cpus(shape))} CPUs), so that every NUMA node has the same room for pods."
    )
    return _Part(fields={"reservedSystemCPUs": text}, reasons=(reason,))


def _amounts_of_cpus(amounts: list[str]) -> tuple[str, ...]:
    try:
        total = float(sum(map(parse_quantity, amounts)))
    except ValueError:  # told of the field itself
        return ()
    return (
        f"kubeReserved and systemReserved keep {total:g} CPUs as the stack file says; the kubelet chooses which, from NUMA node 0 up.",
    )


def _reserved_system_cpus(text: str, shape: NodeShape, where: str) -> _Part:
    """The user's own list, which has to leave some of the machine's CPUs."""
    part, all_cpus = _Part(fields={"reservedSystemCPUs": text}), _all_cpus(shape)
    try:
        reserved = set(parse_cpu_list(text))
    except ValueError as error:
        return replace(part, problems=(Diagnosis(where, "WrongCpuList", f"{error}.", offers=(_leave_out("reservedSystemCPUs"),)),))
    outside = sorted(reserved - all_cpus)
    if outside:
        ids = ", ".join(map(str, outside[:_MOST_CPUS_TOLD])) + (", ..." if len(outside) > _MOST_CPUS_TOLD else "")
        problem = Diagnosis(
            where,
            "CpusOutsideMachine",
            f"{text} names {len(outside)} CPUs that {shape.name} does not have ({ids}); its {len(all_cpus)} CPUs are {format_cpu_list(all_cpus)}.",
            offers=(_leave_out("reservedSystemCPUs"),),
        )
        return replace(part, problems=(problem,))
    if reserved == all_cpus:
        example = format_cpu_list(cpu for core in reserved_cores(shape) for cpu in core)
        text = f"reserves all {len(all_cpus)} CPUs of {shape.name}, and leaves none for pods"
        offer = Offer.of(f"reserve {example}", (f"{POOL}.kubelet.reservedSystemCPUs", example))
        return replace(part, problems=(Diagnosis(where, "NoCpusLeft", text, offers=(offer,)),))
    split = [
        core
        for node in shape.numa_nodes
        for core in node.cores or ()
        if reserved.intersection(core) and not reserved.issuperset(core)
    ]
    if not split:
        return part
    reason = (
        f"reservedSystemCPUs takes single threads of {len(split)} physical cores ({format_cpu_list(split[0])} first): pods cannot use the rest of "
        "such a core while full-pcpus-only is on."
    )
    return replace(part, reasons=(reason,))


def _leave_out(field: str) -> Offer:
    return Offer.of(f"leave {field} out, and the plan reserves a core of each NUMA node", (f"{POOL}.kubelet.{field}", LEFT_OUT))


def _all_cpus(shape: NodeShape) -> set[int]:
    return {cpu for node in shape.numa_nodes for cpu in node.cpus or ()}


def reserved_cores(shape: NodeShape) -> tuple[tuple[int, ...], ...]:
    """The core with the lowest CPU of each NUMA node that has CPUs, all its threads."""
    return tuple(min(node.cores) for node in shape.numa_nodes if node.cores)
