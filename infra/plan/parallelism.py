"""Chooses tensor, pipeline, data and expert parallel sizes: by vLLM's rules, by the machine's links and NUMA nodes, by memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Literal, Protocol

from infra.catalog.load import engine_facts
from infra.catalog.types import Accelerator, NodeShape
from infra.errors import PlanError, Problem
from infra.plan.architecture_types import Architecture
from infra.plan.parallel_sizes import Size, Wish, arrange, candidate_sizes, size_refusal, tiers
from infra.plan.parallelism_rules import (
    Refusal,
    expert_parallel_refusal,
    pipeline_parallel_refusals,
    quantization_warning,
    tensor_parallel_refusals,
)
from infra.plan.tensor_group import LinkClass, TensorGroup, tensor_group

Objective = Literal["throughput", "latency"]

LARGEST_POD_COUNT = 16
"""Machines that one replica may span when the search says how many would do."""

COMFORTABLE_TOKENS = 32_768
"""Tokens of cache from which more GPUs a replica are not worth it: eight conversations of 4096 tokens. Then more replicas serve more."""

# Shares of the ideal that a doubling leaves. They are judgement and only rank sizes that all fit: NVLink or xGMI before PCIe, tensor before pipeline inside
# a link domain, pipeline before tensor over PCIe (as vLLM's guide advises), nothing over the network that need not be.
TENSOR_DOUBLING: dict[LinkClass, float] = {
    "link-domain": 0.85,
    "pcie": 0.6,
    "cross-socket": 0.5,
    "network": 0.4,
    "unknown": 0.7,
    "none": 1.0,
}
PIPELINE_DOUBLING = 0.8
NETWORK_STAGE = 0.85
SECOND_NUMA_NODE = 0.9


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What memory says of one size.

    `concurrency`: requests of full length that it serves at once, and `tokens` of cache, as expected. `largest_max_model_len`: the longest context that starts for certain, 0
    where none does. `reason`: one sentence with both numbers, used where it does not fit.
    """

    fits: bool
    concurrency: float
    largest_max_model_len: int
    reason: str
    tokens: float = 0


class Fits(Protocol):
    """Memory of one size of the model in question, on one device of the machine in question."""

    def __call__(
        self, tensor_parallel_size: int, pipeline_parallel_size: int, data_parallel_size: int, expert_parallel: bool, /
    ) -> Verdict: ...


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
    warnings: tuple[Problem, ...]
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
        reasons=_reasons(architecture, shape, accelerator, best, best_verdict, group, objective, wish, ranked),
        warnings=_warnings(architecture, shape, accelerator, best, group, wish, path),
        alternatives=tuple(
            Alternative(
                size=size,
                concurrency=verdict.concurrency,
                score=value[2] if objective == "throughput" else value[0],
                reason=f"{size}: {_served(verdict)} on {size.gpus} GPU{'s' if size.gpus > 1 else ''}",
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


def _problem(path: str, field: str, refusal: Refusal, value: object) -> Problem:
    return Problem(
        path=f"{path}.{field}" if path else field, code=refusal.rule, message=f"{value} does not work: {refusal.message}"
    )


def rank(
    size: Size, verdict: Verdict, shape: NodeShape, accelerator: Accelerator, objective: Objective, max_num_seqs: int
) -> tuple[float, ...]:
    """What is compared, larger is better.

    "throughput": first the sizes with a comfortable cache, among them the fewest GPUs, as vLLM's guide says it; then requests of full length a GPU, less
    what splitting costs. "latency": how much faster a token comes by tensor parallel inside a link domain.
    """
    group = tensor_group(shape, accelerator, size.tensor_parallel_size, size.gpus_per_pod)
    tensor = TENSOR_DOUBLING[group.link] ** log2(size.tensor_parallel_size) if size.tensor_parallel_size > 1 else 1.0
    pipeline = PIPELINE_DOUBLING ** log2(size.pipeline_parallel_size) if size.pipeline_parallel_size > 1 else 1.0
    pipeline *= NETWORK_STAGE if size.pods_per_replica > 1 else 1.0
    numa = SECOND_NUMA_NODE if group.numa_nodes is not None and group.numa_nodes > 1 else 1.0
    served = min(verdict.concurrency, max_num_seqs) * size.data_parallel_size
    throughput = served / size.gpus * tensor * pipeline * numa
    latency = (max(1.0, size.tensor_parallel_size * tensor) if group.link == "link-domain" else 1.0) * pipeline
    if objective == "latency":
        return latency, throughput
    comfortable = verdict.tokens * size.data_parallel_size >= COMFORTABLE_TOKENS
    return float(comfortable), float(-size.gpus) if comfortable else 0.0, throughput, latency


def _served(verdict: Verdict) -> str:
    return f"room for {verdict.concurrency:.1f} requests of full length at once"


def _reasons(
    architecture: Architecture,
    shape: NodeShape,
    accelerator: Accelerator,
    size: Size,
    verdict: Verdict,
    group: TensorGroup,
    objective: Objective,
    wish: Wish,
    ranked: list[tuple[tuple[float, ...], Size, Verdict]],
) -> tuple[str, ...]:
    reasons = [f"{size} on {size.gpus} GPU{'s' if size.gpus > 1 else ''} of {shape.id}: {_served(verdict)}"]
    if wish.tensor_parallel_size is not None:
        reasons.append(f"tensor parallel {wish.tensor_parallel_size} is given; vLLM accepts it for {architecture.name}")
    elif len(ranked) > 1:
        reasons.append(_why_first(ranked, objective))
    reasons.append(group.explain(shape, accelerator))
    if size.pods_per_replica > 1:
        reasons.append(
            f"{size.pods_per_replica} pods of {size.gpus_per_pod} GPUs: stages, not tensor-parallel ranks, exchange over the network"
            if size.tensor_parallel_size <= shape.gpus
            else f"{size.pods_per_replica} pods of {size.gpus_per_pod} GPUs: tensor parallel over machines as asked, RDMA is declared"
        )
    if size.expert_parallel:
        reasons.append(
            "expert parallel is given"
            if wish.expert_parallel
            else f"expert parallel, because the experts' width cannot be cut over {size.tensor_parallel_size} ranks"
        )
    return tuple(reasons)


def _why_first(ranked: list[tuple[tuple[float, ...], Size, Verdict]], objective: Objective) -> str:
    (first, size, _), (second, other, other_verdict) = ranked[0], ranked[1]
    rival = f"{other} with {_served(other_verdict)} on {other.gpus} GPU{'s' if other.gpus > 1 else ''}"
    if objective == "latency":
        return f"better by time a token than {rival}"
    if first[0] and size.gpus < other.gpus:
        return f"the fewest GPUs with room for {COMFORTABLE_TOKENS:,} tokens; next is {rival}"
    if first[0] and not second[0]:
        return f"room for {COMFORTABLE_TOKENS:,} tokens, which {rival} has not"
    return f"better by requests a GPU than {rival}"


def _warnings(
    architecture: Architecture, shape: NodeShape, accelerator: Accelerator, size: Size, group: TensorGroup, wish: Wish, path: str
) -> tuple[Problem, ...]:
    tensor = size.tensor_parallel_size
    found: list[tuple[str, str]] = []
    padded = quantization_warning(architecture, tensor, vendor=accelerator.vendor, quantization=wish.quantization)
    if padded is not None and not size.expert_parallel:
        found.append(("PaddedExperts", padded))
    if tensor > 2 and group.link in ("pcie", "cross-socket"):
        found.append(
            (
                "PcieTensorParallel",
                f"{tensor} GPUs exchange over PCIe: vLLM turns its custom all-reduce off for more than 2 GPUs without NVLink or xGMI. "
                f"pipelineParallelSize {tensor} with tensorParallelSize 1 is usually faster there",
            )
        )
    if tensor > 1 and group.link == "cross-socket":
        largest = max(shape.gpus_per_numa_node or (1,))
        found.append(
            ("CrossSocketTensorParallel", f"{tensor} GPUs cross sockets over PCIe: a NUMA node of {shape.id} holds {largest}")
        )
    if tensor > 1 and group.link == "unknown":
        found.append(
            (
                "LinksUnknown",
                f"{tensor} GPUs: the catalog does not know which of {shape.id} are linked; say it inline with linkDomains",
            )
        )
    where = f"{path}.tensorParallelSize" if path else "tensorParallelSize"
    warnings = [Problem(path=where, code=code, message=message) for code, message in found]
    own = architecture.quantization
    if own is not None and own.method not in engine_facts().quantization_methods:
        warnings.append(
            Problem(
                path=f"{path}.model" if path else "model",
                code="QuantizationNotBuiltIn",
                message=f"{architecture.name} is quantised by {own.method}, which vLLM {engine_facts().version} does not bring itself: it needs a plugin, or a "
                "checkpoint quantised in another way",
            )
        )
    return tuple(warnings)


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
) -> Problem:
    """One sentence: what was closest, and what would do."""
    if not refused:
        fixed = wish.tensor_parallel_size is not None
        first = min(rejected, key=lambda item: item.size.gpus, default=None)
        if first is None:
            return Problem(
                path=f"{path}.pipelineParallelSize" if path else "pipelineParallelSize",
                code="NoArrangement",
                message=f"no split into equal pods exists on machines of {shape.id} ({shape.gpus} GPUs). Use a pipelineParallelSize that fills machines.",
            )
        field = "tensorParallelSize" if fixed else "pipelineParallelSize" if wish.pipeline_parallel_size else ""
        return Problem(path=f"{path}.{field}".strip("."), code=first.rule, message=first.reason)
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
    return Problem(path=path, code="DoesNotFit", message=message)


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
