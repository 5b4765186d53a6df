"""What the data of a version of vLLM says for a device and a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.catalog.engine_releases import version_key
from infra.catalog.names import find_accelerator
from infra.errors import ConfigError
from infra.plan.memory.profile import BatchSize, engine_memory
from infra.plan.memory.span import Span
from infra.units import GIB
from tests.plan.small import device

NEWEST = engine_memory(None)
H100, L40S, MI300X = (find_accelerator(name) for name in ("h100-sxm5-80gb", "l40s", "mi300x"))
ROWS = (
    BatchSize(min_device_gib=70, except_devices=("h100",), max_num_batched_tokens=4, max_num_seqs=3),
    BatchSize(min_device_gib=40, except_devices=(), max_num_batched_tokens=2, max_num_seqs=1),
    BatchSize(min_device_gib=0, except_devices=(), max_num_batched_tokens=8, max_num_seqs=7),
)


@pytest.mark.parametrize(
    ("name", "gib", "tokens"),
    [
        ("mi300x", 70.0, 4),
        ("mi300x", 69.9, 2),
        ("h100-sxm5-80gb", 80.0, 2),
        ("l40s", 40.0, 2),
        ("l40s", 39.9, 8),
        ("l40s", None, 8),
    ],
)
def test_the_first_row_that_the_device_reaches_counts(name: str, gib: float | None, tokens: int) -> None:
    assert replace(NEWEST, batch_sizes=ROWS).batch_size(device(name, torch_gib=gib)).max_num_batched_tokens == tokens


@pytest.mark.parametrize(
    ("sequences", "batched", "sizes"),
    [
        (1, 8192, 2),  # 1 and 2
        (2, 8192, 3),
        (4, 8192, 4),  # and 8
        (4, 7, 3),
        (4, 1, 1),
        (127, 8192, 34),  # every 8 up to 248
        (128, 8192, 35),  # and 256
        (135, 8192, 35),
        (136, 8192, 36),  # every 16 from there
        (256, 8192, 51),
        (1024, 8192, 51),
    ],
)
def test_graphs_grow_with_the_sizes_that_are_captured(sequences: int, batched: int, sizes: int) -> None:
    assert NEWEST.graph_share(H100, sequences, batched) == pytest.approx(0.3 + 0.7 * sizes / 51)


def test_the_largest_graph_is_that_of_the_compute_capability() -> None:
    b200 = find_accelerator("b200-sxm")
    assert NEWEST.graph_share(b200, 1024, 8192) == pytest.approx(0.3 + 0.7 * (51 + 32) / 51)
    assert engine_memory("0.27.0").graph_share(b200, 1024, 8192) == pytest.approx(1.0)
    assert NEWEST.graph_share(MI300X, 1024, 8192) == pytest.approx(1.0)


def test_mxfp4_kernels_by_version_and_device() -> None:
    assert [NEWEST.expert_kernels_on(gpu) for gpu in (H100, L40S, MI300X)] == ["nvidia-sm90", "nvidia", "amd"]
    assert engine_memory("0.11.0").expert_kernels_on(H100) == "nvidia"


def test_buffers_by_ranks_and_links() -> None:
    buffers = NEWEST.buffers["nvidia"]
    found = [
        NEWEST.communication("nvidia", ranks=ranks, linked=linked)
        for ranks, linked in ((1, True), (2, True), (2, False), (8, False))
    ]
    assert found == [span.scaled(GIB) for span in (buffers.single, buffers.linked, buffers.unlinked, buffers.unlinked)]


@pytest.mark.parametrize(
    ("vendor", "gib", "low", "expected", "high"),
    [("nvidia", 10, 0.04, 0.45, 0.45), ("nvidia", 40, 0.16, 0.45, 0.8), ("nvidia", 100, 0.4, 0.8, 2.0), ("amd", 100, 0.1, 0.2, 0.8), ("amd", 200, 0.2, 0.4, 1.6)],
)  # fmt: skip
def test_what_is_used_of_a_device_before_vllm_starts(vendor: Any, gib: int, low: float, expected: float, high: float) -> None:
    used = NEWEST.baselines[vendor].of(gib * GIB)
    assert [used.low / GIB, used.expected / GIB, used.high / GIB] == pytest.approx([low, expected, high])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0.33.0", (0, 33, 0, 0)),
        ("v1.2", (1, 2, 0, 0)),
        (" 0.10.1.1 ", (0, 10, 1, 1)),
        ("0.14.0rc2.dev348", (0, 14, 0, 0)),
        ("0.16.1.dev0+g89a77b108", (0, 16, 1, 0)),
        ("0.8.5.post1", (0, 8, 5, 0)),
    ],
)
def test_versions(text: str, key: tuple[int, int, int, int]) -> None:
    assert version_key(text) == key


def test_a_release_holds_until_the_next_one_begins() -> None:
    found = {version: engine_memory(version).since for version in ("0.0.1", "0.1.0", "0.6.9", "0.7.0", "0.19.9", "0.20.0", "1.0.0")}
    assert found == {
        "0.0.1": "0.1.0", "0.1.0": "0.1.0", "0.6.9": "0.1.0", "0.7.0": "0.7.0", "0.19.9": "0.19.0", "0.20.0": "0.20.0", "1.0.0": "0.28.0",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="'0' is no vLLM version"):
        version_key("0")


def test_latents_are_cached_since_0_7() -> None:
    assert [engine_memory(version).latent_cache for version in ("0.6.6", "0.7.0")] == [False, True]


def test_ranges_end_by_end() -> None:
    span = Span(low=1, expected=2, high=4)
    assert span + Span(low=10, expected=20, high=40) == Span(low=11, expected=22, high=44)
    assert span.scaled(3) == Span(low=3, expected=6, high=12)
    assert Span.maximum(span, Span(low=0, expected=3, high=3)) == Span(low=1, expected=3, high=4)
