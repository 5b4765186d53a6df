"""Chooses tensor, pipeline, data and expert parallel sizes: by vLLM's rules, by the machine's links and NUMA nodes, by memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from infra.diagnosis import Diagnosis
from infra.errors import PlanError
from infra.offers import LEFT_OUT, Offer, more_nodes
from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.candidates import candidate_sizes, tiers
from infra.plan.parallelism.machine_rules import size_refusal
from infra.plan.parallelism.rank import Fits, MemoryVerdict, Objective, RankedSize, rank
from infra.plan.parallelism.reasons import choice_reasons, choice_warnings, served
from infra.plan.parallelism.rules import (
    Refusal,
    expert_parallel_refusal,
    pipeline_parallel_refusals,
    tensor_parallel_refusals,
)
from infra.plan.parallelism.sizes import UNCONSTRAINED, Machines, Size, SizeConstraints, arrange
from infra.plan.parallelism.tensor_group import TensorGroup, tensor_group

LARGEST_POD_COUNT = 16
"""Machines that one replica may span when the search says how many would do."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A size that was not chosen although it works: `concurrency` requests of full length at once, and why it lost."""

    size: Size
    concurrency: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A size that does not work, and the rule."""

    size: Size
    rule: str
    reason: str
    refusal: Refusal | None = None  # None: memory


@dataclass(frozen=True, kw_only=True)
class ParallelismChoice:
    """The decision, with its reasons, what else would work and what would not."""

    size: Size
    concurrency: float
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


@dataclass(frozen=True, kw_only=True)
class _Search:
    """One search: a model on some machines, with what is fixed; `path` is the model's place in the stack file."""

    architecture: Architecture
    machines: Machines
    fits: Fits
    constraints: SizeConstraints
    path: str

    def refusal(self, size: Size) -> Refusal | None:
        return size_refusal(self.architecture, self.machines, size, self.constraints)


def choose(
    architecture: Architecture,
    machines: Machines,
    fits: Fits,
    constraints: SizeConstraints = UNCONSTRAINED,
    *,
    objective: Objective = "throughput",
    path: str = "",
) -> ParallelismChoice:
    """The best size for some machines; sizes that are given are kept or refused, the others decided.

    Every size that the rules leave is tried, preferred ones first (`tiers`), so the choice is the best of its tier by `rank`: for
    "throughput" the requests of full length that a GPU serves at once, less what splitting costs; for "latency" the largest split
    inside a link domain. PlanError (with `path` as the model's place in the stack file) says which rule refuses, or what would fit.
    Costs one call of `fits` a size, some ten of them.
    """
    search = _Search(architecture=architecture, machines=machines, fits=fits, constraints=constraints, path=path)
    _check_constraints(architecture, constraints, path)
    rejected: list[Rejected] = []
    refused: list[tuple[Size, MemoryVerdict]] = []
    ranked: list[RankedSize] = []
    for tier in tiers(architecture, machines, constraints):
        for size in tier:
            problem = search.refusal(size)
            if problem is not None:
                rejected.append(Rejected(size=size, rule=problem.rule, reason=problem.sentence, refusal=problem))
                continue
            verdict = fits(size.parallel)
            if verdict.fits:
                value = rank(size, verdict, machines, objective=objective, max_num_seqs=constraints.max_num_seqs)
                ranked.append(RankedSize(value, size, verdict))
            else:
                refused.append((size, verdict))
                rejected.append(Rejected(size=size, rule="Memory", reason=verdict.reason))
        if ranked:
            break
    if not ranked:
        raise PlanError([_nothing_fits(search, rejected, refused)])
    ranked.sort(
        key=lambda item: (
            tuple(-value for value in item.rank),
            item.size.gpus,
            item.size.pipeline_parallel_size,
            item.size.tensor_parallel_size,
        )
    )
    best = ranked[0]
    group = tensor_group(machines.shape, machines.accelerator, best.size.tensor_parallel_size, best.size.gpus_per_pod)
    return ParallelismChoice(
        size=best.size,
        concurrency=best.verdict.concurrency,
        group=group,
        reasons=choice_reasons(architecture, machines, constraints, ranked, group=group, objective=objective),
        warnings=choice_warnings(architecture, machines, constraints, best.size, group, path),
        alternatives=tuple(
            Alternative(
                size=item.size,
                concurrency=item.verdict.concurrency,
                reason=f"{item.size}: {served(item.verdict)} on {item.size.gpus} GPU{'s' if item.size.gpus > 1 else ''}",
            )
            for item in ranked[1:]
        )
        + _data_parallel_hint(search, best.size),
        rejected=tuple(rejected),
    )


def _data_parallel_hint(search: _Search, best: Size) -> tuple[Alternative, ...]:
    """Latent attention keeps the whole cache on every tensor-parallel rank; data parallel over the same GPUs keeps it once each.
    Only the user asks for it."""
    architecture = search.architecture
    if not (architecture.is_mla and architecture.is_moe) or search.constraints.data_parallel_size is not None:
        return ()
    if best.tensor_parallel_size == 1 or best.pods_per_replica > 1 or best.pipeline_parallel_size > 1:
        return ()
    size = arrange(1, 1, best.gpus, True, search.machines.shape.gpus)
    if size is None or search.refusal(size) is not None:
        return ()
    verdict = search.fits(size.parallel)
    if not verdict.fits:
        return ()
    together = verdict.concurrency * size.data_parallel_size
    return (
        Alternative(
            size=size,
            concurrency=together,
            reason=f"dataParallelSize {size.data_parallel_size} with enableExpertParallel: room for {together:.1f} requests of full length at once on the same "
            f"{size.gpus} GPUs, since latent attention's cache is not divided by tensor parallel; it is chosen only where it is asked for",
        ),
    )


def _check_constraints(architecture: Architecture, constraints: SizeConstraints, path: str) -> None:
    """What is fixed must be possible by itself."""
    problems = []
    if constraints.tensor_parallel_size is not None:
        for refusal in tensor_parallel_refusals(
            architecture,
            constraints.tensor_parallel_size,
            quantization=constraints.quantization,
            expert_parallel=bool(constraints.expert_parallel),
            data_parallel_size=constraints.data_parallel_size or 1,
        ):
            problems.append(_problem(path, "tensorParallelSize", refusal, constraints.tensor_parallel_size))
    if constraints.pipeline_parallel_size is not None:
        for refusal in pipeline_parallel_refusals(architecture, constraints.pipeline_parallel_size):
            problems.append(_problem(path, "pipelineParallelSize", refusal, constraints.pipeline_parallel_size))
    if constraints.expert_parallel:
        refusal = expert_parallel_refusal(architecture)
        if refusal is not None:
            problems.append(_problem(path, "enableExpertParallel", refusal, "true"))
    if problems:
        raise PlanError(problems)


def _problem(path: str, field: str, refusal: Refusal, value: object) -> Diagnosis:
    return refusal.at(f"{path}.{field}" if path else field, prefix=f"{value} does not work: ")


def _nothing_fits(search: _Search, rejected: list[Rejected], refused: list[tuple[Size, MemoryVerdict]]) -> Diagnosis:
    """One sentence: what was closest, and what would do."""
    if not refused:
        return _all_refused(search, rejected)
    shape, nodes, path = search.machines.shape, search.machines.nodes, search.path
    size, verdict = max(
        refused,
        key=lambda item: (item[1].largest_max_model_len, item[1].concurrency, item[0].gpus, item[0].tensor_parallel_size),
    )
    message = f"{search.architecture.name} does not fit {nodes} machine{'s' if nodes > 1 else ''} of {shape.name} ({shape.gpus} x {search.machines.accelerator.driver_name}): "
    message += f"with {size}, {verdict.reason.rstrip('.')}"
    quantised = search.architecture.quantization is None and search.constraints.quantization is None
    return Diagnosis(
        path=path,
        code="DoesNotFit",
        message=message,
        offers=tuple(_that_fit(search, verdict)),
        remedy="A quantised checkpoint takes less." if quantised else "",
    )


def _that_fit(search: _Search, closest: MemoryVerdict) -> Iterator[Offer]:
    """A shorter context, and the size with the fewest GPUs that fits."""
    if closest.largest_max_model_len > 0:
        yield Offer.of(f"use maxModelLen {closest.largest_max_model_len}", ("model.maxModelLen", closest.largest_max_model_len))
    larger = _smallest_that_fits(search)
    if larger is None:
        return
    machines, there = larger.pods_per_replica * search.constraints.replicas, search.machines.nodes
    changes = [
        ("model.tensorParallelSize", larger.tensor_parallel_size),
        ("model.pipelineParallelSize", larger.pipeline_parallel_size),
        ("model.dataParallelSize", LEFT_OUT),
        ("model.enableExpertParallel", larger.expert_parallel),
    ]
    words = f"use {larger} on {larger.gpus} GPUs ({machines} machine{'s' if machines > 1 else ''})"
    if machines <= there:
        yield Offer.of(words, *changes, kind="size")
    else:
        yield Offer.of(words, *changes, *((change.path, change.value) for change in more_nodes(machines).changes), kind="size")


def _all_refused(search: _Search, rejected: list[Rejected]) -> Diagnosis:
    """No size came as far as memory: the rule that the smallest breaks."""
    path, shape, constraints = search.path, search.machines.shape, search.constraints
    first = min(rejected, key=lambda item: item.size.gpus, default=None)
    if first is None or first.refusal is None:
        return Diagnosis(
            path=f"{path}.pipelineParallelSize" if path else "pipelineParallelSize",
            code="NoArrangement",
            message=f"no split into equal pods exists on machines of {shape.name} ({shape.gpus} GPUs)",
            offers=tuple(_that_arrange(search)),
        )
    fixed = "tensorParallelSize" if constraints.tensor_parallel_size is not None else ""
    field = first.refusal.field or fixed or ("pipelineParallelSize" if constraints.pipeline_parallel_size else "")
    return first.refusal.at(f"{path}.{field}".strip("."))


def _that_arrange(search: _Search) -> Iterator[Offer]:
    """Pipeline parallel sizes near the asked one with which equal pods exist."""
    asked, constraints = search.constraints.pipeline_parallel_size or 1, search.constraints
    tensor, data = constraints.tensor_parallel_size or 1, constraints.data_parallel_size or 1
    near = sorted(range(1, 2 * asked + LARGEST_POD_COUNT), key=lambda stages: (abs(stages - asked), stages))
    for stages in near[1 : 2 * LARGEST_POD_COUNT]:
        if arrange(tensor, stages, data, False, search.machines.shape.gpus) is not None:
            yield Offer.of(f"use {stages}", ("model.pipelineParallelSize", stages), kind="stages")


def _smallest_that_fits(search: _Search) -> Size | None:
    """The size with the fewest GPUs that fits, on as many machines as it takes, whatever was fixed."""
    constraints = SizeConstraints(
        quantization=search.constraints.quantization,
        gpus_per_numa_node_limit=search.constraints.gpus_per_numa_node_limit,
        rdma=search.constraints.rdma,
    )
    free = replace(search, constraints=constraints, machines=replace(search.machines, nodes=LARGEST_POD_COUNT))
    sizes = sorted(
        candidate_sizes(free.architecture, free.machines, constraints), key=lambda size: (size.gpus, size.pipeline_parallel_size)
    )
    return next((size for size in sizes if free.refusal(size) is None and free.fits(size.parallel).fits), None)
