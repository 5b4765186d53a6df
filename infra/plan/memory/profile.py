"""What a version of vLLM keeps back from the KV cache at start-up, as data: default sizes, sampler, graphs, communication
buffers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from infra.catalog.load import DATA, read_document
from infra.catalog.reader import Reader
from infra.catalog.types import Accelerator, Vendor
from infra.diagnosis import Diagnosis
from infra.errors import ConfigError
from infra.plan.memory.span import NOTHING, Span
from infra.units import GIB

LARGEST_GRAPH = 512  # sequences of vLLM's largest CUDA graph where nothing else is said
REFERENCE_CAPTURE_SIZES = 51  # those up to 512


@dataclass(frozen=True, kw_only=True)
class MeasuredError:
    """Relative error of the available cache over `starts` real start-ups: median, 90th percentile and mean."""

    starts: int
    median: float
    ninetieth: float
    mean: float


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """max_num_batched_tokens and max_num_seqs that vLLM's OpenAI server takes on a device when none are given."""

    min_device_gib: float
    except_devices: tuple[str, ...]
    max_num_batched_tokens: int
    max_num_seqs: int


@dataclass(frozen=True, kw_only=True)
class CommunicationBuffers:
    """Memory outside torch, GiB a GPU: `single` one rank alone, `linked` ranks over NVLink or xGMI, `unlinked` over PCIe."""

    single: Span
    linked: Span
    unlinked: Span


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Memory of a device that is used before vLLM starts: a share of it, but at least the floor."""

    floor_bytes: float
    share: Span

    def of(self, total_bytes: int) -> Span:
        used = self.share.scaled(total_bytes)
        return Span(low=used.low, expected=max(used.expected, self.floor_bytes), high=max(used.high, self.floor_bytes))


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineMemory:
    """How one range of vLLM versions, `since` to `version`, spends memory besides weights and cache.

    `sampler_bytes` a sequence and vocabulary entry besides the logits themselves; `hidden_copies` live copies of [tokens, hidden]
    beside an MLP. `whole_prompt_up_to` (V0): up to this max_model_len the profile run holds max_model_len tokens.
    `graph_bytes_a_layer` by "dense" or "moe": what is taken off the budget (`graphs_in_budget`), and `captured_bytes_a_layer` what
    the graphs hold afterwards. `warm_up_outside_budget`: the sampler is warmed up after the cache is taken and finds none of the
    profile's memory. `budget_spread` is the share of the budget that nothing explains, `unstated_spread` the share of the cache by
    which runs with unstated settings exceed the estimate. `latent_cache`: an MLA model caches the latent; before 0.7 its full keys
    and values.
    """

    since: str
    version: str
    engine: Literal["V0", "V1"]
    gpu_memory_utilization: float
    batch_sizes: tuple[BatchSize, ...]
    whole_prompt_up_to: int
    sampler_bytes: Span
    hidden_copies: Span
    latent_cache: bool
    expert_kernels: Mapping[str, str]
    largest_graph: Mapping[str, int]
    graphs_in_budget: bool
    warm_up_outside_budget: bool
    buffers: Mapping[str, CommunicationBuffers]
    graph_bytes_a_layer: Mapping[str, Span]
    captured_bytes_a_layer: Mapping[str, Span]
    first_graph_share: float
    vision_patches: Mapping[str, int]
    other_vision_patches: int
    vision_spread: Span
    baselines: Mapping[str, Baseline]
    budget_spread: float
    unstated_spread: float

    def batch_size(self, accelerator: Accelerator) -> BatchSize:
        """The default batch on this device; torch's memory size and the driver's name decide, as in vLLM."""
        device_gib = accelerator.memory.torch_gib or 0.0
        name = f"{accelerator.driver_name} {accelerator.id}".lower()
        return next(
            size
            for size in self.batch_sizes
            if device_gib >= size.min_device_gib and not any(word in name for word in size.except_devices)
        )

    def expert_kernels_on(self, accelerator: Accelerator) -> str:
        """Whose MXFP4 kernels pad the experts: the vendor's usual ones, or others for this compute capability."""
        capability = accelerator.compute_capability
        usual = accelerator.vendor
        return usual if capability is None else self.expert_kernels.get(str(capability[0]), usual)

    def graph_share(self, accelerator: Accelerator, max_num_seqs: int, max_num_batched_tokens: int) -> float:
        """Graph memory of this batch in proportion to that of 51 capture sizes."""
        capability = accelerator.compute_capability
        limit = self.largest_graph.get(str(capability[0]), LARGEST_GRAPH) if capability is not None else LARGEST_GRAPH
        largest = min(2 * max_num_seqs, limit, max_num_batched_tokens)
        sizes = sum(1 for size in (1, 2, 4) if size <= largest) + min(largest, 255) // 8 + max(0, (largest - 256) // 16 + 1)
        return self.first_graph_share + (1 - self.first_graph_share) * sizes / REFERENCE_CAPTURE_SIZES

    def communication(self, vendor: Vendor, *, ranks: int, linked: bool) -> Span:
        """Bytes a GPU outside torch: collective-library buffers, contexts, workspaces."""
        buffers = self.buffers[vendor]
        return (buffers.single if ranks == 1 else buffers.linked if linked else buffers.unlinked).scaled(GIB)


_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def version_key(version: str) -> tuple[int, int, int]:
    """(major, minor, patch) of a vLLM version such as 0.33.0, v0.10.1.1 or 0.14.0rc2.dev348; ConfigError where it is none."""
    match = _VERSION.match(version.strip())
    if match is None:
        raise ConfigError(
            [Diagnosis(path="vllmVersion", code="InvalidValue", message=f"{version!r} is no vLLM version; write it like 0.33.0.")]
        )
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)


@lru_cache(maxsize=64)
def engine_memory(version: str | None = None) -> EngineMemory:
    """What this version of vLLM does with memory; None is the newest that is known. A newer one is taken to do as the newest
    known."""
    releases = _releases()
    if version is None:
        return releases[-1][1]
    wanted = version_key(version)
    known = [entry for since, entry in releases if since <= wanted]
    return known[-1] if known else releases[0][1]


def measured_error() -> MeasuredError:
    """How far the estimate was off where starts were logged."""
    return _contents()[1]


def _releases() -> tuple[tuple[tuple[int, int, int], EngineMemory], ...]:
    return _contents()[0]


@lru_cache(maxsize=1)
def _contents() -> tuple[tuple[tuple[tuple[int, int, int], EngineMemory], ...], MeasuredError]:
    document = read_document(DATA / "vllm_memory.yaml")
    for key in ("sources", "batchSizes"):
        document.raw(key)
    measured = document.child("measured")
    graphs, vision = document.child("graphs"), document.child("vision")
    baseline = document.child("baseline")
    releases = document.children("releases", required=True)
    if graphs is None or vision is None or baseline is None or measured is None or not releases:
        raise ConfigError(
            document.problems
            or [Diagnosis(path=document.path, code="MissingField", message="lacks graphs, vision, baseline or measured.")]
        )
    shared = {
        "graph_bytes_a_layer": _layer_bytes(graphs, "estimate"),
        "captured_bytes_a_layer": _layer_bytes(graphs, "captured"),
        "first_graph_share": graphs.number("firstShare", required=True, minimum=0) or 0.0,
        "vision_patches": dict(vision.raw("patches", required=True) or {}),
        "other_vision_patches": vision.integer("otherPatches", required=True, minimum=1),
        "vision_spread": _span(vision, "spread"),
        "budget_spread": document.number("budgetSpread", required=True, minimum=0) or 0.0,
        "unstated_spread": document.number("unstatedSpread", required=True, minimum=0) or 0.0,
        "baselines": {vendor: _baseline(baseline, vendor) for vendor in ("nvidia", "amd")},
    }
    entries = tuple(_release(item, shared) for item in releases)
    error = MeasuredError(
        starts=measured.integer("starts", required=True) or 0,
        median=measured.number("median", required=True) or 0.0,
        ninetieth=measured.number("ninetieth", required=True) or 0.0,
        mean=measured.number("mean", required=True) or 0.0,
    )
    if document.problems:
        raise ConfigError(document.problems)
    return tuple(sorted(((version_key(entry.since), entry) for entry in entries), key=lambda pair: pair[0])), error


def _span(reader: Reader, key: str) -> Span:
    values = reader.raw(key, required=True)
    numbers = [float(v) for v in values if isinstance(v, int | float)] if isinstance(values, list) else []
    if len(numbers) != 3 or sorted(numbers) != numbers:
        reader.problem(key, f"is {values!r}; [low, expected, high] in rising order is expected.")
        return NOTHING
    return Span(low=numbers[0], expected=numbers[1], high=numbers[2])


def _baseline(reader: Reader, vendor: str) -> Baseline:
    child = reader.child(vendor)
    if child is None:
        return Baseline(floor_bytes=0.0, share=NOTHING)
    return Baseline(floor_bytes=(child.number("floorGib", required=True, minimum=0) or 0.0) * GIB, share=_span(child, "share"))


def _layer_bytes(reader: Reader, key: str) -> dict[str, Span]:
    child = reader.child(key)
    return {} if child is None else {kind: _span(child, kind).scaled(GIB) for kind in ("dense", "moe")}


def _release(reader: Reader, shared: Mapping[str, object]) -> EngineMemory:
    reader.raw("sources")
    buffers = {vendor: reader.child(vendor) for vendor in ("nvidia", "amd")}
    entry = EngineMemory(
        since=reader.text("since", required=True) or "0.0.0",
        version=reader.text("until", required=True) or "0.0.0",
        engine=reader.one_of("engine", ("V0", "V1"), required=True) or "V1",  # type: ignore[arg-type]
        gpu_memory_utilization=reader.number("gpuMemoryUtilization", required=True) or 0.9,
        batch_sizes=tuple(map(_batch_size, reader.children("batchSizes", required=True))),
        whole_prompt_up_to=reader.integer("wholePromptUpTo", minimum=0) or 0,
        sampler_bytes=_span(reader, "samplerBytes"),
        hidden_copies=_span(reader, "hiddenCopies"),
        expert_kernels=dict(reader.raw("expertKernels") or {}),
        largest_graph=dict(reader.raw("largestGraph") or {}),
        latent_cache=reader.boolean("latentCache") is not False,
        graphs_in_budget=bool(reader.boolean("graphsInBudget")),
        warm_up_outside_budget=bool(reader.boolean("warmUpOutsideBudget")),
        buffers={
            vendor: CommunicationBuffers(
                single=_span(child, "single"), linked=_span(child, "linked"), unlinked=_span(child, "unlinked")
            )
            for vendor, child in buffers.items()
            if child is not None
        },
        **shared,  # type: ignore[arg-type]
    )
    reader.finish()
    return entry


def _batch_size(reader: Reader) -> BatchSize:
    size = BatchSize(
        min_device_gib=reader.number("minDeviceGib", required=True) or 0.0,
        except_devices=reader.texts("exceptDevices"),
        max_num_batched_tokens=reader.integer("maxNumBatchedTokens", required=True, minimum=1) or 1,
        max_num_seqs=reader.integer("maxNumSeqs", required=True, minimum=1) or 1,
    )
    reader.finish()
    return size
