"""Compares a running kubelet's configuration (configz) with the planned fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.units import parse_cpu_list, parse_quantity


def kubelet_differences(planned: Mapping[str, Any], running: Mapping[str, Any]) -> tuple[str, ...]:
    """The planned fields that the running kubelet does not have: `topologyManagerPolicy is none, planned single-numa-node`.

    Only planned fields count: what a plan leaves open is the node's own. Quantities are compared by value, CPU sets by members, policy options as a whole: one
    more decides admission too.
    """
    compared = {**{field: {} for field in _OPTIONS}, **planned}
    return tuple(
        f"{field} is {_shown(running.get(field))}, planned {_shown(value)}"
        for field, value in sorted(compared.items())
        if field not in ("apiVersion", "kind") and not _same(value, running.get(field), field)
    )


_OPTIONS = ("cpuManagerPolicyOptions", "topologyManagerPolicyOptions")


def _same(planned: Any, running: Any, field: str) -> bool:
    if field in _OPTIONS:
        return _switched_on(planned) == _switched_on(running or {})
    if isinstance(planned, Mapping):
        # A map that the kubelet fills up (evictionHard, featureGates) may hold more than was planned.
        return all(_same(value, (running or {}).get(key), key) for key, value in planned.items())
    if running is None and field == "enforceNodeAllocatable":
        return planned in ([], ["pods"])  # the default is pods
    if isinstance(planned, list | tuple):
        return len(planned) == len(running or ()) and all(_same(a, b, field) for a, b in zip(planned, running or (), strict=True))
    if running is None:
        return planned in ("", "0", 0, False, None)
    if field == "reservedSystemCPUs":
        return parse_cpu_list(str(planned)) == parse_cpu_list(str(running))
    if str(planned) == str(running):
        return True
    try:
        return parse_quantity(planned) == parse_quantity(running)
    except ValueError:
        return False


def _switched_on(options: Mapping[str, Any]) -> dict[str, str]:
    """Options with an effect; false is as good as left out."""
    return {name: str(value).lower() for name, value in options.items() if str(value).lower() != "false"}


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if value in ("", {}):
        return "empty"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_shown(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return str(value)
