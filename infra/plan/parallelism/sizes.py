"""The sizes that a search looks at: how a model may be cut over machines, and the first rule that a cut breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from infra.catalog.types import Accelerator, NodeShape
from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.rules import (
    Refusal,
    pipeline_parallel_refusals,
    tensor_parallel_refusals,
    valid_tensor_parallel_sizes,
)
from infra.plan.parallelism.tensor_group import tensor_group


@dataclass(frozen=True, kw_only=True)
class Size:
    """One split of a model over GPUs. `gpus_per_pod` x `pods_per_replica` = tensor x pipeline x data parallel."""

    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    expert_parallel: bool
    gpus_per_pod: int
    pods_per_replica: int

    @property
    def gpus(self) -> int:
        return self.gpus_per_pod * self.pods_per_replica

    def __str__(self) -> str:
        parts = [f"tensor parallel {self.tensor_parallel_size}"]
        if self.pipeline_parallel_size > 1:
            parts.append(f"pipeline parallel {self.pipeline_parallel_size}")
        if self.data_parallel_size > 1:
            parts.append(f"data parallel {self.data_parallel_size}")
        if self.expert_parallel:
            parts.append("expert parallel")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user fixed, and what the pool allows. None: decided.

    `gpus_per_numa_node_limit`: the pool's policy admits a pod on one NUMA node only (single-numa-node), so a pod takes at most this many GPUs.
    `rdma`: GPUDirect RDMA between the machines is declared; tensor parallel over machines is refused without it. `pods_per_node`: pods of the model on one
    machine (1 with required anti-affinity).
    """

    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    expert_parallel: bool | None = None
    quantization: str | None = None
    replicas: int = 1
    pods_per_node: int | None = None
    gpus_per_numa_node_limit: int | None = None
    rdma: bool = False
    max_num_seqs: int = 256


def candidate_sizes(architecture: Architecture, shape: NodeShape, nodes: int, wish: Wish) -> tuple[Size, ...]:
    """Every split of the model over one machine, or over some machines whole, that the user's wishes leave."""
    return _candidates(architecture, shape.gpus, nodes, wish)


@lru_cache(maxsize=4096)
def tiers(architecture: Architecture, shape: NodeShape, nodes: int, wish: Wish) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """The candidates that are preferred, and the others: those are looked at only where no preferred one fits.

    Preferred are pods that divide the machine evenly. Inside a link domain tensor parallel comes before pipeline parallel: stages only beyond the largest
    tensor-parallel size that the model and the domain allow. Over PCIe pipeline parallel comes before tensor parallel.
    """
    preferred: list[Size] = []
    others: list[Size] = []
    for size in candidate_sizes(architecture, shape, nodes, wish):
        (preferred if _is_preferred(architecture, shape, size, wish) else others).append(size)
    return tuple(preferred), tuple(others)


def _is_preferred(architecture: Architecture, shape: NodeShape, size: Size, wish: Wish) -> bool:
    if shape.gpus % size.gpus_per_pod:
        return False
    if wish.tensor_parallel_size is not None:
        return True
    domain = shape.largest_link_domain or 1
    if size.tensor_parallel_size > domain and architecture.supports_pipeline_parallel:
        return False
    if size.pipeline_parallel_size == 1 or wish.pipeline_parallel_size is not None or domain == 1:
        return True
    domain = min(domain, wish.gpus_per_numa_node_limit or domain)
    valid = valid_tensor_parallel_sizes(
        architecture,
        wish.quantization,
        domain,
        expert_parallel=size.expert_parallel,
        data_parallel_size=size.data_parallel_size,
    )
    dividing = [tensor for tensor in valid if shape.gpus % tensor == 0]
    return size.tensor_parallel_size == max(dividing, default=1)


@lru_cache(maxsize=4096)
def _candidates(architecture: Architecture, gpus_per_node: int, nodes: int, wish: Wish) -> tuple[Size, ...]:
    return tuple(dict.fromkeys(_enumerate(architecture, gpus_per_node, nodes, wish)))


def _enumerate(architecture: Architecture, gpus_per_node: int, nodes: int, wish: Wish) -> Iterator[Size]:
    data = wish.data_parallel_size or 1
    across = wish.rdma and (wish.tensor_parallel_size or 0) > gpus_per_node
    largest = gpus_per_node * nodes if across else gpus_per_node
    tensors = (wish.tensor_parallel_size,) if wish.tensor_parallel_size is not None else range(1, largest + 1)
    for tensor in tensors:
        for experts in _expert_options(architecture, tensor, data, wish):
            for pipeline in _pipelines(architecture, tensor, data, gpus_per_node, nodes, wish):
                size = arrange(tensor, pipeline, data, experts, gpus_per_node)
                if size is not None:
                    yield size


def _expert_options(architecture: Architecture, tensor: int, data: int, wish: Wish) -> tuple[bool, ...]:
    """Expert parallel as asked; else, where the tensor parallel size is open too, for sizes that cannot cut the experts' width."""
    if wish.expert_parallel is not None:
        return (wish.expert_parallel,)
    if wish.tensor_parallel_size is not None:
        return (False,)
    plain = not tensor_parallel_refusals(architecture, tensor, quantization=wish.quantization, data_parallel_size=data)
    if plain or not architecture.is_moe:
        return (False,)
    return (False, True)


def _pipelines(architecture: Architecture, tensor: int, data: int, gpus_per_node: int, nodes: int, wish: Wish) -> Iterator[int]:
    if wish.pipeline_parallel_size is not None:
        yield wish.pipeline_parallel_size
        return
    inside = max(1, gpus_per_node // (tensor * data))
    yield from range(1, inside + 1)
    if data == 1 and tensor <= gpus_per_node:
        for pods in range(2, nodes + 1):
            stages = pods * (gpus_per_node // tensor)
            yield stages
            if stages > architecture.layers:  # one refused size tells of all larger ones
                return


def arrange(tensor: int, pipeline: int, data: int, experts: bool, gpus_per_node: int) -> Size | None:
    """The pods of one replica: one where it fits a machine, else equal pods on as few machines as hold whole tensor-parallel groups.

    A tensor-parallel group larger than a machine takes machines whole. None where no equal pods exist.
    """
    total = tensor * pipeline * data
    if total <= gpus_per_node:
        return Size(
            tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, data_parallel_size=data, expert_parallel=experts,
            gpus_per_pod=total, pods_per_replica=1,
        )  # fmt: skip
    unit = min(tensor, gpus_per_node)
    for pods in range(ceil(total / gpus_per_node), total + 1):
        if total % pods == 0 and (total // pods) % unit == 0:
            return Size(
                tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, data_parallel_size=data, expert_parallel=experts,
                gpus_per_pod=total // pods, pods_per_replica=pods,
            )  # fmt: skip
    return None


def size_refusal(
    architecture: Architecture, shape: NodeShape, accelerator: Accelerator, nodes: int, size: Size, wish: Wish
) -> Refusal | None:
    """The first rule that a size breaks, or None: vLLM's rules, then the machine's, then the pool's."""
    tensor = size.tensor_parallel_size
    found = tensor_parallel_refusals(
        architecture,
        tensor,
        quantization=wish.quantization,
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
            message=f"the devices of {shape.id} are partitions ({shape.partition}); tensor parallel {tensor} over partitions is refused. "
            "Use 1, or set the cards to SPX.",
        )
    if tensor > shape.gpus:
        stages = ceil(tensor / shape.gpus)
        if not wish.rdma:
            return Refusal(
                rule="TensorParallelOverNodes",
                message=f"tensor parallel {tensor} needs {stages} machines of {shape.id} ({shape.gpus} GPUs each), and no RDMA with GPUDirect is "
                f"declared between them. Use {shape.gpus} with pipelineParallelSize {stages}.",
            )
    limit = wish.gpus_per_numa_node_limit
    if limit is not None and size.gpus_per_pod > limit:
        group = tensor_group(shape, accelerator, tensor, size.gpus_per_pod)
        return Refusal(
            rule="SingleNumaNode",
            message=f"{size.gpus_per_pod} GPUs need {group.numa_nodes or 'several'} NUMA nodes of {shape.id} ({limit} each); "
            f"single-numa-node admits 1. Use {limit}, or topologyManagerPolicy restricted.",
        )
    capacity = replicas_that_fit(shape, nodes, size, wish.pods_per_node)
    if capacity < wish.replicas:
        return Refusal(
            rule="NotEnoughMachines",
            message=f"{wish.replicas} replica{'s' if wish.replicas > 1 else ''} of {size.pods_per_replica} pod{'s' if size.pods_per_replica > 1 else ''} "
            f"with {size.gpus_per_pod} GPUs each do not go on {nodes} machine{'s' if nodes > 1 else ''} of {shape.id} ({shape.gpus} GPUs): "
            f"there is room for {capacity}.",
        )
    return None


def replicas_that_fit(shape: NodeShape, nodes: int, size: Size, pods_per_node: int | None) -> int:
    """Replicas of this size on `nodes` empty machines; the pods of one replica stand on different machines."""
    per_node = shape.gpus // size.gpus_per_pod
    if pods_per_node is not None:
        per_node = min(per_node, pods_per_node)
    if size.pods_per_replica == 1:
        return nodes * per_node
    return (nodes // size.pods_per_replica) * per_node
