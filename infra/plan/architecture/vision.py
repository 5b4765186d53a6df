"""Counts the parameters of vision towers from their part of config.json."""

from __future__ import annotations

from infra.plan.architecture.fields import LARGEST_LAYER_COUNT, ConfigFields
from infra.plan.architecture.types import VisionTower


def vision_tower(top: ConfigFields, text_hidden: int, published_parameters: int | None = None) -> VisionTower | None:
    """The vision encoder and projector of a config.json, or None for a text model.

    Qwen VL towers, SigLIP (Gemma 3), Pixtral (Mistral 3) and Llama 4 are counted tensor by tensor; others as a plain encoder,
    within some percent. A wrong type becomes a problem of `top`.
    """
    values = top.mapping("vision_config")
    if not values:
        return None
    vision = ConfigFields(values, top.at("vision_config"), top.problems)
    outer_type = str(top.values.get("model_type") or "")
    hidden = vision.integer("embed_dim") or vision.integer("hidden_size", "width", default=0)
    ratio = values.get("mlp_ratio")
    widened = int(hidden * ratio) if isinstance(ratio, int | float) and 0 < ratio < 100 else 4 * hidden
    intermediate = vision.integer("intermediate_size") or widened
    layers = vision.integer("depth", "num_hidden_layers", "layers", "num_layers", default=0, maximum=LARGEST_LAYER_COUNT)
    if published_parameters is None:
        counted = _count(outer_type, top, vision, hidden, layers, intermediate, text_hidden)
    else:
        counted = published_parameters
    return VisionTower(
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        heads=max(1, vision.integer("num_heads", "num_attention_heads", default=16)),
        parameters=counted,
    )


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _count(
    outer_type: str, top: ConfigFields, vision: ConfigFields, hidden: int, layers: int, intermediate: int, text_hidden: int
) -> int:
    patch = max(1, vision.integer("patch_size", default=14))
    pixels = (vision.integer("in_channels", "in_chans", "num_channels") or 3) * patch * patch
    if outer_type.startswith(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")):
        return _qwen(outer_type, vision, hidden, layers, intermediate, text_hidden, pixels)
    if outer_type == "mistral3" or vision.values.get("model_type") == "pixtral":
        return _pixtral(top, hidden, layers, intermediate, text_hidden, pixels)
    block = 4 * _linear(hidden, hidden) + _linear(hidden, intermediate) + _linear(intermediate, hidden) + 4 * hidden
    positions = (vision.integer("image_size", default=336) // patch) ** 2
    if outer_type.startswith("gemma3"):
        return layers * block + _linear(pixels, hidden) + positions * hidden + 3 * hidden + hidden * text_hidden
    if outer_type.startswith("llama4"):
        projected = vision.integer("projector_output_dim", default=4096)
        tower = layers * block + pixels * hidden + (positions + 1) * hidden + 5 * hidden
        adapter = intermediate * vision.integer("projector_input_dim", default=4096)
        adapter += vision.integer("projector_input_dim", default=4096) * projected
        return tower + adapter + vision.integer("vision_output_dim", default=projected) * text_hidden
    return layers * block + _linear(pixels, hidden) + (positions + 1) * hidden + 2 * hidden + 2 * text_hidden * hidden


def _pixtral(top: ConfigFields, hidden: int, layers: int, intermediate: int, text_hidden: int, pixels: int) -> int:
    """Pixtral's tower without biases, and Mistral 3's projector that merges patches."""
    merge = top.integer("spatial_merge_size", default=2)
    bias = top.boolean("multimodal_projector_bias")
    block = 4 * hidden * hidden + 3 * hidden * intermediate + 2 * hidden
    projector = (
        hidden + merge * merge * hidden * hidden + _linear(hidden, text_hidden, bias) + _linear(text_hidden, text_hidden, bias)
    )
    return layers * block + pixels * hidden + hidden + projector


def _qwen(outer_type: str, vision: ConfigFields, hidden: int, layers: int, intermediate: int, text_hidden: int, pixels: int) -> int:
    """Qwen2-VL, Qwen2.5-VL (gated MLP, RMS norms) and Qwen3-VL (positions, deepstack mergers)."""
    merge = vision.integer("spatial_merge_size", default=2)
    merged = hidden * merge * merge
    patches = pixels * vision.integer("temporal_patch_size", default=2)
    named = ("out_hidden_size", "hidden_size") if vision.integer("embed_dim") else ("out_hidden_size",)
    output = vision.integer(*named) or text_hidden
    attention = _linear(hidden, 3 * hidden) + _linear(hidden, hidden)
    merger = _linear(merged, merged) + _linear(merged, output)
    if outer_type.startswith("qwen2_5"):
        block = attention + 2 * _linear(hidden, intermediate) + _linear(intermediate, hidden) + 2 * hidden
        return layers * block + patches * hidden + hidden + merger
    block = attention + _linear(hidden, intermediate) + _linear(intermediate, hidden) + 4 * hidden
    if outer_type.startswith("qwen2_vl"):
        return layers * block + patches * hidden + 2 * hidden + merger
    deepstack = len(vision.sequence("deepstack_visual_indexes") or ())
    positions = vision.integer("num_position_embeddings", default=2304) * hidden
    return layers * block + _linear(patches, hidden) + positions + 2 * hidden + merger + deepstack * (2 * merged + merger)
