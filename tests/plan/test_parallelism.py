"""The choice of parallel sizes: by links, NUMA nodes and memory; the exact search; what is said where nothing goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.names import accelerator_of, find_model, find_shape
from infra.catalog.topology import shape_from_topology
from infra.catalog.types import NodeShape
from infra.errors import PlanError
from infra.plan.architecture.partition import ParallelSizes
from infra.plan.architecture.quantization import Quantization
from infra.plan.architecture.reading import architecture_of
from infra.plan.architecture.types import Architecture
from infra.plan.memory.weights import weights_bytes_per_rank
from infra.plan.parallelism.candidates import candidate_sizes, tiers
from infra.plan.parallelism.choice import ParallelismChoice, choose
from infra.plan.parallelism.machine_rules import replicas_that_fit, size_refusal
from infra.plan.parallelism.rank import Fits, MemoryVerdict, Objective, rank
from infra.plan.parallelism.sizes import Machines, Size, SizeConstraints
from infra.units import GIB


def model(name: str) -> Architecture:
    return architecture_of(find_model(name))


def memory(architecture: Architecture, budget_gib: float, tokens_per_gib: float = 1000, length: int = 8192) -> Fits:
    """A memory of its own for the tests: what weights leave of a budget becomes cache."""

    def fits(sizes: ParallelSizes) -> MemoryVerdict:
        weights = max(
            weights_bytes_per_rank(
                architecture,
                tensor_parallel_size=sizes.tensor_parallel_size,
                pipeline_parallel_size=sizes.pipeline_parallel_size,
                data_parallel_size=sizes.data_parallel_size,
                expert_parallel=sizes.expert_parallel,
            )
        )
        left = budget_gib - weights / GIB
        shared = 1 if architecture.is_mla else min(sizes.tensor_parallel_size, architecture.kv_heads)
        tokens = max(0.0, left) * tokens_per_gib * shared * sizes.pipeline_parallel_size
        return MemoryVerdict(
            fits=tokens >= length,
            concurrency=tokens / length,
            largest_max_model_len=int(tokens),
            reason=f"{weights / GIB:.1f} GiB of weights leave {left:.1f} of {budget_gib:.1f} GiB",
            tokens=tokens,
        )

    return fits


def machines(shape: str | NodeShape, nodes: int = 1) -> Machines:
    machine = find_shape(shape) if isinstance(shape, str) else shape
    return Machines(shape=machine, accelerator=accelerator_of(machine), nodes=nodes)


def decide(
    name: str,
    shape: str | NodeShape,
    budget_gib: float,
    *,
    nodes: int = 1,
    length: int = 8192,
    objective: Objective = "throughput",
    **constraints: Any,
) -> ParallelismChoice:
    architecture = model(name)
    fits = memory(architecture, budget_gib, length=length)
    fixed = SizeConstraints(**constraints)
    return choose(architecture, machines(shape, nodes), fits, fixed, objective=objective, path="models[0]")


@pytest.mark.parametrize(
    ("name", "shape", "budget_gib", "nodes", "tensor", "pipeline", "gpus_per_pod", "pods"),
    [
        ("Llama-3.1-8B-Instruct", "dgx-h100", 71, 1, 1, 1, 1, 1),
        ("Llama-3.3-70B-Instruct", "dgx-h100", 71, 1, 4, 1, 4, 1),
        ("Llama-3.1-405B-Instruct", "dgx-h100", 71, 2, 8, 2, 8, 2),
        ("DeepSeek-V3", "dgx-h200", 125, 1, 8, 1, 8, 1),
        ("DeepSeek-V3", "dgx-h100", 71, 2, 8, 2, 8, 2),
        ("Llama-3.3-70B-Instruct", "azure-nd96isr_mi300x_v5", 172, 1, 1, 1, 1, 1),
        ("Qwen3-235B-A22B-FP8", "dgx-h100", 71, 1, 4, 1, 4, 1),
        ("Llama-3.3-70B-Instruct", "l40s-4-2s", 40, 1, 1, 4, 4, 1),
        ("Qwen2.5-72B-Instruct", "azure-nc96ads_a100_v4", 71, 1, 2, 2, 4, 1),
        ("Llama-3.3-70B-Instruct", "frontier-mi250x", 57, 1, 2, 2, 4, 1),
        ("phi-4", "aws-g6.48xlarge", 19, 1, 1, 4, 4, 1),
    ],
)
def test_the_choice_on_well_known_machines(
    name: str, shape: str, budget_gib: float, nodes: int, tensor: int, pipeline: int, gpus_per_pod: int, pods: int
) -> None:
    choice = decide(name, shape, budget_gib, nodes=nodes)
    found = (choice.tensor_parallel_size, choice.pipeline_parallel_size, choice.gpus_per_pod, choice.pods_per_replica)
    assert found == (tensor, pipeline, gpus_per_pod, pods), choice.reasons


def test_latency_takes_the_whole_link_domain_and_no_more() -> None:
    assert decide("Llama-3.1-8B-Instruct", "dgx-h100", 71, objective="latency").tensor_parallel_size == 8
    assert decide("phi-4", "dgx-h100", 71, objective="latency").tensor_parallel_size == 2
    over_pcie = decide("Llama-3.1-8B-Instruct", "l40s-4-2s", 40, objective="latency")
    assert (over_pcie.tensor_parallel_size, over_pcie.pipeline_parallel_size) == (1, 1)


def test_pcie_cards_pipeline_before_they_cut_tensors() -> None:
    choice = decide("Qwen3-32B", "aws-g6e.48xlarge", 40)
    assert choice.tensor_parallel_size == 1 and choice.pipeline_parallel_size > 1
    asked = decide("Qwen3-32B", "l40s-4-2s", 40, tensor_parallel_size=4)
    codes = {problem.code: problem.message for problem in asked.warnings}
    assert "custom all-reduce off for more than 2 GPUs" in codes["PcieTensorParallel"]
    assert "a NUMA node of l40s-4-2s holds 2" in codes["CrossSocketTensorParallel"]
    assert not decide("Qwen3-32B", "dgx-h100", 71, tensor_parallel_size=4).warnings


def test_a_model_that_cannot_cut_further_adds_stages_inside_the_domain() -> None:
    choice = decide("phi-4", "dgx-h100", 9)  # 27 GiB of weights, 10 KV heads: tensor parallel 2 at most
    assert (choice.tensor_parallel_size, choice.pipeline_parallel_size) == (2, 4)
    assert {alternative.size.tensor_parallel_size for alternative in choice.alternatives} == {2}


def test_what_is_given_is_kept() -> None:
    choice = decide("Llama-3.1-8B-Instruct", "dgx-h100", 71, tensor_parallel_size=4, pipeline_parallel_size=2)
    assert choice.size == Size(
        tensor_parallel_size=4,
        pipeline_parallel_size=2,
        data_parallel_size=1,
        expert_parallel=False,
        gpus_per_pod=8,
        pods_per_replica=1,
    )
    assert (
        decide("Llama-3.1-8B-Instruct", "dgx-h100", 71, nodes=2, tensor_parallel_size=8, pipeline_parallel_size=2).pods_per_replica
        == 2
    )
    data = decide("Qwen3-30B-A3B", "dgx-h100", 71, data_parallel_size=4, expert_parallel=True, tensor_parallel_size=2)
    assert (data.gpus_per_pod, data.data_parallel_size, data.expert_parallel) == (8, 4, True)


@pytest.mark.parametrize(
    ("name", "constraints", "code", "message"),
    [
        ("Llama-3.3-70B-Instruct", {"tensor_parallel_size": 3}, "AttentionHeads", "models[0].tensorParallelSize: 3 does not work"),
        ("Qwen3-235B-A22B-FP8", {"tensor_parallel_size": 8}, "Fp8BlockWidth", "is 192, not a multiple of 128. Use 2 or 4"),
        (
            "whisper-large-v3",
            {"pipeline_parallel_size": 2},
            "PipelineParallelUnsupported",
            "models[0].pipelineParallelSize: 2 does not work",
        ),
        ("Llama-3.3-70B-Instruct", {"expert_parallel": True}, "NoExperts", "models[0].enableExpertParallel: true does not work"),
        (
            "Llama-3.3-70B-Instruct",
            {"tensor_parallel_size": 16},
            "TensorParallelOverNodes",
            "tensor parallel 16 needs 2 machines of dgx-h100 (8 GPUs each), and no RDMA with GPUDirect is declared between them. "
            "Use 8 with pipelineParallelSize 2, or use 8 with pipelineParallelSize 1.",
        ),
        (
            "Llama-3.3-70B-Instruct",
            {"tensor_parallel_size": 8, "gpus_per_numa_node_limit": 4},
            "SingleNumaNode",
            "8 GPUs need 2 NUMA nodes of dgx-h100 (4 each); single-numa-node admits 1. Use 4, or write topologyManagerPolicy: restricted.",
        ),
        (
            "Llama-3.3-70B-Instruct",
            {"tensor_parallel_size": 4, "pipeline_parallel_size": 1, "replicas": 3, "pods_per_node": 1},
            "NotEnoughMachines",
            "3 replicas of 1 pod with 4 GPUs each do not go on 2 machines of dgx-h100 (8 GPUs, required anti-affinity keeps pods of the model on nodes of their own): there is room for 2.",
        ),
    ],
)
def test_an_override_that_cannot_work_says_why(name: str, constraints: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        decide(name, "dgx-h100", 71, nodes=2, **constraints)
    assert any(problem.code == code and message in str(problem) for problem in error.value.problems), str(error.value)


def test_tensor_parallel_over_machines_goes_with_declared_rdma() -> None:
    choice = decide("Llama-3.3-70B-Instruct", "dgx-h100", 71, nodes=2, tensor_parallel_size=16, rdma=True)
    assert (choice.gpus_per_pod, choice.pods_per_replica, choice.group.link) == (8, 2, "network")


def test_a_single_numa_policy_keeps_the_group_on_one_node() -> None:
    choice = decide("Llama-3.3-70B-Instruct", "dgx-a100", 71, gpus_per_numa_node_limit=2, length=512)
    assert choice.gpus_per_pod == 2 and choice.group.numa_nodes == 1


def test_partitions_are_refused_with_tensor_parallel() -> None:
    assert decide("Llama-3.1-8B-Instruct", "mi300x-8-cpx-nps4", 22).tensor_parallel_size == 1
    with pytest.raises(
        PlanError, match=r"partitions \(CPX_NPS4\); tensor parallel 2 over partitions is refused. Use 1. Or set the cards to SPX"
    ):
        decide("Llama-3.1-8B-Instruct", "mi300x-8-cpx-nps4", 22, tensor_parallel_size=2)


def test_what_fits_nowhere_says_what_would_do() -> None:
    with pytest.raises(PlanError) as error:
        decide("Llama-3.1-405B-Instruct", "dgx-h100", 71)
    text = str(error.value)
    assert "models[0]: meta-llama/Llama-3.1-405B-Instruct does not fit 1 machine of dgx-h100 (8 x NVIDIA H100 80GB HBM3)" in text
    assert "with tensor parallel 8, 94.5 GiB of weights leave -23.5 of 71.0 GiB" in text
    assert "tensor parallel 8, pipeline parallel 2 on 16 GPUs (2 machines)" in text
    assert "A quantised checkpoint" in text
    with pytest.raises(PlanError, match=r"use maxModelLen \d+|Use maxModelLen \d+"):
        decide("Llama-3.1-8B-Instruct", "dgx-h100", 15.4, length=10**7)


def test_experts_that_cannot_be_cut_are_spread_only_where_the_user_leaves_it_open() -> None:
    architecture, one = model("Qwen3-235B-A22B-FP8"), machines("dgx-h100")
    free = {size for size in candidate_sizes(architecture, one, SizeConstraints()) if size.tensor_parallel_size == 8}
    assert {size.expert_parallel for size in free} == {False, True}
    without = candidate_sizes(architecture, one, SizeConstraints(expert_parallel=False))
    assert not any(size.expert_parallel for size in without)


@pytest.mark.parametrize(
    "constraints", [SizeConstraints(), SizeConstraints(tensor_parallel_size=1), SizeConstraints(tensor_parallel_size=4)]
)
def test_machines_beyond_a_stage_a_layer_add_no_sizes(constraints: SizeConstraints) -> None:
    architecture = model("Meta-Llama-3-70B-Instruct")
    sizes = candidate_sizes(architecture, machines("dgx-h100", 200), constraints)
    assert candidate_sizes(architecture, machines("dgx-h100", 10_000), constraints) == sizes
    assert max(size.pipeline_parallel_size for size in sizes) > architecture.layers, "the rule that ends it is told"


def test_latent_attention_hears_of_data_parallel() -> None:
    choice = decide("DeepSeek-V3", "dgx-h200", 125)
    hint = choice.alternatives[-1]
    assert hint.size.data_parallel_size == 8 and hint.size.expert_parallel
    assert "dataParallelSize 8 with enableExpertParallel" in hint.reason and "only where it is asked for" in hint.reason


def test_reasons_are_sentences_for_people() -> None:
    choice = decide("Llama-3.3-70B-Instruct", "dgx-h100", 71)
    assert choice.reasons[0].startswith("tensor parallel 4 on 4 GPUs of dgx-h100: room for ")
    assert choice.reasons[-1] == "4 GPUs of one NUMA node; tensor parallel 4 inside one NVLink domain"
    assert {item.rule for item in choice.rejected} == {"Memory"}
    assert all(item.reason for item in choice.rejected) and all(item.reason for item in choice.alternatives)
    amd = decide("Llama-3.1-405B-Instruct", "azure-nd96isr_mi300x_v5", 172)
    assert "inside one xGMI domain" in amd.reasons[-1]


def test_a_quantisation_that_vllm_does_not_bring_is_told() -> None:
    architecture = replace(
        model("Llama-3.1-8B-Instruct"),
        quantization=Quantization(method="bitsandbytes", weight_bits=4, form="group", group_size=64),
    )
    choice = choose(architecture, machines("dgx-h100"), memory(architecture, 71), path="models[2]")
    [warning] = choice.warnings
    assert (warning.code, warning.path) == ("QuantizationNotBuiltIn", "models[2].model")
    assert "quantised by bitsandbytes, which vLLM 0.33.0 does not bring itself" in warning.message


def machine(numa: list[int], sku: str, domains: list[list[int]] | None) -> NodeShape:
    nodes, first = [], 0
    for index, count in enumerate(numa):
        nodes.append({"cpus": f"{index * 16}-{index * 16 + 15}", "memory": "256Gi", "gpus": list(range(first, first + count))})
        first += count
    raw: dict[str, object] = {"sku": sku, "threadsPerCore": 1, "numaNodes": nodes}
    if domains is not None:
        raw["linkDomains"] = domains
    return shape_from_topology(raw)


SMALL_MACHINES = [
    machine([4, 4], "h100-sxm5-80gb", None),
    machine([2, 2], "l40s", None),
    machine([2, 2], "a100-pcie-80gb", [[0, 1], [2, 3]]),
    machine([3, 3], "h100-sxm5-80gb", None),
    machine([1, 1, 1, 1], "mi210", [[0, 1, 2, 3]]),
    machine([2, 2, 2, 2], "mi250x-gcd", [[0, 1], [2, 3], [4, 5], [6, 7]]),
]
SMALL_MODELS = [
    "Llama-3.1-8B-Instruct",
    "phi-4",
    "Qwen3-30B-A3B-FP8",
    "Qwen2.5-7B-Instruct",
    "whisper-large-v3",
    "DeepSeek-V2-Lite-Chat",
]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(SMALL_MACHINES),
    st.sampled_from(SMALL_MODELS),
    st.floats(1, 60),
    st.integers(1, 3),
    st.sampled_from(["throughput", "latency"]),
    st.sampled_from([None, 1, 2, 4]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 2, 4]),
    st.integers(1, 3),
)
def test_the_search_is_exact(
    shape: NodeShape,
    name: str,
    budget: float,
    nodes: int,
    objective: Objective,
    tensor: int | None,
    pipeline: int | None,
    limit: int | None,
    replicas: int,
) -> None:
    """Brute force over every split in equal pods: nothing of a better tier or a higher rank than the choice."""
    architecture, several = model(name), machines(shape, nodes)
    fits = memory(architecture, budget)
    constraints = SizeConstraints(
        tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, gpus_per_numa_node_limit=limit, replicas=replicas
    )
    sizes = []
    for t in range(1, shape.gpus * nodes + 1):
        for p in range(1, shape.gpus * nodes + 1):
            for experts in (False, True):
                for pods in range(1, nodes + 1):
                    if (tensor in (None, t)) and (pipeline in (None, p)) and t * p % pods == 0 and t * p // pods <= shape.gpus:
                        sizes.append(
                            Size(
                                tensor_parallel_size=t, pipeline_parallel_size=p, data_parallel_size=1, expert_parallel=experts,
                                gpus_per_pod=t * p // pods, pods_per_replica=pods,
                            )
                        )  # fmt: skip
    allowed = set(candidate_sizes(architecture, several, constraints))
    first, second = (set(tier) for tier in tiers(architecture, several, constraints))
    assert first | second == allowed and not first & second
    working = [
        size
        for size in sizes
        if size in allowed and size_refusal(architecture, several, size, constraints) is None and fits(size.parallel).fits
    ]
    call: Callable[[], ParallelismChoice] = lambda: choose(architecture, several, fits, constraints, objective=objective)  # noqa: E731
    if not working:
        with pytest.raises(PlanError):
            call()
        return
    best_tier = [size for size in working if size in first] or working
    score = {size: rank(size, fits(size.parallel), several, objective=objective, max_num_seqs=256) for size in best_tier}
    choice = call()
    assert choice.size in score
    assert score[choice.size] == max(score.values())


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SMALL_MACHINES), st.integers(1, 4), st.integers(1, 8), st.integers(1, 4), st.sampled_from([None, 1, 2]))
def test_replicas_never_take_more_gpus_than_there_are(
    shape: NodeShape, nodes: int, gpus: int, pods: int, per_node: int | None
) -> None:
    size = Size(
        tensor_parallel_size=1,
        pipeline_parallel_size=gpus * pods,
        data_parallel_size=1,
        expert_parallel=False,
        gpus_per_pod=gpus,
        pods_per_replica=pods,
    )
    count = replicas_that_fit(machines(shape, nodes), size, per_node)
    assert count * size.gpus <= nodes * shape.gpus
    if per_node is not None:
        assert count * pods <= nodes * per_node


def test_a_thousand_choices_take_less_than_a_second() -> None:
    """Memory is answered from a table here: the search itself must cost next to nothing."""
    architecture = model("Llama-3.3-70B-Instruct")
    pools = [machines("dgx-h100", nodes) for nodes in (1, 2, 3)]
    verdict = MemoryVerdict(fits=True, concurrency=12.0, largest_max_model_len=8192, reason="", tokens=0)
    variants = [replace(architecture, name=f"model-{index}") for index in range(40)]
    choose(architecture, pools[1], lambda _: verdict)
    started = time.process_time()
    for index in range(1000):
        choose(variants[index % 40], pools[index % 3], lambda _: verdict)
    assert time.process_time() - started < 1.0
