"""Vision towers counted by hand: 2 blocks of width 4 and MLP 6, patches of 2 x 2 pixels, a text model of width 10."""

from __future__ import annotations

from typing import Any

import pytest

from infra.plan.architecture.types import VisionTower
from tests.plan.small import read

TOWER = {"hidden_size": 4, "intermediate_size": 6, "depth": 2, "patch_size": 2, "num_heads": 2, "image_size": 8}
# a block with biases: q, k, v, o 4 x (16 + 4), up 30, down 28, two norms with bias 16
BLOCKS = 2 * 154
PATCHES = 3 * 2 * 2  # values of a patch
POSITIONS = 16


def tower(model_type: str = "internvl", vision: dict[str, Any] | None = None, **top: Any) -> VisionTower:
    config = {key: value for key, value in {**TOWER, **(vision or {})}.items() if value is not None}
    found = read(model_type=model_type, hidden_size=10, num_attention_heads=2, vision_config=config, **top).vision
    assert found is not None
    return found


QWEN_MERGER = (16 * 16 + 16) + (16 * 10 + 10)  # 2 x 2 patches of width 4 become one of width 10
LLAMA4 = {"projector_input_dim": 7, "projector_output_dim": 5}


@pytest.mark.parametrize(
    ("model_type", "vision", "top", "parameters"),
    [
        ("internvl", {}, {}, BLOCKS + (PATCHES * 4 + 4) + (POSITIONS + 1) * 4 + 2 * 4 + 2 * 10 * 4),
        ("internvl", {"in_channels": 1}, {}, BLOCKS + (4 * 4 + 4) + 17 * 4 + 8 + 80),
        ("internvl", {"image_size": 9}, {}, BLOCKS + 52 + 17 * 4 + 8 + 80),
        ("internvl", {"image_size": None, "patch_size": None}, {}, BLOCKS + (3 * 196 * 4 + 4) + (576 + 1) * 4 + 8 + 80),
        ("internvl", {"patch_size": 0}, {}, BLOCKS + (3 * 4 + 4) + (64 + 1) * 4 + 8 + 80),
        ("internvl", {"intermediate_size": None, "mlp_ratio": 1.5}, {}, BLOCKS + 52 + 68 + 8 + 80),
        ("internvl", {"intermediate_size": None}, {}, BLOCKS + 2 * (10 * 9) + 52 + 68 + 8 + 80),  # 4 x 4 instead of 6: ten more rows and columns
        ("gemma3", {}, {}, BLOCKS + 52 + POSITIONS * 4 + 3 * 4 + 4 * 10),
        ("llama4", {**LLAMA4, "vision_output_dim": 9}, {}, BLOCKS + 48 + 17 * 4 + 5 * 4 + (6 * 7 + 7 * 5) + 9 * 10),
        ("llama4", LLAMA4, {}, BLOCKS + 48 + 17 * 4 + 5 * 4 + (6 * 7 + 7 * 5) + 5 * 10),
        ("llama4", {}, {}, BLOCKS + 48 + 17 * 4 + 5 * 4 + (6 * 4096 + 4096 * 4096) + 4096 * 10),
        # Pixtral: no biases, a gated MLP, two norms; norm, 2 x 2 patches merged, two layers of the projector
        ("mistral3", {}, {}, 2 * (64 + 72 + 8) + 48 + 4 + (4 + 4 * 16 + 40 + 100)),
        ("mistral3", {}, {"spatial_merge_size": 1}, 2 * 144 + 48 + 4 + (4 + 16 + 40 + 100)),
        ("mistral3", {}, {"multimodal_projector_bias": True}, 2 * 144 + 48 + 4 + (4 + 64 + 50 + 110)),
        ("other", {"model_type": "pixtral"}, {}, 2 * 144 + 48 + 4 + 208),
        # q, k, v in one matrix 60, o 20; patches over two frames
        ("qwen2_5_vl", {}, {}, 2 * (80 + 2 * 30 + 28 + 8) + 2 * PATCHES * 4 + 4 + QWEN_MERGER),
        ("qwen2_5_vl", {"temporal_patch_size": 1}, {}, 2 * 176 + PATCHES * 4 + 4 + QWEN_MERGER),
        ("qwen2_5_vl", {"spatial_merge_size": 1}, {}, 2 * 176 + 96 + 4 + (4 * 4 + 4) + (4 * 10 + 10)),
        ("qwen2_5_vl", {"out_hidden_size": 11}, {}, 2 * 176 + 96 + 4 + 272 + (16 * 11 + 11)),
        ("qwen2_vl", {"embed_dim": 4, "hidden_size": 11}, {}, BLOCKS + 96 + 2 * 4 + 272 + (16 * 11 + 11)),
        ("qwen3_vl", {"num_position_embeddings": 5}, {}, BLOCKS + (24 * 4 + 4) + 5 * 4 + 2 * 4 + QWEN_MERGER),
        ("qwen3_vl", {}, {}, BLOCKS + (24 * 4 + 4) + 2304 * 4 + 2 * 4 + QWEN_MERGER),
        ("qwen3_vl", {"num_position_embeddings": 5, "deepstack_visual_indexes": [0, 1]}, {}, BLOCKS + 100 + 20 + 8 + QWEN_MERGER + 2 * (2 * 16 + QWEN_MERGER)),
    ],
)  # fmt: skip
def test_parameters_of_a_tower(model_type: str, vision: dict[str, Any], top: dict[str, Any], parameters: int) -> None:
    assert tower(model_type, vision, **top).parameters == parameters


def test_widths_of_a_tower() -> None:
    assert tower() == VisionTower(layers=2, hidden=4, intermediate=6, heads=2, parameters=516)
    assert tower(vision={"num_heads": None}).heads == 16 and tower(vision={"num_heads": 0}).heads == 1
    assert tower(vision={"depth": None, "num_hidden_layers": 3}).layers == 3 and tower(vision={"depth": None}).layers == 0


@pytest.mark.parametrize(("ratio", "width"), [(1.5, 6), (2, 8), (0, 16), (-1, 16), (99.9, 399), (100, 16), ("4", 16), (None, 16)])
def test_the_mlp_of_a_tower_by_its_ratio(ratio: object, width: int) -> None:
    assert tower(vision={"intermediate_size": None, "mlp_ratio": ratio}).intermediate == width


def test_a_model_without_vision_has_no_tower() -> None:
    assert read().vision is None and read(vision_config={}).vision is None
