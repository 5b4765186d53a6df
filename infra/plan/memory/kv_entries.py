"""Bytes of one token, and of one state, in the cache of one layer on one rank. Source: v1/kv_cache_interface.py of vLLM 0.33.0."""

from __future__ import annotations

from math import ceil

from infra.diagnosis import Diagnosis, did_you_mean, shown
from infra.errors import ConfigError
from infra.plan.architecture.partition import kv_heads_per_rank
from infra.plan.architecture.precision import resolve_dtype
from infra.plan.architecture.types import Architecture

_SPARSE_MLA_FP8_BYTES = 656

_ELEMENT_BYTES = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "float32": 4.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "fp8_ds_mla": 1.0,
}
_PER_TOKEN_HEAD_SCALE_BYTES = {"fp8_per_token_head": (1.0, 4), "int8_per_token_head": (1.0, 4), "int4_per_token_head": (0.5, 8)}
_NVFP4_BYTES = 0.5 + 1 / 16


def token_bytes(architecture: Architecture, kind: str, tensor_parallel_size: int, dtype: str) -> int:
    """Bytes of one token in one layer on one rank."""
    mla = architecture.mla
    if mla is not None:
        width = mla.kv_lora_rank + mla.rope_head_dim
        indexer = indexer_bytes(architecture)
        if dtype == "fp8_ds_mla" or (mla.has_indexer and dtype == "fp8"):  # "fp8" is FlashMLA's name for it
            return _SPARSE_MLA_FP8_BYTES + indexer
        return ceil(width * _element_bytes(dtype)) + indexer
    head_dim = architecture.head_dim_of(kind)
    value_dim = head_dim if architecture.v_head_dim == architecture.head_dim else architecture.v_head_dim
    heads = kv_heads_per_rank(architecture.kv_heads_of(kind), tensor_parallel_size)
    if dtype in _PER_TOKEN_HEAD_SCALE_BYTES:
        element, scales = _PER_TOKEN_HEAD_SCALE_BYTES[dtype]
        return ceil(heads * ((head_dim + value_dim) * element + scales * 2))
    return ceil(heads * (head_dim + value_dim) * _element_bytes(dtype))


def indexer_bytes(architecture: Architecture) -> int:
    """Bytes of one token in an indexer's cache: 8-bit keys, and a scale for 128 of them."""
    mla = architecture.mla
    return mla.index_head_dim + mla.index_head_dim // 128 * 4 if mla is not None and mla.has_indexer else 0


def _element_bytes(dtype: str) -> float:
    if dtype in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[dtype]
    if dtype in ("nvfp4", "nvfp4_4over6"):
        return _NVFP4_BYTES
    known = ["auto", *_ELEMENT_BYTES, *_PER_TOKEN_HEAD_SCALE_BYTES, "nvfp4"]
    raise ConfigError(
        [
            Diagnosis(
                path="kvCacheDtype",
                code="UnknownKvCacheDtype",
                message=f"is {shown(dtype)}; the size of its entries is not known here.{did_you_mean(dtype, known)} Known: {', '.join(known)}.",
            )
        ]
    )


def state_bytes(architecture: Architecture, kind: str, tensor_parallel_size: int, dtype: str | None) -> int:
    """Bytes of the state of one request in one layer on one rank: the convolution's last inputs and the recurrent state."""
    element = 4 if resolve_dtype(architecture, dtype).startswith("float32") else 2
    recurrent = architecture.state_dtype_bytes or element
    if kind == "linear" and architecture.linear is not None:
        linear = architecture.linear
        width = 2 * linear.key_heads * linear.key_head_dim + linear.value_heads * linear.value_head_dim
        convolution = ceil(width / tensor_parallel_size) * (linear.conv_kernel - 1)
        state = ceil(linear.value_heads / tensor_parallel_size) * linear.value_head_dim * linear.key_head_dim
        return convolution * element + state * recurrent
    mamba = architecture.state_space
    if mamba is None:
        return 0
    extra = 0 if mamba.groups % tensor_parallel_size == 0 else tensor_parallel_size - mamba.groups
    width = mamba.inner + 2 * (mamba.groups + extra) * mamba.state
    convolution = ceil(width / tensor_parallel_size) * (mamba.conv_kernel - 1)
    return convolution * element + ceil(mamba.heads / tensor_parallel_size) * mamba.head_dim * mamba.state * recurrent
