"""What a node has, what is reserved of it and what is left for pods. Amounts inside are in units of 10^-9, as Kubernetes counts."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from infra.diagnosis import did_you_mean, shown
from infra.kubelet.admission.node_fit import NodeAllocatable
from infra.kubelet.faults import KubeletRefuses
from infra.kubelet.machine import Machine
from infra.kubelet.managers.devices import DeviceManager
from infra.kubelet.managers.memory import hugepages_name
from infra.kubelet.quantity import NANO, format_quantity, parse_quantity, round_up

EVICTION_SIGNALS = (
    *("memory.available", "allocatableMemory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"),
    *("imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available"),
)
_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
_PERCENTAGE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?%*", re.ASCII)


def capacity_of(machine: Machine) -> dict[str, int]:
    """CPUs, memory and huge pages of the machine."""
    capacity = {"cpu": machine.cpu_count * NANO, "memory": machine.memory_capacity_bytes * NANO}
    for size_bytes, count in machine.hugepage_totals:
        capacity[hugepages_name(size_bytes)] = size_bytes * count * NANO
    return capacity


def reserved_resources(reserved: Mapping[str, str], stage: str, *, rounded: bool = True) -> dict[str, int]:
    """kubeReserved or systemReserved in units of 10^-9; CPUs to the nearest thousandth (`rounded`) as the newest kubelets round them."""
    amounts: dict[str, int] = {}
    for name, text in reserved.items():
        if name not in _RESERVABLE:
            raise KubeletRefuses(
                stage, (f"{stage}.{name}: only {', '.join(_RESERVABLE)} can be reserved.{did_you_mean(name, _RESERVABLE)}",)
            )
        try:
            nano = parse_quantity(text).nano
        except ValueError as error:
            raise KubeletRefuses(
                stage, (f"{stage}.{name}: {shown(text)} is no quantity ({error}); write it like 500m or 1Gi",)
            ) from None
        if nano < 0:
            raise KubeletRefuses(stage, (f"{stage}.{name}: {text} must not be negative",))
        amounts[name] = (round_up(nano, 1000) + 500) // 1000 * 10**6 if name == "cpu" and rounded else nano
    return amounts


def eviction_memory(eviction_hard: Mapping[str, str], capacity_nano: int) -> int:
    """What the hard eviction threshold reserves of memory, in units of 10^-9 bytes; a percentage is a float32 of the capacity."""
    reserved = 0
    for signal, text in eviction_hard.items():
        if signal not in EVICTION_SIGNALS:
            raise _no_threshold(signal, f"is no eviction signal.{did_you_mean(signal, EVICTION_SIGNALS)}")
        if text in ("0%", "100%"):
            continue
        amount = _share(signal, text, capacity_nano) if text.endswith("%") else _amount(signal, text)
        if signal == "memory.available":
            reserved = amount
    return reserved


def _share(signal: str, text: str, capacity_nano: int) -> int:
    if not _PERCENTAGE.fullmatch(text):
        raise _no_threshold(signal, f"{shown(text)} is no percentage; write it like 5%")
    share = _float32(_float32(float(text.rstrip("%"))) / 100)
    if not 0 <= share <= 1:
        raise _no_threshold(signal, f"{text} must be between 0% and 100%")
    return int(float(capacity_nano // NANO) * share) * NANO


def _amount(signal: str, text: str) -> int:
    try:
        nano = parse_quantity(text).nano
    except ValueError:
        raise _no_threshold(signal, f"{shown(text)} is neither a quantity like 100Mi nor a percentage") from None
    if nano <= 0:
        raise _no_threshold(signal, f"{text} must be positive; to switch the threshold off write 0%")
    return nano


def _no_threshold(signal: str, problem: str) -> KubeletRefuses:
    return KubeletRefuses("evictionHard", (f"evictionHard.{signal}: {problem}",))


def _float32(value: float) -> float:
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf")


def reservation_of(
    capacity: Mapping[str, int], kube: Mapping[str, int], system: Mapping[str, int], eviction: int
) -> dict[str, int]:
    """GetNodeAllocatableReservation: kubeReserved + systemReserved + hard eviction, per resource that the machine has."""
    total = {name: kube.get(name, 0) + system.get(name, 0) + (eviction if name == "memory" else 0) for name in capacity}
    return {name: amount for name, amount in total.items() if amount}


def allocatable_of(
    capacity: Mapping[str, int], reservation: Mapping[str, int], devices: DeviceManager, pods: int
) -> NodeAllocatable:
    """What is left for pods: capacity less reservation, healthy devices, and huge pages taken off plain memory."""
    left = {name: max(0, amount - reservation.get(name, 0)) for name, amount in capacity.items()}
    for name, amount in capacity.items():
        if name.startswith("hugepages-"):
            left["memory"] = max(0, left["memory"] - amount)
    amounts = {name: whole_units(name, amount) for name, amount in left.items()}
    amounts.update((name, healthy) for name, (_, healthy) in devices.capacity().items())
    return NodeAllocatable(pods=pods, amounts=amounts)


def whole_units(name: str, nano: int) -> int:
    """CPUs in thousandths, everything else in whole units, rounded up."""
    return round_up(nano, 10**6 if name == "cpu" else NANO)


def amount_text(name: str, nano: int) -> str:
    """An amount as Kubernetes writes it."""
    return format_quantity(nano, binary=name != "cpu")
