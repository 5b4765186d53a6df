"""The first rule that a size breaks: vLLM's for the model, then the machine's, then the pool's."""

from __future__ import annotations

from math import ceil

from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.rules import Refusal, pipeline_parallel_refusals, tensor_parallel_refusals
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
            message=f"the devices of {shape.name} are partitions ({shape.partition}); tensor parallel {tensor} over partitions is refused. "
            "Use 1, or set the cards to SPX.",
        )
    if tensor > shape.gpus and not constraints.rdma:
        stages = ceil(tensor / shape.gpus)
        return Refusal(
            rule="TensorParallelOverNodes",
            message=f"tensor parallel {tensor} needs {stages} machines of {shape.name} ({shape.gpus} GPUs each), and no RDMA with GPUDirect is "
            f"declared between them. Use {shape.gpus} with pipelineParallelSize {stages}.",
        )
    limit = constraints.gpus_per_numa_node_limit
    if limit is not None and size.gpus_per_pod > limit:
        group = tensor_group(shape, machines.accelerator, tensor, size.gpus_per_pod)
        return Refusal(
            rule="SingleNumaNode",
            message=f"{size.gpus_per_pod} GPUs need {group.numa_nodes or 'several'} NUMA nodes of {shape.name} ({limit} each); "
            f"single-numa-node admits 1. Use {limit}, or topologyManagerPolicy restricted.",
        )
    capacity = replicas_that_fit(machines, size, constraints.pods_per_node)
    if capacity < constraints.replicas:
        return Refusal(
            rule="NotEnoughMachines",
            message=f"{constraints.replicas} replica{'s' if constraints.replicas > 1 else ''} of {size.pods_per_replica} pod{'s' if size.pods_per_replica > 1 else ''} "
            f"with {size.gpus_per_pod} GPUs each do not go on {nodes} machine{'s' if nodes > 1 else ''} of {shape.name} ({shape.gpus} GPUs): "
            f"there is room for {capacity}.",
        )
    return None


def replicas_that_fit(machines: Machines, size: Size, pods_per_node: int | None) -> int:
    """Replicas of this size on empty machines; the pods of one replica stand on different machines."""
    per_node = machines.shape.gpus // size.gpus_per_pod
    if pods_per_node is not None:
        per_node = min(per_node, pods_per_node)
    return (machines.nodes // size.pods_per_replica) * per_node
