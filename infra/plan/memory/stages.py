"""What each pipeline stage's fullest rank takes of its GPU, before the cache; the same for every context length in V1."""

from __future__ import annotations

from functools import cache

from infra.catalog.types import Accelerator
from infra.diagnosis import Diagnosis
from infra.errors import PlanError
from infra.plan.architecture.partition import ParallelSizes, pipeline_stages
from infra.plan.architecture.precision import resolve_quantization
from infra.plan.architecture.quantization import DTYPE_BYTES
from infra.plan.architecture.types import Architecture
from infra.plan.memory.activation import activation_peak
from infra.plan.memory.options import ProfileRun
from infra.plan.memory.profile import EngineMemory
from infra.plan.memory.span import NOTHING, Span
from infra.plan.memory.types import StageMemory
from infra.plan.memory.weights import weights_bytes_per_rank
from infra.units import GIB

FULL_PRECISION_SPREAD = 0.002  # buffers that are no parameters
QUANTIZED_SPREAD = 0.012  # and modules that a quantised checkpoint leaves alone without saying so
# Triton's MXFP4 kernels pad an expert less than Marlin's; on Hopper an optional package decided between them
OPTIONAL_KERNELS = 0.013


@cache
def stage_memory(
    architecture: Architecture,
    accelerator: Accelerator,
    engine: EngineMemory,
    sizes: ParallelSizes,
    run: ProfileRun,
) -> tuple[Span, tuple[StageMemory, ...]]:
    """The budget a GPU, and the stages."""
    element = DTYPE_BYTES[run.dtype]
    kernels = engine.expert_kernels_on(accelerator)
    smaller, larger = _weights_spread(architecture, run.quantization, accelerator, kernels)
    weights = weights_bytes_per_rank(
        architecture,
        tensor_parallel_size=sizes.tensor_parallel_size,
        pipeline_parallel_size=sizes.pipeline_parallel_size,
        data_parallel_size=sizes.data_parallel_size,
        expert_parallel=sizes.expert_parallel,
        quantization=run.quantization,
        dtype=run.dtype,
        vendor=kernels,
    )
    requested = _requested(accelerator, run.gpu_memory_utilization, engine)
    group = sizes.tensor_parallel_size * (sizes.data_parallel_size if sizes.expert_parallel else 1)
    communication = engine.communication(accelerator.vendor, ranks=group, linked=accelerator.fabric.is_fast)
    kind = "moe" if architecture.is_moe else "dense"
    share = engine.graph_share(accelerator, run.sequences, run.tokens)
    stages = []
    for stage, (start, end) in enumerate(pipeline_stages(architecture.layers, sizes.pipeline_parallel_size)):
        activation = activation_peak(
            engine,
            architecture,
            sizes,
            run,
            first_stage=stage == 0,
            last_stage=stage == sizes.pipeline_parallel_size - 1,
        )
        graphs = (
            engine.graph_bytes_a_layer[kind].scaled(share * (end - start))
            if engine.graphs_in_budget and not run.enforce_eager
            else NOTHING
        )
        size = max(0, weights[stage] - run.offload_bytes) + _rotary_table_bytes(architecture, run.table_tokens, element)
        weight = Span(low=size * (1 - smaller), expected=size, high=size * (1 + larger))
        taken = weight + communication + activation.peak + graphs
        room = requested.expected - taken.expected
        available = (
            Span(
                low=requested.low - taken.high,
                expected=room,
                high=requested.high - taken.low + max(0.0, room) * engine.unstated_spread,
            )
            if run.fixed_cache_bytes is None
            else Span.exact(run.fixed_cache_bytes)
        )
        stages.append(
            StageMemory(
                stage=stage, weights=weight, communication=communication, activation=activation, graphs=graphs, available=available
            )
        )
    return requested, tuple(stages)


def total_bytes_of(accelerator: Accelerator) -> int:
    """torch's total_memory of the device; PlanError where nobody printed it."""
    total = accelerator.memory.total_bytes
    if total is None:
        raise PlanError(
            [
                Diagnosis(
                    path="gpu",
                    code="UnknownMemory",
                    message=f"the memory that torch sees on {accelerator.id} is not known, and vLLM multiplies that, not the marketing size; "
                    'print it on such a node with python3 -c "import torch; print(torch.cuda.get_device_properties(0).total_memory / 2**30)"'
                    " and give it (--gpu-memory-gib, or torchGib inline).",
                )
            ]
        )
    return total


def _weights_spread(
    architecture: Architecture, quantization: str | None, accelerator: Accelerator, kernels: str
) -> tuple[float, float]:
    """Shares by which the weights may be smaller and larger than counted."""
    quantized = resolve_quantization(architecture, quantization)
    if quantized is None:
        return FULL_PRECISION_SPREAD, FULL_PRECISION_SPREAD
    optional = quantized.method == "mxfp4" and kernels == "nvidia" and (accelerator.compute_capability or (0, 0))[0] == 9
    return QUANTIZED_SPREAD + (OPTIONAL_KERNELS if optional else 0.0), QUANTIZED_SPREAD


def _requested(accelerator: Accelerator, utilization: float, engine: EngineMemory) -> Span:
    memory, total_bytes = accelerator.memory, total_bytes_of(accelerator)
    low, high = memory.torch_range_gib or (total_bytes / GIB, total_bytes / GIB)
    low = min(low, memory.torch_vf_gib or low)
    spread = total_bytes * utilization * engine.budget_spread
    return Span(
        low=min(low * GIB, total_bytes) * utilization - spread,
        expected=total_bytes * utilization,
        high=max(high * GIB, total_bytes) * utilization + spread,
    )


def _rotary_table_bytes(architecture: Architecture, positions: int, dtype_bytes: int) -> int:
    width = architecture.mla.rope_head_dim if architecture.mla is not None else architecture.head_dim
    return positions * width * dtype_bytes
