"""Why a size was chosen, and what to watch with it: sentences for people."""

from __future__ import annotations

from collections.abc import Sequence

from infra.catalog.load import engine_facts
from infra.diagnosis import Diagnosis
from infra.offers import Offer
from infra.plan.architecture.types import Architecture
from infra.plan.parallelism.rank import COMFORTABLE_TOKENS, MemoryVerdict, Objective, RankedSize
from infra.plan.parallelism.rules import quantization_warning
from infra.plan.parallelism.sizes import Machines, Size, SizeConstraints
from infra.plan.parallelism.tensor_group import TensorGroup


def served(verdict: MemoryVerdict) -> str:
    return f"room for {verdict.concurrency:.1f} requests of full length at once"


def choice_reasons(
    architecture: Architecture,
    machines: Machines,
    constraints: SizeConstraints,
    ranked: Sequence[RankedSize],
    *,
    group: TensorGroup,
    objective: Objective,
) -> tuple[str, ...]:
    """Why the first of `ranked`, whose tensor-parallel group is `group`."""
    shape, size = machines.shape, ranked[0].size
    reasons = [f"{size} on {size.gpus} GPU{'s' if size.gpus > 1 else ''} of {shape.name}: {served(ranked[0].verdict)}"]
    if constraints.tensor_parallel_size is not None:
        reasons.append(f"tensor parallel {constraints.tensor_parallel_size} is given; vLLM accepts it for {architecture.name}")
    elif len(ranked) > 1:
        reasons.append(_why_first(ranked, objective))
    reasons.append(group.explain(shape, machines.accelerator))
    if size.pods_per_replica > 1:
        reasons.append(
            f"{size.pods_per_replica} pods of {size.gpus_per_pod} GPUs: stages, not tensor-parallel ranks, exchange over the network"
            if size.tensor_parallel_size <= shape.gpus
            else f"{size.pods_per_replica} pods of {size.gpus_per_pod} GPUs: tensor parallel over machines as asked, RDMA is declared"
        )
    if size.expert_parallel:
        reasons.append(
            "expert parallel is given"
            if constraints.expert_parallel
            else f"expert parallel, because the experts' width cannot be cut over {size.tensor_parallel_size} ranks"
        )
    return tuple(reasons)


def _why_first(ranked: Sequence[RankedSize], objective: Objective) -> str:
    (first, size, _), (second, other, other_verdict) = ranked[0], ranked[1]
    rival = f"{other} with {served(other_verdict)} on {other.gpus} GPU{'s' if other.gpus > 1 else ''}"
    if objective == "latency":
        return f"better by time a token than {rival}"
    if first[0] and size.gpus < other.gpus:
        return f"the fewest GPUs with room for {COMFORTABLE_TOKENS:,} tokens; next is {rival}"
    if first[0] and not second[0]:
        return f"room for {COMFORTABLE_TOKENS:,} tokens, which {rival} has not"
    return f"better by requests a GPU than {rival}"


def choice_warnings(
    architecture: Architecture, machines: Machines, constraints: SizeConstraints, size: Size, group: TensorGroup, path: str
) -> tuple[Diagnosis, ...]:
    """What to watch with a size; `path` is the model's place in the stack file."""
    shape, tensor = machines.shape, size.tensor_parallel_size
    found: list[tuple[str, str, tuple[Offer, ...]]] = []
    padded = quantization_warning(architecture, tensor, vendor=machines.accelerator.vendor, quantization=constraints.quantization)
    if padded is not None and not size.expert_parallel:
        found.append(("PaddedExperts", padded, ()))
    if tensor > 2 and group.link in ("pcie", "cross-socket"):
        stages = tensor * size.pipeline_parallel_size
        words = f"use pipelineParallelSize {stages} with tensorParallelSize 1, which is usually faster there"
        changes = (("model.tensorParallelSize", 1), ("model.pipelineParallelSize", stages))
        message = (
            f"{tensor} GPUs exchange over PCIe: vLLM turns its custom all-reduce off for more than 2 GPUs without NVLink or xGMI"
        )
        found.append(("PcieTensorParallel", message, (Offer.of(words, *changes),)))
    if tensor > 1 and group.link == "cross-socket":
        largest = max(shape.gpus_per_numa_node or (1,))
        message = f"{tensor} GPUs cross sockets over PCIe: a NUMA node of {shape.name} holds {largest}"
        found.append(("CrossSocketTensorParallel", message, ()))
    if tensor > 1 and group.link == "unknown":
        message = f"{tensor} GPUs: the catalog does not know which of {shape.name} are linked; say it inline with linkDomains"
        found.append(("LinksUnknown", message, ()))
    where = f"{path}.tensorParallelSize" if path else "tensorParallelSize"
    warnings = [Diagnosis.warning(path=where, code=code, message=message, offers=offers) for code, message, offers in found]
    own = architecture.quantization
    if own is not None and own.method not in engine_facts().quantization_methods:
        warnings.append(
            Diagnosis.warning(
                path=f"{path}.model" if path else "model",
                code="QuantizationNotBuiltIn",
                message=f"{architecture.name} is quantised by {own.method}, which vLLM {engine_facts().version} does not bring itself: it needs a plugin, or a "
                "checkpoint quantised in another way",
            )
        )
    return tuple(warnings)
