"""What a pool's drop-in makes of the configuration that a node's kubelet runs, found before anybody is told to write it."""

from __future__ import annotations

from typing import Any

from infra.kubelet import Kubelet, KubeletRefuses, Machine
from infra.kubelet.configuration.merge import merged
from infra.observe.kubelet_difference import kubelet_differences
from infra.observe.model import ObservedNode
from infra.plan.model import PoolPlan


def remedy(pool: PoolPlan, node: ObservedNode, pool_path: str, kubernetes_version: str) -> str:
    """What to do so that the node's kubelet runs what is planned: the drop-in, where the kubelet would start with it and run the plan."""
    running = node.kubelet or {}
    write = (
        f"Write the drop-in that `python -m infra render` puts into kubelet/90-numawise-{pool.name}.conf to the node "
        "(drained, kubelet stopped, cpu_manager_state and memory_manager_state removed)"
    )
    try:
        over = merged(running, pool.kubelet.drop_in, kubernetes_version=kubernetes_version)
        Kubelet.start(_machine(pool), over, {}, kubernetes_version=kubernetes_version)
    except KubeletRefuses as refusal:
        return (
            f"The drop-in alone does not do it: beside what {node.name} runs the kubelet would not start ({refusal.stage}: {'; '.join(refusal.errors)}). "
            f"Take the named field out of the node's own configuration, or set it under {pool_path}.kubelet, and check again"
        )
    remaining = kubelet_differences(pool.kubelet.drop_in, over)
    if remaining:
        return (
            f"{write}, and take out of its own configuration file what a drop-in cannot change ({'; '.join(remaining)}), "
            f"or set it under {pool_path}.kubelet; then start the kubelet"
        )
    return f"{write}, then start it"


def _machine(pool: PoolPlan) -> Machine:
    nodes: list[dict[str, Any]] = [
        {
            "id": node.id,
            "cpus": [list(core) for core in node.cores or ((cpu,) for cpu in node.cpus)],
            "memory_bytes": node.memory_bytes,
        }
        for node in pool.hardware.numa_nodes
    ]
    return Machine.from_dict({"numa": nodes})
