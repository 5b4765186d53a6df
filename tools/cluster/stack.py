"""The machine set of a stack: a simulated machine for each node that its plan names, configured as the plan says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from infra.catalog.machine import devices_of, machine_of
from infra.catalog.types import Accelerator, NodeShape
from infra.config.load import load_stack_file, stack_file
from infra.plan.cluster import plan_stack
from infra.plan.hardware import hardware_of
from infra.plan.model import ClusterPlan, PoolPlan

# The kernel shows more than the catalog's lower bound; the plan has to hold for that too, so the machines have a little more.
ABOVE_THE_BOUND_BYTES = 512 * 2**20


def machine_set_of_stack(stack: str, *, root: Path = Path()) -> dict[str, Any]:
    """The machine set of stacks/Pulumi.STACK.yaml; NumawiseError where the stack cannot be planned."""
    config = load_stack_file(stack_file(stack, root=root))
    plan = plan_stack(config, stack=stack.rsplit("/", 1)[-1])
    hardware = [hardware_of(pool, f"nodePools[{index}]") for index, pool in enumerate(config.node_pools)]
    nodes = [
        node_of(name, pool, known.shape, known.accelerator)
        for pool, known in zip(plan.node_pools, hardware, strict=True)
        for name in pool.nodes
    ]
    return {"nodes": nodes, "namespaces": _namespaces(plan), "claims": _claims(plan)}


def node_of(name: str, pool: PoolPlan, shape: NodeShape, accelerator: Accelerator) -> dict[str, Any]:
    """One node in the form of a machine set. Device ids carry the node's name, as UUIDs differ between real machines."""
    machine = machine_of(shape)
    for numa_node in machine["numa"]:
        numa_node["memory_bytes"] += ABOVE_THE_BOUND_BYTES
    devices = devices_of(shape, accelerator.resource_name)
    prefix = "GPU" if accelerator.vendor == "nvidia" else "card"
    return {
        "name": name,
        "machine": machine,
        "devices": {
            resource: [{**device, "id": f"{prefix}-{name}-{index}"} for index, device in enumerate(entries)]
            for resource, entries in devices.items()
        },
        "labels": feature_labels(shape, accelerator),
        "taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in pool.taints],
        "kubelet": json.loads(json.dumps(pool.kubelet)),
    }


def feature_labels(shape: NodeShape, accelerator: Accelerator) -> dict[str, str]:
    """What NFD, GPU feature discovery or the AMD labeller would set on such a node."""
    labels = {"feature.node.kubernetes.io/memory-numa": "true"} if len(shape.numa_nodes) > 1 else {}
    if accelerator.vendor == "nvidia":
        labels |= {
            "feature.node.kubernetes.io/pci-10de.present": "true",
            "nvidia.com/gpu.count": str(shape.gpus),
            "nvidia.com/gpu.present": "true",
        }
        if accelerator.memory.smi_mib is not None:
            labels["nvidia.com/gpu.memory"] = str(accelerator.memory.smi_mib)
    else:
        labels |= {"feature.node.kubernetes.io/pci-1002.present": "true", "feature.node.kubernetes.io/amd-gpu": "true"}
    if accelerator.label_value is not None:
        labels[accelerator.label_key] = accelerator.label_value
    return labels


def _namespaces(plan: ClusterPlan) -> list[dict[str, Any]]:
    """The namespaces that the cluster's owner has before the stack comes: those that it does not create itself."""
    names = {model.namespace for model in plan.models} | (set() if plan.create_namespace else {plan.namespace})
    if plan.create_namespace:
        names.discard(plan.namespace)
    return [{"name": name, "labels": {"pod-security.kubernetes.io/enforce": plan.pod_security}} for name in sorted(names)]


def _claims(plan: ClusterPlan) -> list[dict[str, Any]]:
    given = {name["name"] for name in _namespaces(plan)}
    wanted = {(model.namespace, model.storage.existing_claim) for model in plan.models if model.namespace in given}
    return [{"namespace": namespace, "name": claim, "storage": "4Ti"} for namespace, claim in sorted(wanted)]
