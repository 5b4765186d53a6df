"""The gate of a model's pods: its program, and its part of the plan."""

from __future__ import annotations

import json
from typing import Any

from infra.agents.source import source_of
from infra.plan.model import ClusterPlan, ModelPlan


def gate_files(plan: ClusterPlan, model: ModelPlan) -> dict[str, str]:
    """The gate and what it compares with. Under a policy that promises no alignment, and where no GPU tells its NUMA node, it only warns."""
    pool = plan.pool(model.node_pool)
    binding = model.placement.rank_binding
    shown = [slot for group in model.placement.slots for slot in group.slots]
    # Slots show one order of starts, places are what any other may bring about: either is as planned.
    slots = sorted({(slot.numa_nodes, slot.memory_numa) for slot in (*shown, *model.placement.places)})
    expected = {
        "model": model.name,
        "mode": "enforce" if pool.kubelet.aligns and pool.hardware.reports_numa else "warn",
        "vendor": model.resources.vendor,
        "gpus": model.parallelism.gpus_per_pod,
        "cpus": model.resources.cpu,
        "exclusiveCpus": pool.kubelet.pins_cpus and model.resources.qos_class == "Guaranteed",
        "slots": [{"numaNodes": list(numa_nodes), "memoryNuma": list(memory_numa)} for numa_nodes, memory_numa in slots],
        "rankBinding": None if binding is None else {"numaNodeOfRank": list(binding.numa_node_of_rank)},
    }
    files = {"gate.py": source_of("gate"), "plan.json": json.dumps(expected, indent=1) + "\n"}
    if binding is not None:
        files["numactl.py"] = source_of("numactl")
    if model.parallelism.pods_per_replica > 1:
        files["leader.py"] = source_of("leader")
    return files


def gate_items(model: ModelPlan) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"key": name, "path": name} for name in ("gate.py", "plan.json")]
    if model.placement.rank_binding is not None:
        items.append({"key": "numactl.py", "path": "bin/numactl", "mode": 0o555})
    if model.parallelism.pods_per_replica > 1:
        items.append({"key": "leader.py", "path": "leader.py"})
    return items
