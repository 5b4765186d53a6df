"""The matrices and vectors of one layer on one rank, counted by hand: width 10, 4 heads and 2 KV heads of 3, MLP 7."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.plan.architecture.partition import MXFP4_ROUNDING, ParallelSizes, kv_heads_per_rank, padded_vocabulary, round_up
from infra.plan.architecture.quantization import Quantization
from infra.plan.architecture.types import Architecture, VisionTower
from infra.plan.memory.layer_weights import WHOLE, Split, layer_matrices, layer_vector_count
from infra.plan.memory.weights import (
    count_active_parameters,
    count_mtp_parameters,
    count_parameters,
    weights_bytes_per_rank,
)
from tests.plan.small import EXPERTS, LATENT, MAMBA, small

INDEXED = replace(LATENT, index_heads=2, index_head_dim=4)


def matrices(architecture: Architecture, split: Split) -> dict[str, tuple[int, int, int]]:
    """Module -> rows, columns, copies; the MLP of a dense layer left out where attention is looked at."""
    return {matrix.module: (matrix.outputs, matrix.inputs, matrix.copies) for matrix in layer_matrices(architecture, 0, split)}


def attention_of(architecture: Architecture, split: Split) -> dict[str, tuple[int, int]]:
    found = matrices(replace(architecture, mlp=("none",) * architecture.layers), split)
    assert all(copies == 1 for _, _, copies in found.values())
    return {module.split(".", 1)[1]: (rows, columns) for module, (rows, columns, _) in found.items()}


FULL = {"q_proj": (12, 10), "k_proj": (6, 10), "v_proj": (6, 10), "o_proj": (10, 12)}
MLA = {"q_a_proj": (6, 10), "q_b_proj": (24, 6), "kv_a_proj_with_mqa": (10, 10), "kv_b_proj": (28, 8), "o_proj": (10, 12)}


@pytest.mark.parametrize(
    ("architecture", "split", "expected"),
    [
        (small(), WHOLE, FULL),
        (small(), Split(tensor=2), {"q_proj": (6, 10), "k_proj": (3, 10), "v_proj": (3, 10), "o_proj": (10, 6)}),
        (small(), Split(tensor=4), {"q_proj": (3, 10), "k_proj": (3, 10), "v_proj": (3, 10), "o_proj": (10, 3)}),
        (small(output_gate=True), WHOLE, FULL | {"q_proj": (24, 10)}),
        (small(v_head_dim=5), WHOLE, FULL | {"v_proj": (10, 10), "o_proj": (10, 20)}),
        (small(global_head_dim=6, global_kv_heads=1), WHOLE, {"q_proj": (24, 10), "k_proj": (6, 10), "v_proj": (6, 10), "o_proj": (10, 24)}),
        (small("sliding", global_head_dim=6, global_kv_heads=1), WHOLE, FULL),
        (small(key_is_value=True), WHOLE, {name: size for name, size in FULL.items() if name != "v_proj"}),
        (small(key_is_value=True), Split(), FULL),
        (small("sliding", key_is_value=True), WHOLE, FULL),
        (small("mla"), WHOLE, MLA),
        (small("mla"), Split(), MLA | {"absorbed": (28, 8)}),
        (small("mla"), Split(tensor=2),
         MLA | {"q_b_proj": (12, 6), "kv_b_proj": (14, 8), "o_proj": (10, 6), "absorbed": (14, 8)}),
        (small("mla", mla=INDEXED), WHOLE, MLA | {"indexer.wq_b": (8, 6), "indexer.wk": (4, 10), "indexer.weights_proj": (2, 10)}),
        (small("mla", mla=INDEXED, shared_index_layers=frozenset({0})), WHOLE, MLA),
        (small("mla", mla=replace(INDEXED, q_lora_rank=None)), WHOLE,
         {"q_proj": (24, 10), "kv_a_proj_with_mqa": (10, 10), "kv_b_proj": (28, 8), "o_proj": (10, 12),
          "indexer.wq_b": (8, 10), "indexer.wk": (4, 10), "indexer.weights_proj": (2, 10)}),
        (small("linear"), WHOLE, {"in_proj_qkvz": (52, 10), "in_proj_ba": (8, 10), "conv1d": (32, 4), "out_proj": (10, 20)}),
        (small("linear"), Split(tensor=2), {"in_proj_qkvz": (26, 10), "in_proj_ba": (4, 10), "conv1d": (16, 4), "out_proj": (10, 10)}),
        (small("mamba"), WHOLE, {"in_proj": (48, 10), "conv1d": (32, 4), "out_proj": (10, 12)}),
        (small("mamba"), Split(tensor=2), {"in_proj": (24, 10), "conv1d": (16, 4), "out_proj": (10, 6)}),
        (small("mamba"), Split(tensor=4), {"in_proj": (17, 10), "conv1d": (13, 4), "out_proj": (10, 3)}),  # a group on each rank
        (small("none"), WHOLE, {}),
    ],
)  # fmt: skip
def test_matrices_of_attention(architecture: Architecture, split: Split, expected: dict[str, tuple[int, int]]) -> None:
    assert attention_of(architecture, split) == expected


def test_a_decoder_attends_to_its_encoder_too() -> None:
    found = matrices(small(encoder_decoder=True, mlp="none"), Split(tensor=2))
    for name in FULL:
        assert found[f"encoder_attn.{name}"] == found[f"self_attn.{name}"]
    assert len(found) == 8


DENSE = {"mlp.up_proj": (7, 10, 1), "mlp.gate_proj": (7, 10, 1), "mlp.down_proj": (10, 7, 1)}
MOE = {"mlp.experts.up_proj": (5, 10, 12), "mlp.experts.down_proj": (10, 5, 6), "mlp.gate": (6, 10, 1)}


@pytest.mark.parametrize(
    ("architecture", "split", "expected"),
    [
        (small("none"), WHOLE, DENSE),
        (small("none"), Split(tensor=2), {"mlp.up_proj": (4, 10, 1), "mlp.gate_proj": (4, 10, 1), "mlp.down_proj": (10, 4, 1)}),
        (small("none", gated_mlp=False), WHOLE, {"mlp.up_proj": (7, 10, 1), "mlp.down_proj": (10, 7, 1)}),
        (small("none", "none"), WHOLE, {}),
        (small("none", "moe"), WHOLE, MOE),
        (small("none", "moe", gated_mlp=False), WHOLE, MOE | {"mlp.experts.up_proj": (5, 10, 6)}),
        (small("none", "moe"), Split(tensor=2, expert_width=2), MOE | {"mlp.experts.up_proj": (3, 10, 12), "mlp.experts.down_proj": (10, 3, 6)}),
        (small("none", "moe"), Split(tensor=4, expert_count=4), MOE | {"mlp.experts.up_proj": (5, 10, 4), "mlp.experts.down_proj": (10, 5, 2)}),
        (small("none", "moe"), Split(rounding=(4, 16)), MOE | {"mlp.experts.up_proj": (8, 16, 12), "mlp.experts.down_proj": (16, 8, 6)}),
        (small("none", "moe", moe=replace(EXPERTS, shared_intermediate=3, shared_gate=True)), Split(tensor=2),
         MOE | {"mlp.shared_experts.up_proj": (2, 10, 1), "mlp.shared_experts.gate_proj": (2, 10, 1),
                "mlp.shared_experts.down_proj": (10, 2, 1), "mlp.shared_expert_gate": (1, 10, 1)}),
    ],
)  # fmt: skip
def test_matrices_of_the_mlp(architecture: Architecture, split: Split, expected: dict[str, tuple[int, int, int]]) -> None:
    assert matrices(architecture, split) == expected


@pytest.mark.parametrize(
    ("architecture", "split", "values"),
    [
        (small(), WHOLE, 20),
        (small(norm_has_bias=True), WHOLE, 40),
        (small(norms_per_layer=4), WHOLE, 40),
        (small(encoder_decoder=True), WHOLE, 30),
        (small(qkv_bias=True), WHOLE, 20 + 12 + 6 + 6),
        (small(qkv_bias=True), Split(tensor=2), 20 + 6 + 3 + 3),
        (small(qkv_bias=True, encoder_decoder=True), WHOLE, 30 + 2 * (12 + 6)),  # no bias of the keys
        (small(output_bias=True), Split(tensor=2), 20 + 10),
        (small(qk_norm="head"), WHOLE, 20 + 2 * 3),
        (small(qk_norm="full"), WHOLE, 20 + 6 * 3),
        (small(qk_norm="full"), Split(tensor=4), 20 + 2 * 3),
        (small(attention_sinks=True), Split(tensor=2), 20 + 2),
        (small("mla"), WHOLE, 20 + 8 + 6),
        (small("mla", mla=replace(LATENT, q_lora_rank=None)), WHOLE, 20 + 8),
        (small("mla", mla=INDEXED), WHOLE, 20 + 8 + 6 + 2 * 4),
        (small("linear"), WHOLE, 20 + 2 * 4 + 5),
        (small("linear"), Split(tensor=2), 20 + 2 * 2 + 5),
        (small("mamba"), WHOLE, 20 + 3 * 4 + 12 + (12 + 2 * 10)),
        (small("mamba", state_space=replace(MAMBA, conv_bias=False)), WHOLE, 20 + 3 * 4 + 12),
        (small("mamba"), Split(tensor=4), 20 + 3 + 3 + (3 + 2 * 5)),
        (small("none"), WHOLE, 20),
        (small("none", qkv_bias=True), WHOLE, 20),
        (small(mlp_bias=True), WHOLE, 20 + 10 + 2 * 7),
        (small(mlp_bias=True, gated_mlp=False), Split(tensor=2), 20 + 10 + 4),
        (small(mlp="moe", mlp_bias=True), WHOLE, 20),
        (small(mlp="moe", moe=replace(EXPERTS, router_bias=True)), WHOLE, 20 + 6),
        (small(mlp="moe", moe=replace(EXPERTS, expert_bias=True)), WHOLE, 20 + 6 * (2 * 5 + 10)),
        (small(mlp="moe", moe=replace(EXPERTS, expert_bias=True)), Split(expert_width=2, expert_count=4), 20 + 2 * (2 * 3 + 10)),
    ],
)
def test_values_that_are_no_matrix(architecture: Architecture, split: Split, values: int) -> None:
    assert layer_vector_count(architecture, 0, split) == values


LAYER = 120 + 60 + 60 + 120 + 3 * 70 + 20
WHISPER = {"encoder_decoder": True, "encoder_layers": 2, "encoder_channels": 3, "encoder_positions": 7}
ENCODER_LAYER = 4 * 100 + 3 * 10 + 2 * 4 * 5  # attention, its three biases, two norms with bias
ENCODER = (3 * 10 * 3 + 10) + (3 * 10 * 10 + 10) + 7 * 10 + 20  # two convolutions over 3 values, positions, the last norm


@pytest.mark.parametrize(
    ("architecture", "parameters"),
    [
        (small(), 2 * LAYER + 1000 + 10 + 1000),
        (small(tied_embeddings=True), 2 * LAYER + 1000 + 10),
        (small(lm_head_bias=True), 2 * LAYER + 2010 + 100),
        (small(norm_has_bias=True), 2 * (LAYER + 20) + 2000 + 20),
        (small(position_embeddings=5), 2 * LAYER + 2010 + 50),
        (small(model_type="bloom"), 2 * LAYER + 2010 + 20),
        (small(vision=VisionTower(layers=1, hidden=1, intermediate=1, heads=1, parameters=17)), 2 * LAYER + 2010 + 17),
        (small(**WHISPER, encoder_intermediate=6), 2 * (LAYER + 360 + 10) + 2010 + ENCODER + 2 * (ENCODER_LAYER + 2 * 60 + 6 + 10)),
        (small(**WHISPER), 2 * (LAYER + 360 + 10) + 2010 + ENCODER + 2 * (ENCODER_LAYER + 2 * 70 + 7 + 10)),
    ],
)
def test_parameters_of_a_model(architecture: Architecture, parameters: int) -> None:
    assert count_parameters(architecture) == parameters


def test_parameters_of_multi_token_prediction() -> None:
    projection = 2 * 10 * 10 + 3 * 10
    assert count_mtp_parameters(small()) == 0
    assert count_mtp_parameters(small(mtp_layers=2)) == 2 * (LAYER + projection)
    assert count_mtp_parameters(small(mtp_layers=1, mtp_own_embeddings=True)) == LAYER + projection + 2 * 1000
    wide: dict[str, Any] = {"mlp": ("moe", "dense"), "mtp_layers": 1}
    experts = LAYER - 210 + 3 * 6 * 50 + 60
    assert count_mtp_parameters(small(**wide)) == LAYER + projection, "the last layer of full attention"
    assert count_mtp_parameters(small(("full", "sliding"), **wide)) == experts + projection
    assert count_mtp_parameters(small("sliding", **wide)) == LAYER + projection
    latent = small("mla", mla=INDEXED, mtp_layers=1, shared_index_layers=frozenset({1}))
    assert count_mtp_parameters(latent) == count_mtp_parameters(replace(latent, shared_index_layers=frozenset()))


def test_parameters_that_a_token_passes_through() -> None:
    moe = small(mlp="moe")
    assert count_parameters(moe) - count_active_parameters(moe) == 2 * 4 * 3 * 50
    ungated = small(mlp="moe", gated_mlp=False)
    assert count_parameters(ungated) - count_active_parameters(ungated) == 2 * 4 * 2 * 50
    half = small(mlp=("moe", "dense"))
    assert count_parameters(half) - count_active_parameters(half) == 4 * 3 * 50
    assert count_active_parameters(small()) == count_parameters(small())


TABLE = 128 * 10 * 2  # the vocabulary of 100 is padded to 128
MATRICES = {"attention": 360, "mlp": 210}


def rank_bytes(architecture: Architecture, **arguments: Any) -> tuple[int, ...]:
    return weights_bytes_per_rank(architecture, **arguments)


@pytest.mark.parametrize(
    ("architecture", "arguments", "expected"),
    [
        (small(), {}, (4 * LAYER + 2 * TABLE + 20,)),
        (small(), {"dtype": "float32"}, (2 * (4 * LAYER + 2 * TABLE + 20),)),
        (small(), {"pipeline_parallel_size": 2}, (2 * LAYER + TABLE, 2 * LAYER + TABLE + 20)),
        (small(tied_embeddings=True), {}, (4 * LAYER + TABLE + 20,)),
        (small(tied_embeddings=True), {"pipeline_parallel_size": 2}, (2 * LAYER + TABLE, 2 * LAYER + TABLE + 20)),
        (small(), {"tensor_parallel_size": 2}, (4 * (60 + 30 + 30 + 60 + 3 * 40 + 20) + TABLE + 20,)),
        (small(), {"tensor_parallel_size": 3}, (4 * (60 + 30 + 30 + 60 + 3 * 30 + 20) + 2 * 43 * 20 + 20,)),
        (small(lm_head_bias=True), {}, (4 * LAYER + 2 * TABLE + 20 + 128 * 2,)),
        (small(lm_head_bias=True), {"tensor_parallel_size": 2}, (4 * 320 + TABLE + 20 + 64 * 2,)),
        (small(position_embeddings=5), {}, (4 * LAYER + 2 * TABLE + 20 + 100,)),
        (small(model_type="bloom"), {}, (4 * LAYER + 2 * TABLE + 20 + 40,)),
        (small(norm_has_bias=True), {}, (4 * (LAYER + 20) + 2 * TABLE + 40,)),
        (small(vision=VisionTower(layers=1, hidden=1, intermediate=1, heads=4, parameters=17)), {"tensor_parallel_size": 2},
         (4 * 320 + TABLE + 20 + 9 * 2,)),
        (small(vision=VisionTower(layers=1, hidden=1, intermediate=1, heads=3, parameters=17)), {"tensor_parallel_size": 2},
         (4 * 320 + TABLE + 20 + 17 * 2,)),
        (small(vision=VisionTower(layers=1, hidden=1, intermediate=1, heads=3, parameters=17)), {"pipeline_parallel_size": 2},
         (2 * LAYER + TABLE + 34, 2 * LAYER + TABLE + 20)),
        (small(mlp="moe"), {}, (4 * (LAYER - 210 + 900 + 60) + 2 * TABLE + 20,)),
        (small(mlp="moe"), {"data_parallel_size": 2}, (4 * (LAYER - 210 + 540 + 60) + 2 * TABLE + 20,)),
        (small(mlp="moe"), {"data_parallel_size": 2, "expert_parallel": True}, (4 * (LAYER - 210 + 450 + 60) + 2 * TABLE + 20,)),
        (small(mlp="moe"), {"data_parallel_size": 4, "expert_parallel": True}, (4 * (LAYER - 210 + 300 + 60) + 2 * TABLE + 20,)),
        (small(mlp="moe"), {"tensor_parallel_size": 2, "expert_parallel": True}, (4 * (180 + 20 + 450 + 60) + TABLE + 20,)),
    ],
)  # fmt: skip
def test_bytes_on_each_rank(architecture: Architecture, arguments: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert rank_bytes(architecture, **arguments) == expected


def test_an_encoder_lies_on_the_first_stage() -> None:
    whisper = small(**WHISPER)
    encoder = ENCODER + 2 * (ENCODER_LAYER + 2 * 70 + 7 + 10)
    layer = LAYER + 360 + 10
    assert rank_bytes(whisper, pipeline_parallel_size=2) == (2 * layer + TABLE + 2 * encoder, 2 * layer + TABLE + 20)
    halved = 2 * (180 * 2 + 120 + 30)
    assert rank_bytes(whisper, tensor_parallel_size=2) == (2 * halved + TABLE + 20 + 2 * -(-encoder // 2),)


def fp8(**changes: Any) -> Quantization:
    return Quantization(**{"method": "fp8", "weight_bits": 8, "form": "tensor", **changes})


SCALES = 7 * 4  # a scale for each of a layer's seven matrices


@pytest.mark.parametrize(
    ("quantization", "layers", "head"),
    [
        (fp8(), 2 * (570 + SCALES + 40), TABLE),
        (fp8(quantizes_lm_head=True), 2 * (570 + SCALES + 40), 1280 + 4),
        (fp8(ignored=("self_attn",)), 2 * (2 * 360 + 210 + 3 * 4 + 40), TABLE),
        (fp8(ignored=("mlp.up_proj",)), 2 * (570 + 70 + 6 * 4 + 40), TABLE),
        (fp8(ignored=("model.layers.1.mlp",)), (570 + SCALES + 40) + (360 + 2 * 210 + 4 * 4 + 40), TABLE),
        (fp8(experts_only=True), 2 * (2 * 570 + 40), TABLE),
    ],
)
def test_bytes_of_a_quantised_checkpoint(quantization: Quantization, layers: int, head: int) -> None:
    assert rank_bytes(small(quantization=quantization)) == (layers + TABLE + head + 20,)
    assert rank_bytes(small(quantization=quantization, lm_head_bias=True)) == (layers + TABLE + head + 128 * 2 + 20,)


@pytest.mark.parametrize("name", ["mlp.experts", "mlp.experts.0.up_proj", "block_sparse_moe.experts", "mlp.experts.up_proj"])
def test_experts_are_ignored_under_any_of_their_names(name: str) -> None:
    moe = small(mlp="moe")
    plain, ignoring = (rank_bytes(replace(moe, quantization=fp8(ignored=ignored)))[0] for ignored in ((), (name,)))
    only_up = "up_proj" in name
    # two bytes instead of one and no scales: 12 gate and up matrices of 50 values, 6 of down
    assert ignoring - plain == 2 * ((600 - 12 * 4) + (0 if only_up else 300 - 6 * 4))


def test_routers_and_dense_layers_stay_whole_where_only_experts_are_quantised() -> None:
    moe = replace(small(mlp="moe"), quantization=fp8(experts_only=True))
    assert rank_bytes(moe) == (2 * (2 * 360 + 900 + 18 * 4 + 2 * 60 + 40) + 2 * TABLE + 20,)


@pytest.mark.parametrize("vendor", sorted(MXFP4_ROUNDING))
def test_mxfp4_experts_are_rounded_up_by_the_vendors_kernels(vendor: str) -> None:
    width, hidden = MXFP4_ROUNDING[vendor]
    mxfp4 = Quantization(method="mxfp4", weight_bits=4, form="group", group_size=32, scale_bytes=1, experts_only=True)
    rest = 2 * (2 * 360 + 2 * 60 + 40) + 2 * TABLE + 20
    experts = 6 * (2 * (width * hidden // 2 + width * hidden // 32) + hidden * width // 2 + hidden * (width // 32))
    assert rank_bytes(small(mlp="moe", quantization=mxfp4), vendor=vendor) == (rest + 2 * experts,)
    assert rank_bytes(small(mlp="moe", quantization=replace(mxfp4, method="quark")), vendor=vendor) < (rest + 2 * experts,)


def test_the_roundings_are_those_of_the_kernels() -> None:
    assert MXFP4_ROUNDING == {"nvidia": (128, 256), "nvidia-sm90": (64, 256), "amd": (256, 256)}
    assert [round_up(value, 64) for value in (1, 63, 64, 65)] == [64, 64, 64, 128]
    assert [padded_vocabulary(vocab) for vocab in (1, 64, 65, 128256)] == [64, 64, 128, 128256]


def test_kv_heads_on_a_rank() -> None:
    assert [kv_heads_per_rank(8, size) for size in (1, 2, 4, 8, 16)] == [8, 4, 2, 1, 1]
    assert ParallelSizes().gpus == 1
    assert ParallelSizes(tensor_parallel_size=2, pipeline_parallel_size=3, data_parallel_size=5).gpus == 30
