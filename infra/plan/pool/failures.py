"""Why a candidate configuration is given up: one sentence with the path, both numbers and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from infra.kubelet import KubeletRefuses
from infra.plan.model.kubelet import KubeletPlan
from infra.plan.placement import Load, NodeCapacity, amount
from infra.plan.pod_shape import PodShape
from infra.plan.pool.candidate import CandidateConfiguration
from infra.plan.pool.gpu_pool import GpuPool, start_kubelet
from infra.plan.pool.memory_split import mebibytes
from infra.plan.pool.messages import Finding, Location, Message, described
from infra.plan.pool.proof import Event, Refusal
from infra.plan.pool.ways_out import field_of_part_of_a_core, nodes_required, room_for_pods, smaller_pod, whole_cores, without_field
from infra.plan.pool.widths import GPUS_FIELD, NodeWidths
from infra.units import format_gib


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a candidate was given up. `final`: no other candidate can do better (the kubelet refuses the user's own fields, the pool is too small)."""

    policy: str
    finding: Finding
    summary: Message | None = None  # the same without numbers of the node and remedies
    memory_policy: str = ""
    final: bool = False
    proven_refusal: bool = False

    @property
    def reason(self) -> Message:
        """For the plan's reasons."""
        return self.finding.message if self.summary is None else self.summary


_STAGE_FIELDS: Mapping[str, str] = {
    "reservedSystemCPUs": "reservedSystemCPUs",
    "kubeReserved": "kubeReserved",
    "systemReserved": "systemReserved",
    "evictionHard": "evictionHard",
    "topologymanager": "topologyManagerPolicyOptions",
    "cpumanager": "cpuManagerPolicyOptions",
    "memorymanager": "reservedMemory",
    "nodeAllocatable": "kubeReserved",
}


def will_not_start(kubelet: KubeletPlan, refusal: KubeletRefuses) -> Failure:
    """The kubelet refuses the configuration itself, which no other candidate changes: all that it refuses are the user's own fields."""
    text = "; ".join(refusal.errors)
    named = (name for name in sorted(kubelet.fields, key=len, reverse=True) if name.lower() in text.lower())
    field = next(named, _STAGE_FIELDS.get(refusal.stage))
    finding = Finding(
        location=Location(field=f"kubelet.{field}" if field else "kubelet"),
        code="KubeletRefuses",
        message=Message.of(f"the kubelet would not start ({refusal.stage}): {text}"),
        offers=() if field is None else (without_field(field),),
    )
    return Failure(policy=kubelet.topology_manager_policy, finding=finding, final=True)


def conflicts_of(pool: GpuPool, candidate: CandidateConfiguration, kubelet: KubeletPlan) -> list[Failure]:
    """Pods that the policy cannot admit even on an empty node, by the number of NUMA nodes that their resources need."""
    widths = NodeWidths.of(pool.shape, reserved_memory=kubelet.reserved_memory, pins_cpus=kubelet.pins_cpus)
    found = [(position, widths.conflict(candidate.topology_policy, pod)) for position, pod in enumerate(candidate.shapes)]
    return [
        Failure(
            policy=candidate.topology_policy,
            finding=Finding(
                location=Location(field=conflict.field, pod=position),
                code="TopologyAffinityError",
                message=Message.of(f"{conflict.sentence}."),
                offers=conflict.offers,
            ),
        )
        for position, conflict in found
        if conflict is not None
    ]


def no_room(
    pool: GpuPool, candidate: CandidateConfiguration, capacity: NodeCapacity, unplaced: Sequence[tuple[int, int]]
) -> list[Failure]:
    """`unplaced` are the positions of pod shapes and how many pods of each found no node."""
    # The same number for all of them, which takes a search to find.
    required = cache(lambda: nodes_required(pool, candidate, capacity))
    return [_no_room(pool, candidate, capacity, shape, required) for shape in unplaced]


def _no_room(
    pool: GpuPool, candidate: CandidateConfiguration, capacity: NodeCapacity, unplaced: tuple[int, int], required: Callable[[], int]
) -> Failure:
    position, _ = unplaced
    one_pod = tuple(int(other == position) for other in range(len(candidate.shapes)))
    shortfall = capacity.shortfall(candidate.shapes, one_pod)
    if shortfall is None:
        finding = _too_few_nodes(pool, candidate, capacity, unplaced, required)
    else:
        finding = _too_large(pool, candidate, position, shortfall)
    return Failure(policy=candidate.topology_policy, finding=finding, final=candidate.shapes == pool.pods)


def _too_large(pool: GpuPool, candidate: CandidateConfiguration, position: int, shortfall: tuple[str, int, int]) -> Finding:
    resource, needed, there = shortfall
    field = {"GPUs": GPUS_FIELD, "CPU": "resources.cpu", "memory": "resources.memory", "pods": "replicas"}[resource]
    text = (
        f"one pod needs {amount(resource, needed)} {resource}; a node of {pool.shape.name} has {amount(resource, max(there, 0))} for pods after what "
        "the node, its DaemonSets and co-tenants keep."
    )
    return Finding(
        location=Location(field=field, pod=position),
        code="PodTooLarge",
        message=Message.of(text),
        offers=tuple(smaller_pod(pool, candidate.shapes[position], resource, needed - there)),
        remedy=Message.of("A larger node holds it."),
    )


def _too_few_nodes(
    pool: GpuPool, candidate: CandidateConfiguration, capacity: NodeCapacity, unplaced: tuple[int, int], required: Callable[[], int]
) -> Finding:
    position, pods = unplaced
    pod = candidate.shapes[position]
    apart = " (required anti-affinity: one a node)" if pod.anti_affinity == "required" else ""
    text = (
        f"{_pods(pod.copies)} of {pod.gpus} GPUs, {format_gib(pod.requests[1])} and {amount('CPU', pod.requests[0])} CPUs are wanted{apart}; "
        f"{pool.nodes} node{'s' if pool.nodes > 1 else ''} of {pool.shape.name} hold {pod.copies - pods}{_because(candidate, capacity, position)}."
    )
    return Finding(
        location=Location(field="replicas", pod=position),
        code="PoolTooSmall",
        message=Message.of(text),
        offers=tuple(room_for_pods(pool, candidate, capacity, unplaced, required)),
    )


def _pods(count: int) -> str:
    return f"{count} pod{'s' if count != 1 else ''}"


def _because(candidate: CandidateConfiguration, capacity: NodeCapacity, position: int) -> str:
    """The resource that a node with as many of these pods as fit lacks for one more."""
    if len(candidate.shapes) > 1:
        return " beside the pool's other models"
    if candidate.shapes[position].anti_affinity == "required":
        return ""
    count, shortfall = 1, None
    while shortfall is None:
        count += 1
        shortfall = capacity.shortfall(candidate.shapes, (count,))
    resource, needed, there = shortfall
    return f" ({_pods(count)} on one node need {amount(resource, needed)} {resource}, and {amount(resource, there)} is there)"


def refused(
    pool: GpuPool, candidate: CandidateConfiguration, kubelet: KubeletPlan, load: Load, refusal: Refusal, machine: str
) -> Failure:
    """The kubelet refuses a pod in some order of starts and ends; `machine` says what memory the node had."""
    pod = candidate.shapes[refusal.resident] if refusal.resident < len(candidate.shapes) else None
    summary = Message.of(
        f"{candidate.topology_policy} does not admit ",
        described(candidate.shapes, load),
        f" in every order on one node of {pool.shape.name} {machine}: ",
        in_words(refusal, pool),
        ".",
    )
    if pool.shape.numa_in_guest is False and pool.resource_name.startswith("amd.com/"):
        summary = Message.of(
            summary,
            " AMD's device plugin reports NUMA node -1 in a virtual machine that hides NUMA, and no NUMA node has that id: use best-effort, or expose NUMA "
            "nodes to the guest.",
        )
    finding = Finding(
        location=_refusal_location(pool, pod, refusal),
        code=refusal.reason or "Refused",
        message=Message.of(summary, "" if pod is None else _free_by_node(pool, kubelet, pod)),
        offers=()
        if pod is None
        else tuple(whole_cores(pod, pool.threads_per_core))
        if refusal.reason == "SMTAlignmentError"
        else (),
    )
    return Failure(policy=candidate.topology_policy, finding=finding, summary=summary, proven_refusal=True)


def in_words(refusal: Refusal, pool: GpuPool) -> Message:
    """The order of events, and the refusal that it ends in."""
    before = Message.of("on an empty node")
    if refusal.events:
        before = Message.of("after ", Message.of(", ").joined(_event_in_words(event, pool) for event in refusal.events))
    name = pool.name_of(refusal.resident)
    return Message.of(before, " the kubelet refuses a pod of ", name, f" ({refusal.reason}: {refusal.message})")


def _event_in_words(event: Event, pool: GpuPool) -> Message:
    numa_nodes = ", ".join(map(str, event.numa_nodes))
    place = f" (NUMA node{'s' if len(event.numa_nodes) > 1 else ''} {numa_nodes})" if numa_nodes else ""
    return Message.of(f"{event.change} of ", pool.name_of(event.resident), place)


def _refusal_location(pool: GpuPool, pod: PodShape | None, refusal: Refusal) -> Location:
    position = None if pod is None else refusal.resident
    if refusal.reason == "SMTAlignmentError":
        field = "kubelet.cpuManagerPolicyOptions" if pod is None else field_of_part_of_a_core(pod, pool.threads_per_core)
        return Location(field=field, pod=position)
    for name in ("reservedMemory", "topologyManagerPolicy"):
        if pool.user_sets(name):
            return Location(field=f"kubelet.{name}")
    return Location(field="resources" if pod else "coTenants", pod=position)


def _free_by_node(pool: GpuPool, kubelet: KubeletPlan, pod: PodShape) -> str:
    """The numbers of an empty node next to what the pod needs."""
    reserved = kubelet.reserved_memory
    per_node = []
    taken = start_kubelet(pool, kubelet).reserved_cpus
    for node in pool.shape.numa_nodes:
        if not node.cpus:
            continue
        parts = [f"{len(node.gpus or ())} GPUs", f"{len(set(node.cpus) - taken)} CPUs"]
        if reserved is not None:
            memory = (node.memory_bytes or 0) - reserved.get(node.id, 0)
            parts.append(f"{format_gib(memory)} ({mebibytes(reserved.get(node.id, 0))} reserved)")
        per_node.append(f"NUMA node {node.id} has {', '.join(parts)}")
    need = f"{pod.gpus} GPUs, {pod.cpu} CPUs" + (f" and {format_gib(pod.requests[1])}" if reserved is not None else "")
    return f" On an empty node {'; '.join(per_node)}; the pod needs {need}."


def unproven(pool: GpuPool, candidate: CandidateConfiguration, why: Message) -> Failure:
    """Too many states or mixtures of pods to visit all of them."""
    text = Message.of(
        f"admission under {candidate.topology_policy} is not proven: ", why, ". Use dedicated pools for pods of different size."
    )
    return Failure(policy=candidate.topology_policy, finding=Finding(location=Location(), code="NotProven", message=text))
