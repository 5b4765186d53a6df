"""The cluster against the plan, as text and as JSON."""

from __future__ import annotations

from typing import Any

from infra.report.table import table
from infra.units import format_cpu_list
from infra.verify.cluster import Verification
from infra.verify.placement import PlacedPod

_CHECKS = ("kubelet", "labels", "devices", "topology")
_MARKS = {True: "ok", False: "DIFFERS", None: "unread"}


def verification_as_json(result: Verification) -> dict[str, Any]:
    """The document of `verify --format json`; a check that could not be made is null."""
    return {
        "ok": result.ok,
        "nodes": [{"node": node.node, "pool": node.pool, "checks": dict(node.checks)} for node in result.nodes],
        "pods": [_pod_json(pod) for pod in result.pods],
        "findings": [finding.as_finding() for finding in result.findings],
    }


def _pod_json(pod: PlacedPod) -> dict[str, Any]:
    return {
        "pod": pod.pod,
        "model": pod.model,
        "node": pod.node,
        "numaNodes": list(pod.numa_nodes),
        "gpus": list(pod.gpus),
        "gpusPerNumaNode": {str(numa): count for numa, count in sorted(pod.gpus_per_numa_node.items())},
        "cpus": format_cpu_list(pod.cpus),
        "memoryNuma": list(pod.memory_numa),
        "qosClass": pod.qos_class,
        "slot": pod.slot,
        "ok": pod.ok,
    }


def verification_as_text(result: Verification) -> str:
    """A table of nodes, a table of pods, the findings, and one sentence."""
    nodes = [("node", "pool", *_CHECKS), *((n.node, n.pool, *(_MARKS[n.checks[key]] for key in _CHECKS)) for n in result.nodes)]
    pods = [("pod", "node", "NUMA", "GPUs", "CPUs", "QoS", "slot"), *map(_pod_row, result.pods)]
    lines = [*table(nodes), "", *table(pods)]
    if result.findings:
        lines += ["", *(f"{finding.code}: {finding.sentence}" for finding in result.findings)]
    errors = sum(finding.severity == "error" for finding in result.findings)
    verdict = (
        f"{errors} finding(s): the cluster is not as planned."
        if errors
        else f"All {len(result.pods)} pods stand in their planned slots, on {len(result.nodes)} nodes."
    )
    return "\n".join([*lines, "", verdict])


def _pod_row(pod: PlacedPod) -> tuple[str, ...]:
    return (
        pod.pod,
        pod.node,
        format_cpu_list(pod.numa_nodes) or "-",
        ", ".join(f"{count} on NUMA {numa}" for numa, count in sorted(pod.gpus_per_numa_node.items())) or "-",
        format_cpu_list(pod.cpus) or "shared",
        pod.qos_class,
        f"{pod.slot}" if pod.ok else "NONE" if pod.slot is None else f"{pod.slot}, WRONG",
    )
