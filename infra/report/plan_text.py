"""A plan for a terminal: a screenful of what is decided and what is wrong, or every number with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.plan.model import ClusterPlan, ModelPlan, PoolPlan
from infra.units import GIB, format_bytes, format_cpu_list, format_gib

_MOST_WAVES = 8


def plan_as_text(plan: ClusterPlan, *, stack: str, explain: bool = False) -> str:
    """Pools, models and warnings; with `explain` also the kubelet's fields, each NUMA node and the reasons."""
    return "\n".join(_lines(plan, stack, explain)) + "\n"


def _lines(plan: ClusterPlan, stack: str, explain: bool) -> Iterator[str]:
    yield f"stack {stack}: {_count(len(plan.node_pools), 'node pool')}, {_count(len(plan.models), 'model')}, Kubernetes {plan.kubernetes_version}"
    yield from _explained(plan) if explain else _screenful(plan)
    if plan.warnings:
        yield ""
        yield from (f"warning: {warning}" for warning in plan.warnings)
    if not explain:
        yield ""
        yield "All of the kubelet's fields, NUMA nodes, rollout waves and the reason of each number: --explain."


def _screenful(plan: ClusterPlan) -> Iterator[str]:
    yield ""
    for pool in plan.node_pools:
        names = f" ({_some(pool.nodes.names)})" if pool.nodes.names_given else ""
        kubelet = pool.kubelet
        reserved = format_cpu_list(cpu for node in pool.hardware.numa_nodes for cpu in node.reserved_cpus)
        yield f"pool {pool.name}: {len(pool.nodes.names)} x {shape_in_words(pool)}{names}, each {pool.allocatable.gpus} x {pool.hardware.sku}"
        yield (
            f"  kubelet: topology manager {kubelet.topology_manager_policy} by {kubelet.topology_manager_scope}, memory manager {kubelet.memory_manager_policy}, "
            f"reserved CPUs {reserved or 'none'}"
        )
        yield (
            f"  for pods on each node: {pool.allocatable.cpu} CPUs, {format_gib(pool.allocatable.memory_bytes)}; "
            f"GPUs left in the pool: {pool.idle_gpus} idle, {pool.stranded_gpus} of them stranded"
        )
    if plan.models:
        yield ""
    for model in plan.models:
        parallelism, place = model.parallelism, model.placement
        sizes = [f"tensor parallel {parallelism.tensor_parallel_size}"]
        sizes += [f"pipeline parallel {parallelism.pipeline_parallel_size}"] if parallelism.pipeline_parallel_size > 1 else []
        sizes += [f"data parallel {parallelism.data_parallel_size}"] if parallelism.data_parallel_size > 1 else []
        pods = "" if parallelism.pods_per_replica == 1 else f" of {parallelism.pods_per_replica} pods"
        yield f"model {model.name}: {model.identity.model} on pool {model.node_pool}, {_count(place.replicas, 'replica')}{pods}, {', '.join(sizes)}"
        yield (
            f"  a pod: {_count(parallelism.gpus_per_pod, 'GPU')}, {model.resources.cpu} CPUs, {format_bytes(model.resources.memory_bytes)} memory, "
            f"{format_bytes(model.resources.shared_memory_bytes)} /dev/shm; context {model.memory.max_model_len:,}; {_kv_line(model)}"
        )
        yield from _places(model)
        yield (
            f"  update: maxSurge {place.max_surge}, maxUnavailable {place.max_unavailable}; a pod may take {model.times.startup_budget_seconds:,} s to start"
        )


def _places(model: ModelPlan) -> Iterator[str]:
    """Where the pods lie, a line for each kind of node."""
    for group in model.placement.slots:
        slots = "; ".join(f"NUMA {format_cpu_list(slot.numa_nodes)} with GPUs {format_cpu_list(slot.gpus)}" for slot in group.slots)
        yield f"  on {_count(group.nodes, 'node')}: {slots}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def shape_in_words(pool: PoolPlan) -> str:
    """What the machines of a pool are: the id of their shape in the catalog, or that their topology was given."""
    return "given topology" if pool.hardware.node_shape == "inline" else pool.hardware.node_shape


def _waves(pool: PoolPlan) -> Iterator[str]:
    waves = pool.rollout.waves
    for wave in waves[:_MOST_WAVES]:
        yield f"  rollout wave {wave.wave}: {_some(wave.nodes)}"
    if len(waves) > _MOST_WAVES:
        yield f"  and {len(waves) - _MOST_WAVES:,} more rollout waves of at most {_count(max(len(wave.nodes) for wave in waves), 'node')}"


def _explained(plan: ClusterPlan) -> Iterator[str]:
    for pool in plan.node_pools:
        names = f" ({_some(pool.nodes.names)})" if pool.nodes.names_given else ""
        yield ""
        yield f"pool {pool.name}: {len(pool.nodes.names)} x {shape_in_words(pool)}{names}, {pool.hardware.sku}"
        for node in pool.hardware.numa_nodes:
            yield (
                f"  NUMA node {node.id}: GPUs {format_cpu_list(node.gpus) or '-'}; CPUs {format_cpu_list(node.cpus)}, "
                f"reserved {format_cpu_list(node.reserved_cpus) or '-'}; {format_gib(node.allocatable_memory_bytes)} for pods"
            )
        yield f"  allocatable per node: {pool.allocatable.cpu} CPUs, {format_gib(pool.allocatable.memory_bytes)}, {pool.allocatable.gpus} GPUs"
        yield "  kubelet:"
        yield from (f"    {key}: {_flat(value)}" for key, value in sorted(pool.kubelet.fields.items()))
        yield f"  GPUs left: {pool.idle_gpus} idle, {pool.stranded_gpus} stranded"
        yield from _waves(pool)
        yield from (f"  because {reason}" for reason in pool.reasons)
    for model in plan.models:
        yield ""
        yield f"model {model.name}: {model.identity.model} on pool {model.node_pool}, {model.placement.replicas} replica(s)"
        yield (
            f"  tensor parallel {model.parallelism.tensor_parallel_size}, pipeline parallel {model.parallelism.pipeline_parallel_size}; per pod {model.parallelism.gpus_per_pod} GPUs, "
            f"{model.resources.cpu} CPUs, {format_bytes(model.resources.memory_bytes)} memory, {format_bytes(model.resources.shared_memory_bytes)} /dev/shm, {model.resources.qos_class}"
        )
        yield f"  context {model.memory.max_model_len}, gpuMemoryUtilization {model.memory.gpu_memory_utilization:g}, block size {model.memory.block_size or 'of the engine'}"
        yield f"  {_kv_line(model)}"
        for group in model.placement.slots:
            for slot in group.slots:
                yield (
                    f"  slot on {group.nodes} node(s): NUMA {format_cpu_list(slot.numa_nodes)}, GPUs {format_cpu_list(slot.gpus)}, "
                    f"{slot.cpu_count} CPUs (for example {format_cpu_list(slot.cpus_example)})"
                )
        if model.placement.rank_binding:
            yield f"  ranks bound to NUMA nodes {', '.join(map(str, model.placement.rank_binding.numa_node_of_rank))}"
        yield from (f"  because {reason}" for reason in model.reasons)


def _kv_line(model: ModelPlan) -> str:
    available, tokens = model.memory.estimate.available, model.memory.estimate.tokens
    return f"KV cache per GPU: {available.low / GIB:.1f} to {available.high / GIB:.1f} GiB, room for {tokens.low:,} to {tokens.high:,} tokens"


def _some(names: tuple[str, ...], limit: int = 6) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flat(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flat, value)) + "]"
    return str(value)
