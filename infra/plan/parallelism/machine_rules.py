"""The first rule that a size breaks: vLLM's for the model, then the machine's, then the pool's."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from infra.offers import MOST_NODES_OFFERED, Offer, beside_each_other, more_nodes
from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.rules import (
    Refusal,
    pipeline_parallel_refusals,
    tensor_parallel_refusals,
    valid_tensor_parallel_sizes,
)
from infra.plan.parallelism.sizes import Machines, Size, SizeConstraints
from infra.plan.parallelism.tensor_group import tensor_group


def size_refusal(architecture: Architecture, machines: Machines, size: Size, constraints: SizeConstraints) -> Refusal | None:
    """The first rule that a size breaks, or None: vLLM's rules, then the machine's, then the pool's."""
    shape, nodes, tensor = machines.shape, machines.nodes, size.tensor_parallel_size
    found = tensor_parallel_refusals(
        architecture,
        tensor,
        quantization=constraints.quantization,
        expert_parallel=size.expert_parallel,
        data_parallel_size=size.data_parallel_size,
    )
    if found:
        return found[0]
    found = pipeline_parallel_refusals(architecture, size.pipeline_parallel_size)
    if found:
        return found[0]
    if shape.partition is not None and not shape.partition.upper().startswith("SPX") and tensor > 1:
        return Refusal(
            rule="PartitionedDevice",
            message=f"the devices of {shape.name} are partitions ({shape.partition}); tensor parallel {tensor} over partitions is refused",
            offers=(Offer.of("use 1", ("model.tensorParallelSize", 1)),),
            remedy="Or set the cards to SPX.",
        )
    if tensor > shape.gpus and not constraints.rdma:
        stages = ceil(tensor / shape.gpus)
        return Refusal(
            rule="TensorParallelOverNodes",
            message=f"tensor parallel {tensor} needs {stages} machines of {shape.name} ({shape.gpus} GPUs each), and no RDMA with GPUDirect is "
            "declared between them",
            offers=tuple(_stages_instead(architecture, machines, size, constraints)),
        )
    limit = constraints.gpus_per_numa_node_limit
    if limit is not None and size.gpus_per_pod > limit:
        group = tensor_group(shape, machines.accelerator, tensor, size.gpus_per_pod)
        return Refusal(
            rule="SingleNumaNode",
            message=f"{size.gpus_per_pod} GPUs need {group.numa_nodes or 'several'} NUMA nodes of {shape.name} ({limit} each); single-numa-node admits 1",
            offers=tuple(_within_a_numa_node(architecture, size, limit, constraints)),
        )
    capacity = replicas_that_fit(machines, size, constraints.pods_per_node)
    if capacity < constraints.replicas:
        apart = ", required anti-affinity keeps pods of the model on nodes of their own" if constraints.pods_per_node else ""
        return Refusal(
            rule="NotEnoughMachines",
            message=f"{constraints.replicas} replica{'s' if constraints.replicas > 1 else ''} of {size.pods_per_replica} pod{'s' if size.pods_per_replica > 1 else ''} "
            f"with {size.gpus_per_pod} GPUs each do not go on {nodes} machine{'s' if nodes > 1 else ''} of {shape.name} ({shape.gpus} GPUs{apart}): "
            f"there is room for {capacity}",
            offers=tuple(_room_for_replicas(machines, size, constraints, capacity)),
            field="replicas",
        )
    return None


def _stages_instead(architecture: Architecture, machines: Machines, size: Size, constraints: SizeConstraints) -> Iterator[Offer]:
    """Tensor parallel inside a machine, and the rest as stages, on as many GPUs."""
    for tensor in reversed(_valid(architecture, constraints, machines.shape.gpus)):
        stages = ceil(size.gpus / tensor)
        yield Offer.of(
            f"use {tensor} with pipelineParallelSize {stages}",
            ("model.tensorParallelSize", tensor),
            ("model.pipelineParallelSize", stages),
            kind="stages",
        )
    for tensor in reversed(_valid(architecture, constraints, machines.shape.gpus)):
        yield Offer.of(
            f"use {tensor} with pipelineParallelSize 1",
            ("model.tensorParallelSize", tensor),
            ("model.pipelineParallelSize", 1),
            kind="smaller",
        )


def _within_a_numa_node(architecture: Architecture, size: Size, limit: int, constraints: SizeConstraints) -> Iterator[Offer]:
    """Sizes of one pod on one NUMA node; or a policy that admits the pod on several."""
    tensors = [tensor for tensor in _valid(architecture, constraints, limit) if tensor <= size.tensor_parallel_size]
    for tensor in reversed(tensors):
        stages = min(limit // tensor, size.pipeline_parallel_size)
        changes: list[tuple[str, object]] = [("model.tensorParallelSize", tensor)]
        words = f"use {tensor}"
        if size.pipeline_parallel_size > 1:
            changes.append(("model.pipelineParallelSize", stages))
            words = f"use tensorParallelSize {tensor} with pipelineParallelSize {stages}"
        yield Offer.of(words, *changes, kind="size")
    for policy in ("restricted", "best-effort"):
        yield Offer.of(f"write topologyManagerPolicy: {policy}", ("pool.kubelet.topologyManagerPolicy", policy), kind="policy")


def _room_for_replicas(machines: Machines, size: Size, constraints: SizeConstraints, capacity: int) -> Iterator[Offer]:
    """Anti-affinity that needs no more nodes, fewer replicas, more nodes."""
    if constraints.pods_per_node is not None:
        yield beside_each_other()
    if capacity:
        yield Offer.of(f"use replicas {capacity}", ("model.replicas", capacity))
    nodes = -(-constraints.replicas // _pods_beside(machines, size, constraints.pods_per_node)) * size.pods_per_replica
    if nodes <= MOST_NODES_OFFERED:
        yield more_nodes(nodes)


def _valid(architecture: Architecture, constraints: SizeConstraints, most: int) -> tuple[int, ...]:
    return valid_tensor_parallel_sizes(
        architecture,
        constraints.quantization,
        most,
        expert_parallel=bool(constraints.expert_parallel),
        data_parallel_size=constraints.data_parallel_size or 1,
    )


def replicas_that_fit(machines: Machines, size: Size, pods_per_node: int | None) -> int:
    """Replicas of this size on empty machines; the pods of one replica stand on different machines."""
    return (machines.nodes // size.pods_per_replica) * _pods_beside(machines, size, pods_per_node)


def _pods_beside(machines: Machines, size: Size, pods_per_node: int | None) -> int:
    """Pods of the model on one empty machine."""
    per_node = machines.shape.gpus // size.gpus_per_pod
    return per_node if pods_per_node is None else min(per_node, pods_per_node)
