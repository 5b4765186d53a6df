"""JSON of a node: its labels (`kubectl get node -o json`) and a device plugin's ListAndWatch response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.diagnosis import Diagnosis
from infra.outputs.reading import Notes, Report


def node_labels(document: Any) -> list[tuple[str, Mapping[str, str]]]:
    """Name and labels of each node in a Node, a NodeList or a List; empty for other documents."""
    if not isinstance(document, Mapping):
        return []
    items = document.get("items") if str(document.get("kind", "")).endswith("List") else [document]
    found = []
    for item in items if isinstance(items, list) else []:
        if not isinstance(item, Mapping) or item.get("kind", "Node") != "Node":
            continue
        metadata = item.get("metadata")
        labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
        if isinstance(labels, Mapping) and isinstance(metadata, Mapping):
            found.append((str(metadata.get("name", "")), {str(k): str(v) for k, v in labels.items()}))
    return found


def read_node_labels(name: str, labels: Mapping[str, str], first_line: int) -> Report:
    """What the labels of one node show of its GPUs (GPU feature discovery, AMD node labeller)."""
    notes = Notes()
    findings: list[Diagnosis] = []
    product = labels.get("nvidia.com/gpu.product") or labels.get("amd.com/gpu.product-name")
    vendor = "nvidia" if any(key.startswith("nvidia.com/") for key in labels) else None
    if any(key.startswith(("amd.com/gpu", "beta.amd.com/gpu")) for key in labels):
        vendor = "amd" if vendor is None else "both"
    count = _number(labels, "nvidia.com/gpu.count", notes)
    if count is None and vendor == "amd":
        # The labeller writes the count as the value of beta.amd.com/gpu.<property>.<value>.
        counts = {value for key, value in labels.items() if key.startswith("beta.amd.com/gpu.")}
        count = int(counts.pop()) if len(counts) == 1 and all(value.isdigit() for value in counts) else None
    replicas = _number(labels, "nvidia.com/gpu.replicas", notes)
    shared = (replicas or 1) > 1 or (product or "").endswith("-SHARED")
    if shared:
        findings.append(
            Diagnosis.warning(
                path="",
                code="SharedGpus",
                message=f"the GPUs are time-sliced{f' {replicas}-fold' if replicas else ''}: what is allocatable is not "
                f"the number of cards.",
                remedy="Plan no tensor parallel on them; two replicas may be one card.",
            )
        )
    mig = labels.get("nvidia.com/mig.strategy", "none") not in ("none", "") and "-MIG-" in (product or "")
    if mig:
        findings.append(
            Diagnosis.warning(
                path="",
                code="MigSlices",
                message=f"the node offers MIG slices ({product}): tensor parallel is 1 on each.",
                remedy="Label nvidia.com/mig.config=all-disabled gives whole GPUs.",
            )
        )
    fields: dict[str, Any] = {
        "node": name,
        "vendor": vendor,
        "product": product,
        "gpus": count,
        "gpu_memory_mib": _number(labels, "nvidia.com/gpu.memory", notes),
        "device_id": labels.get("amd.com/gpu.device-id"),
        "shared": shared,
        "replicas": replicas,
        "mig": mig,
    }
    return Report(
        kind="node-labels", first_line=first_line, fields=fields, notes=notes.all(), findings=tuple(findings), host=name or None
    )


def _number(labels: Mapping[str, str], key: str, notes: Notes) -> int | None:
    text = labels.get(key)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    notes.add(f"{key}: {text[:30]!r} is no number")
    return None


def read_list_and_watch(document: Any, first_line: int) -> Report | None:
    """A device plugin's ListAndWatch response: devices with health and NUMA nodes; None for another document."""
    devices = document.get("devices") if isinstance(document, Mapping) else document
    if not isinstance(devices, list):
        return None
    rows = [device for device in devices if isinstance(device, Mapping) and isinstance(device.get("ID"), str)]
    if not rows or not any("health" in device or "topology" in device for device in rows):
        return None
    numa: dict[str, list[int] | None] = {}
    unclear: list[str] = []
    unhealthy = [str(device["ID"]) for device in rows if device.get("health", "Healthy") != "Healthy"]
    for device in rows:
        topology = device.get("topology")
        nodes = topology.get("nodes") if isinstance(topology, Mapping) else None
        ids: list[int] = []
        for node in nodes if isinstance(nodes, list) else []:
            value = node.get("ID") if isinstance(node, Mapping) else None
            if isinstance(value, str | int) and not isinstance(value, bool) and str(value).lstrip("-").isdigit():
                ids.append(int(value))
            else:
                unclear.append(str(device["ID"]))
        numa[str(device["ID"])] = ids or None
    findings: list[Diagnosis] = []
    if unclear:
        findings.append(
            Diagnosis.warning(
                path="",
                code="NumaNodeUnclear",
                message=f"{len(unclear)} of {len(rows)} devices have an empty NUMA node object: node 0 (JSON leaves a zero "
                f"out) or none at all.",
                remedy="Take it for node 0 only where `cat /sys/bus/pci/devices/*/numa_node` says so.",
            )
        )
    if without := [name for name, ids in numa.items() if ids is None and name not in unclear]:
        findings.append(
            Diagnosis.warning(
                path="",
                code="DevicesWithoutNumaNode",
                message=f"{len(without)} of {len(rows)} devices have no NUMA node: the topology manager cannot align them.",
            )
        )
    if unhealthy:
        findings.append(
            Diagnosis.warning(
                path="",
                code="UnhealthyDevices",
                message=f"{len(unhealthy)} of {len(rows)} devices are unhealthy: {', '.join(unhealthy[:4])}.",
            )
        )
    fields = {"devices": len(rows), "numa": numa, "unclear": unclear}
    return Report(kind="device-plugin-listandwatch", first_line=first_line, fields=fields, findings=tuple(findings))
