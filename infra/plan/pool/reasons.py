"""Says why: the reasons of a pool's decision and of its pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra.catalog.platforms import platforms, varying_of
from infra.plan.pod_shape import PodShape
from infra.plan.pool.candidate import policies_to_try
from infra.plan.pool.failures import Failure
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.messages import Message, described
from infra.plan.pool.search import ProvenConfiguration
from infra.plan.pool.slots import Layout
from infra.plan.pool.widths import NodeWidths

_MOST_LOADS_TOLD = 4


def cpu_reasons(required: PodShape, planned: PodShape, widths: NodeWidths) -> tuple[str, ...]:
    """Why a pod gets more CPUs than were proposed for it."""
    if planned.cpu == required.cpu:
        return ()
    width = widths.spans(planned)
    return (
        f"{planned.cpu} CPUs instead of {required.cpu}: {planned.gpus} GPUs lie on {width} NUMA nodes, and only a pod with more than "
        f"{widths.cpus.least_of_width(width) - 1} CPUs gets CPUs on all of them (with fewer the CPU manager takes all from one node).",
    )


def place_reasons(layout: Layout, position: int) -> tuple[str, ...]:
    """Where pods may lie besides the slots that the plan shows."""
    shown = {slot.numa_nodes for group in layout.slots[position] for slot in group.slots}
    other = sorted({slot.numa_nodes for slot in layout.places[position]} - shown)
    if not other:
        return ()
    words = "; ".join(", ".join(map(str, nodes)) for nodes in other)
    plural = "s" if any(len(nodes) > 1 for nodes in other) else ""
    return (f"Slots show one order of starts: in others a pod comes to lie on NUMA node{plural} {words}.",)


def pool_reasons(pool: GpuPool, proven: ProvenConfiguration, failures: Sequence[Failure]) -> tuple[Message, ...]:
    """Policy, reservations, memory and options, in the order of their weight."""
    plain = (
        *_base_reasons(pool, proven),
        *pool.reservations.reasons,
        *_memory_reasons(pool, proven),
        *_option_reasons(pool, proven),
    )
    return (*_policy_reasons(pool, proven, failures), *map(Message.of, plain))


def _policy_reasons(pool: GpuPool, proven: ProvenConfiguration, failures: Sequence[Failure]) -> Iterator[Message]:
    candidate, proof = proven.candidate, proven.proof
    given = "as the stack file says" if pool.user_sets("topologyManagerPolicy") else "the strictest that admits all pods"
    loads = Message.of("; or ").joined(described(candidate.shapes, load) for load in proof.loads[:_MOST_LOADS_TOLD])
    more = "; ..." if len(proof.loads) > _MOST_LOADS_TOLD else ""
    yield Message.of(
        f"topologyManagerPolicy {candidate.topology_policy}, {given}: every order of starts, ends and restarts was tried, {proof.states} states, with what the "
        "scheduler can put on a node (",
        loads,
        f"{more}) and the Guaranteed co-tenants." if pool.guaranteed_co_tenants else f"{more}).",
    )
    first_of_policy = {failure.policy: failure for failure in reversed(failures)}
    for policy in dict.fromkeys(failure.policy for failure in failures):
        yield Message.of(f"not {policy}: ", first_of_policy[policy].reason)
    left_out = policies_to_try(pool)[1]
    if left_out:
        yield Message.of(left_out)


def _base_reasons(pool: GpuPool, proven: ProvenConfiguration) -> Iterator[str]:
    """Which configuration file the nodes are taken to have; nothing is assumed of nodes that exist."""
    entry = platforms()[pool.platform]
    if not pool.user.base:
        return
    doubtful = "" if entry.confidence == "high" else f" (confidence {entry.confidence}: compare with a node of the pool)"
    varying = varying_of(pool.platform)
    unknown = (
        f" It sets {', '.join(varying)} as well, to values that depend on the machine, the cluster or the version."
        if varying
        else ""
    )
    met = {name: value for name, value in pool.user.base.items() if name in proven.kubelet.drop_in}
    said = f", where the plan meets {', '.join(f'{name} {_flat(value)}' for name, value in sorted(met.items()))}" if met else ""
    if pool.unavailable:
        over = "The plan runs over it with the fields that the node pool takes."
    else:
        over = "The plan runs over its merge with the pool's drop-in, which empties the cgroups that the kubelet refuses beside reservedSystemCPUs."
    yield f"The nodes' own kubelet configuration is taken to be what {entry.written_by} writes for {pool.platform}{doubtful}{said}.{unknown} {over}"


def _flat(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_flat(item)}" for name, item in value.items()) + "}"
    return "[" + ", ".join(map(_flat, value)) + "]" if isinstance(value, list | tuple) else str(value)


def _memory_reasons(pool: GpuPool, proven: ProvenConfiguration) -> Iterator[str | Message]:
    split = proven.candidate.split
    if split is not None:
        yield f"{split.reason} Together {pool.reservations.sum_in_words}."
    elif proven.candidate.memory_policy == "None" and not pool.user_sets("memoryManagerPolicy"):
        yield _why_memory_is_not_pinned(pool, proven)


def _why_memory_is_not_pinned(pool: GpuPool, proven: ProvenConfiguration) -> str | Message:
    if pool.reservations.memory_bytes is None:
        return "memoryManagerPolicy None: the memory threshold of evictionHard is a percentage, and Static would need its bytes."
    static = next((failure for failure in reversed(proven.dropped) if failure.memory_policy == "Static"), None)
    if static is None:
        return f"memoryManagerPolicy None: Static has no use here, or cannot be had on {pool.shape.name}."
    without = " Without it pods may allocate on all NUMA nodes, and ranks are bound to theirs."
    return Message.of("memoryManagerPolicy None, not Static: ", static.reason, without)


def _option_reasons(pool: GpuPool, proven: ProvenConfiguration) -> Iterator[str]:
    options = proven.kubelet.cpu_manager_policy_options
    if options.get("distribute-cpus-across-numa") == "true":
        yield "distribute-cpus-across-numa takes the CPUs of a pod that needs several NUMA nodes from all of them alike, instead of filling the first."
    if "strict-cpu-reservation" in options:
        yield "strict-cpu-reservation keeps pods of the shared pool off the reserved CPUs too."
    if not proven.candidate.full_pcpus_only and proven.kubelet.pins_cpus and pool.threads_per_core > 1:
        yield (
            "full-pcpus-only is off: a Guaranteed pod on these nodes asks for CPUs that are no whole physical cores, and the kubelet would refuse it "
            "(SMTAlignmentError)."
        )
