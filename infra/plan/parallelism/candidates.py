"""The sizes that a search looks at: how a model may be cut over machines, preferred cuts first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from infra.catalog.types import NodeShape
from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.rules import tensor_parallel_refusals, valid_tensor_parallel_sizes
from infra.plan.parallelism.sizes import Machines, Size, SizeConstraints, arrange


def candidate_sizes(architecture: Architecture, machines: Machines, constraints: SizeConstraints) -> tuple[Size, ...]:
    """Every split of the model over one machine, or over some machines whole, that the constraints leave."""
    return _candidates(architecture, machines.shape.gpus, machines.nodes, constraints)


@cache
def tiers(
    architecture: Architecture, machines: Machines, constraints: SizeConstraints
) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """The candidates that are preferred, and the others: those are looked at only where no preferred one fits.

    Preferred are pods that divide the machine evenly. Inside a link domain tensor parallel comes before pipeline parallel: stages
    only beyond the largest tensor-parallel size that the model and the domain allow. Over PCIe pipeline parallel comes before
    tensor parallel.
    """
    preferred: list[Size] = []
    others: list[Size] = []
    for size in candidate_sizes(architecture, machines, constraints):
        (preferred if _is_preferred(architecture, machines.shape, size, constraints) else others).append(size)
    return tuple(preferred), tuple(others)


def _is_preferred(architecture: Architecture, shape: NodeShape, size: Size, constraints: SizeConstraints) -> bool:
    if shape.gpus % size.gpus_per_pod:
        return False
    if constraints.tensor_parallel_size is not None:
        return True
    domain = shape.largest_link_domain or 1
    if size.tensor_parallel_size > domain and architecture.supports_pipeline_parallel:
        return False
    if size.pipeline_parallel_size == 1 or constraints.pipeline_parallel_size is not None or domain == 1:
        return True
    domain = min(domain, constraints.gpus_per_numa_node_limit or domain)
    valid = valid_tensor_parallel_sizes(
        architecture,
        constraints.quantization,
        domain,
        expert_parallel=size.expert_parallel,
        data_parallel_size=size.data_parallel_size,
    )
    dividing = [tensor for tensor in valid if shape.gpus % tensor == 0]
    return dividing[-1:] == [size.tensor_parallel_size]


@cache
def _candidates(architecture: Architecture, gpus_per_node: int, nodes: int, constraints: SizeConstraints) -> tuple[Size, ...]:
    return tuple(dict.fromkeys(_enumerate(architecture, gpus_per_node, nodes, constraints)))


def _enumerate(architecture: Architecture, gpus_per_node: int, nodes: int, constraints: SizeConstraints) -> Iterator[Size]:
    data = constraints.data_parallel_size or 1
    given = constraints.tensor_parallel_size
    tensors = (given,) if given is not None else range(1, gpus_per_node + 1)
    for tensor in tensors:
        for experts in _expert_options(architecture, tensor, data, constraints):
            for pipeline in _pipelines(architecture, tensor, data, gpus_per_node, nodes, constraints):
                size = arrange(tensor, pipeline, data, experts, gpus_per_node)
                if size is not None:
                    yield size


def _expert_options(architecture: Architecture, tensor: int, data: int, constraints: SizeConstraints) -> tuple[bool, ...]:
    """Expert parallel as asked; else, where the tensor parallel size is open too, for sizes that cannot cut the experts' width."""
    if constraints.expert_parallel is not None:
        return (constraints.expert_parallel,)
    if constraints.tensor_parallel_size is not None:
        return (False,)
    plain = not tensor_parallel_refusals(architecture, tensor, quantization=constraints.quantization, data_parallel_size=data)
    if plain or not architecture.is_moe:
        return (False,)
    return (False, True)


def _pipelines(
    architecture: Architecture, tensor: int, data: int, gpus_per_node: int, nodes: int, constraints: SizeConstraints
) -> Iterator[int]:
    if constraints.pipeline_parallel_size is not None:
        yield constraints.pipeline_parallel_size
        return
    inside = max(1, gpus_per_node // (tensor * data))
    yield from range(1, inside + 1)
    if data == 1 and tensor <= gpus_per_node:
        for pods in range(2, nodes + 1):
            stages = pods * (gpus_per_node // tensor)
            yield stages
            if stages > architecture.layers:  # one refused size tells of all larger ones
                return
