"""How a model may be cut over machines: pods, candidates in their order, and what a machine refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.candidates import candidate_sizes, tiers
from infra.plan.parallelism.machine_rules import replicas_that_fit, size_refusal
from infra.plan.parallelism.rank import MemoryVerdict, rank
from infra.plan.parallelism.sizes import Machines, Size, SizeConstraints, arrange
from infra.plan.parallelism.tensor_group import tensor_group
from tests.plan.small import EXPERTS, small
from tests.plan.test_parallelism import machine, machines

NVLINK = machine([4, 4], "h100-sxm5-80gb", None)
PCIE = machine([2, 2], "l40s", None)
PAIRS = machine([2, 2], "a100-pcie-80gb", [[0, 1], [2, 3]])
UNKNOWN = replace(NVLINK, link_domains=None)
UNMAPPED = replace(PCIE, numa_nodes=())

# Divisible by 2 and by 4, in all that is cut
MODEL = small(("full",) * 6, heads=8, kv_heads=4, intermediate=64, vocab=128)


def size(tensor: int = 1, pipeline: int = 1, data: int = 1, experts: bool = False, pods: int = 1) -> Size:
    return Size(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        data_parallel_size=data,
        expert_parallel=experts,
        gpus_per_pod=tensor * pipeline * data // pods,
        pods_per_replica=pods,
    )


@pytest.mark.parametrize(
    ("tensor", "pipeline", "data", "pods"),
    [
        (1, 1, 1, 1),
        (2, 2, 1, 1),
        (4, 1, 1, 1),
        (1, 5, 1, 5),  # five GPUs on machines of four: equal pods of one
        (1, 6, 1, 2),
        (2, 3, 1, 3),
        (4, 2, 1, 2),
        (2, 1, 4, 2),
        (3, 3, 1, 3),
        (8, 1, 1, 2),
        (8, 2, 1, 4),
    ],
)
def test_pods_are_equal_and_hold_whole_groups(tensor: int, pipeline: int, data: int, pods: int) -> None:
    assert arrange(tensor, pipeline, data, True, 4) == size(tensor, pipeline, data, True, pods)


@pytest.mark.parametrize(("tensor", "gpus"), [(5, 4), (6, 4), (3, 2)])
def test_a_group_that_fills_no_machines_whole_has_no_pods(tensor: int, gpus: int) -> None:
    assert arrange(tensor, 1, 1, False, gpus) is None


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (size(), "tensor parallel 1"),
        (size(2, 2), "tensor parallel 2, pipeline parallel 2"),
        (size(2, 1, 2, True), "tensor parallel 2, data parallel 2, expert parallel"),
    ],
)
def test_sizes_in_words(found: Size, text: str) -> None:
    assert str(found) == text and found.gpus == found.parallel.gpus


def splits(sizes: tuple[Size, ...]) -> list[tuple[int, int]]:
    return [(found.tensor_parallel_size, found.pipeline_parallel_size) for found in sizes]


@pytest.mark.parametrize(
    ("architecture", "nodes", "constraints", "expected"),
    [
        (MODEL, 1, {}, [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)]),
        (MODEL, 2, {}, [(1, 1), (1, 2), (1, 3), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4), (3, 1), (3, 2), (4, 1), (4, 2)]),
        (
            MODEL,
            9,
            {"tensor_parallel_size": 4},
            [(4, pipeline) for pipeline in range(1, 8)],
        ),  # seven stages are too many for six layers
        (MODEL, 9, {"tensor_parallel_size": 2}, [(2, 1), (2, 2), (2, 4), (2, 6), (2, 8)]),
        (MODEL, 1, {"pipeline_parallel_size": 2}, [(1, 2), (2, 2), (3, 2), (4, 2)]),
        (MODEL, 1, {"pipeline_parallel_size": 4}, [(1, 4), (2, 4), (3, 4), (4, 4)]),
        (MODEL, 9, {"data_parallel_size": 2}, [(1, 1), (1, 2), (2, 1), (3, 1), (4, 1)]),
        (MODEL, 3, {"tensor_parallel_size": 8}, [(8, 1)]),
        (MODEL, 3, {"tensor_parallel_size": 5}, []),
    ],
)
def test_candidates_on_machines_of_four(
    architecture: Architecture, nodes: int, constraints: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    assert splits(candidate_sizes(architecture, machines(PCIE, nodes), SizeConstraints(**constraints))) == expected


def test_whole_experts_are_candidates_where_their_width_cannot_be_cut() -> None:
    moe = replace(MODEL, mlp=("moe",) * 6, moe=replace(EXPERTS, intermediate=2))
    one = machines(PCIE)
    sizes = candidate_sizes(moe, one, SizeConstraints(pipeline_parallel_size=1))
    assert [(s.tensor_parallel_size, s.expert_parallel) for s in sizes] == [
        (1, False), (2, False), (3, False), (3, True), (4, False), (4, True),
    ]  # fmt: skip
    by_data = candidate_sizes(moe, one, SizeConstraints(pipeline_parallel_size=1, data_parallel_size=2))
    assert [(s.tensor_parallel_size, s.expert_parallel) for s in by_data][:3] == [(1, False), (2, False), (2, True)]
    given = candidate_sizes(moe, one, SizeConstraints(pipeline_parallel_size=1, tensor_parallel_size=4))
    assert [s.expert_parallel for s in given] == [False]
    spread = candidate_sizes(moe, one, SizeConstraints(pipeline_parallel_size=1, expert_parallel=True))
    assert {s.expert_parallel for s in spread} == {True}
    assert not any(s.expert_parallel for s in candidate_sizes(MODEL, one, SizeConstraints()))


@pytest.mark.parametrize(
    ("several", "constraints", "preferred"),
    [
        # NVLink over eight: stages only beyond the widest group
        (machines(NVLINK), {}, [(1, 1), (2, 1), (4, 1), (8, 1)]),
        (machines(NVLINK, 2), {}, [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2)]),
        (machines(NVLINK), {"gpus_per_numa_node_limit": 2}, [(1, 1), (2, 1), (2, 2), (2, 4), (4, 1), (8, 1)]),
        (machines(NVLINK), {"pipeline_parallel_size": 2}, [(1, 2), (2, 2), (4, 2), (8, 2)]),
        (machines(NVLINK), {"tensor_parallel_size": 2}, [(2, 1), (2, 2), (2, 4)]),
        (machines(UNKNOWN), {}, [(1, 1), (1, 2), (1, 4), (1, 8)]),
        # PCIe alone: no group at all before stages
        (machines(PCIE), {}, [(1, 1), (1, 2), (1, 4)]),
        (machines(PAIRS), {}, [(1, 1), (2, 1), (2, 2)]),
    ],
)
def test_preferred_sizes(several: Machines, constraints: dict[str, Any], preferred: list[tuple[int, int]]) -> None:
    first, second = tiers(MODEL, several, SizeConstraints(**constraints))
    assert [split for split in splits(first) if split[0] not in (3, 5, 6, 7)] == preferred
    assert not set(first) & set(second)
    assert set(first) | set(second) == set(candidate_sizes(MODEL, several, SizeConstraints(**constraints)))


def test_a_class_without_pipeline_parallel_may_cut_beyond_its_domain() -> None:
    first, _ = tiers(replace(MODEL, supports_pipeline_parallel=False), machines(PAIRS), SizeConstraints())
    assert (4, 1) in splits(first) and (3, 1) not in splits(first)


@pytest.mark.parametrize(
    ("several", "found", "constraints", "rule", "message"),
    [
        (machines(NVLINK), size(2), {}, None, ""),
        (machines(NVLINK), size(3), {}, "AttentionHeads", "8 attention heads, not divisible by 3"),
        (machines(NVLINK), size(1, 7), {}, "Layers", "6 layers, fewer than 7 stages"),
        (machines(NVLINK), size(1, 6), {}, None, ""),
        (machines(replace(NVLINK, partition="CPX_NPS4")), size(2), {}, "PartitionedDevice", "tensor parallel 2 over partitions is refused"),
        (machines(replace(NVLINK, partition="CPX_NPS4")), size(1, 2), {}, None, ""),
        (machines(replace(NVLINK, partition="spx_nps1")), size(2), {}, None, ""),
        (machines(PCIE, 2), size(8, pods=2), {}, "TensorParallelOverNodes", "needs 2 machines of the given topology (4 GPUs each)"),
        (machines(PCIE, 2), size(8, pods=2), {"rdma": True}, None, ""),
        (machines(PCIE), size(4), {}, None, ""),
        (machines(NVLINK), size(4), {"gpus_per_numa_node_limit": 4}, None, ""),
        (machines(NVLINK), size(8), {"gpus_per_numa_node_limit": 4}, "SingleNumaNode", "8 GPUs need 2 NUMA nodes of the given topology (4 each)"),
        (machines(UNMAPPED), size(4), {"gpus_per_numa_node_limit": 2}, "SingleNumaNode", "4 GPUs need several NUMA nodes of the given topology (2 each)"),
        (machines(NVLINK), size(4), {"replicas": 2}, None, ""),
        (machines(NVLINK), size(4), {"replicas": 3}, "NotEnoughMachines",
         "3 replicas of 1 pod with 4 GPUs each do not go on 1 machine of the given topology (8 GPUs): there is room for 2"),
        (machines(NVLINK, 3), size(8, 2, pods=2), {"replicas": 2}, "NotEnoughMachines",
         "2 replicas of 2 pods with 8 GPUs each do not go on 3 machines of the given topology (8 GPUs): there is room for 1"),
        (machines(NVLINK), size(8, 2, pods=2), {}, "NotEnoughMachines",
         "1 replica of 2 pods with 8 GPUs each do not go on 1 machine of the given topology (8 GPUs): there is room for 0"),
    ],
)  # fmt: skip
def test_what_a_machine_refuses(
    several: Machines, found: Size, constraints: dict[str, Any], rule: str | None, message: str
) -> None:
    refusal = size_refusal(MODEL, several, found, SizeConstraints(**constraints))
    assert (refusal and refusal.rule) == rule
    assert refusal is None or message in refusal.message


@pytest.mark.parametrize(
    ("nodes", "found", "per_node", "replicas"),
    [
        (1, size(), None, 8),
        (3, size(), None, 24),
        (3, size(), 2, 6),
        (3, size(4), 5, 6),
        (3, size(3), None, 6),
        (3, size(8, 2, pods=2), None, 1),
        (4, size(8, 2, pods=2), None, 2),
        (4, size(4, 2, pods=2), None, 4),
        (4, size(4, 2, pods=2), 1, 2),
    ],
)
def test_replicas_on_machines_of_eight(nodes: int, found: Size, per_node: int | None, replicas: int) -> None:
    assert replicas_that_fit(machines(NVLINK, nodes), found, per_node) == replicas


THREE = machine([3, 1, 4], "h100-sxm5-80gb", None)


@pytest.mark.parametrize(
    ("several", "tensor", "gpus", "link", "numa_nodes"),
    [
        (machines(NVLINK), 1, 1, "none", 1),
        (machines(NVLINK), 1, 8, "none", 2),
        (machines(NVLINK), 8, 8, "link-domain", 2),
        (machines(NVLINK), 9, 9, "network", None),
        (machines(PCIE), 2, 2, "pcie", 1),
        (machines(PCIE), 2, 4, "pcie", 2),
        (machines(PCIE), 3, 3, "cross-socket", 2),
        (machines(PCIE), 4, 4, "cross-socket", 2),
        (machines(PAIRS), 2, 2, "link-domain", 1),
        (machines(PAIRS), 3, 4, "cross-socket", 2),
        (machines(UNKNOWN), 2, 2, "unknown", 1),
        (machines(replace(PCIE, link_domains=None)), 2, 2, "pcie", 1),
        (machines(UNMAPPED), 4, 4, "pcie", None),
        (machines(THREE), 1, 4, "none", 1),
        (machines(THREE), 1, 5, "none", 2),
        (machines(THREE), 1, 7, "none", 2),
        (machines(THREE), 1, 8, "none", 3),
    ],
)
def test_where_a_group_lies(several: Machines, tensor: int, gpus: int, link: str, numa_nodes: int | None) -> None:
    group = tensor_group(several.shape, several.accelerator, tensor, gpus)
    assert (group.link, group.numa_nodes, group.size, group.gpus) == (link, numa_nodes, tensor, gpus)


@pytest.mark.parametrize(
    ("several", "tensor", "gpus", "sentence"),
    [
        (machines(NVLINK), 1, 1, "1 GPU of one NUMA node; one GPU a rank group, nothing to exchange"),
        (machines(NVLINK), 2, 2, "2 GPUs of one NUMA node; tensor parallel 2 inside one NVLink domain"),
        (machines(NVLINK), 2, 8, "8 GPUs over 2 NUMA nodes of the given topology; tensor parallel 2 inside one NVLink domain"),
        (machines(machine([2], "mi300x", None)), 2, 2, "2 GPUs of one NUMA node; tensor parallel 2 inside one xGMI domain"),
        (
            machines(UNMAPPED),
            2,
            2,
            "which GPU of the given topology is on which NUMA node is not known; tensor parallel 2 over PCIe inside a NUMA node",
        ),
        (machines(PCIE), 4, 4, "4 GPUs over 2 NUMA nodes of the given topology; tensor parallel 4 over PCIe across sockets"),
    ],
)
def test_where_a_group_lies_in_words(several: Machines, tensor: int, gpus: int, sentence: str) -> None:
    assert tensor_group(several.shape, several.accelerator, tensor, gpus).explain(several.shape, several.accelerator) == sentence


def verdict(concurrency: float, tokens: float) -> MemoryVerdict:
    return MemoryVerdict(fits=True, concurrency=concurrency, largest_max_model_len=0, reason="", tokens=tokens)


def test_a_size_serves_at_most_the_sequences_that_vllm_batches_by_default() -> None:
    assert SizeConstraints().max_num_seqs == 256 and SizeConstraints().replicas == 1


@pytest.mark.parametrize(
    ("several", "found", "memory", "expected"),
    [
        (machines(NVLINK), size(), verdict(10, 32_768), (1, -1, 10, 1)),
        (machines(NVLINK), size(), verdict(10, 32_767), (0, 0, 10, 1)),
        (machines(NVLINK), size(), verdict(300, 0), (0, 0, 256, 1)),
        (machines(NVLINK), size(2), verdict(10, 0), (0, 0, 5 * 0.85, 2 * 0.85)),
        (machines(NVLINK), size(4), verdict(8, 32_768), (1, -4, 2 * 0.85**2, 4 * 0.85**2)),
        (machines(NVLINK), size(8), verdict(8, 0), (0, 0, 0.85**3 * 0.9, 8 * 0.85**3)),
        (machines(NVLINK), size(1, 2), verdict(10, 0), (0, 0, 5 * 0.8, 0.8)),
        (machines(NVLINK), size(1, 4), verdict(8, 0), (0, 0, 2 * 0.64, 0.64)),
        (machines(NVLINK, 2), size(8, 2, pods=2), verdict(16, 32_768),
         (1, -16, 0.85**3 * 0.8 * 0.85 * 0.9, 8 * 0.85**3 * 0.8 * 0.85)),
        (machines(NVLINK), size(1, 1, 2), verdict(10, 16_384), (1, -2, 10, 1)),
        (machines(NVLINK), size(1, 1, 2), verdict(10, 16_383), (0, 0, 10, 1)),
        (machines(PCIE), size(2), verdict(10, 0), (0, 0, 5 * 0.6, 1)),
        (machines(PCIE), size(4), verdict(8, 0), (0, 0, 2 * 0.5**2 * 0.9, 1)),
        (machines(UNKNOWN), size(2), verdict(10, 0), (0, 0, 5 * 0.7, 1)),
        (machines(UNMAPPED), size(4), verdict(8, 0), (0, 0, 2 * 0.6**2, 1)),
    ],
)  # fmt: skip
def test_the_rank_of_a_size(several: Machines, found: Size, memory: MemoryVerdict, expected: tuple[float, ...]) -> None:
    value = rank(found, memory, several, objective="throughput", max_num_seqs=256)
    assert value == pytest.approx(expected)
    assert rank(found, memory, several, objective="latency", max_num_seqs=256) == pytest.approx((expected[3], expected[2]))
