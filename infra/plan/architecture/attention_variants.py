"""Layers with another memory than keys and values of every head, as config.json describes them: latent attention, gated delta net,
Mamba-2."""

from __future__ import annotations

from infra.plan.architecture.families import MLA_TYPES
from infra.plan.architecture.fields import ConfigFields
from infra.plan.architecture.quantization import DTYPE_BYTES
from infra.plan.architecture.types import LatentAttention, LinearAttention, StateSpace


def state_dtype_bytes(text: ConfigFields, model_type: str) -> int | None:
    named = (
        text.values.get("mamba_ssm_dtype")
        or text.values.get("mamba_ssm_cache_dtype")
        or ("float32" if model_type == "nemotron_h" else None)
    )
    return DTYPE_BYTES.get(str(named)) if named else None


def latent_attention(text: ConfigFields, model_type: str) -> LatentAttention | None:
    rank = text.integer("kv_lora_rank")
    if not rank or model_type not in MLA_TYPES:
        return None
    return LatentAttention(
        kv_lora_rank=rank,
        q_lora_rank=text.integer("q_lora_rank") or None,
        nope_head_dim=text.required_integer("qk_nope_head_dim"),
        rope_head_dim=text.required_integer("qk_rope_head_dim"),
        v_head_dim=text.required_integer("v_head_dim"),
        index_heads=text.integer("index_n_heads", default=0),
        index_head_dim=text.integer("index_head_dim", default=0),
    )


def linear_attention(text: ConfigFields) -> LinearAttention | None:
    values = {
        name: text.integer(key, minimum=1)
        for name, key in (
            ("key_heads", "linear_num_key_heads"),
            ("value_heads", "linear_num_value_heads"),
            ("key_head_dim", "linear_key_head_dim"),
            ("value_head_dim", "linear_value_head_dim"),
            ("conv_kernel", "linear_conv_kernel_dim"),
        )
    }
    present = {name: value for name, value in values.items() if value is not None}
    return LinearAttention(**present) if len(present) == len(values) else None


def state_space(text: ConfigFields, hidden: int) -> StateSpace | None:
    state = text.integer("mamba_d_state", "ssm_state_size", minimum=1)
    if state is None:
        return None
    heads = text.integer("mamba_n_heads", "mamba_num_heads", minimum=1)
    if heads is None:
        return None
    expand = text.integer("mamba_expand", "expand", default=2, minimum=1)
    return StateSpace(
        heads=heads,
        head_dim=text.integer("mamba_d_head", "mamba_head_dim", default=expand * hidden // heads, minimum=1),
        groups=text.integer("mamba_n_groups", "n_groups", default=1, minimum=1),
        state=state,
        conv_kernel=text.integer("mamba_d_conv", "conv_kernel", default=4, minimum=1),
        conv_bias=text.boolean("mamba_conv_bias", "use_conv_bias", default=True),
    )
