"""Counts the parameters of vision towers from their part of config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.plan.architecture_types import VisionTower


def vision_tower(config: Mapping[str, Any], text_hidden: int, published_parameters: int | None = None) -> VisionTower | None:
    """The vision encoder and projector of a config.json, or None for a text model.

    Qwen VL towers, SigLIP (Gemma 3), Pixtral (Mistral 3), Llama 4 and InternViT are counted tensor by tensor; others as a plain encoder, within some percent.
    """
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping) or not vision:
        return None

    def size(*names: str, default: int = 0) -> int:
        for name in names:
            value = vision.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return default

    hidden = size("embed_dim", "hidden_size") if vision.get("embed_dim") else size("hidden_size", "width")
    layers = size("depth", "num_hidden_layers", "layers", "num_layers")
    heads = size("num_heads", "num_attention_heads", default=16)
    ratio = vision.get("mlp_ratio")
    intermediate = size("intermediate_size") or int(hidden * (ratio if isinstance(ratio, int | float) else 4))
    model_type = str(vision.get("model_type") or config.get("model_type") or "")
    outer_type = str(config.get("model_type") or "")
    counted = _count(model_type, outer_type, vision, size, hidden, layers, intermediate, text_hidden, config)
    return VisionTower(
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        parameters=published_parameters if published_parameters is not None else counted,
        estimated=published_parameters is None
        and not outer_type.startswith(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "gemma3", "mistral3", "llama4", "qwen3_5")),
    )


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _count(
    model_type: str,
    outer_type: str,
    vision: Mapping[str, Any],
    size,
    hidden: int,
    layers: int,
    intermediate: int,
    text_hidden: int,
    config,
) -> int:
    channels = size("in_channels", "in_chans", "num_channels", default=3)
    patch = size("patch_size", default=14)
    if outer_type.startswith(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")):
        return _qwen_vision(outer_type, vision, size, hidden, layers, intermediate, text_hidden, channels, patch)
    attention = 4 * _linear(hidden, hidden)
    if outer_type == "mistral3" or model_type == "pixtral":
        merge = config.get("spatial_merge_size", 2)
        block = 4 * hidden * hidden + 3 * hidden * intermediate + 2 * hidden
        bias = bool(config.get("multimodal_projector_bias", False))
        projector = (
            hidden + merge * merge * hidden * hidden + _linear(hidden, text_hidden, bias) + _linear(text_hidden, text_hidden, bias)
        )
        return layers * block + channels * patch * patch * hidden + hidden + projector
    block = attention + _linear(hidden, intermediate) + _linear(intermediate, hidden) + 4 * hidden
    image = size("image_size", default=336)
    positions = (image // patch) ** 2
    if outer_type.startswith("gemma3"):
        tower = layers * block + _linear(channels * patch * patch, hidden) + positions * hidden + 2 * hidden
        return tower + hidden + hidden * text_hidden
    if outer_type.startswith("llama4"):
        projector_in, projector_out = size("projector_input_dim", default=4096), size("projector_output_dim", default=4096)
        tower = layers * block + channels * patch * patch * hidden + (positions + 1) * hidden + hidden + 4 * hidden
        pixel = size("intermediate_size")
        return (
            tower
            + pixel * projector_in
            + projector_in * projector_out
            + size("vision_output_dim", default=projector_out) * text_hidden
        )
    return (
        layers * block
        + _linear(channels * patch * patch, hidden)
        + (positions + 1) * hidden
        + 2 * hidden
        + 2 * text_hidden * hidden
    )


def _qwen_vision(
    outer_type: str, vision: Mapping[str, Any], size, hidden, layers, intermediate, text_hidden, channels, patch
) -> int:
    merge = size("spatial_merge_size", default=2)
    merged = hidden * merge * merge
    temporal = size("temporal_patch_size", default=2)
    output = (
        size("out_hidden_size", "hidden_size", default=text_hidden)
        if vision.get("out_hidden_size") or vision.get("embed_dim")
        else text_hidden
    )
    attention = _linear(hidden, 3 * hidden) + _linear(hidden, hidden)
    if outer_type.startswith("qwen2_5"):
        block = attention + 2 * _linear(hidden, intermediate) + _linear(intermediate, hidden) + 2 * hidden
        merger = hidden + _linear(merged, merged) + _linear(merged, output)
        return layers * block + channels * temporal * patch * patch * hidden + merger
    block = attention + _linear(hidden, intermediate) + _linear(intermediate, hidden) + 4 * hidden
    merger = 2 * hidden + _linear(merged, merged) + _linear(merged, output)
    if outer_type.startswith("qwen2_vl"):
        return layers * block + channels * temporal * patch * patch * hidden + merger
    deepstack = len(vision.get("deepstack_visual_indexes") or ())
    positions = size("num_position_embeddings", default=2304)
    deep_merger = 2 * merged + _linear(merged, merged) + _linear(merged, output)
    return (
        layers * block
        + _linear(channels * temporal * patch * patch, hidden)
        + positions * hidden
        + merger
        + deepstack * deep_merger
    )
