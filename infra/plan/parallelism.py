"""Chooses tensor, pipeline, data and expert parallel sizes: by vLLM's rules, by the machine's links and NUMA nodes, by memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2
from typing import Literal, Protocol

from infra.catalog.types import Accelerator, NodeShape
from infra.errors import PlanError, Problem
from infra.plan.architecture_types import Architecture
from infra.plan.parallelism_rules import (
    Refusal,
    expert_parallel_refusal,
    pipeline_parallel_refusals,
    quantization_warning,
    tensor_parallel_refusals,
    valid_tensor_parallel_sizes,
)
from infra.plan.tensor_group import LinkClass, TensorGroup, tensor_group

Objective = Literal["throughput", "latency"]

LARGEST_POD_COUNT = 16
"""Machines that one replica may span when the search says how many would do."""

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

    `concurrency`: requests of full length that it serves at once, as expected. `largest_max_model_len`: the longest context that starts for certain, 0
    where none does. `reason`: one sentence with both numbers, used where it does not fit.
    """

    fits: bool
    concurrency: float
    largest_max_model_len: int
    reason: str


class Fits(Protocol):
    """Memory of one size of the model in question, on one device of the machine in question."""

    def __call__(
        self, tensor_parallel_size: int, pipeline_parallel_size: int, data_parallel_size: int, expert_parallel: bool, /
    ) -> Verdict: ...


@dataclass(frozen=True, kw_only=True)
class Size:
    """One split of a model over GPUs. `gpus_per_pod` x `pods_per_replica` = tensor x pipeline x data parallel."""

    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    expert_parallel: bool
    gpus_per_pod: int
    pods_per_replica: int

    @property
    def gpus(self) -> int:
        return self.gpus_per_pod * self.pods_per_replica

    def __str__(self) -> str:
        parts = [f"tensor parallel {self.tensor_parallel_size}"]
        if self.pipeline_parallel_size > 1:
            parts.append(f"pipeline parallel {self.pipeline_parallel_size}")
        if self.data_parallel_size > 1:
            parts.append(f"data parallel {self.data_parallel_size}")
        if self.expert_parallel:
            parts.append("expert parallel")
        return ", ".join(parts)


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


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user fixed, and what the pool allows. None: decided.

    `gpus_per_numa_node_limit`: the pool's policy admits a pod on one NUMA node only (single-numa-node), so a pod takes at most this many GPUs.
    `rdma`: GPUDirect RDMA between the machines is declared; tensor parallel over machines is refused without it. `pods_per_node`: pods of the model on one
    machine (1 with required anti-affinity).
    """

    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    expert_parallel: bool | None = None
    quantization: str | None = None
    replicas: int = 1
    pods_per_node: int | None = None
    gpus_per_numa_node_limit: int | None = None
    rdma: bool = False
    max_num_seqs: int = 256


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
    what splitting costs; for "latency" the largest split inside a link domain. `expert_parallel` None: where the experts' width cannot be cut;
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
        score=best_rank[0],
        group=group,
        reasons=_reasons(architecture, shape, accelerator, best, best_verdict, group, objective, wish, ranked),
        warnings=_warnings(architecture, shape, best, group, wish, path),
        alternatives=tuple(
            Alternative(
                size=size,
                concurrency=verdict.concurrency,
                score=value[0],
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
            score=rank(size, verdict, shape, accelerator, objective, wish.max_num_seqs)[0],
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


def candidate_sizes(architecture: Architecture, shape: NodeShape, nodes: int, wish: Wish) -> tuple[Size, ...]:
    """Every split of the model over one machine, or over some machines whole, that the user's wishes leave."""
    return _candidates(architecture, shape.gpus, nodes, wish)


@lru_cache(maxsize=4096)
def tiers(architecture: Architecture, shape: NodeShape, nodes: int, wish: Wish) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """The candidates that are preferred, and the others: those are looked at only where no preferred one fits.

    Preferred are pods that divide the machine evenly, and inside a link domain tensor parallel before pipeline parallel: stages only beyond the largest
    tensor-parallel size that the model and the domain allow.
    """
    sizes = candidate_sizes(architecture, shape, nodes, wish)
    preferred = tuple(size for size in sizes if _is_preferred(architecture, shape, size, wish))
    return preferred, tuple(size for size in sizes if size not in preferred)


def _is_preferred(architecture: Architecture, shape: NodeShape, size: Size, wish: Wish) -> bool:
    if shape.gpus % size.gpus_per_pod:
        return False
    if size.pipeline_parallel_size == 1 or wish.pipeline_parallel_size is not None or wish.tensor_parallel_size is not None:
        return True
    domain = shape.largest_link_domain or 1
    if domain == 1:
        return True
    domain = min(domain, wish.gpus_per_numa_node_limit or domain)
    valid = valid_tensor_parallel_sizes(
        architecture,
        wish.quantization,
        domain,
        expert_parallel=size.expert_parallel,
        data_parallel_size=size.data_parallel_size,
    )
    dividing = [tensor for tensor in valid if shape.gpus % tensor == 0]
    return size.tensor_parallel_size == max(dividing, default=1)


@lru_cache(maxsize=4096)
def _candidates(architecture: Architecture, gpus_per_node: int, nodes: int, wish: Wish) -> tuple[Size, ...]:
    return tuple(dict.fromkeys(_enumerate(architecture, gpus_per_node, nodes, wish)))


def _enumerate(architecture: Architecture, gpus_per_node: int, nodes: int, wish: Wish) -> Iterator[Size]:
    data = wish.data_parallel_size or 1
    across = wish.rdma and (wish.tensor_parallel_size or 0) > gpus_per_node
    largest = gpus_per_node * nodes if across else gpus_per_node
    tensors = (wish.tensor_parallel_size,) if wish.tensor_parallel_size is not None else range(1, largest + 1)
    for tensor in tensors:
        for experts in _expert_options(architecture, tensor, data, wish):
            for pipeline in _pipelines(architecture, tensor, data, gpus_per_node, nodes, wish):
                size = arrange(tensor, pipeline, data, experts, gpus_per_node)
                if size is not None:
                    yield size


def _expert_options(architecture: Architecture, tensor: int, data: int, wish: Wish) -> tuple[bool, ...]:
    """Expert parallel as asked; else only where the experts' width cannot be cut by this size."""
    if wish.expert_parallel is not None:
        return (wish.expert_parallel,)
    plain = not tensor_parallel_refusals(architecture, tensor, quantization=wish.quantization, data_parallel_size=data)
    if plain or not architecture.is_moe:
        return (False,)
    return (False, True)


def _pipelines(architecture: Architecture, tensor: int, data: int, gpus_per_node: int, nodes: int, wish: Wish) -> Iterator[int]:
    if wish.pipeline_parallel_size is not None:
        yield wish.pipeline_parallel_size
        return
    inside = max(1, gpus_per_node // (tensor * data))
    yield from range(1, inside + 1)
    if data == 1 and tensor <= gpus_per_node:
        for pods in range(2, nodes + 1):
            yield pods * (gpus_per_node // tensor)


def arrange(tensor: int, pipeline: int, data: int, experts: bool, gpus_per_node: int) -> Size | None:
    """The pods of one replica: one where it fits a machine, else equal pods on as few machines as hold whole tensor-parallel groups.

    A tensor-parallel group larger than a machine takes machines whole. None where no equal pods exist.
    """
    total = tensor * pipeline * data
    if total <= gpus_per_node:
        return Size(
            tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, data_parallel_size=data, expert_parallel=experts,
            gpus_per_pod=total, pods_per_replica=1,
        )  # fmt: skip
    unit = min(tensor, gpus_per_node)
    for pods in range(ceil(total / gpus_per_node), total + 1):
        if total % pods == 0 and (total // pods) % unit == 0:
            return Size(
                tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, data_parallel_size=data, expert_parallel=experts,
                gpus_per_pod=total // pods, pods_per_replica=pods,
            )  # fmt: skip
    return None


def size_refusal(
    architecture: Architecture, shape: NodeShape, accelerator: Accelerator, nodes: int, size: Size, wish: Wish
) -> Refusal | None:
    """The first rule that a size breaks, or None: vLLM's rules, then the machine's, then the pool's."""
    tensor = size.tensor_parallel_size
    found = tensor_parallel_refusals(
        architecture,
        tensor,
        quantization=wish.quantization,
        expert_parallel=size.expert_parallel,
        data_parallel_size=size.data_parallel_size,
    )
    if found:
        return found[0]
    found = pipeline_parallel_refusals(architecture, size.pipeline_parallel_size)
    if found:
        return found[0]
    if shape.partition is not None and not shape.partition.upper().startswith("SPX") and tensor > 1:
        return Refusal(
            rule="PartitionedDevice",
            message=f"the devices of {shape.id} are partitions ({shape.partition}); tensor parallel {tensor} over partitions is refused. "
            "Use 1, or set the cards to SPX.",
        )
    if tensor > shape.gpus:
        stages = ceil(tensor / shape.gpus)
        if not wish.rdma:
            return Refusal(
                rule="TensorParallelOverNodes",
                message=f"tensor parallel {tensor} needs {stages} machines of {shape.id} ({shape.gpus} GPUs each), and no RDMA with GPUDirect is "
                f"declared between them. Use {shape.gpus} with pipelineParallelSize {stages}.",
            )
    limit = wish.gpus_per_numa_node_limit
    if limit is not None and size.gpus_per_pod > limit:
        group = tensor_group(shape, accelerator, tensor, size.gpus_per_pod)
        return Refusal(
            rule="SingleNumaNode",
            message=f"{size.gpus_per_pod} GPUs need {group.numa_nodes or 'several'} NUMA nodes of {shape.id} ({limit} each); "
            f"single-numa-node admits 1. Use {limit}, or topologyManagerPolicy restricted.",
        )
    capacity = replicas_that_fit(shape, nodes, size, wish.pods_per_node)
    if capacity < wish.replicas:
        return Refusal(
            rule="NotEnoughMachines",
            message=f"{wish.replicas} replica{'s' if wish.replicas > 1 else ''} of {size.pods_per_replica} pod{'s' if size.pods_per_replica > 1 else ''} "
            f"with {size.gpus_per_pod} GPUs each do not go on {nodes} machine{'s' if nodes > 1 else ''} of {shape.id} ({shape.gpus} GPUs): "
            f"there is room for {capacity}.",
        )
    return None


def replicas_that_fit(shape: NodeShape, nodes: int, size: Size, pods_per_node: int | None) -> int:
    """Replicas of this size on `nodes` empty machines; the pods of one replica stand on different machines."""
    per_node = shape.gpus // size.gpus_per_pod
    if pods_per_node is not None:
        per_node = min(per_node, pods_per_node)
    if size.pods_per_replica == 1:
        return nodes * per_node
    return (nodes // size.pods_per_replica) * per_node


def rank(
    size: Size, verdict: Verdict, shape: NodeShape, accelerator: Accelerator, objective: Objective, max_num_seqs: int
) -> tuple[float, ...]:
    """What is compared, larger is better: the objective's score, then the other objective's."""
    group = tensor_group(shape, accelerator, size.tensor_parallel_size, size.gpus_per_pod)
    tensor = TENSOR_DOUBLING[group.link] ** log2(size.tensor_parallel_size) if size.tensor_parallel_size > 1 else 1.0
    pipeline = PIPELINE_DOUBLING ** log2(size.pipeline_parallel_size) if size.pipeline_parallel_size > 1 else 1.0
    efficiency = tensor * pipeline * (NETWORK_STAGE if size.pods_per_replica > 1 else 1.0)
    if group.numa_nodes is not None and group.numa_nodes > 1:
        efficiency *= SECOND_NUMA_NODE
    served = min(verdict.concurrency * size.data_parallel_size, max_num_seqs * size.data_parallel_size)
    throughput = served / size.gpus * efficiency
    speed = max(1.0, size.tensor_parallel_size * tensor) if group.link == "link-domain" else 1.0
    latency = speed * pipeline * (NETWORK_STAGE if size.pods_per_replica > 1 else 1.0)
    return (throughput, latency) if objective == "throughput" else (latency, throughput)


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
        _, other, other_verdict = ranked[1]
        aim = "requests a GPU" if objective == "throughput" else "time a token"
        reasons.append(
            f"better by {aim} than {other} with {_served(other_verdict)} on {other.gpus} GPU{'s' if other.gpus > 1 else ''}"
        )
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


def _warnings(
    architecture: Architecture, shape: NodeShape, size: Size, group: TensorGroup, wish: Wish, path: str
) -> tuple[Problem, ...]:
    tensor = size.tensor_parallel_size
    found: list[tuple[str, str]] = []
    padded = quantization_warning(architecture, tensor, quantization=wish.quantization)
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
    return tuple(Problem(path=where, code=code, message=message) for code, message in found)


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
