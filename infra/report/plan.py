"""A plan for machines (JSON, the form of the contract) and for people (text, Markdown)."""

from __future__ import annotations

from typing import Any

from infra.plan.model import ClusterPlan, ModelPlan, NumaNodePlan, PoolPlan, Slot, SlotGroup
from infra.report.fit import memory_as_json
from infra.report.plan_text import shape_in_words
from infra.units import format_bytes, format_cpu_list


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
            f"| {pool.name} | {len(pool.nodes.names)} | {shape_in_words(pool)} | {kubelet.topology_manager_policy} | "
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
