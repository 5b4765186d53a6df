"""What a version of vLLM keeps back from the KV cache at start-up, as data: default sizes, sampler, graphs, communication
buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from infra.catalog.engine_releases import Version, version_key
from infra.catalog.entries import DATA, Fact, document_of
from infra.catalog.reading import read_whole
from infra.catalog.types import Accelerator, Vendor
from infra.config.base import NonNegativeInt, PositiveInt, Texts, Utilization
from infra.diagnosis import shown
from infra.plan.memory.span import Span
from infra.units import GIB

LARGEST_GRAPH = 512  # sequences of vLLM's largest CUDA graph where nothing else is said
REFERENCE_CAPTURE_SIZES = 51  # those up to 512


def _span(value: Any) -> Any:
    numbers = [float(v) for v in value if isinstance(v, int | float)] if isinstance(value, list) else []
    if len(numbers) != 3 or sorted(numbers) != numbers:
        raise ValueError(f"is {shown(value)}; [low, expected, high] in rising order is expected")
    return Span(low=numbers[0], expected=numbers[1], high=numbers[2])


Triple = Annotated[Span, BeforeValidator(_span)]
Share = Annotated[float, Field(ge=0)]


class MeasuredError(Fact):
    """Relative error of the available cache over `starts` real start-ups: median, 90th percentile and mean."""

    starts: int
    median: float
    ninetieth: float
    mean: float


class BatchSize(Fact):
    """max_num_batched_tokens and max_num_seqs that vLLM's OpenAI server takes on a device when none are given."""

    min_device_gib: float
    only_devices: Texts = ()
    except_devices: Texts = ()
    max_num_batched_tokens: PositiveInt
    max_num_seqs: PositiveInt


class CommunicationBuffers(Fact):
    """Memory outside torch, GiB a GPU: `single` one rank alone, `linked` ranks over NVLink or xGMI, `unlinked` over PCIe."""

    single: Triple
    linked: Triple
    unlinked: Triple


class Baseline(Fact):
    """Memory of a device that is used before vLLM starts: a share of it, but at least the floor."""

    floor_gib: Share
    share: Triple

    def of(self, total_bytes: int) -> Span:
        used, floor_bytes = self.share.scaled(total_bytes), self.floor_gib * GIB
        return Span(low=used.low, expected=max(used.expected, floor_bytes), high=max(used.high, floor_bytes))


class LayerGraphs(Fact):
    """GiB a layer of the rank for the capture sizes up to 512."""

    dense: Triple
    moe: Triple

    @property
    def bytes_a_layer(self) -> Mapping[str, Span]:
        return {"dense": self.dense.scaled(GIB), "moe": self.moe.scaled(GIB)}


class Graphs(Fact):
    """CUDA or HIP graphs: what a start-up takes off the budget, and what they then hold."""

    estimate: LayerGraphs
    captured: LayerGraphs
    first_share: Share
    sources: Texts = ()


class Vision(Fact):
    """Patches of the largest item of the profile run, by model type."""

    patches: dict[str, int]
    other_patches: PositiveInt
    spread: Triple
    sources: Texts = ()


class Release(Fact):
    """What one range of versions does; it holds until the next one's `since`."""

    since: str
    until: str
    engine: Literal["V0", "V1"]
    gpu_memory_utilization: Utilization
    batch_sizes: tuple[BatchSize, ...] = Field(strict=False)
    whole_prompt_up_to: NonNegativeInt = 0
    sampler_bytes: Triple
    hidden_copies: Triple
    latent_cache: bool = True
    expert_kernels: dict[str, str] = Field(default_factory=dict)
    largest_graph: dict[str, int] = Field(default_factory=dict)
    graphs_in_budget: bool = False
    warm_up_outside_budget: bool = False
    nvidia: CommunicationBuffers
    amd: CommunicationBuffers
    sources: Texts = ()


class MemoryProfile(Fact):
    """vllm_memory.yaml."""

    releases: tuple[Release, ...] = Field(min_length=1, strict=False)
    graphs: Graphs
    vision: Vision
    budget_spread: Share
    unstated_spread: Share
    measured: MeasuredError
    baseline: dict[Vendor, Baseline]


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
    baselines: Mapping[Vendor, Baseline]
    budget_spread: float
    unstated_spread: float

    def batch_size(self, accelerator: Accelerator) -> BatchSize:
        """The default batch on this device; torch's memory size and the driver's name decide, as in vLLM."""
        device_gib = accelerator.memory.torch_gib or 0.0
        name = f"{accelerator.driver_name} {accelerator.id}".lower()
        return next(
            size
            for size in self.batch_sizes
            if device_gib >= size.min_device_gib
            and not any(word in name for word in size.except_devices)
            and (not size.only_devices or any(word in name for word in size.only_devices))
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


def known_eras(oldest: str = "0.0.0") -> tuple[str, ...]:
    """Ranges of versions whose memory is known, oldest first: `0.8.0-0.11.2`; from `oldest` on."""
    eras = []
    for _, engine in _releases():
        if version_key(engine.version) >= version_key(oldest):
            eras.append(f"{max(engine.since, oldest, key=version_key)}-{engine.version}")
    return tuple(eras)


def is_known_era(version: str) -> bool:
    """True between the oldest and the newest version whose memory is known."""
    releases = _releases()
    return releases[0][0] <= version_key(version) <= version_key(releases[-1][1].version)


def measured_error() -> MeasuredError:
    """How far the estimate was off where starts were logged."""
    return _contents()[1]


def _releases() -> tuple[tuple[Version, EngineMemory], ...]:
    return _contents()[0]


@lru_cache(maxsize=1)
def _contents() -> tuple[tuple[tuple[Version, EngineMemory], ...], MeasuredError]:
    path = DATA / "vllm_memory.yaml"
    # `batchSizes` at the top only holds the anchors that the releases refer to
    document = {key: value for key, value in document_of(path).items() if key != "batchSizes"}
    profile = read_whole(MemoryProfile, document, path.name)
    entries = [(version_key(release.since), _engine(release, profile)) for release in profile.releases]
    return tuple(sorted(entries, key=lambda pair: pair[0])), profile.measured


def _engine(release: Release, profile: MemoryProfile) -> EngineMemory:
    return EngineMemory(
        since=release.since,
        version=release.until,
        engine=release.engine,
        gpu_memory_utilization=release.gpu_memory_utilization,
        batch_sizes=release.batch_sizes,
        whole_prompt_up_to=release.whole_prompt_up_to,
        sampler_bytes=release.sampler_bytes,
        hidden_copies=release.hidden_copies,
        latent_cache=release.latent_cache,
        expert_kernels=release.expert_kernels,
        largest_graph=release.largest_graph,
        graphs_in_budget=release.graphs_in_budget,
        warm_up_outside_budget=release.warm_up_outside_budget,
        buffers={"nvidia": release.nvidia, "amd": release.amd},
        graph_bytes_a_layer=profile.graphs.estimate.bytes_a_layer,
        captured_bytes_a_layer=profile.graphs.captured.bytes_a_layer,
        first_graph_share=profile.graphs.first_share,
        vision_patches=profile.vision.patches,
        other_vision_patches=profile.vision.other_patches,
        vision_spread=profile.vision.spread,
        baselines=profile.baseline,
        budget_spread=profile.budget_spread,
        unstated_spread=profile.unstated_spread,
    )
