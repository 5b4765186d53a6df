"""What would work where no configuration admits all pods: the problems of a search that failed, with what to change."""

from __future__ import annotations

from collections.abc import Sequence

from infra.plan.pool.failures import Failure
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.messages import Finding, Message, PoolPath
from infra.plan.pool.search import search

# In this order: the first without which the search succeeds is the remedy.
_FIELDS_IN_THE_WAY = (
    "reservedMemory",
    "memoryManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicy",
    "cpuManagerPolicyOptions",
)


def with_remedy(pool: GpuPool, failures: Sequence[Failure]) -> list[Finding]:
    """The problems of the failures of a search; where a field of the user stands in the way, with what would work without it."""
    if any(failure.final for failure in failures):
        return [failure.finding for failure in failures]
    refused = any(failure.proven_refusal for failure in failures)
    told = next((failure.policy for failure in failures if failure.proven_refusal), failures[0].policy)
    several = len({failure.policy for failure in failures}) > 1
    others = " No other topologyManagerPolicy admits them in every order either." if several else ""
    remedy = _field_in_the_way(pool)
    if remedy is not None:
        mixed = refused and len({pod.gpus for pod in pool.pods}) > 1
        separate = " Or give models of different size pools of their own, whose taints keep the others off." if mixed else ""
        remedy = Message.of(remedy, separate)
    elif refused and len(pool.pods) > 1:
        remedy = Message.of(" Give the models pools of their own (taints keep others off), or leave topologyManagerPolicy out.")
    else:
        remedy = Message()
    return [failure.finding.with_more(others, remedy) for failure in failures if failure.policy == told]


def _field_in_the_way(pool: GpuPool) -> Message | None:
    """The user's field without which all pods are admitted, and the value that works."""
    for field in filter(pool.user_sets, _FIELDS_IN_THE_WAY):
        proven, _ = search(pool.without(field))
        if proven is None:
            continue
        value = proven.kubelet.fields.get(field)
        if value is None:
            return Message.of(" Leave ", PoolPath(), f".kubelet.{field} out: without it all pods are admitted in every order.")
        if field == "reservedMemory":
            split = " and ".join(f"{entry['limits']['memory']} on NUMA node {entry['numaNode']}" for entry in value)
            return Message.of(f" The split that works: {split}; leave reservedMemory out and the plan writes it.")
        return Message.of(f" {field} {value} admits all pods in every order.")
    return None
