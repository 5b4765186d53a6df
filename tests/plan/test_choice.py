"""What is said of a choice: why it was made, what to watch, what else works, and what would do where nothing fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.errors import PlanError
from infra.plan.architecture.partition import ParallelSizes
from infra.plan.architecture.quantization import Quantization
from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.choice import ParallelismChoice, choose
from infra.plan.parallelism.fitting import fitting_sizes, size_sentences, smallest_fit, valid_sizes, with_size
from infra.plan.parallelism.rank import Fits, MemoryVerdict
from infra.plan.parallelism.sizes import Machines, SizeConstraints
from tests.plan.estimates import estimate_of
from tests.plan.small import EXPERTS, device, small
from tests.plan.test_parallelism import machine, machines

MODEL = small(("full",) * 6, heads=8, kv_heads=8, intermediate=64, vocab=512)
MOE = replace(MODEL, mlp=("moe",) * 6, moe=replace(EXPERTS, intermediate=64, experts=8))
EIGHT, NUMA = machines(machine([8], "h100-sxm5-80gb", None)), machines(machine([4, 4], "h100-sxm5-80gb", None))
PCIE = machines(machine([2, 2], "l40s", None))


def table(concurrency: dict[tuple[int, int], float], tokens: float = 0, largest: int = 0) -> Fits:
    """Sizes (tensor, pipeline) that fit, with the requests that they serve."""

    def fits(sizes: ParallelSizes) -> MemoryVerdict:
        served = concurrency.get((sizes.tensor_parallel_size, sizes.pipeline_parallel_size))
        return MemoryVerdict(
            fits=served is not None, concurrency=served or 0.0, largest_max_model_len=largest, reason="too small.", tokens=tokens
        )

    return fits


def decide(
    concurrency: dict[tuple[int, int], float],
    several: Machines = EIGHT,
    architecture: Architecture = MODEL,
    tokens: float = 0,
    objective: Any = "throughput",
    **constraints: Any,
) -> ParallelismChoice:
    return choose(
        architecture, several, table(concurrency, tokens), SizeConstraints(**constraints), objective=objective, path="models[0]"
    )


@pytest.mark.parametrize(
    ("choice", "reasons"),
    [
        (decide({(1, 1): 2.0}),
         ["tensor parallel 1 on 1 GPU of the given topology: room for 2.0 requests of full length at once",
          "1 GPU of one NUMA node; one GPU a rank group, nothing to exchange"]),
        (decide({(2, 1): 2.0}, tensor_parallel_size=2),
         ["tensor parallel 2 on 2 GPUs of the given topology: room for 2.0 requests of full length at once",
          "tensor parallel 2 is given; vLLM accepts it for small",
          "2 GPUs of one NUMA node; tensor parallel 2 inside one NVLink domain"]),
        (decide({(1, 1): 1.0, (2, 1): 4.0}),
         ["tensor parallel 2 on 2 GPUs of the given topology: room for 4.0 requests of full length at once",
          "better by requests a GPU than tensor parallel 1 with room for 1.0 requests of full length at once on 1 GPU",
          "2 GPUs of one NUMA node; tensor parallel 2 inside one NVLink domain"]),
        (decide({(1, 1): 1.0, (2, 1): 4.0}, tokens=32_768),
         ["tensor parallel 1 on 1 GPU of the given topology: room for 1.0 requests of full length at once",
          "the fewest GPUs with room for 32,768 tokens; next is tensor parallel 2 with room for 4.0 requests of full length at once on 2 GPUs",
          "1 GPU of one NUMA node; one GPU a rank group, nothing to exchange"]),
        (decide({(1, 1): 9.0, (8, 1): 1.0}, objective="latency"),
         ["tensor parallel 8 on 8 GPUs of the given topology: room for 1.0 requests of full length at once",
          "better by time a token than tensor parallel 1 with room for 9.0 requests of full length at once on 1 GPU",
          "8 GPUs of one NUMA node; tensor parallel 8 inside one NVLink domain"]),
        (decide({(8, 2): 2.0}, replace(EIGHT, nodes=2)),
         ["tensor parallel 8, pipeline parallel 2 on 16 GPUs of the given topology: room for 2.0 requests of full length at once",
          "8 GPUs of one NUMA node; tensor parallel 8 inside one NVLink domain",
          "2 pods of 8 GPUs: stages, not tensor-parallel ranks, exchange over the network"]),
        (decide({(16, 1): 2.0}, replace(EIGHT, nodes=2), architecture=replace(MODEL, heads=16, kv_heads=16),
                tensor_parallel_size=16, rdma=True),
         ["tensor parallel 16 on 16 GPUs of the given topology: room for 2.0 requests of full length at once",
          "tensor parallel 16 is given; vLLM accepts it for small",
          "8 GPUs of one NUMA node; tensor parallel 16 over the network",
          "2 pods of 8 GPUs: tensor parallel over machines as asked, RDMA is declared"]),
        (decide({(1, 1): 2.0}, architecture=MOE, expert_parallel=True),
         ["tensor parallel 1, expert parallel on 1 GPU of the given topology: room for 2.0 requests of full length at once",
          "1 GPU of one NUMA node; one GPU a rank group, nothing to exchange",
          "expert parallel is given"]),
    ],
)  # fmt: skip
def test_why_a_size_was_chosen(choice: ParallelismChoice, reasons: list[str]) -> None:
    assert list(choice.reasons) == reasons


def test_experts_are_spread_because_their_width_cannot_be_cut() -> None:
    narrow = replace(MOE, moe=replace(EXPERTS, intermediate=2, experts=8))
    choice = decide({(8, 1): 2.0}, architecture=narrow)
    assert choice.expert_parallel and choice.reasons[-1] == (
        "expert parallel, because the experts' width cannot be cut over 8 ranks"
    )


def test_a_comfortable_cache_goes_before_a_small_one() -> None:
    fits: Fits = lambda sizes: MemoryVerdict(  # noqa: E731
        fits=sizes.pipeline_parallel_size == 1 and sizes.tensor_parallel_size <= 2,
        concurrency=4.0,
        largest_max_model_len=0,
        reason="",
        tokens=40_000 if sizes.tensor_parallel_size == 2 else 1,
    )
    choice = choose(MODEL, EIGHT, fits)
    assert choice.tensor_parallel_size == 2
    assert (
        choice.reasons[1]
        == "room for 32,768 tokens, which tensor parallel 1 with room for 4.0 requests of full length at once on 1 GPU has not"
    )


def test_of_sizes_with_equally_many_gpus_the_requests_decide() -> None:
    choice = decide({(1, 4): 1.0, (2, 2): 9.0}, tokens=32_768)
    assert choice.reasons[1] == (
        "better by requests a GPU than tensor parallel 1, pipeline parallel 4 with room for 1.0 requests of full length at once on 4 GPUs"
    )


def test_what_else_works_and_what_does_not() -> None:
    choice = decide({(1, 1): 1.0, (2, 1): 4.0, (4, 1): 5.0})
    assert [(other.size.tensor_parallel_size, other.concurrency) for other in choice.alternatives] == [(1, 1.0), (4, 5.0)]
    assert [other.reason for other in choice.alternatives] == [
        "tensor parallel 1: room for 1.0 requests of full length at once on 1 GPU",
        "tensor parallel 4: room for 5.0 requests of full length at once on 4 GPUs",
    ]
    assert choice.concurrency == 4.0 and choice.data_parallel_size == 1
    refused = {(str(item.size), item.rule) for item in choice.rejected}
    assert ("tensor parallel 8", "Memory") in refused
    assert all(item.reason == "too small." for item in choice.rejected if item.rule == "Memory")


def test_of_equal_ranks_the_fewest_gpus_then_the_fewest_stages_win() -> None:
    equal = {(1, 1): 1.0, (1, 2): 2.0 / 0.8, (1, 4): 4.0 / 0.64}
    assert decide(equal, PCIE).pipeline_parallel_size == 1


LATENT = small(("mla",) * 6, ("moe",) * 6, heads=8, vocab=512, moe=replace(EXPERTS, intermediate=64, experts=8))


@pytest.mark.parametrize(
    ("architecture", "concurrency", "several", "constraints", "hinted"),
    [
        (LATENT, {(8, 1): 2.0, (1, 1): 1.5}, EIGHT, {"tensor_parallel_size": 8}, True),
        (LATENT, {(2, 1): 2.0, (1, 1): 1.5}, EIGHT, {"tensor_parallel_size": 2}, True),
        (LATENT, {(8, 1): 2.0}, EIGHT, {"tensor_parallel_size": 8}, False),  # one rank alone does not fit
        (LATENT, {(1, 1): 2.0}, EIGHT, {"tensor_parallel_size": 1}, False),
        (LATENT, {(4, 1): 2.0, (1, 1): 1.5}, EIGHT, {"tensor_parallel_size": 4, "data_parallel_size": 1}, False),
        (LATENT, {(4, 2): 2.0, (1, 1): 1.5}, EIGHT, {"tensor_parallel_size": 4}, False),
        (LATENT, {(8, 2): 2.0, (1, 1): 1.5}, replace(EIGHT, nodes=2), {"tensor_parallel_size": 8}, False),
        (
            replace(LATENT, heads=16),
            {(16, 1): 2.0, (1, 1): 1.5},
            replace(EIGHT, nodes=2),
            {"tensor_parallel_size": 16, "rdma": True},
            False,
        ),
        (LATENT, {(8, 1): 2.0, (1, 1): 1.5}, NUMA, {"tensor_parallel_size": 8, "replicas": 1}, True),
        (replace(LATENT, mlp=("dense",) * 6), {(2, 1): 2.0, (1, 1): 1.5}, EIGHT, {"tensor_parallel_size": 1}, False),
        (MOE, {(8, 1): 2.0, (1, 1): 1.5}, EIGHT, {"tensor_parallel_size": 8}, False),
    ],
)
def test_data_parallel_is_named_where_latents_are_kept_on_every_rank(
    architecture: Architecture,
    concurrency: dict[tuple[int, int], float],
    several: Machines,
    constraints: dict[str, Any],
    hinted: bool,
) -> None:
    choice = decide(concurrency, several, architecture, **constraints)
    named = [other for other in choice.alternatives if other.size.data_parallel_size > 1]
    assert bool(named) is hinted
    if hinted:
        ranks = choice.tensor_parallel_size
        assert named[0].size.data_parallel_size == ranks and named[0].concurrency == 1.5 * ranks
        assert f"dataParallelSize {ranks} with enableExpertParallel: room for {1.5 * ranks:.1f} requests" in named[0].reason


@pytest.mark.parametrize(
    ("several", "tensor", "architecture", "warnings"),
    [
        (PCIE, 1, MODEL, []),
        (PCIE, 2, MODEL, []),
        (PCIE, 4, MODEL, ["PcieTensorParallel", "CrossSocketTensorParallel"]),
        (
            PCIE,
            3,
            replace(MODEL, heads=6, kv_heads=6, intermediate=6, vocab=192),
            ["PcieTensorParallel", "CrossSocketTensorParallel"],
        ),
        (machines(machine([4], "l40s", None)), 4, MODEL, ["PcieTensorParallel"]),
        (machines(machine([1, 1], "l40s", None)), 2, MODEL, ["CrossSocketTensorParallel"]),
        (EIGHT, 8, MODEL, []),
        (machines(replace(EIGHT.shape, link_domains=None)), 2, MODEL, ["LinksUnknown"]),
        (machines(replace(EIGHT.shape, link_domains=None)), 1, MODEL, []),
    ],
)
def test_what_to_watch_with_a_size(several: Machines, tensor: int, architecture: Architecture, warnings: list[str]) -> None:
    choice = decide({(tensor, 1): 1.0}, several, architecture, tensor_parallel_size=tensor)
    assert [warning.code for warning in choice.warnings] == warnings
    assert all(warning.path == "models[0].tensorParallelSize" for warning in choice.warnings)


def test_padded_experts_are_told_unless_they_are_spread() -> None:
    mxfp4 = Quantization(method="mxfp4", weight_bits=4, form="group", group_size=32, scale_bytes=1, experts_only=True)
    model = replace(MOE, quantization=mxfp4)
    [warning] = decide({(2, 1): 1.0}, architecture=model, tensor_parallel_size=2).warnings
    assert (warning.code, warning.message) == (
        "PaddedExperts", "each rank's MXFP4 expert width 32 is rounded up to 128: 300 % more memory for the experts"
    )  # fmt: skip
    assert decide({(2, 1): 1.0}, architecture=model, tensor_parallel_size=2, expert_parallel=True).warnings == ()
    assert decide({(1, 1): 1.0}, architecture=model, tensor_parallel_size=1).warnings == ()


def failure(
    concurrency: dict[tuple[int, int], float],
    several: Machines = EIGHT,
    architecture: Architecture = MODEL,
    largest: int = 0,
    **constraints: Any,
) -> str:
    with pytest.raises(PlanError) as error:
        choose(architecture, several, table(concurrency, largest=largest), SizeConstraints(**constraints), path="models[0]")
    return str(error.value.problems[0])


def test_what_would_do_where_nothing_fits() -> None:
    head = "models[0]: small does not fit 1 machine of the given topology (8 x NVIDIA H100 80GB HBM3): with tensor parallel 8, too small."
    assert failure({}).startswith(f"{head} A quantised checkpoint takes less.")
    assert failure({}, largest=1).startswith(f"{head} Use maxModelLen 1. A quantised checkpoint takes less.")
    assert failure({(8, 2): 1.0}).startswith(
        f"{head} Use tensor parallel 8, pipeline parallel 2 on 16 GPUs (2 machines). A quantised checkpoint takes less."
    )
    assert failure({(8, 1): 1.0}, tensor_parallel_size=4, pipeline_parallel_size=1).startswith(
        "models[0]: small does not fit 1 machine of the given topology (8 x NVIDIA H100 80GB HBM3): with tensor parallel 4, too small. "
        "Use tensor parallel 8 on 8 GPUs (1 machine). A quantised checkpoint takes less."
    )
    assert failure({}, quantization="fp8").rstrip(".").endswith("with tensor parallel 8, too small")
    quantised = replace(MODEL, quantization=Quantization(method="awq", weight_bits=4, form="channel"))
    assert failure({}, architecture=quantised).rstrip(".").endswith("too small")
    assert "does not fit 2 machines of the given topology" in failure({}, replace(EIGHT, nodes=2))


def test_the_search_for_what_would_do_ends_at_sixteen_machines() -> None:
    deep = small(("full",) * 64, heads=8, kv_heads=8, intermediate=64, vocab=512)
    assert "on 128 GPUs (16 machines)" in failure({(8, 16): 1.0}, architecture=deep)
    assert "machines)" not in failure({(8, 17): 1.0}, architecture=deep)


@pytest.mark.parametrize(
    ("constraints", "text"),
    [
        ({"tensor_parallel_size": 5}, "models[0].tensorParallelSize: 5 does not work: small has 8 attention heads"),
        ({"pipeline_parallel_size": 7}, "models[0].pipelineParallelSize: 7 does not work: small has 6 layers"),
        ({"expert_parallel": True}, "models[0].enableExpertParallel: true does not work: small has 0 experts"),
        (
            {"tensor_parallel_size": 2, "pipeline_parallel_size": 1, "replicas": 9},
            "models[0].replicas: 9 replicas of 1 pod with 2 GPUs",
        ),
        ({"pipeline_parallel_size": 1, "replicas": 9}, "models[0].replicas: 9 replicas of 1 pod with 1 GPUs"),
        ({"replicas": 9}, "models[0].replicas: 9 replicas of 1 pod with 1 GPUs"),
    ],
)
def test_the_rule_that_refuses_is_told_at_what_was_fixed(constraints: dict[str, Any], text: str) -> None:
    assert failure({}, **constraints).startswith(text)


def test_splits_without_equal_pods_are_told() -> None:
    three = machines(machine([3], "h100-sxm5-80gb", None))
    text = failure({}, three, replace(MODEL, heads=8), tensor_parallel_size=4, pipeline_parallel_size=1, rdma=True)
    assert text.startswith(
        "models[0].pipelineParallelSize: no split into equal pods exists on machines of the given topology (3 GPUs). Use 3."
    )


def test_paths_stand_alone_without_a_model() -> None:
    with pytest.raises(PlanError) as error:
        choose(MODEL, EIGHT, table({}), SizeConstraints(tensor_parallel_size=5))
    assert error.value.problems[0].path == "tensorParallelSize"
    warned = choose(MODEL, PCIE, table({(4, 1): 1.0}), SizeConstraints(tensor_parallel_size=4)).warnings
    assert {warning.path for warning in warned} == {"tensorParallelSize"}


# Weights of 6 layers fit a device of 1 GiB; a cache of 32,768 tokens needs more where the heads are wide
WIDE = replace(MODEL, head_dim=4096, v_head_dim=4096, hidden=64, layers=6, max_position_embeddings=1024)


def fit(gib: float, architecture: Architecture = WIDE, **arguments: Any):
    return estimate_of(architecture, device(torch_gib=gib), **({"gpu_memory_utilization": 0.9} | arguments))


def test_sizes_of_a_model_that_fit() -> None:
    asked = fit(100)
    assert valid_sizes(asked) == (1, 2, 4, 8) and valid_sizes(fit(100, tensor_parallel_size=16)) == (1, 2, 4, 8)
    assert with_size(asked, 2, 3).sizes == ParallelSizes(tensor_parallel_size=2, pipeline_parallel_size=3)
    assert with_size(fit(100, data_parallel_size=2), 2, 1).sizes.data_parallel_size == 2
    found = [(size.sizes.tensor_parallel_size, size.sizes.pipeline_parallel_size) for size in fitting_sizes(asked)]
    assert found[:5] == [(1, 1), (2, 1), (1, 2), (1, 3), (4, 1)]
    assert max(pipeline for _, pipeline in found) == 6 and found[-1] == (8, 6)
    deep = fit(100, small(("full",) * 9, heads=8, kv_heads=8, intermediate=64, vocab=512))
    assert max(size.sizes.pipeline_parallel_size for size in fitting_sizes(deep)) == 8
    assert max(size.sizes.gpus for size in fitting_sizes(deep)) == 64
    assert {size.sizes.gpus for size in fitting_sizes(deep, most_gpus=2)} == {1, 2}
    single = fit(100, replace(WIDE, supports_pipeline_parallel=False))
    assert {size.sizes.pipeline_parallel_size for size in fitting_sizes(single)} == {1}


def test_sentences_about_sizes() -> None:
    assert size_sentences(fit(100))[0].startswith(
        "the smallest size that fits is 1 GPU: tensor parallel 1 x pipeline parallel 1, with "
    )
    assert len(size_sentences(fit(100))) == 1
    nowhere = fit(0.01)
    assert smallest_fit(nowhere) is None
    assert size_sentences(nowhere) == ("no size up to 64 of these GPUs holds 1,024 tokens; shorten max_model_len or quantise.",)


LATENT_CACHE = small(("mla",) * 6, heads=8, intermediate=64, vocab=512)
FEWEST = "the smallest size that fits is 2 GPUs: tensor parallel 1 x pipeline parallel 2, with "
WHOLE = "without pipeline parallel the smallest is 8 GPUs: tensor parallel 8 x pipeline parallel 1."
NO_NODE = "no size without pipeline parallel fits a node."


@pytest.mark.parametrize(
    ("architecture", "length", "sizes", "sentences"),
    [
        # 5 GiB of cache on devices of 4 GiB: stages hold a share each, and ranks that exchange lose 2 GiB to their buffers
        (MODEL, 9_300_000, (1, 1), [WHOLE]),
        (MODEL, 9_300_000, (2, 1), [WHOLE, "the next larger size that works is tensor parallel 1 x pipeline parallel 3."]),
        (MODEL, 9_300_000, (4, 1), [WHOLE, "the next larger size that works is tensor parallel 1 x pipeline parallel 5."]),
        (MODEL, 9_300_000, (1, 2), [WHOLE]),
        (MODEL, 9_300_000, (1, 3), [WHOLE]),
        # ranks do not divide latents
        (LATENT_CACHE, 44_000_000, (1, 1), [NO_NODE]),
        (
            LATENT_CACHE,
            44_000_000,
            (4, 1),
            [NO_NODE, "the next larger size that works is tensor parallel 1 x pipeline parallel 5."],
        ),
    ],
)
def test_sizes_that_would_do(architecture: Architecture, length: int, sizes: tuple[int, int], sentences: list[str]) -> None:
    tensor, pipeline = sizes
    asked = fit(
        4,
        architecture,
        gpu_memory_utilization=0.88,
        max_model_len=length,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
    )
    first, *rest = size_sentences(asked)
    assert first.startswith(FEWEST) and rest == sentences
