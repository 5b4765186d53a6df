"""The gate of a model's pods: its program, and its part of the plan."""

from __future__ import annotations

import json
from typing import Any

from infra.agents.source import source_of
from infra.plan.model import ClusterPlan, ModelPlan
from infra.render.serving.expected import expected_placement, whole_cores


def gate_files(plan: ClusterPlan, model: ModelPlan) -> dict[str, str]:
    """The gate and what it compares with. Under a policy that promises no alignment, and where no GPU tells its NUMA node, it only warns."""
    pool = plan.pool(model.node_pool)
    binding = model.placement.rank_binding
    proven = expected_placement(pool, model)
    expected = {
        "model": model.name,
        "mode": "enforce" if pool.kubelet.aligns and pool.hardware.reports_numa else "warn",
        "vendor": model.resources.vendor,
        "gpus": model.parallelism.gpus_per_pod,
        "cpus": model.resources.cpu,
        "exclusiveCpus": proven.cpu_count is not None,
        "places": [
            {
                "numaNodes": list(place.numa_nodes),
                "gpus": [list(pair) for pair in place.gpus or ()],
                "memoryNuma": list(place.memory_nodes),
            }
            for place in proven.places
        ],
        "numaNodes": [{"id": node, "cpus": cpus, "gpus": gpus} for node, (cpus, gpus) in sorted(proven.built.items())],
        "reservedCpus": sorted(proven.reserved_cpus),
        "wholeCores": whole_cores(pool),
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
