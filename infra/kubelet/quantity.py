"""Quantities as the kubelet holds them: exact values, and the cases in which Kubernetes cannot give one as an int64.

`infra.units` is what people's input goes through; this file follows k8s.io/apimachinery/pkg/api/resource to the letter, since a
kubelet refuses a reservation of `1.5Gi` (an arbitrary-precision decimal inside) that a reader would take for 1536Mi.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from infra.diagnosis import shown

NANO = 10**9
_PER_MILLI = 10**6
_MAX_INT64 = 2**63 - 1
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_QUANTITY = re.compile(r"([+-]?)0*(\d*)(?:\.(\d*))?([eEinumkKMGTP]*[-+]?\d*)", re.ASCII)
_EXPONENT_LIMIT = 64


class Quantity(NamedTuple):
    """An amount in units of 10^-9, and its int64 where Kubernetes' AsInt64 gives one (None where it does not)."""

    nano: int
    int64: int | None

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero (Quantity.Value)."""
        return round_up(self.nano, NANO)

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero (Quantity.MilliValue)."""
        return round_up(self.nano, _PER_MILLI)


ZERO = Quantity(0, 0)


def round_up(amount: int, unit: int) -> int:
    """`amount / unit`, rounded away from zero."""
    return max(amount // unit, -(-amount // unit), key=abs)


@lru_cache(maxsize=65536)
def parse_quantity(text: str) -> Quantity:
    """resource.ParseQuantity; ValueError with Kubernetes' own words where the text is no quantity."""
    match = _QUANTITY.fullmatch(text) if text else None
    if match is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    sign, numerator, denominator, suffix = match.groups()
    numerator, denominator = numerator or "0", denominator or ""
    digits = int(numerator + denominator)
    if suffix in _BINARY:
        nano, int64 = _binary(digits, len(numerator), len(denominator), _BINARY[suffix])
    else:
        nano, int64 = _decimal(digits, len(numerator), len(denominator), _exponent(suffix))
    return Quantity(-nano, None if int64 is None else -int64) if sign == "-" else Quantity(nano, int64)


def _exponent(suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    if suffix[0] in "eE" and re.fullmatch(r"[+-]?\d+", suffix[1:], re.ASCII):
        return max(-_EXPONENT_LIMIT, min(_EXPONENT_LIMIT, int(suffix[1:])))
    raise ValueError("unable to parse quantity's suffix")


def _binary(digits: int, whole: int, fraction: int, exponent: int) -> tuple[int, int | None]:
    scaled = digits << exponent
    fast = fraction == 0 and 15 - whole - exponent * 3 // 10 - 1 >= 0
    nano = -(-scaled * NANO // 10**fraction)
    return (nano, scaled) if fast else (min(nano, _MAX_INT64 * NANO), None)


def _decimal(digits: int, whole: int, fraction: int, exponent: int) -> tuple[int, int | None]:
    scale = exponent - fraction
    power = scale + 9
    nano = digits * 10**power if power >= 0 else -(-digits // 10**-power)
    if 18 - whole - fraction < 0 or power < 0 or scale < 0:
        return nano, None
    int64 = digits * 10**scale
    return nano, int64 if int64.bit_length() < 64 else None


def parse_json_quantity(value: object) -> Quantity:
    """A quantity as it stands in JSON: a string, a number, or null for zero (Quantity.UnmarshalJSON)."""
    if isinstance(value, str):
        return parse_quantity(value.strip())
    if value is None:
        return ZERO
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{shown(value)} is no quantity; write it like 4, 500m, 512Mi or 128Gi")
    return parse_quantity(str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 else repr(value))


def format_quantity(nano: int, *, binary: bool) -> str:
    """The canonical text: the largest suffix that loses nothing (1536Mi, 500m, 4)."""
    if nano == 0:
        return "0"
    if nano % NANO == 0:
        value = nano // NANO
        if binary:
            for suffix, exponent in reversed(_BINARY.items()):
                if value % (1 << exponent) == 0 and abs(value) >= 1024:
                    return f"{value >> exponent}{suffix}"
            return str(value)
        for suffix in ("E", "P", "T", "G", "M", "k"):
            if value % 10 ** _DECIMAL[suffix] == 0:
                return f"{value // 10 ** _DECIMAL[suffix]}{suffix}"
        return str(value)
    for suffix in ("m", "u"):
        if nano % 10 ** (_DECIMAL[suffix] + 9) == 0:
            return f"{nano // 10 ** (_DECIMAL[suffix] + 9)}{suffix}"
    return f"{nano}n"
