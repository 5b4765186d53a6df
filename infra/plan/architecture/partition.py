"""How vLLM cuts a model over ranks: parallel sizes, pipeline stages, KV heads, paddings. Source: vLLM 0.33.0, distributed/utils.py
and model_executor/layers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

VOCAB_PADDING = 64
"""Multiple to which vLLM pads the vocabulary before it is cut."""
MXFP4_ROUNDING = {"nvidia": (128, 256), "nvidia-sm90": (64, 256), "amd": (256, 256)}
"""Multiples to which vLLM rounds an MXFP4 expert's width and hidden size: Marlin and TRT-LLM kernels, Triton on Hopper, ROCm
kernels."""


@dataclass(frozen=True, kw_only=True)
class ParallelSizes:
    """Over how many ranks a model is cut, under vLLM's names. `expert_parallel`: experts are spread over the ranks whole."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel: bool = False

    @property
    def gpus(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


ONE_GPU = ParallelSizes()


def pipeline_stages(
    layers: int, pipeline_parallel_size: int, partition: tuple[int, ...] | None = None
) -> tuple[tuple[int, int], ...]:
    """First and end layer of each pipeline stage, as vLLM cuts them.

    A remainder goes one layer each to the stages before the last one, from the back; `partition` is VLLM_PP_LAYER_PARTITION.
    ValueError where it does not add up.
    """
    if partition is not None:
        if len(partition) != pipeline_parallel_size or sum(partition) != layers:
            raise ValueError(
                f"VLLM_PP_LAYER_PARTITION {','.join(map(str, partition))} gives {sum(partition)} layers to {len(partition)} stages; "
                f"{layers} layers in {pipeline_parallel_size} stages are expected"
            )
        counts = list(partition)
    else:
        counts = [layers // pipeline_parallel_size] * pipeline_parallel_size
        for back in range(2, layers % pipeline_parallel_size + 2):
            counts[-back] += 1
    ends = [sum(counts[: stage + 1]) for stage in range(pipeline_parallel_size)]
    return tuple((end - count, end) for end, count in zip(ends, counts, strict=True))


def kv_heads_per_rank(kv_heads: int, tensor_parallel_size: int) -> int:
    """KV heads on a rank; repeated, one a rank, where there are fewer heads than ranks."""
    return max(1, kv_heads // tensor_parallel_size)


def padded_vocabulary(vocab: int) -> int:
    """Rows of the embedding and of the head over all ranks."""
    return round_up(vocab, VOCAB_PADDING)


def round_up(value: int, multiple: int) -> int:
    return ceil(value / multiple) * multiple
