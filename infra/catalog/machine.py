"""A node shape as the kubelet simulator's machine: what cAdvisor would report there."""

from __future__ import annotations

from typing import Any

from infra.catalog.types import NodeShape
from infra.errors import PlanError, Problem


def machine_of(shape: NodeShape, path: str = "nodeShape") -> dict[str, Any]:
    """The machine of a shape, in the form of an admission case.

    `{"numa": [{"id", "cpus": physical cores, each a list of logical CPUs, "socket", "memory_bytes", "hugepages", "distances"}]}`; keys without a known
    value are left out. PlanError names the facts that are missing.
    """
    missing = [name for name in shape.missing if not name.endswith(".gpus")]
    if missing:
        raise PlanError([Problem(path=path, code="UnknownFact", message=missing_facts(shape, missing))])
    return {"numa": [_numa_node(shape, index) for index in range(len(shape.numa_nodes))]}


def devices_of(shape: NodeShape, resource_name: str) -> dict[str, list[dict[str, Any]]]:
    """The shape's GPUs as device-plugin devices: `{"nvidia.com/gpu": [{"id": "gpu0", "numa": [0], "healthy": true}]}`.

    Where a virtual machine hides NUMA the NVIDIA plugin reports no topology: `numa` is then [].
    """
    return {
        resource_name: [
            {"id": f"gpu{index}", "numa": [] if node is None else [node], "healthy": True}
            for index, node in enumerate(shape.gpu_numa_nodes)
        ]
    }


def missing_facts(shape: NodeShape, missing: list[str] | tuple[str, ...] | None = None) -> str:
    """One sentence: which facts of the shape are not known, and the way out."""
    names = shape.missing if missing is None else missing
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return (
        f"the catalog does not know {shown} of {shape.id}, and nothing is guessed. Give the machine's facts inline as `topology:` "
        "(python -m infra shape FILE... makes them from lscpu, numactl -H and nvidia-smi topo -m)."
    )


def shape_warnings(shape: NodeShape, path: str = "nodeShape") -> tuple[Problem, ...]:
    """What the catalog knows of a shape, but not for certain: facts by which the plan places pods."""
    weak = [
        name
        for name in shape.provenance.unverified
        if name.split(".")[0] in ("numaNodes", "threadsPerCore", "memory", "linkDomains", "numaInGuest")
    ]
    if not weak and shape.provenance.confidence != "low":
        return ()
    facts = ", ".join(weak) or "all facts"
    return (
        Problem(
            path=path,
            code="UnverifiedFacts",
            message=f"{facts} of {shape.id} {'is' if len(weak) == 1 else 'are'} not verified in the catalog (confidence {shape.provenance.confidence}): "
            f"compare a node's own outputs by `python -m infra topology FILE --expect {shape.id}` before you rely on the placement",
        ),
    )


def _numa_node(shape: NodeShape, index: int) -> dict[str, Any]:
    node = shape.numa_nodes[index]
    machine: dict[str, Any] = {
        "id": node.id,
        "cpus": [list(core) for core in node.cores or ()],
        "memory_bytes": node.memory_bytes,
        "hugepages": dict(node.hugepages),
    }
    if node.socket is not None:
        machine["socket"] = node.socket
    if node.distances is not None:
        machine["distances"] = list(node.distances)
    return machine
