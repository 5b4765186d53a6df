"""The logged start-ups of tests/fixtures/kv-logs as objects, and the estimate of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from infra.catalog.load import accelerators
from infra.catalog.names import with_memory
from infra.catalog.reading import parse_yaml
from infra.catalog.types import Accelerator, AcceleratorMemory, Fabric
from infra.plan.architecture.reading import from_config_json
from infra.plan.architecture.types import Architecture
from infra.plan.memory.types import MemoryEstimate
from infra.units import GIB
from tests.plan.estimates import estimate_of

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kv-logs"
AMD_NAMES = ("Radeon", "Hygon")
LINKED_NAMES = ("GH200", "Hygon")


@dataclass(frozen=True, kw_only=True)
class Start:
    """One logged start-up; names as in records.yaml."""

    id: str
    source: str
    vllm: str | None
    gpu: str | None
    gpu_memory_gib: float | None
    model: str | None
    config: str | None
    settings: Mapping[str, Any]
    logged: Mapping[str, Any]
    error: str | None
    inferred: tuple[str, ...]
    out_of_reach: str | None

    @property
    def started(self) -> bool:
        return self.error is None

    @property
    def origin(self) -> str:
        """What several records of one author have in common: a project, a repository, or the first words of a page."""
        if "llm-d" in self.source:
            return "llm-d"
        return " ".join(self.source.split()[:2]) if "/" in self.source.split()[0] else self.source[:40]

    @property
    def architecture(self) -> Architecture | None:
        return None if self.config is None else architectures()[self.config]

    @cached_property
    def accelerator(self) -> Accelerator | None:
        """The card with the memory that the log prints; a card that the catalog does not know is reached over PCIe unless its name says more."""
        if self.gpu_memory_gib is None:
            return None
        memory = AcceleratorMemory(torch_gib=self.gpu_memory_gib)
        name = self.gpu or "not stated"
        known = accelerators().get(name)
        if known is not None:
            return with_memory(known, memory)
        vendor = "amd" if any(word in name for word in AMD_NAMES) else "nvidia"
        fabric = Fabric(kind="nvlink-switch" if any(word in name for word in LINKED_NAMES) else "pcie")
        return Accelerator(
            id=name,
            vendor=vendor,
            driver_name=name,
            architecture="",
            memory=memory,
            fabric=fabric,
            confidence="low",
        )

    @property
    def can_be_estimated(self) -> bool:
        return self.config is not None and self.gpu_memory_gib is not None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of estimate_memory() that the record states."""
        names = {
            "util": "gpu_memory_utilization",
            "len": "max_model_len",
            "seqs": "max_num_seqs",
            "batched": "max_num_batched_tokens",
            "block": "block_size",
            "dtype": "dtype",
            "quantization": "quantization",
            "kvDtype": "kv_cache_dtype",
        }
        stated = {names[key]: value for key, value in self.settings.items() if key in names}
        return stated | {
            "tensor_parallel_size": self.settings.get("tp", 1),
            "pipeline_parallel_size": self.settings.get("pp", 1),
            "enforce_eager": bool(self.settings.get("eager")),
            "expert_parallel": bool(self.settings.get("ep")),
            "vllm_version": self.vllm,
        }

    def estimate(self, **changes: Any) -> MemoryEstimate:
        architecture, accelerator = self.architecture, self.accelerator
        assert architecture is not None and accelerator is not None
        return estimate_of(architecture, accelerator, **(self.options | changes))

    def logged_available_gib(self, estimate: MemoryEstimate) -> float | None:
        """The available cache that was printed; else from the tokens or blocks where every layer keeps every token."""
        if "availableKv" in self.logged:
            return self.logged["availableKv"]
        if "kvBytes" in self.logged:
            return self.logged["kvBytes"] / GIB
        uniform = len(estimate.cache.groups) == 1 and not estimate.architecture.is_mla
        if uniform and "tokens" in self.logged:
            return self.logged["tokens"] * estimate.cache.bytes_per_token / GIB
        if uniform and "blocks" in self.logged:
            return self.logged["blocks"] * max(estimate.cache.bytes_per_block) / GIB
        return None


@lru_cache(maxsize=1)
def architectures() -> dict[str, Architecture]:
    configs = parse_yaml((FIXTURES / "configs.yaml").read_bytes(), "configs.yaml")
    return {name: from_config_json(config, name=name) for name, config in configs.items()}


@lru_cache(maxsize=1)
def starts() -> tuple[Start, ...]:
    """The 94 starts from which the constants of the model were taken."""
    return _read("records.yaml")


@lru_cache(maxsize=1)
def held_out() -> tuple[Start, ...]:
    """Starts that were found afterwards; no constant is taken from them."""
    return _read("held-out.yaml")


def _read(name: str) -> tuple[Start, ...]:
    records = parse_yaml((FIXTURES / name).read_bytes(), name)
    return tuple(
        Start(
            id=record["id"],
            source=record["source"],
            vllm=record.get("vllm"),
            gpu=record.get("gpu"),
            gpu_memory_gib=record.get("gpuMemoryGib"),
            model=record.get("model"),
            config=record.get("config"),
            settings=record.get("settings", {}),
            logged=record.get("logged", {}),
            error=record.get("error"),
            inferred=tuple(record.get("inferred", ())),
            out_of_reach=record.get("outOfReach"),
        )
        for record in records
    )


def start(name: str) -> Start:
    return next(item for item in starts() if item.id == name)
