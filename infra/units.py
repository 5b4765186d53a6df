"""Kubernetes quantities and Linux CPU lists, exactly: no floats in between."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from infra.diagnosis import shown

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)\Z", re.ASCII)
_BINARY = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))

LARGEST = 2**63 - 1  # what the API server holds of a quantity
_LONGEST = 60
_LARGEST_IN_WORDS = "the largest quantity of Kubernetes is 2^63 - 1, about 9.2E or 8Ei"

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40


def parse_quantity(value: str | int | float) -> Fraction:
    """The exact value of a Kubernetes quantity (`500m`, `128Gi`, `1e3`, 4); ValueError says what is wrong with it."""
    match = _QUANTITY.match(str(value).strip() if isinstance(value, str) else repr(value))
    if match is None:
        raise ValueError(f"{shown(value)} is no quantity; {_quantity_remedy(str(value))}")
    number, exponent, suffix = match.groups()
    if len(number) > _LONGEST:
        raise ValueError(f"{str(value)[:20]}... has {len(number)} digits; {_LARGEST_IN_WORDS}")
    amount = Fraction(number) * (Fraction(10) ** int(exponent[1:]) if exponent else _SUFFIXES[suffix or ""])
    if abs(amount) > LARGEST:
        raise ValueError(f"{shown(value)} is too much; {_LARGEST_IN_WORDS}")
    return amount


def _quantity_remedy(text: str) -> str:
    compact = text.replace(" ", "")
    for wrong, right in (
        ("GiB", "Gi"),
        ("MiB", "Mi"),
        ("TiB", "Ti"),
        ("KiB", "Ki"),
        ("GB", "G"),
        ("MB", "M"),
        ("TB", "T"),
        ("kB", "k"),
        ("KB", "Ki"),
        ("gi", "Gi"),
        ("mi", "Mi"),
        ("K", "Ki"),
        ("g", "G"),
    ):
        if compact.endswith(wrong) and _QUANTITY.match(compact.removesuffix(wrong) + right):
            return f"write {compact.removesuffix(wrong) + right}"
    if _QUANTITY.match(compact):
        return f"write {compact}"
    return "write it like 4, 500m, 512Mi or 128Gi"


def parse_bytes(value: str | int | float) -> int:
    """A quantity of memory in whole bytes, rounded up as the API server does."""
    return ceil(parse_quantity(value))


def parse_millicpu(value: str | int | float) -> int:
    """A quantity of CPU in thousandths, rounded up as the API server does."""
    return ceil(parse_quantity(value) * 1000)


def format_bytes(value_bytes: int) -> str:
    """Bytes as the shortest exact binary quantity: 134217728 -> 128Mi."""
    for suffix, unit in _BINARY:
        if value_bytes and value_bytes % unit == 0:
            return f"{value_bytes // unit}{suffix}"
    return str(value_bytes)


def format_gib(value_bytes: float) -> str:
    """Bytes for people: 1007.5 GiB."""
    return f"{value_bytes / GIB:.1f} GiB"


def format_millicpu(millicpu: int) -> str:
    """Thousandths of a CPU as a quantity: 32000 -> 32, 1500 -> 1500m."""
    return str(millicpu // 1000) if millicpu % 1000 == 0 else f"{millicpu}m"


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The CPU ids of a Linux CPU list (`0-3,8`), sorted; ValueError where the kernel would refuse it."""
    cpus: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part, re.ASCII)
        if match is None:
            raise ValueError(f"{shown(text)} is no CPU list; write it like 0-55,112-167")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{shown(text)} is no CPU list: {part} runs backwards")
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def format_cpu_list(cpus: Iterable[int]) -> str:
    """CPU ids as the shortest Linux CPU list: (0, 1, 2, 8) -> 0-2,8."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
