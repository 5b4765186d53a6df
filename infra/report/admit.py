"""The kubelet's answers to cases of machines, configurations and pods, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

Result = dict[str, Any]  # as infra.kubelet.simulate_case returns it


def admissions_as_json(results: Sequence[Result]) -> Iterator[str]:
    """The lines of a JSON array, one result a line."""
    yield "["
    last = len(results) - 1
    for index, result in enumerate(results):
        yield json.dumps(result) + ("" if index == last else ",")
    yield "]"


def admissions_as_text(results: Sequence[Result]) -> str:
    """A paragraph a case: whether the kubelet starts, what it offers, and what became of each pod."""
    return "\n\n".join("\n".join(_case_lines(result)) for result in results)


def _case_lines(result: Result) -> Iterator[str]:
    yield f"{result['id'] or '(no id)'}"
    if result.get("error"):
        yield f"  no answer: {result['error']}"
        return
    if result["config_errors"]:
        yield f"  the kubelet does not start ({result['config_stage']}):"
        yield from (f"    {error}" for error in result["config_errors"])
        return
    node = result["node"]
    offers = ", ".join(f"{name} {amount}" for name, amount in node["allocatable"].items() if amount != "0")
    yield f"  the kubelet starts; allocatable: {offers}"
    if node.get("reserved_cpus"):
        yield f"  reserved CPUs: {node['reserved_cpus']}"
    for pod in result["pods"]:
        if "removed" in pod:
            yield f"  {pod['name']}: {'ends' if pod['removed'] else 'is not there'}"
        elif not pod["admitted"]:
            yield f"  {pod['name']}: refused, {pod['reason']}: {pod['message']}"
        else:
            evicted = f", evicting {', '.join(pod['preempted'])}" if pod.get("preempted") else ""
            yield f"  {pod['name']}: admitted ({pod['qos']}{evicted})"
            yield from (f"    {line}" for container in pod["containers"] for line in _container_lines(container))


def _container_lines(container: dict[str, Any]) -> Iterator[str]:
    parts = [f"CPUs {container['cpus'] or 'of the shared pool'}"]
    if container["memory_numa"]:
        parts.append(f"memory on NUMA node {', '.join(map(str, container['memory_numa']))}")
    parts += [f"{resource} {', '.join(ids)}" for resource, ids in container["devices"].items() if ids]
    topology = container["topology"]
    parts.append("no alignment" if topology is None else f"aligned to NUMA node {', '.join(map(str, topology))}")
    if topology is not None and not container["preferred"]:
        parts[-1] += " (not preferred)"
    yield f"{container['name']}: {'; '.join(parts)}"
    if "start_error" in container:
        yield f"  does not start: {container['start_error']}"
