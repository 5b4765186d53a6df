"""A plan for machines (JSON, the form of the contract) and for people (text, Markdown)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.plan.model import ClusterPlan, ModelPlan, NumaNodePlan, PoolPlan, Slot, SlotGroup
from infra.report.fit import memory_as_json
from infra.units import GIB, format_bytes, format_cpu_list, format_gib


def plan_as_json(plan: ClusterPlan) -> dict[str, Any]:
    """The plan in the contract's form; camelCase keys, CPU sets as Linux CPU lists."""
    return {
        "stack": plan.stack,
        "kubernetesVersion": plan.kubernetes_version,
        "nodePools": [_pool_json(pool) for pool in plan.node_pools],
        "models": [_model_json(model) for model in plan.models],
        "warnings": [warning.as_json() for warning in plan.warnings],
    }


def _pool_json(pool: PoolPlan) -> dict[str, Any]:
    return {
        "name": pool.name,
        "platform": pool.platform,
        "nodeShape": pool.node_shape,
        "sku": pool.sku,
        "nodes": len(pool.nodes),
        "nodeNames": list(pool.nodes) if pool.node_names_given else [],
        "kubelet": dict(pool.kubelet),
        "kubeletConfigHash": pool.kubelet_config_hash,
        "allocatable": {"cpu": pool.allocatable_cpu, "memoryBytes": pool.allocatable_memory_bytes, "gpus": pool.allocatable_gpus},
        "numaNodes": [_numa_json(node) for node in pool.numa_nodes],
        "idleGpus": pool.idle_gpus,
        "strandedGpus": pool.stranded_gpus,
        "rollout": [{"wave": wave.wave, "nodes": list(wave.nodes)} for wave in pool.rollout_waves],
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
    binding = model.rank_binding
    return {
        "name": model.name,
        "nodePool": model.node_pool,
        "namespace": model.namespace,
        "model": model.model,
        "replicas": model.replicas,
        "tensorParallelSize": model.tensor_parallel_size,
        "pipelineParallelSize": model.pipeline_parallel_size,
        "dataParallelSize": model.data_parallel_size,
        "podsPerReplica": model.pods_per_replica,
        "gpusPerPod": model.gpus_per_pod,
        "resources": {"cpu": str(model.cpu), "memory": format_bytes(model.memory_bytes)},
        "sharedMemoryBytes": model.shared_memory_bytes,
        "qosClass": model.qos_class,
        "gpuMemoryUtilization": model.gpu_memory_utilization,
        "maxModelLen": model.max_model_len,
        "blockSize": model.block_size,
        "strategy": {"maxSurge": model.max_surge, "maxUnavailable": model.max_unavailable},
        "startupBudgetSeconds": model.startup_budget_seconds,
        "progressDeadlineSeconds": model.progress_deadline_seconds,
        "createTimeoutSeconds": model.create_timeout_seconds,
        "updateTimeoutSeconds": model.update_timeout_seconds,
        "rankBinding": None
        if binding is None
        else {
            "numaNodeOfRank": list(binding.numa_node_of_rank),
            "cpusPerNumaNode": {str(node): count for node, count in binding.cpus_per_numa_node.items()},
            "memoryNodes": list(binding.memory_nodes),
        },
        "memory": memory_as_json(model.memory),
        "slots": [_slots_json(group) for group in model.slots],
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


def plan_as_text(plan: ClusterPlan) -> str:
    """The plan for a terminal: pools, models, slots, reasons, warnings."""
    return "\n".join(_text_lines(plan)) + "\n"


def _text_lines(plan: ClusterPlan) -> Iterator[str]:
    yield f"stack {plan.stack}: {len(plan.node_pools)} node pool(s), {len(plan.models)} model(s), Kubernetes {plan.kubernetes_version}"
    for pool in plan.node_pools:
        names = f" ({_some(pool.nodes)})" if pool.node_names_given else ""
        yield ""
        yield f"pool {pool.name}: {len(pool.nodes)} x {pool.node_shape}{names}, {pool.sku}"
        for node in pool.numa_nodes:
            yield (
                f"  NUMA node {node.id}: GPUs {format_cpu_list(node.gpus) or '-'}; CPUs {format_cpu_list(node.cpus)}, "
                f"reserved {format_cpu_list(node.reserved_cpus) or '-'}; {format_gib(node.allocatable_memory_bytes)} for pods"
            )
        yield f"  allocatable per node: {pool.allocatable_cpu} CPUs, {format_gib(pool.allocatable_memory_bytes)}, {pool.allocatable_gpus} GPUs"
        yield "  kubelet:"
        yield from (f"    {key}: {_flat(value)}" for key, value in sorted(pool.kubelet.items()))
        yield f"  GPUs left: {pool.idle_gpus} idle, {pool.stranded_gpus} stranded"
        for wave in pool.rollout_waves:
            yield f"  rollout wave {wave.wave}: {_some(wave.nodes)}"
        yield from (f"  because {reason}" for reason in pool.reasons)
    for model in plan.models:
        yield ""
        yield f"model {model.name}: {model.model} on pool {model.node_pool}, {model.replicas} replica(s)"
        yield (
            f"  tensor parallel {model.tensor_parallel_size}, pipeline parallel {model.pipeline_parallel_size}; per pod {model.gpus_per_pod} GPUs, "
            f"{model.cpu} CPUs, {format_bytes(model.memory_bytes)} memory, {format_bytes(model.shared_memory_bytes)} /dev/shm, {model.qos_class}"
        )
        yield f"  context {model.max_model_len}, gpuMemoryUtilization {model.gpu_memory_utilization:g}, block size {model.block_size or 'of the engine'}"
        yield f"  {_kv_line(model)}"
        for group in model.slots:
            for slot in group.slots:
                yield (
                    f"  slot on {group.nodes} node(s): NUMA {format_cpu_list(slot.numa_nodes)}, GPUs {format_cpu_list(slot.gpus)}, "
                    f"{slot.cpu_count} CPUs (for example {format_cpu_list(slot.cpus_example)})"
                )
        if model.rank_binding:
            yield f"  ranks bound to NUMA nodes {', '.join(map(str, model.rank_binding.numa_node_of_rank))}"
        yield from (f"  because {reason}" for reason in model.reasons)
    if plan.warnings:
        yield ""
        yield from (f"warning: {warning}" for warning in plan.warnings)


def _kv_line(model: ModelPlan) -> str:
    available, tokens = model.memory.available, model.memory.tokens
    return f"KV cache per GPU: {available.low / GIB:.1f} to {available.high / GIB:.1f} GiB, room for {tokens.low:,} to {tokens.high:,} tokens"


def _some(names: tuple[str, ...], limit: int = 6) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flat(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flat, value)) + "]"
    return str(value)


def plan_as_markdown(plan: ClusterPlan) -> str:
    """The plan for a comment on a pull request: tables first, reasons folded."""
    lines = [
        f"### Placement plan of stack `{plan.stack}`",
        "",
        "| pool | nodes | shape | topology policy | scope | memory manager | reserved CPUs | idle / stranded GPUs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for pool in plan.node_pools:
        kubelet = pool.kubelet
        reserved = format_cpu_list(cpu for node in pool.numa_nodes for cpu in node.reserved_cpus)
        lines.append(
            f"| {pool.name} | {len(pool.nodes)} | {pool.node_shape} | {kubelet.get('topologyManagerPolicy', 'none')} | "
            f"{kubelet.get('topologyManagerScope', 'container')} | {kubelet.get('memoryManagerPolicy', 'None')} | {reserved or '-'} | "
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
            for group in model.slots
        )
        lines.append(
            f"| {model.name} | {model.node_pool} | {model.replicas} | {model.tensor_parallel_size} x {model.pipeline_parallel_size} | "
            f"{model.gpus_per_pod} GPUs, {model.cpu} CPUs, {format_bytes(model.memory_bytes)} | {slots} | {model.memory.tokens.low:,} |"
        )
    lines += ["", *(f"> **warning** `{warning.path}` {warning.message}" for warning in plan.warnings)]
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
