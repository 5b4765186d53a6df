"""Compares sizes that all work: what memory says of one, and which of two serves better."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Literal, NamedTuple, Protocol

from infra.plan.architecture.partition import ParallelSizes
from infra.plan.parallelism.sizes import Machines, Size
from infra.plan.parallelism.tensor_group import LinkClass, tensor_group

Objective = Literal["throughput", "latency"]

COMFORTABLE_TOKENS = 32_768
"""Tokens of cache from which more GPUs a replica are not worth it: eight conversations of 4096 tokens. Then more replicas serve
more."""

# Shares of the ideal that a doubling leaves. They are judgement and only rank sizes that all fit: NVLink or xGMI before PCIe,
# tensor before pipeline inside a link domain, pipeline before tensor over PCIe (as vLLM's guide advises), nothing over the network
# that need not be.
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
class MemoryVerdict:
    """What memory says of one size.

    `concurrency`: requests of full length that it serves at once, and `tokens` of cache, as expected. `largest_max_model_len`: the
    longest context that starts for certain, 0 where none does. `reason`: one sentence with both numbers, used where it does not
    fit.
    """

    fits: bool
    concurrency: float
    largest_max_model_len: int
    reason: str
    tokens: float


class Fits(Protocol):
    """Memory of one size of the model in question, on one device of the machine in question."""

    def __call__(self, sizes: ParallelSizes, /) -> MemoryVerdict: ...


class RankedSize(NamedTuple):
    """A size that works: `rank` is compared, larger is better."""

    rank: tuple[float, ...]
    size: Size
    verdict: MemoryVerdict


def rank(size: Size, verdict: MemoryVerdict, machines: Machines, *, objective: Objective, max_num_seqs: int) -> tuple[float, ...]:
    """What is compared, larger is better.

    "throughput": first the sizes with a comfortable cache, among them the fewest GPUs, as vLLM's guide says it; then requests of
    full length a GPU, less what splitting costs. "latency": how much faster a token comes by tensor parallel inside a link domain.
    """
    group = tensor_group(machines.shape, machines.accelerator, size.tensor_parallel_size, size.gpus_per_pod)
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
