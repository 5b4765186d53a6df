"""The machine set of a stack: simulated nodes like those that its pools describe, configured as its plan says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.catalog.machine import devices_of, machine_of
from infra.config.cluster import StackConfig
from infra.config.load import load_stack_file, stack_file
from infra.plan.cluster import plan_stack
from infra.plan.hardware import hardware_of

ROOT = Path(__file__).resolve().parents[2]


def machine_set_of_stack(stack: str) -> dict[str, Any]:
    """Machine set (README.md) of stacks/Pulumi.STACK.yaml. Raises NumawiseError where the stack has no plan."""
    return machine_set_of(load_stack_file(stack_file(stack, root=ROOT)))


def machine_set_of(config: StackConfig) -> dict[str, Any]:
    """The nodes, namespaces and claims that a stack takes for granted."""
    plan = plan_stack(config)
    nodes = []
    for index, pool in enumerate(config.node_pools):
        hardware = hardware_of(pool, f"nodePools[{index}]")
        planned = plan.pool(pool.name)
        labels = dict(pool.labels)
        if planned.hardware.product_label is not None:
            labels[planned.hardware.product_label[0]] = planned.hardware.product_label[1]
        for name in planned.nodes.names:
            devices = devices_of(hardware.shape, planned.hardware.resource_name)
            nodes.append(
                {
                    "name": name,
                    "machine": machine_of(hardware.shape),
                    "devices": {
                        resource: [
                            device | {"id": device_id(planned.hardware.vendor, name, number)}
                            for number, device in enumerate(entries)
                        ]
                        for resource, entries in devices.items()
                    },
                    "labels": labels,
                    "taints": [taint.model_dump(mode="json", by_alias=True, exclude_none=True) for taint in pool.taints],
                    "kubelet": plain(planned.kubelet.fields),
                }
            )
    namespaces = sorted({plan.namespace.name, *(model.namespace for model in plan.models)})
    claims = sorted({(model.namespace, model.engine.storage.existing_claim) for model in plan.models})
    return {
        "nodes": nodes,
        "namespaces": [
            {"name": name, "labels": {"pod-security.kubernetes.io/enforce": plan.namespace.pod_security}}
            for name in namespaces
            if not (name == plan.namespace.name and plan.namespace.create)
        ],
        "claims": [{"namespace": namespace, "name": name, "storage": "4Ti"} for namespace, name in claims],
    }


def device_id(vendor: str, node: str, number: int) -> str:
    """NVIDIA's plugin names a GPU by its UUID, AMD's by its PCI address; each is unique in the cluster here."""
    return f"GPU-{node}-{number}" if vendor == "nvidia" else f"{node}-{number}"


def plain(value: Any) -> Any:
    """Frozen mappings and tuples as JSON's own."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
