"""A memory estimate as JSON, the form of `python -m infra fit --format json`."""

from __future__ import annotations

from math import isfinite
from typing import Any

from infra.diagnosis import Diagnosis
from infra.plan.memory.profile import measured_error
from infra.plan.memory.reasons import memory_reasons
from infra.plan.memory.span import Span
from infra.plan.memory.types import MemoryEstimate
from infra.plan.parallelism.fitting import valid_sizes
from infra.units import GIB


def _span_gib(span: Span) -> dict[str, float]:
    return {end: round(getattr(span, end) / GIB, 3) for end in ("low", "expected", "high")}


def _finite(value: float) -> float | None:
    """Two digits; None for a model without any cache, whose concurrency memory does not limit."""
    return round(value, 2) if isfinite(value) else None


def memory_as_json(estimate: MemoryEstimate) -> dict[str, Any]:
    """The keys of `python -m infra fit --format json`; sizes are those of one GPU, on the fullest rank."""
    stage, tokens = estimate.fullest, estimate.tokens
    error = measured_error()
    return {
        "verdict": estimate.verdict,
        "fits": estimate.fits,
        "model": estimate.architecture.name,
        "gpu": estimate.accelerator.id,
        "vllmVersion": estimate.vllm_version,
        "tensorParallelSize": estimate.sizes.tensor_parallel_size,
        "pipelineParallelSize": estimate.sizes.pipeline_parallel_size,
        "gpus": estimate.sizes.gpus,
        "gpuMemoryUtilization": estimate.gpu_memory_utilization,
        "maxModelLen": estimate.max_model_len,
        "maxNumSeqs": estimate.max_num_seqs,
        "maxNumBatchedTokens": estimate.max_num_batched_tokens,
        "blockSize": estimate.block_size,
        "totalGib": round(estimate.total_bytes / GIB, 3),
        "requestedGib": round(estimate.requested.expected / GIB, 3),
        "weightsGib": round(stage.weights.expected / GIB, 3),
        "activationGib": _span_gib(stage.activation.peak),
        "nonTorchGib": _span_gib(stage.communication),
        "cudaGraphsGib": _span_gib(stage.graphs),
        "kvBytesPerTokenPerGpu": estimate.kv_bytes_per_token,
        "neededKvGib": round(estimate.needed_bytes / GIB, 3),
        "availableKvGib": _span_gib(estimate.available),
        "kvTokens": {"low": tokens.low, "expected": tokens.expected, "high": tokens.high},
        "maxConcurrency": {end: _finite(getattr(estimate.concurrency, end)) for end in ("low", "expected", "high")},
        "largestMaxModelLen": estimate.largest_max_model_len,
        "validTensorParallelSizes": list(valid_sizes(estimate)),
        "measuredError": {"starts": error.starts, "median": error.median, "ninetieth": error.ninetieth, "mean": error.mean},
        "reasons": list(memory_reasons(estimate)),
    }


def fit_as_json(estimate: MemoryEstimate, size_reasons: tuple[str, ...], warnings: tuple[Diagnosis, ...] = ()) -> dict[str, Any]:
    """The document of `fit --format json`: the estimate, and sentences about other parallel sizes among the reasons."""
    document = memory_as_json(estimate)
    return {
        **document,
        "reasons": [*document["reasons"], *size_reasons],
        "warnings": [warning.as_json() for warning in warnings],
    }
