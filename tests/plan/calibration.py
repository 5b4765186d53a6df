"""Fits the constants of the memory model anew from a part of the logged starts, to see how well it tells the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import median

from infra.plan.memory.profile import EngineMemory, engine_memory
from infra.plan.memory.span import Span
from infra.units import GIB
from tests.plan.kv_logs import Start

# What the source code says without any log: a sorted copy, its 64-bit indices and the radix sort's second buffers; or logits,
# probabilities and noise.
SORTING_BYTES_BY_SOURCE, TRITON_BYTES_BY_SOURCE = 36.0, 12.0
HIDDEN_COPIES_BY_SOURCE = 6.0
BUFFERS_BY_SOURCE_GIB = {"single": 0.2, "linked": 1.0, "unlinked": 0.3}


def sorts(engine: EngineMemory) -> bool:
    return engine.sampler_bytes.expected > 20


def communication_key(item: Start) -> tuple[str, str, bool]:
    accelerator = item.accelerator
    assert accelerator is not None
    kind = "single" if item.settings.get("tp", 1) == 1 else "linked" if accelerator.fabric.is_fast else "unlinked"
    return accelerator.vendor, kind, engine_memory(item.vllm).since >= "0.19.0"


def refit(training: Iterable[Start]) -> Callable[[Start], EngineMemory]:
    """The engine's constants as the training starts imply them: medians; where no start tells a constant, what the source code says."""
    sampler: dict[bool, list[float]] = {True: [], False: []}
    hidden: dict[str, list[float]] = {"V0": [], "V1": []}
    buffers: dict[tuple[str, str, bool], list[float]] = {}
    for item in training:
        if not item.can_be_estimated or item.out_of_reach:
            continue
        estimate = item.estimate()
        engine, stage = estimate.engine, estimate.fullest
        architecture, activation = estimate.architecture, stage.activation
        if "activation" in item.logged and not engine.graphs_in_budget:
            dtype_bytes = 4 if item.settings.get("dtype") == "float32" else 2
            peak = item.logged["activation"] * GIB
            if activation.phase == "sampler":
                logits = estimate.max_num_seqs * architecture.vocab
                states = activation.sampler.expected - (engine.sampler_bytes.expected + dtype_bytes) * logits
                sampler[sorts(engine)].append((peak - states) / logits - dtype_bytes)
            elif activation.phase == "layers":
                copy = (activation.layers.high - activation.layers.low) / (engine.hidden_copies.high - engine.hidden_copies.low)
                width = activation.layers.expected - engine.hidden_copies.expected * copy
                hidden[engine.engine].append((peak - width) / copy)
        if "nonTorch" in item.logged:
            buffers.setdefault(communication_key(item), []).append(item.logged["nonTorch"])

    def engine_of(item: Start) -> EngineMemory:
        engine = engine_memory(item.vllm)
        by_source = SORTING_BYTES_BY_SOURCE if sorts(engine) else TRITON_BYTES_BY_SOURCE
        vendor, kind, _ = key = communication_key(item)
        gib = median(buffers.get(key) or [BUFFERS_BY_SOURCE_GIB[kind]])
        return replace(
            engine,
            sampler_bytes=Span.exact(median(sampler[sorts(engine)] or [by_source])),
            hidden_copies=Span.exact(median(hidden[engine.engine] or [HIDDEN_COPIES_BY_SOURCE])),
            buffers={**engine.buffers, vendor: engine.buffers[vendor].model_copy(update={kind: Span.exact(gib)})},
        )

    return engine_of
