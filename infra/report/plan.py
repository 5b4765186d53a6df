"""A plan for machines (JSON, the form of the contract) and for people (text, Markdown)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.plan.model import ClusterPlan, ModelPlan, NumaNodePlan, PoolPlan, Slot, SlotGroup
from infra.report.fit import memory_as_json
from infra.units import GIB, format_bytes, format_cpu_list, format_gib


def plan_as_json(plan: ClusterPlan, *, stack: str) -> dict[str, Any]:
    """The plan in the contract's form; camelCase keys, CPU sets as Linux CPU lists."""
    return {
        "stack": stack,
        "kubernetesVersion": plan.kubernetes_version,
        "nodePools": [_pool_json(pool) for pool in plan.node_pools],
        "models": [_model_json(model) for model in plan.models],
        "warnings": [warning.as_json() for warning in plan.warnings],
    }


def _pool_json(pool: PoolPlan) -> dict[str, Any]:
    return {
        "name": pool.name,
        "platform": pool.platform,
        "nodeShape": pool.hardware.node_shape,
        "sku": pool.hardware.sku,
        "nodes": len(pool.nodes.names),
        "nodeNames": list(pool.nodes.names) if pool.nodes.names_given else [],
        "kubelet": dict(pool.kubelet.fields),
        "kubeletConfigHash": pool.kubelet.config_hash,
        "allocatable": {"cpu": pool.allocatable.cpu, "memoryBytes": pool.allocatable.memory_bytes, "gpus": pool.allocatable.gpus},
        "numaNodes": [_numa_json(node) for node in pool.hardware.numa_nodes],
        "idleGpus": pool.idle_gpus,
        "strandedGpus": pool.stranded_gpus,
        "rollout": [{"wave": wave.wave, "nodes": list(wave.nodes)} for wave in pool.rollout.waves],
        "reasons": list(pool.reasons),
    }


def _numa_json(node: NumaNodePlan) -> dict[str, Any]:
    return {
        "id": node.id,
        "cpus": format_cpu_list(node.cpus),
        "reservedCpus": format_cpu_list(node.reserved_cpus),
        "allocatableMemoryBytes": node.allocatable_memory_bytes,
        "gpus": list(node.gpus),
    }


def _model_json(model: ModelPlan) -> dict[str, Any]:
    binding = model.placement.rank_binding
    return {
        "name": model.name,
        "nodePool": model.node_pool,
        "namespace": model.namespace,
        "model": model.identity.model,
        "replicas": model.placement.replicas,
        "tensorParallelSize": model.parallelism.tensor_parallel_size,
        "pipelineParallelSize": model.parallelism.pipeline_parallel_size,
        "dataParallelSize": model.parallelism.data_parallel_size,
        "podsPerReplica": model.parallelism.pods_per_replica,
        "gpusPerPod": model.parallelism.gpus_per_pod,
        "resources": {"cpu": str(model.resources.cpu), "memory": format_bytes(model.resources.memory_bytes)},
        "sharedMemoryBytes": model.resources.shared_memory_bytes,
        "qosClass": model.resources.qos_class,
        "gpuMemoryUtilization": model.memory.gpu_memory_utilization,
        "maxModelLen": model.memory.max_model_len,
        "blockSize": model.memory.block_size,
        "strategy": {"maxSurge": model.placement.max_surge, "maxUnavailable": model.placement.max_unavailable},
        "startupBudgetSeconds": model.times.startup_budget_seconds,
        "progressDeadlineSeconds": model.times.progress_deadline_seconds,
        "createTimeoutSeconds": model.times.create_timeout_seconds,
        "updateTimeoutSeconds": model.times.update_timeout_seconds,
        "rankBinding": None
        if binding is None
        else {
            "numaNodeOfRank": list(binding.numa_node_of_rank),
            "cpusPerNumaNode": {str(node): count for node, count in binding.cpus_per_numa_node.items()},
            "memoryNodes": list(binding.memory_nodes),
        },
        "memory": memory_as_json(model.memory.estimate),
        "slots": [_slots_json(group) for group in model.placement.slots],
        "reasons": list(model.reasons),
    }


def _slots_json(group: SlotGroup) -> dict[str, Any]:
    return {"nodes": group.nodes, "slots": [_slot_json(slot) for slot in group.slots]}


def _slot_json(slot: Slot) -> dict[str, Any]:
    return {
        "numaNodes": list(slot.numa_nodes),
        "gpus": list(slot.gpus),
        "cpuCount": slot.cpu_count,
        "cpusExample": format_cpu_list(slot.cpus_example),
        "memoryNuma": list(slot.memory_numa),
    }


def plan_as_text(plan: ClusterPlan, *, stack: str) -> str:
    """The plan for a terminal: pools, models, slots, reasons, warnings."""
    return "\n".join(_text_lines(plan, stack)) + "\n"


def _text_lines(plan: ClusterPlan, stack: str) -> Iterator[str]:
    yield f"stack {stack}: {len(plan.node_pools)} node pool(s), {len(plan.models)} model(s), Kubernetes {plan.kubernetes_version}"
    for pool in plan.node_pools:
        names = f" ({_some(pool.nodes.names)})" if pool.nodes.names_given else ""
        yield ""
        yield f"pool {pool.name}: {len(pool.nodes.names)} x {pool.hardware.node_shape}{names}, {pool.hardware.sku}"
        for node in pool.hardware.numa_nodes:
            yield (
                f"  NUMA node {node.id}: GPUs {format_cpu_list(node.gpus) or '-'}; CPUs {format_cpu_list(node.cpus)}, "
                f"reserved {format_cpu_list(node.reserved_cpus) or '-'}; {format_gib(node.allocatable_memory_bytes)} for pods"
            )
        yield f"  allocatable per node: {pool.allocatable.cpu} CPUs, {format_gib(pool.allocatable.memory_bytes)}, {pool.allocatable.gpus} GPUs"
        yield "  kubelet:"
        yield from (f"    {key}: {_flat(value)}" for key, value in sorted(pool.kubelet.fields.items()))
        yield f"  GPUs left: {pool.idle_gpus} idle, {pool.stranded_gpus} stranded"
        for wave in pool.rollout.waves:
            yield f"  rollout wave {wave.wave}: {_some(wave.nodes)}"
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
    if plan.warnings:
        yield ""
        yield from (f"warning: {warning}" for warning in plan.warnings)


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


def plan_as_markdown(plan: ClusterPlan, *, stack: str) -> str:
    """The plan for a comment on a pull request: tables first, reasons folded."""
    lines = [
        f"### Placement plan of stack `{stack}`",
        "",
        "| pool | nodes | shape | topology policy | scope | memory manager | reserved CPUs | idle / stranded GPUs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for pool in plan.node_pools:
        kubelet = pool.kubelet
        reserved = format_cpu_list(cpu for node in pool.hardware.numa_nodes for cpu in node.reserved_cpus)
        lines.append(
            f"| {pool.name} | {len(pool.nodes.names)} | {pool.hardware.node_shape} | {kubelet.topology_manager_policy} | "
            f"{kubelet.topology_manager_scope} | {kubelet.memory_manager_policy} | {reserved or '-'} | "
            f"{pool.idle_gpus} / {pool.stranded_gpus} |"
        )
    lines += [
        "",
        "| model | pool | replicas | TP x PP | per pod | slots | KV tokens (low) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for model in plan.models:
        slots = "; ".join(
            f"{group.nodes} x [{', '.join('NUMA ' + format_cpu_list(slot.numa_nodes) + ' GPUs ' + format_cpu_list(slot.gpus) for slot in group.slots)}]"
            for group in model.placement.slots
        )
        lines.append(
            f"| {model.name} | {model.node_pool} | {model.placement.replicas} | {model.parallelism.tensor_parallel_size} x {model.parallelism.pipeline_parallel_size} | "
            f"{model.parallelism.gpus_per_pod} GPUs, {model.resources.cpu} CPUs, {format_bytes(model.resources.memory_bytes)} | {slots} | {model.memory.estimate.tokens.low:,} |"
        )
    lines += ["", *(f"> **warning** `{warning.path}` {warning.sentence}" for warning in plan.warnings)]
    reasons = [(f"pool {p.name}", r) for p in plan.node_pools for r in p.reasons] + [
        (f"model {m.name}", r) for m in plan.models for r in m.reasons
    ]
    if reasons:
        lines += [
            "",
            "<details><summary>Reasons</summary>",
            "",
            *(f"- {owner}: {reason}" for owner, reason in reasons),
            "",
            "</details>",
        ]
    return "\n".join(lines) + "\n"
