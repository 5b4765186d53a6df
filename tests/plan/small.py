"""Models small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from infra.catalog.names import find_accelerator, with_memory
from infra.catalog.types import Accelerator, AcceleratorMemory
from infra.plan.architecture.reading import from_config_json
from infra.plan.architecture.types import Architecture, LatentAttention, LinearAttention, MixtureOfExperts, StateSpace

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def read(**changes: Any) -> Architecture:
    """The plain model of LLAMA with other fields of config.json; None leaves one out."""
    fields = {**LLAMA, **changes}
    return from_config_json({key: value for key, value in fields.items() if value is not None}, name="m")


def device(name: str = "h100-sxm5-80gb", **memory: Any) -> Accelerator:
    """A device of the catalog with another memory: torch_gib, torch_range_gib, torch_vf_gib."""
    listed: dict[str, Any] = {key: list(value) if isinstance(value, tuple) else value for key, value in memory.items()}
    return with_memory(find_accelerator(name), AcceleratorMemory(**listed))


SMALL = Architecture(
    name="small",
    model_type="llama",
    class_name="LlamaForCausalLM",
    layers=2,
    hidden=10,
    heads=4,
    kv_heads=2,
    head_dim=3,
    v_head_dim=3,
    vocab=100,
    intermediate=7,
    attention=("full", "full"),
    mlp=("dense", "dense"),
    max_position_embeddings=64,
)
EXPERTS = MixtureOfExperts(experts=6, experts_per_token=2, intermediate=5)
LATENT = LatentAttention(kv_lora_rank=8, q_lora_rank=6, nope_head_dim=4, rope_head_dim=2, v_head_dim=3)
DELTA_NET = LinearAttention(key_heads=2, value_heads=4, key_head_dim=3, value_head_dim=5, conv_kernel=4)
MAMBA = StateSpace(heads=4, head_dim=3, groups=2, state=5, conv_kernel=4)


def small(kind: str | tuple[str, ...] = "full", mlp: str | tuple[str, ...] = "dense", **changes: Any) -> Architecture:
    """Layers of some kinds of attention and of MLP (two equal ones where one kind is named), with the parts that these need."""
    kinds = (kind, kind) if isinstance(kind, str) else kind
    mlps = (mlp,) * len(kinds) if isinstance(mlp, str) else mlp
    parts: dict[str, Any] = {
        "layers": len(kinds),
        "attention": kinds,
        "mlp": mlps,
        "moe": EXPERTS if "moe" in mlps else None,
        "mla": LATENT if "mla" in kinds else None,
        "linear": DELTA_NET if "linear" in kinds else None,
        "state_space": MAMBA if "mamba" in kinds else None,
        "sliding_window": 16 if {"sliding", "chunked"} & set(kinds) else None,
    }
    return replace(SMALL, **(parts | changes))
