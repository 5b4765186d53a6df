"""What the plan proved of a model's placement, as the rule takes it by which the gate and verify judge."""

from __future__ import annotations

from collections import Counter

from infra.agents.alignment import Expected, Place
from infra.plan.model import ModelPlan, PoolPlan, Slot


def expected_placement(pool: PoolPlan, model: ModelPlan) -> Expected:
    """Every place that a pod of the model can come to lie in: `slots` show one order of starts, `places` are what any other may bring about."""
    shown = [slot for group in model.placement.slots for slot in group.slots]
    places = {as_place(pool, slot) for slot in (*shown, *model.placement.places)}
    exclusive = pool.kubelet.pins_cpus and model.resources.qos_class == "Guaranteed"
    return Expected(
        places=tuple(sorted(places, key=lambda place: (place.numa_nodes, place.memory_nodes, sorted(place.gpus or ())))),
        cpu_count=model.resources.cpu if exclusive else None,
        built={node.id: (len(node.cpus), len(node.gpus)) for node in pool.hardware.numa_nodes},
        reserved_cpus=frozenset(cpu for node in pool.hardware.numa_nodes for cpu in node.reserved_cpus),
        cores=tuple(core for node in pool.hardware.numa_nodes for core in node.cores) if whole_cores(pool) else (),
    )


def as_place(pool: PoolPlan, slot: Slot) -> Place:
    home = {gpu: node.id for node in pool.hardware.numa_nodes for gpu in node.gpus}
    counts = Counter(home[gpu] for gpu in slot.gpus if gpu in home)
    return Place(numa_nodes=slot.numa_nodes, memory_nodes=slot.memory_numa, gpus=tuple(sorted(counts.items())))


def whole_cores(pool: PoolPlan) -> bool:
    """Whether the pool's kubelets hand out physical cores alone."""
    options = pool.kubelet.fields.get("cpuManagerPolicyOptions") or {}
    return pool.hardware.threads_per_core > 1 and str(options.get("full-pcpus-only", "")).lower() == "true"
