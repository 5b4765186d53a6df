"""Which sizes of a model fit a GPU: the smallest number of cards, and the next size that works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from infra.errors import NumawiseError
from infra.plan.memory.estimate import estimate_memory
from infra.plan.memory.types import MemoryEstimate
from infra.plan.parallelism.rules import valid_tensor_parallel_sizes

LARGEST_DOMAIN = 8  # GPUs of a node
LARGEST_PIPELINE = 8


def valid_sizes(estimate: MemoryEstimate) -> tuple[int, ...]:
    """Tensor-parallel sizes that vLLM accepts for the model over the GPUs of a node; up to the asked size where that is larger."""
    return valid_tensor_parallel_sizes(
        estimate.architecture,
        estimate.options.quantization,
        max(LARGEST_DOMAIN, estimate.sizes.tensor_parallel_size),
        expert_parallel=estimate.sizes.expert_parallel,
        data_parallel_size=estimate.sizes.data_parallel_size,
    )


def with_size(estimate: MemoryEstimate, tensor_parallel_size: int, pipeline_parallel_size: int) -> MemoryEstimate:
    """The same question for another size."""
    sizes = replace(estimate.sizes, tensor_parallel_size=tensor_parallel_size, pipeline_parallel_size=pipeline_parallel_size)
    return estimate_memory(estimate.architecture, estimate.accelerator, sizes, estimate.options)


def fitting_sizes(estimate: MemoryEstimate, *, most_gpus: int = LARGEST_DOMAIN * LARGEST_PIPELINE) -> Iterator[MemoryEstimate]:
    """Sizes that fit, from few GPUs to many; among equally many, those with the least pipeline parallel first."""
    pipelines = range(1, LARGEST_PIPELINE + 1) if estimate.architecture.supports_pipeline_parallel else (1,)
    sizes = sorted(
        (tensor * pipeline, pipeline, tensor)
        for tensor in valid_sizes(estimate)
        for pipeline in pipelines
        if tensor * pipeline <= most_gpus and pipeline <= estimate.architecture.layers
    )
    for _, pipeline, tensor in sizes:
        try:
            candidate = with_size(estimate, tensor, pipeline)
        except NumawiseError:
            continue
        if candidate.fits:
            yield candidate


def smallest_fit(estimate: MemoryEstimate) -> MemoryEstimate | None:
    """The size with the fewest GPUs that fits; None where none up to 64 GPUs does."""
    return next(fitting_sizes(estimate), None)


def size_sentences(estimate: MemoryEstimate) -> tuple[str, ...]:
    """The smallest number of cards, and where the asked size does not fit the next one that does."""
    smallest = smallest_fit(estimate)
    if smallest is None:
        return (
            f"no size up to {LARGEST_DOMAIN * LARGEST_PIPELINE} of these GPUs holds {estimate.max_model_len:,} tokens; shorten max_model_len or quantise.",
        )
    sentences = [
        f"the smallest size that fits is {smallest.sizes.gpus} {'GPU' if smallest.sizes.gpus == 1 else 'GPUs'}: {_size(smallest)},"
        f" with {smallest.tokens.low:,} tokens of cache at least."
    ]
    if smallest.sizes.pipeline_parallel_size > 1:
        whole = next((size for size in fitting_sizes(estimate) if size.sizes.pipeline_parallel_size == 1), None)
        sentences.append(
            "no size without pipeline parallel fits a node."
            if whole is None
            else f"without pipeline parallel the smallest is {whole.sizes.gpus} GPUs: {_size(whole)}."
        )
    if not estimate.fits and smallest.sizes.gpus <= estimate.sizes.gpus:
        following = next((size for size in fitting_sizes(estimate) if size.sizes.gpus > estimate.sizes.gpus), None)
        if following is not None:
            sentences.append(f"the next larger size that works is {_size(following)}.")
    return tuple(sentences)


def _size(estimate: MemoryEstimate) -> str:
    return f"tensor parallel {estimate.sizes.tensor_parallel_size} x pipeline parallel {estimate.sizes.pipeline_parallel_size}"
