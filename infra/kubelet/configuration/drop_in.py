"""A drop-in that means over any base file what its fields mean alone, as far as they can.

The kubelet merges maps by key and leaves what a drop-in does not name as the base file has it. A base that names a cgroup, one more
summand of the reservation or an enforcement would otherwise stop a kubelet that starts with the fields alone, or change what it reserves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_AMOUNTS = ("kubeReserved", "systemReserved")


def drop_in_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, completed by those that a base must not decide; without apiVersion and kind.

    reservedSystemCPUs excludes both cgroups (an empty string empties them; tried on the kubelet's own merge), and without a cgroup nothing but pods can
    be enforced. Both amounts name each of cpu and memory that one of them names; cpu not beside reservedSystemCPUs, which replaces both.
    """
    drop_in = dict(fields)
    lists_cpus = bool(fields.get("reservedSystemCPUs"))
    if lists_cpus:
        drop_in.setdefault("systemReservedCgroup", "")
        drop_in.setdefault("kubeReservedCgroup", "")
        drop_in.setdefault("enforceNodeAllocatable", ["pods"])
    amounts = {name: dict(fields.get(name) or {}) for name in _AMOUNTS}
    for resource in ("memory",) if lists_cpus else ("cpu", "memory"):
        if any(resource in amount for amount in amounts.values()):
            for amount in amounts.values():
                amount.setdefault(resource, "0")
    return drop_in | {name: amount for name, amount in amounts.items() if amount}
