"""What a node keeps for itself: whole cores on each NUMA node, and memory that adds up to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.catalog.types import NodeShape
from infra.diagnosis import Diagnosis
from infra.plan.pool.kubelet_plan import KubeletPlan, default_of
from infra.plan.pool.memory_split import mebibytes
from infra.units import MIB, format_bytes, format_cpu_list, parse_bytes, parse_cpu_list, parse_quantity

# Amazon's EKS image reserves 255Mi and 11Mi a pod for the kubelet and container runtime; OpenShift keeps 1Gi for the system's own services.
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


def reserve(
    user: KubeletPlan, shape: NodeShape, path: str, *, platform_millicpu: int | None = None
) -> tuple[Reservations, list[Diagnosis]]:
    """kubeReserved, systemReserved, evictionHard and reservedSystemCPUs: the user's values, completed where something is missing.

    CPUs: one physical core of each NUMA node by number, unless the user reserves CPUs in any of the three ways, or the platform does
    (`platform_millicpu`: then the kubelet takes as many CPUs, from NUMA node 0 up). Memory: a public rule, unless kubeReserved or systemReserved names
    memory.
    """
    problems: list[Diagnosis] = []
    reasons: list[str] = []
    fields: dict[str, Any] = {name: dict(user.value_of(name) or {}) for name in ("kubeReserved", "systemReserved")}
    max_pods = user.value_of("maxPods")
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
    user: KubeletPlan, fields: dict[str, Any], path: str, problems: list[Diagnosis], reasons: list[str]
) -> Summand | None:
    """Completes evictionHard and returns its share of the reservation; None where that is a percentage."""
    given: Mapping[str, str] = user.fields.get("evictionHard") or {}
    defaults = default_of("evictionHard")
    fields["evictionHard"] = {**defaults, **given}
    if given:
        added = [signal for signal in defaults if signal not in given]
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
    user: KubeletPlan, fields: dict[str, Any], shape: NodeShape, path: str, problems: list[Diagnosis], reasons: list[str]
) -> None:
    all_cpus = {cpu for node in shape.numa_nodes for cpu in node.cpus or ()}
    text = user.value_of("reservedSystemCPUs")
    if text:
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
