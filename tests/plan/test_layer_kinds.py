"""Which layers of a model have which attention and which MLP, by the fields of config.json that say so."""

from __future__ import annotations

from typing import Any

import pytest

from infra.errors import ConfigError
from infra.plan.architecture.types import LatentAttention, LinearAttention, StateSpace
from tests.plan.small import read

LETTERS = {
    "full": "F", "sliding": "S", "chunked": "C", "mla": "L", "linear": "D", "mamba": "M", "none": "-", "dense": "d", "moe": "e",
}  # fmt: skip
DELTA_NET = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
}  # fmt: skip
MAMBA = {"mamba_d_state": 16, "mamba_n_heads": 8, "mamba_d_head": 64}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96}


def letters(kinds: tuple[str, ...]) -> str:
    return "".join(LETTERS[kind] for kind in kinds)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "FFFFFF"),
        ({"model_type": "mistral", "sliding_window": 8}, "SSSSSS"),
        ({"model_type": "mixtral", "sliding_window": 8}, "SSSSSS"),
        ({"model_type": "mistral"}, "FFFFFF"),
        ({"model_type": "mistral", "sliding_window": 0}, "FFFFFF"),
        ({"sliding_window": 8}, "FFFFFF"),  # Llama knows no window
        ({"model_type": "gemma2", "sliding_window": 8}, "SFSFSF"),
        ({"model_type": "gpt_oss", "sliding_window": 8}, "SFSFSF"),
        ({"model_type": "gemma2"}, "FFFFFF"),
        ({"model_type": "gemma3_text", "sliding_window": 8}, "SSSSSF"),
        ({"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 2}, "SFSFSF"),
        ({"model_type": "gemma3_text", "sliding_window": 8, "_sliding_window_pattern": 3}, "SSFSSF"),
        ({"model_type": "cohere2", "sliding_window": 8}, "SSSFSS"),
        ({"model_type": "cohere2", "sliding_window": 8, "sliding_window_pattern": 3}, "SSFSSF"),
        ({"model_type": "llama4_text", "attention_chunk_size": 8}, "CCCFCC"),
        ({"model_type": "llama4_text", "attention_chunk_size": 8, "no_rope_layer_interval": 2}, "CFCFCF"),
        ({"model_type": "llama4_text"}, "FFFFFF"),
        ({"attention_chunk_size": 8}, "FFFFFF"),
        ({"model_type": "qwen3_next", **DELTA_NET}, "DDDFDD"),
        ({"model_type": "qwen3_next", **DELTA_NET, "full_attention_interval": 3}, "DDFDDF"),
        ({"model_type": "bamba", **MAMBA, "attn_layer_indices": [1, 4]}, "MFMMFM"),
        ({"model_type": "nemotron_h", **MAMBA, "hybrid_override_pattern": "M-M*ME"}, "M-MFM-"),
        ({"model_type": "nemotron_h", **MAMBA, "hybrid_override_pattern": "M-M"}, "FFFFFF"),  # not one sign a layer
        ({"layer_types": ["full_attention", "sliding_attention", "local_attention"] * 2, "sliding_window": 8}, "FSSFSS"),
        ({"layers_block_type": ["mamba", "attention", "mamba2"] * 2, **MAMBA}, "MFMMFM"),
        ({"layer_types": ["chunked_attention", "global_attention", "linear_attention"] * 2, **DELTA_NET}, "CFDCFD"),
    ],
)  # fmt: skip
def test_kinds_of_attention(changes: dict[str, Any], expected: str) -> None:
    assert letters(read(num_hidden_layers=6, **changes).attention) == expected


def test_a_pattern_of_signs_tells_the_mlp_too() -> None:
    model = read(num_hidden_layers=4, model_type="nemotron_h", hybrid_override_pattern="M*-E", **MAMBA, **EXPERTS)
    assert letters(model.mlp) == "--de"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "eeeeee"),
        ({"moe_layers": [1, 3]}, "dededd"),
        ({"moe_layers": ["1"]}, "eeeeee"),
        ({"mlp_layer_types": ["dense", "sparse", "dense", "sparse", "sparse", "dense"]}, "dedeed"),
        ({"mlp_layer_types": ["dense"]}, "eeeeee"),
        ({"first_k_dense_replace": 2}, "ddeeee"),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, "ddeded"),
        ({"moe_layer_interval": 3}, "eddedd"),
        ({"decoder_sparse_step": 2}, "dedede"),
        ({"decoder_sparse_step": 3}, "ddedde"),
        ({"decoder_sparse_step": 1, "mlp_only_layers": [0, 5]}, "deeeed"),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, "dddede"),
        ({"mlp_only_layers": [2]}, "eedeee"),
        ({"model_type": "llama4_text"}, "eeeeee"),
        ({"model_type": "llama4_text", "interleave_moe_layer_step": 2}, "dedede"),
        ({"model_type": "llama4_text", "interleave_moe_layer_step": 3}, "ddedde"),
        ({"model_type": "gemma4_text", "enable_moe_block": False}, "dddddd"),
        ({"model_type": "gemma4_text", "enable_moe_block": True}, "eeeeee"),
        ({"model_type": "gemma4_text"}, "eeeeee"),
        ({"enable_moe_block": False}, "eeeeee"),
        ({"num_experts": 0}, "dddddd"),
        ({"num_experts": 1}, "eeeeee"),
    ],
)
def test_layers_with_experts(changes: dict[str, Any], expected: str) -> None:
    assert letters(read(**{"num_hidden_layers": 6, **EXPERTS, **changes}).mlp) == expected


@pytest.mark.parametrize(
    ("changes", "intermediate", "shared", "per_token"),
    [
        ({}, 96, 0, 2),
        ({"num_experts_per_tok": None}, 96, 0, 1),
        ({"moe_intermediate_size": None}, 14336, 0, 2),
        ({"n_shared_experts": 3}, 96, 288, 2),
        ({"shared_expert_intermediate_size": 512, "n_shared_experts": 3}, 96, 512, 2),
        ({"shared_expert_intermediate_size": 0, "n_shared_experts": 3}, 96, 0, 2),
        (
            {"model_type": "llama4_text", "moe_intermediate_size": None, "intermediate_size": 64, "intermediate_size_mlp": 128},
            64,
            64,
            2,
        ),
        ({"model_type": "gemma4_text"}, 96, 14336, 2),
        ({"model_type": "gemma4_text", "intermediate_size": None}, 96, 0, 2),
    ],
)
def test_widths_of_experts(changes: dict[str, Any], intermediate: int, shared: int, per_token: int) -> None:
    moe = read(**{**EXPERTS, **changes}).moe
    assert moe is not None and moe.experts == 8
    assert (moe.intermediate, moe.shared_intermediate, moe.experts_per_token) == (intermediate, shared, per_token)


@pytest.mark.parametrize(
    ("model_type", "shared_gate", "router_bias", "expert_bias"),
    [
        ("qwen2_moe", True, False, False),
        ("gpt_oss", False, True, True),
        ("deepseek_v3", False, True, False),
        ("mixtral", False, False, False),
    ],
)
def test_what_experts_have_by_model_type(model_type: str, shared_gate: bool, router_bias: bool, expert_bias: bool) -> None:
    moe = read(model_type=model_type, **EXPERTS).moe
    assert moe is not None and (moe.shared_gate, moe.router_bias, moe.expert_bias) == (shared_gate, router_bias, expert_bias)


LATENT = {"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 96}


def test_latent_attention_needs_its_widths_and_a_type_that_has_it() -> None:
    model = read(**LATENT, q_lora_rank=1536, index_n_heads=64, index_head_dim=128)
    assert model.mla == LatentAttention(
        kv_lora_rank=512, q_lora_rank=1536, nope_head_dim=128, rope_head_dim=64, v_head_dim=96, index_heads=64, index_head_dim=128
    )
    assert set(model.attention) == {"mla"} and model.v_head_dim == 96 and model.has_indexer(0)
    plain = read(**LATENT).mla
    assert plain is not None and plain.q_lora_rank is None and not plain.has_indexer
    assert read(**{**LATENT, "model_type": "llama"}).mla is None
    assert read(**{**LATENT, "kv_lora_rank": None}).mla is None


def test_layers_that_share_an_indexer() -> None:
    kinds = ["own", "shared"] * 16
    model = read(**LATENT, index_n_heads=64, index_head_dim=128, indexer_types=kinds)
    assert model.shared_index_layers == frozenset(range(1, 32, 2))
    assert model.has_indexer(0) and not model.has_indexer(1)


def test_state_layers_read_their_sizes() -> None:
    delta = read(num_hidden_layers=4, **DELTA_NET).linear
    assert delta == LinearAttention(key_heads=2, value_heads=4, key_head_dim=8, value_head_dim=16, conv_kernel=4)
    missing = {key: value for key, value in DELTA_NET.items() if key != "linear_conv_kernel_dim"}
    assert read(num_hidden_layers=4, **missing).linear is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, StateSpace(heads=8, head_dim=64, groups=1, state=16, conv_kernel=4)),
        ({"mamba_n_groups": 2, "mamba_d_conv": 3, "mamba_conv_bias": False},
         StateSpace(heads=8, head_dim=64, groups=2, state=16, conv_kernel=3, conv_bias=False)),
        ({"mamba_d_head": None}, StateSpace(heads=8, head_dim=1024, groups=1, state=16, conv_kernel=4)),  # 2 x 4096 / 8
        ({"mamba_d_head": None, "mamba_expand": 1}, StateSpace(heads=8, head_dim=512, groups=1, state=16, conv_kernel=4)),
        ({"mamba_n_heads": None}, None),
        ({"mamba_d_state": None}, None),
    ],
)  # fmt: skip
def test_state_spaces(changes: dict[str, Any], expected: StateSpace | None) -> None:
    model = read(**{"num_hidden_layers": 2, "layer_types": ["mamba", "attention"], **MAMBA, **changes})
    assert model.state_space == expected
    if expected is not None:
        assert expected.inner == expected.heads * expected.head_dim
    assert read(num_hidden_layers=2, **MAMBA).state_space is None, "no layer uses it"


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, None),
        ({"mamba_ssm_dtype": "float32"}, 4),
        ({"mamba_ssm_cache_dtype": "float32"}, 4),
        ({"mamba_ssm_dtype": "bfloat16", "mamba_ssm_cache_dtype": "float32"}, 2),
        ({"mamba_ssm_dtype": "float8"}, None),
        ({"model_type": "nemotron_h"}, 4),
        ({"model_type": "nemotron_h", "mamba_ssm_dtype": "bfloat16"}, 2),
    ],
)
def test_bytes_of_a_recurrent_state(changes: dict[str, Any], size: int | None) -> None:
    assert read(**changes).state_dtype_bytes == size


WINDOW = {"sliding_window": 8}


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        (LATENT, ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]),
        ({"model_type": "qwen3_next", **DELTA_NET}, [*DELTA_NET, "full_attention_interval"]),
        ({"layer_types": ["mamba"] * 32, **MAMBA}, [*MAMBA, "mamba_n_groups", "mamba_d_conv", "mamba_expand"]),
        (EXPERTS, ["num_experts_per_tok", "moe_intermediate_size", "moe_layer_freq"]),
        (
            {"model_type": "llama4_text", **EXPERTS, "attention_chunk_size": 8},
            ["interleave_moe_layer_step", "no_rope_layer_interval"],
        ),
        ({"model_type": "gemma3_text", **WINDOW}, ["sliding_window_pattern"]),
        ({"model_type": "cohere2", **WINDOW}, ["sliding_window_pattern"]),
        ({}, ["global_head_dim", "num_global_key_value_heads", "v_head_dim"]),
    ],
)
def test_sizes_are_one_at_least(config: dict[str, Any], fields: list[str]) -> None:
    for field in fields:
        assert read(**config | {field: 1}).layers == 32, field
        with pytest.raises(ConfigError, match=f"{field}: is 0; a number from 1 to"):
            read(**config | {field: 0})
