"""The configurations that are worth a try for one topology policy, best first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from infra.plan.placement import PodShape
from infra.plan.pool.configuration import MOST_NUMA_NODES_ENUMERATED, Candidate
from infra.plan.pool.proof import Resident
from infra.plan.pool.question import Question
from infra.plan.pool.reserve import MemorySplit, memory_splits, usable_bytes
from infra.plan.pool.widths import NodeWidths
from infra.units import parse_cpu_list, parse_millicpu


def candidates(question: Question, policy: str) -> Iterator[Candidate]:
    """Pods with CPUs on all NUMA nodes of their GPUs come first; as they were asked for only where that policy admits them so."""
    plain = NodeWidths.of(
        question.shape, reserved_memory=None, pins_cpus=question.user.get("cpuManagerPolicy", "static") == "static"
    )
    wide = question.pods if policy == "single-numa-node" else tuple(plain.with_enough_cpus(pod) for pod in question.pods)
    yield from _with_pods(question, policy, wide, plain)
    if wide != question.pods and policy in ("best-effort", "none"):
        yield from _with_pods(question, policy, question.pods, plain)


def _with_pods(question: Question, policy: str, shapes: tuple[PodShape, ...], plain: NodeWidths) -> Iterator[Candidate]:
    user, shape = question.user, question.shape
    options = user.get("cpuManagerPolicyOptions") or {}
    spans = any(plain.spans(pod) > 1 and (plain.cpus.of_request(pod.cpu) or 0) > 1 for pod in shapes)
    optional = plain.pins_cpus and "cpuManagerPolicyOptions" not in question.unavailable
    distribute = optional and spans and not {"align-by-socket", "prefer-align-cpus-by-uncorecache"} & set(options)
    whole = all(whole_cores_only(resident, shape.threads_per_core or 1) for resident in _all_residents(question, shapes))
    whole = whole and not (distribute and _reserves_half_cores(question))  # both together may loop for ever then
    full_pcpus_only = options["full-pcpus-only"] == "true" if "full-pcpus-only" in options else optional and whole
    for memory_policy, split in _memory_choices(question):
        for scope in _scopes(question, shapes):
            yield Candidate(
                topology_policy=policy,
                scope=scope,
                memory_policy=memory_policy,
                full_pcpus_only=full_pcpus_only,
                distribute=distribute,
                split=split,
                shapes=shapes,
            )


def _scopes(question: Question, shapes: Sequence[PodShape]) -> list[str]:
    """The stricter one first where it matters: with one container a pod both are the same."""
    if "topologyManagerScope" in question.user:
        return [question.user["topologyManagerScope"]]
    several = any(pod.container_count > 1 for pod in shapes)
    return ["pod", "container"] if several and "topologyManagerScope" not in question.unavailable else ["container"]


def _reserves_half_cores(question: Question) -> bool:
    """Whether the reserved CPUs leave a core of which one thread is taken: the user's list does, or an amount that is no whole number of cores."""
    threads = question.shape.threads_per_core or 1
    fields = question.reservations.fields
    if fields.get("reservedSystemCPUs"):
        reserved = set(parse_cpu_list(fields["reservedSystemCPUs"]))
        return any(0 < len(reserved & set(core)) < len(core) for node in question.shape.numa_nodes for core in node.cores or ())
    amount_of = sum(parse_millicpu((fields.get(name) or {}).get("cpu", 0)) for name in ("kubeReserved", "systemReserved"))
    return -(-amount_of // 1000) % threads != 0


def _all_residents(question: Question, shapes: Sequence[PodShape]) -> list[Resident]:
    return [*(Resident(name=pod.name, pod=pod.pod, count=1) for pod in shapes), *question.guaranteed_co_tenants]


def _memory_choices(question: Question) -> Iterator[tuple[str, Any]]:
    user, shape = question.user, question.shape
    total = question.reservations.memory_bytes
    wanted = ["Static"] if "reservedMemory" in user else ["Static", "None"]
    if "memoryManagerPolicy" in user:
        wanted = [user["memoryManagerPolicy"]]
    for policy in wanted:
        if policy == "None":
            yield policy, None
            continue
        free = "memoryManagerPolicy" not in user and "reservedMemory" not in user
        if free and (
            total is None
            or len(shape.numa_nodes) > MOST_NUMA_NODES_ENUMERATED
            or question.unavailable & {"memoryManagerPolicy", "reservedMemory"}
        ):
            continue
        if "reservedMemory" in user:
            yield policy, None
        elif total is not None:
            splits = memory_splits(total, shape)
            for split in splits[:1] if _fits_everywhere(question, splits) else splits:
                yield policy, split
            if not splits and not free:
                yield policy, None


def _fits_everywhere(question: Question, splits: Sequence[MemorySplit]) -> bool:
    """Whether the even split already leaves room for the largest pod on each NUMA node: then no other one can do better."""
    if not splits:
        return False
    largest = max((pod.memory_of_all_containers for pod in question.pods), default=0)
    rooms = [
        usable_bytes(node.memory_bytes, node.hugepages) - splits[0].by_node.get(node.id, 0)
        for node in question.shape.numa_nodes
        if node.memory_bytes and node.cpus
    ]
    return largest <= min(rooms, default=0)


def whole_cores_only(resident: Resident, threads_per_core: int) -> bool:
    return all(
        parse_millicpu((c.get("limits") or {}).get("cpu", 0)) % (1000 * threads_per_core) == 0 for c in resident.pod["containers"]
    )
