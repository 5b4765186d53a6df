"""Chooses tensor, pipeline, data and expert parallel sizes: by vLLM's rules, by the machine's links and NUMA nodes, by memory."""

from __future__ import annotations

from dataclasses import dataclass

from infra.catalog.types import Accelerator, NodeShape
from infra.diagnosis import Diagnosis
from infra.errors import PlanError
from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.rank import Fits, Objective, Verdict, rank
from infra.plan.parallelism.reasons import choice_reasons, choice_warnings, served
from infra.plan.parallelism.rules import (
    Refusal,
    expert_parallel_refusal,
    pipeline_parallel_refusals,
    tensor_parallel_refusals,
)
from infra.plan.parallelism.sizes import Size, Wish, arrange, candidate_sizes, size_refusal, tiers
from infra.plan.parallelism.tensor_group import TensorGroup, tensor_group

__all__ = ["Alternative", "Fits", "Objective", "ParallelismChoice", "Rejected", "Verdict", "choose", "rank"]

LARGEST_POD_COUNT = 16
"""Machines that one replica may span when the search says how many would do."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A size that was not chosen although it works: `concurrency` requests of full length at once, `score` as ranked, and why it lost."""

    size: Size
    concurrency: float
    score: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A size that does not work, and the rule."""

    size: Size
    rule: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ParallelismChoice:
    """The decision, with its reasons, what else would work and what would not."""

    size: Size
    concurrency: float
    score: float
    group: TensorGroup
    reasons: tuple[str, ...]
    warnings: tuple[Diagnosis, ...]
    alternatives: tuple[Alternative, ...]
    rejected: tuple[Rejected, ...]

    @property
    def tensor_parallel_size(self) -> int:
        return self.size.tensor_parallel_size

    @property
    def pipeline_parallel_size(self) -> int:
        return self.size.pipeline_parallel_size

    @property
    def data_parallel_size(self) -> int:
        return self.size.data_parallel_size

    @property
    def expert_parallel(self) -> bool:
        return self.size.expert_parallel

    @property
    def gpus_per_pod(self) -> int:
        return self.size.gpus_per_pod

    @property
    def pods_per_replica(self) -> int:
        return self.size.pods_per_replica


def choose(
    architecture: Architecture,
    shape: NodeShape,
    accelerator: Accelerator,
    *,
    nodes: int,
    fits: Fits,
    objective: Objective = "throughput",
    tensor_parallel_size: int | None = None,
    pipeline_parallel_size: int | None = None,
    data_parallel_size: int | None = None,
    expert_parallel: bool | None = None,
    quantization: str | None = None,
    replicas: int = 1,
    pods_per_node: int | None = None,
    gpus_per_numa_node_limit: int | None = None,
    rdma: bool = False,
    max_num_seqs: int = 256,
    path: str = "",
) -> ParallelismChoice:
    """The best size for `nodes` machines of `shape`; sizes that are given are kept or refused, the others decided.

    Every size that the rules leave is tried, preferred ones first (`tiers`), so the choice is the best of its tier by `rank`: for "throughput" the requests of full length that a GPU serves at once, less
    what splitting costs; for "latency" the largest split inside a link domain. `expert_parallel` None: for open sizes that cannot cut the experts' width;
    `quantization` is --quantization. `gpus_per_numa_node_limit`: the policy is single-numa-node, and no NUMA node has more GPUs. `rdma`: GPUDirect RDMA
    between the machines is declared. PlanError (with `path` as the model's place in the stack file) says which rule refuses, or what would fit.
    Costs one call of `fits` a size, some ten of them.
    """
    wish = Wish(
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        data_parallel_size=data_parallel_size,
        expert_parallel=expert_parallel,
        quantization=quantization,
        replicas=replicas,
        pods_per_node=pods_per_node,
        gpus_per_numa_node_limit=gpus_per_numa_node_limit,
        rdma=rdma,
        max_num_seqs=max_num_seqs,
    )
    _check_wish(architecture, wish, path)
    rejected: list[Rejected] = []
    refused: list[tuple[Size, Verdict]] = []
    ranked: list[tuple[tuple[float, ...], Size, Verdict]] = []
    for tier in tiers(architecture, shape, nodes, wish):
        for size in tier:
            problem = size_refusal(architecture, shape, accelerator, nodes, size, wish)
            if problem is not None:
                rejected.append(Rejected(size=size, rule=problem.rule, reason=problem.message))
                continue
            verdict = _ask(fits, size)
            if verdict.fits:
                ranked.append((rank(size, verdict, shape, accelerator, objective, wish.max_num_seqs), size, verdict))
            else:
                refused.append((size, verdict))
                rejected.append(Rejected(size=size, rule="Memory", reason=verdict.reason))
        if ranked:
            break
    if not ranked:
        raise PlanError([_nothing_fits(architecture, shape, accelerator, nodes, fits, wish, rejected, refused, path)])
    ranked.sort(
        key=lambda item: (
            tuple(-value for value in item[0]),
            item[1].gpus,
            item[1].pipeline_parallel_size,
            item[1].tensor_parallel_size,
        )
    )
    best_rank, best, best_verdict = ranked[0]
    group = tensor_group(shape, accelerator, best.tensor_parallel_size, best.gpus_per_pod)
    return ParallelismChoice(
        size=best,
        concurrency=best_verdict.concurrency,
        score=best_rank[2] if objective == "throughput" else best_rank[0],
        group=group,
        reasons=choice_reasons(architecture, shape, accelerator, best, best_verdict, group, objective, wish, ranked),
        warnings=choice_warnings(architecture, shape, accelerator, best, group, wish, path),
        alternatives=tuple(
            Alternative(
                size=size,
                concurrency=verdict.concurrency,
                score=value[2] if objective == "throughput" else value[0],
                reason=f"{size}: {served(verdict)} on {size.gpus} GPU{'s' if size.gpus > 1 else ''}",
            )
            for value, size, verdict in ranked[1:]
        )
        + _data_parallel_hint(architecture, shape, accelerator, nodes, fits, objective, wish, best),
        rejected=tuple(rejected),
    )


def _data_parallel_hint(
    architecture: Architecture,
    shape: NodeShape,
    accelerator: Accelerator,
    nodes: int,
    fits: Fits,
    objective: Objective,
    wish: Wish,
    best: Size,
) -> tuple[Alternative, ...]:
    """Latent attention keeps the whole cache on every tensor-parallel rank; data parallel over the same GPUs keeps it once each. Only the user asks for it."""
    if not (architecture.is_mla and architecture.is_moe) or wish.data_parallel_size is not None or best.tensor_parallel_size == 1:
        return ()
    if best.pods_per_replica > 1 or best.pipeline_parallel_size > 1:
        return ()
    size = arrange(1, 1, best.gpus, True, shape.gpus)
    if size is None or size_refusal(architecture, shape, accelerator, nodes, size, wish) is not None:
        return ()
    verdict = _ask(fits, size)
    if not verdict.fits:
        return ()
    together = verdict.concurrency * size.data_parallel_size
    return (
        Alternative(
            size=size,
            concurrency=together,
            score=rank(size, verdict, shape, accelerator, "latency", wish.max_num_seqs)[1],
            reason=f"dataParallelSize {size.data_parallel_size} with enableExpertParallel: room for {together:.1f} requests of full length at once on the same "
            f"{size.gpus} GPUs, since latent attention's cache is not divided by tensor parallel; it is chosen only where it is asked for",
        ),
    )


def _ask(fits: Fits, size: Size) -> Verdict:
    return fits(size.tensor_parallel_size, size.pipeline_parallel_size, size.data_parallel_size, size.expert_parallel)


def _check_wish(architecture: Architecture, wish: Wish, path: str) -> None:
    """What the user fixed must be possible by itself."""
    problems = []
    if wish.tensor_parallel_size is not None:
        for refusal in tensor_parallel_refusals(
            architecture,
            wish.tensor_parallel_size,
            quantization=wish.quantization,
            expert_parallel=bool(wish.expert_parallel),
            data_parallel_size=wish.data_parallel_size or 1,
        ):
            problems.append(_problem(path, "tensorParallelSize", refusal, wish.tensor_parallel_size))
    if wish.pipeline_parallel_size is not None:
        for refusal in pipeline_parallel_refusals(architecture, wish.pipeline_parallel_size):
            problems.append(_problem(path, "pipelineParallelSize", refusal, wish.pipeline_parallel_size))
    if wish.expert_parallel:
        refusal = expert_parallel_refusal(architecture)
        if refusal is not None:
            problems.append(_problem(path, "enableExpertParallel", refusal, "true"))
    if problems:
        raise PlanError(problems)


def _problem(path: str, field: str, refusal: Refusal, value: object) -> Diagnosis:
    return Diagnosis(
        path=f"{path}.{field}" if path else field, code=refusal.rule, message=f"{value} does not work: {refusal.message}"
    )


def _nothing_fits(
    architecture: Architecture,
    shape: NodeShape,
    accelerator: Accelerator,
    nodes: int,
    fits: Fits,
    wish: Wish,
    rejected: list[Rejected],
    refused: list[tuple[Size, Verdict]],
    path: str,
) -> Diagnosis:
    """One sentence: what was closest, and what would do."""
    if not refused:
        fixed = wish.tensor_parallel_size is not None
        first = min(rejected, key=lambda item: item.size.gpus, default=None)
        if first is None:
            return Diagnosis(
                path=f"{path}.pipelineParallelSize" if path else "pipelineParallelSize",
                code="NoArrangement",
                message=f"no split into equal pods exists on machines of {shape.id} ({shape.gpus} GPUs). Use a pipelineParallelSize that fills machines.",
            )
        field = "tensorParallelSize" if fixed else "pipelineParallelSize" if wish.pipeline_parallel_size else ""
        return Diagnosis(path=f"{path}.{field}".strip("."), code=first.rule, message=first.reason)
    size, verdict = max(
        refused,
        key=lambda item: (item[1].largest_max_model_len, item[1].concurrency, item[0].gpus, item[0].tensor_parallel_size),
    )
    message = f"{architecture.name} does not fit {nodes} machine{'s' if nodes > 1 else ''} of {shape.id} ({shape.gpus} x {accelerator.driver_name}): "
    message += f"with {size}, {verdict.reason.rstrip('.')}."
    ways = []
    if verdict.largest_max_model_len > 0:
        ways.append(f"maxModelLen {verdict.largest_max_model_len} or less")
    larger = _smallest_that_fits(architecture, shape, accelerator, nodes, fits, wish)
    if larger is not None:
        ways.append(
            f"{larger} on {larger.gpus} GPUs ({larger.pods_per_replica} machine{'s' if larger.pods_per_replica > 1 else ''})"
        )
    if architecture.quantization is None and wish.quantization is None:
        ways.append("a quantised checkpoint")
    message += f" What would do: {'; or '.join(ways)}." if ways else ""
    return Diagnosis(path=path, code="DoesNotFit", message=message)


def _smallest_that_fits(
    architecture: Architecture, shape: NodeShape, accelerator: Accelerator, nodes: int, fits: Fits, wish: Wish
) -> Size | None:
    """The size with the fewest GPUs that fits, on as many machines as it takes, whatever was fixed."""
    free = Wish(quantization=wish.quantization, gpus_per_numa_node_limit=wish.gpus_per_numa_node_limit, rdma=wish.rdma)
    sizes = sorted(candidate_sizes(architecture, shape, LARGEST_POD_COUNT, free), key=lambda s: (s.gpus, s.pipeline_parallel_size))
    for size in sizes:
        if size_refusal(architecture, shape, accelerator, LARGEST_POD_COUNT, size, free) is None and _ask(fits, size).fits:
            return size
    return None
