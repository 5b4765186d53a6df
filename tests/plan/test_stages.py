"""The activation peak and the memory of each stage, counted by hand: width 10, MLP 7, vocabulary 100, bfloat16."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.plan.architecture.partition import ONE_GPU, ParallelSizes
from infra.plan.architecture.quantization import Quantization
from infra.plan.architecture.types import Architecture, VisionTower
from infra.plan.memory.activation import activation_peak, profile_tokens
from infra.plan.memory.options import ProfileRun
from infra.plan.memory.profile import EngineMemory, engine_memory
from infra.plan.memory.span import NOTHING, Span
from infra.plan.memory.stages import stage_memory
from infra.plan.memory.types import StageMemory
from infra.plan.memory.weights import weights_bytes_per_rank
from infra.units import GIB
from tests.plan.small import EXPERTS, LATENT, device, small

# Whole numbers instead of what was measured
ENGINE = replace(
    engine_memory(None),
    hidden_copies=Span(low=6, expected=7, high=9),
    sampler_bytes=Span(low=10, expected=12, high=15),
    vision_patches={"small_vl": 100},
    other_vision_patches=50,
    vision_spread=Span(low=0.5, expected=1, high=2),
    budget_spread=0.01,
    unstated_spread=0.1,
)
TOWER = VisionTower(layers=1, hidden=4, intermediate=6, heads=4, parameters=17)


def profile(**changes: Any) -> ProfileRun:
    run: dict[str, Any] = {
        "tokens": 20, "sequences": 3, "table_tokens": 64, "dtype": "bfloat16", "quantization": None,
        "gpu_memory_utilization": 0.5, "enforce_eager": True,
    }  # fmt: skip
    return ProfileRun(**(run | changes))


def sizes(tensor: int = 1, pipeline: int = 1, data: int = 1, experts: bool = False) -> ParallelSizes:
    return ParallelSizes(
        tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, data_parallel_size=data, expert_parallel=experts
    )


@pytest.mark.parametrize(
    ("architecture", "changes", "split", "values"),
    [
        (small(), {}, sizes(), 20 * 3 * 7),
        (small(), {}, sizes(2), 20 * 3 * 4),
        (small(gated_mlp=False), {}, sizes(), 20 * 2 * 7),
        (small(mlp="none"), {}, sizes(), 0),
        # two experts: gate and up of 5, or an input of 10, and the product
        (small(mlp="moe"), {}, sizes(), 20 * 2 * (10 + 5)),
        (small(mlp="moe", moe=replace(EXPERTS, intermediate=6)), {}, sizes(), 20 * 2 * (12 + 6)),
        (small(mlp="moe"), {}, sizes(2), 20 * 2 * (10 + 3)),
        (small(mlp="moe"), {}, sizes(2, experts=True), 20 * 2 * (10 + 5)),
        (small(mlp="moe", moe=replace(EXPERTS, shared_intermediate=3)), {}, sizes(2), 20 * 26 + 20 * 3 * 2),
        (small(mlp="moe", moe=replace(EXPERTS, shared_intermediate=3)), {"tokens": 32_768}, sizes(), 32_768 * 30 + 32_768 * 9),
        (small(mlp="moe", moe=replace(EXPERTS, shared_intermediate=3)), {"tokens": 32_769}, sizes(), 32_768 * 30 + 32_769 * 9),
        (small(mlp="dense", moe=EXPERTS), {}, sizes(), 20 * 3 * 7),
        (small(mlp=("dense", "moe")), {}, sizes(), 20 * 2 * 15),
        (small(mlp=("dense", "moe"), intermediate=70), {}, sizes(), 20 * 3 * 70),
    ],
)
def test_the_widest_layer(architecture: Architecture, changes: dict[str, Any], split: ParallelSizes, values: int) -> None:
    run = profile(**changes)
    peak = activation_peak(ENGINE, architecture, split, run)
    hidden = run.tokens * 10 * 2
    assert peak.layers == Span(low=6 * hidden + 2 * values, expected=7 * hidden + 2 * values, high=9 * hidden + 2 * values)


@pytest.mark.parametrize(("sequences", "dtype", "size"), [(3, "bfloat16", 2), (30, "bfloat16", 2), (20, "float32", 4)])
def test_the_sampler_holds_logits_of_at_most_the_batch(sequences: int, dtype: str, size: int) -> None:
    peak = activation_peak(ENGINE, small(), sizes(4), profile(sequences=sequences, dtype=dtype))
    logits, hidden = min(sequences, 20) * 100, 20 * 10 * size
    assert peak.sampler == Span(
        low=(10 + size) * logits + hidden, expected=(12 + size) * logits + hidden, high=(15 + size) * logits + hidden
    )
    assert peak.phase == "sampler" and peak.peak.expected == peak.sampler.expected


@pytest.mark.parametrize(
    ("model_type", "tensor", "expected"),
    [("small_vl", 1, 100 * 2 * (24 + 28)), ("small_vl_text", 1, 100 * 2 * (24 + 28)), ("small_vl", 3, 100 * 2 * (24 + 10)), ("llava", 1, 50 * 104)],
)  # fmt: skip
def test_the_vision_encoder(model_type: str, tensor: int, expected: int) -> None:
    peak = activation_peak(ENGINE, small(vision=TOWER, model_type=model_type), sizes(tensor), profile())
    assert peak.vision == Span(low=expected / 2, expected=expected, high=expected * 2)
    assert (peak.phase == "vision encoder") is (expected > peak.sampler.expected)


def test_only_the_first_stage_sees_images_and_only_the_last_one_samples() -> None:
    model = small(vision=TOWER)
    first = activation_peak(ENGINE, model, sizes(), profile(), last_stage=False)
    last = activation_peak(ENGINE, model, sizes(), profile(), first_stage=False)
    assert first.sampler == NOTHING == last.vision and first.vision != NOTHING != last.sampler
    assert activation_peak(ENGINE, small(), sizes(), profile()).vision == NOTHING
    assert first.phase == "vision encoder" and last.phase == "sampler"
    assert activation_peak(ENGINE, small(), sizes(), profile(), last_stage=False).phase == "layers"


@pytest.mark.parametrize(
    ("engine", "kind", "length", "tokens"),
    [("V0", "full", 100, 100), ("V0", "full", 101, 20), ("V0", "mla", 101, 101), ("V0", "full", 10, 20), ("V1", "full", 100, 20), ("V1", "mla", 101, 20)],
)  # fmt: skip
def test_v0_runs_a_prompt_in_one_piece_up_to_a_length(engine: Any, kind: str, length: int, tokens: int) -> None:
    assert profile_tokens(replace(ENGINE, engine=engine, whole_prompt_up_to=100), small(kind), 20, length) == tokens


def stages(
    architecture: Architecture,
    run: ProfileRun,
    split: ParallelSizes = ONE_GPU,
    engine: EngineMemory = ENGINE,
    **memory: Any,
) -> tuple[Span, tuple[StageMemory, ...]]:
    return stage_memory(architecture, device(torch_gib=1.0, **memory), engine, split, run)


@pytest.mark.parametrize(
    ("memory", "low", "high"),
    [
        ({}, 0.5, 0.5),
        ({"torch_range_gib": (0.9, 1.1)}, 0.45, 0.55),
        ({"torch_range_gib": (0.9, 1.1), "torch_vf_gib": 0.8}, 0.4, 0.55),
        ({"torch_vf_gib": 0.8}, 0.4, 0.5),
        ({"torch_range_gib": (1.1, 1.2)}, 0.5, 0.6),
        ({"torch_range_gib": (0.8, 0.9)}, 0.4, 0.5),
    ],
)
def test_the_budget_is_a_share_of_what_torch_sees(memory: dict[str, Any], low: float, high: float) -> None:
    requested, _ = stages(small(), profile(), **memory)
    spread = 0.01 * 0.5 * GIB
    assert requested.low == pytest.approx(low * GIB - spread)
    assert requested.expected == 0.5 * GIB
    assert requested.high == pytest.approx(high * GIB + spread)


def test_what_a_stage_takes_and_leaves() -> None:
    model = small()
    requested, [stage] = stages(model, profile())
    rotary = 64 * 3 * 2
    weights = weights_bytes_per_rank(model)[0] + rotary
    assert stage.weights == Span(low=weights * 0.998, expected=weights, high=weights * 1.002)
    assert stage.graphs == NOTHING and stage.stage == 0
    taken = stage.weights + stage.communication + stage.activation.peak
    room = requested.expected - taken.expected
    assert stage.available.expected == room > 0
    assert stage.available.low == requested.low - taken.high
    assert stage.available.high == pytest.approx(requested.high - taken.low + 0.1 * room)


def test_a_stage_without_room_gains_nothing_from_unstated_settings() -> None:
    requested, [stage] = stages(small(), profile(gpu_memory_utilization=1e-6))
    taken = stage.weights + stage.communication + stage.activation.peak
    assert stage.available.expected < 0
    assert stage.available.high == pytest.approx(requested.high - taken.low)


def test_a_latent_cache_turns_only_its_rotary_part() -> None:
    model = small("mla")
    _, [stage] = stages(model, profile())
    assert stage.weights.expected == weights_bytes_per_rank(model)[0] + 64 * LATENT.rope_head_dim * 2


def test_offloaded_weights_are_at_most_all() -> None:
    plain, some, all_of_them = (stages(small(), profile(offload_bytes=size))[1][0].weights.expected for size in (0, 100, 10**9))
    assert plain - some == 100 and all_of_them == 64 * 3 * 2


def test_a_cache_of_given_size_is_the_room_of_each_stage() -> None:
    _, found = stages(small(), profile(fixed_cache_bytes=12345), sizes(pipeline=2))
    assert [stage.available for stage in found] == [Span.exact(12345)] * 2
    assert [stage.stage for stage in found] == [0, 1]
    assert [stage.activation.sampler == NOTHING for stage in found] == [True, False]


def test_graphs_are_taken_by_the_layers_of_a_stage() -> None:
    eager, graphs = profile(), profile(enforce_eager=False)
    share = ENGINE.graph_share(device(torch_gib=1.0), 3, 20)
    for model, kind in ((small(("full", "full", "full")), "dense"), (small(("full", "full", "full"), "moe"), "moe")):
        _, found = stages(model, graphs, sizes(pipeline=2))
        layer = ENGINE.graph_bytes_a_layer[kind]
        assert [stage.graphs for stage in found] == [layer.scaled(share * 2), layer.scaled(share * 1)]
        assert stages(model, eager)[1][0].graphs == NOTHING
    beside = replace(ENGINE, graphs_in_budget=False)
    assert stages(small(), graphs, engine=beside)[1][0].graphs == NOTHING


@pytest.mark.parametrize(
    ("name", "split", "kind"),
    [
        ("h100-sxm5-80gb", sizes(), "single"),
        ("h100-sxm5-80gb", sizes(2), "linked"),
        ("l40s", sizes(2), "unlinked"),
        ("h100-sxm5-80gb", sizes(pipeline=2), "single"),
        ("h100-sxm5-80gb", sizes(data=2), "single"),
        ("h100-sxm5-80gb", sizes(data=2, experts=True), "linked"),
        ("mi300x", sizes(2), "linked"),
    ],
)
def test_buffers_of_the_ranks_that_exchange(name: str, split: ParallelSizes, kind: str) -> None:
    gpu = device(name, torch_gib=1.0)
    _, found = stage_memory(small(mlp="moe"), gpu, ENGINE, split, profile())
    assert {stage.communication for stage in found} == {getattr(ENGINE.buffers[gpu.vendor], kind).scaled(GIB)}


@pytest.mark.parametrize(
    ("method", "name", "version", "smaller"),
    [
        ("fp8", "h100-sxm5-80gb", None, 0.012),
        ("mxfp4", "h100-sxm5-80gb", "0.11.0", 0.025),
        ("mxfp4", "h100-sxm5-80gb", None, 0.012),
        ("mxfp4", "l40s", "0.11.0", 0.012),
        ("mxfp4", "mi300x", "0.11.0", 0.012),
        ("fp8", "h100-sxm5-80gb", "0.11.0", 0.012),
    ],
)
def test_how_far_quantised_weights_may_be_off(method: str, name: str, version: str | None, smaller: float) -> None:
    model = small(mlp="moe", quantization=Quantization(method=method, weight_bits=8, form="tensor"))
    _, [stage] = stage_memory(model, device(name, torch_gib=1.0), engine_memory(version), sizes(), profile())
    size = stage.weights.expected
    assert stage.weights.low == pytest.approx(size * (1 - smaller)) and stage.weights.high == pytest.approx(size * 1.012)
