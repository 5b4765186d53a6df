"""Rank bindings of a pool's pods: only what the proof found in every state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from infra.offers import POOL, Offer
from infra.plan.binding import Unbound, bind_ranks, describe_binding
from infra.plan.model import RankBinding
from infra.plan.pod_shape import MAIN_CONTAINER
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.messages import Finding, Location, warning
from infra.plan.pool.search import ProvenConfiguration
from infra.plan.pool.slots import Layout
from infra.plan.pool.widths import UNPINNED, NodeWidths


@dataclass(frozen=True, kw_only=True)
class BindingDecision:
    """None: every place of the pod is one NUMA node, or its ranks cannot be bound; then `reasons`, and a warning where it can be changed, say why."""

    binding: RankBinding | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[Finding, ...] = ()


def decide_binding(
    pool: GpuPool, proven: ProvenConfiguration, layout: Layout, widths: NodeWidths, position: int
) -> BindingDecision:
    """The binding of the pods at a position."""
    pod, hidden = proven.candidate.shapes[position], pool.shape.numa_in_guest is False
    if widths.spans(pod) == 1:
        return BindingDecision()
    if not pod.binds_ranks:
        return BindingDecision(reasons=("No rank binding: this version of vLLM has no --numa-bind; 0.20.0 and later do.",))
    if proven.proof.bounded and proven.candidate.admits_unaligned:
        reason = (
            "No rank binding: a node with these pods has more states than can be looked at, so that it is not proven which CPUs a pod holds. "
            "Give the model a pool of its own."
        )
        return BindingDecision(reasons=(reason,))
    numa_node_of_gpu = pool.shape.gpu_numa_nodes
    places = [footprint.container(MAIN_CONTAINER) for footprint in proven.proof.footprints[position]]
    if not places:
        return BindingDecision()
    slots = layout.slots[position][0].slots if layout.slots[position] else layout.places[position]
    width = max(widths.spans(pod), 1)
    bound = bind_ranks(
        [None if hidden else numa_node_of_gpu[gpu] for gpu in slots[0].gpus],
        places,
        all_memory_nodes=[node.id for node in pool.shape.numa_nodes if node.cpus and node.memory_bytes],
        threads_per_core=pool.threads_per_core,
    )
    if bound is None:
        return BindingDecision()
    if isinstance(bound, Unbound):
        location = Location(field="resources.cpu", pod=position)
        offers = tuple(_that_bind(proven, widths, width, bound))
        warnings = () if hidden else (warning(location, "RanksNotBound", bound.reason, offers=offers),)
        return BindingDecision(reasons=(f"No rank binding: {bound.reason}",), warnings=warnings)
    memory = ", ".join(map(str, bound.memory_nodes))
    several = len({place.devices for place in places}) > 1
    elsewhere = " Where it comes to lie on other NUMA nodes the ranks follow their GPUs." if several else ""
    reason = (
        f"rank binding: {describe_binding(bound)}; the pod holds as many in every one of the {proven.proof.states} states that were proven and may allocate "
        f"memory on NUMA nodes {memory}.{elsewhere}"
    )
    return BindingDecision(binding=bound, reasons=(reason,))


def _that_bind(proven: ProvenConfiguration, widths: NodeWidths, width: int, unbound: Unbound) -> Iterator[Offer]:
    """What may give each rank CPUs and memory on its NUMA node."""
    if unbound.lacks == "memory":
        yield from UNPINNED
    if unbound.lacks in ("cpus", "even cpus"):
        yield from widths.wide_enough(width)
    options = proven.kubelet.cpu_manager_policy_options
    if unbound.lacks == "even cpus" and options.get("distribute-cpus-across-numa") != "true":
        yield Offer.of(
            "turn distribute-cpus-across-numa on, which takes CPUs from all NUMA nodes alike",
            (f"{POOL}.kubelet.cpuManagerPolicyOptions", {**options, "distribute-cpus-across-numa": "true"}),
        )
