"""The configurations that are worth a try for one topology policy, best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.plan.pod_shape import PodShape
from infra.plan.pool.candidate import MOST_NUMA_NODES_ENUMERATED, CandidateConfiguration
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.memory_split import MemorySplit, memory_splits, usable_bytes
from infra.plan.pool.widths import NodeWidths
from infra.units import parse_cpu_list, parse_millicpu


def candidates(pool: GpuPool, policy: str) -> Iterator[CandidateConfiguration]:
    """Pods with CPUs on all NUMA nodes of their GPUs come first; as they were required only where that policy admits them so."""
    unpinned = NodeWidths.of(pool.shape, reserved_memory=None, pins_cpus=pool.cpu_manager_policy == "static")
    if policy == "single-numa-node":
        yield from _with_pods(pool, policy, pool.pods, unpinned)
        return
    widened = tuple(unpinned.with_enough_cpus(pod) for pod in pool.pods)
    least = tuple(unpinned.with_least_cpus(pod) for pod in pool.pods)
    as_required = [pool.pods] if policy in ("best-effort", "none") else []
    tried: list[tuple[PodShape, ...]] = []
    for shapes in (widened, least, *as_required):
        if shapes not in tried:
            yield from _with_pods(pool, policy, shapes, unpinned)
            tried.append(shapes)


def _with_pods(pool: GpuPool, policy: str, shapes: tuple[PodShape, ...], widths: NodeWidths) -> Iterator[CandidateConfiguration]:
    options = pool.user.cpu_manager_policy_options
    spans = any(widths.spans(pod) > 1 and pod.cpu > widths.cpus.largest for pod in shapes)
    incompatible = {"align-by-socket", "prefer-align-cpus-by-uncorecache"} & set(options)
    distribute = pool.chooses_cpu_options and spans and not incompatible
    pods = [*(shape.pod for shape in shapes), *(tenant.pod for tenant in pool.guaranteed_co_tenants)]
    whole = all(whole_cores_only(pod, pool.threads_per_core) for pod in pods)
    whole = whole and not (distribute and _reserves_half_cores(pool))  # both together may loop for ever then
    given = options.get("full-pcpus-only")
    full_pcpus_only = pool.chooses_cpu_options and whole if given is None else given == "true"
    for memory_policy, split in _memory_choices(pool):
        for scope in _scopes(pool, shapes):
            yield CandidateConfiguration(
                topology_policy=policy,
                scope=scope,
                memory_policy=memory_policy,
                full_pcpus_only=full_pcpus_only,
                distribute=distribute,
                split=split,
                shapes=shapes,
            )


def _scopes(pool: GpuPool, shapes: Sequence[PodShape]) -> list[str]:
    """The stricter one first where it matters: with one container a pod both are the same."""
    if pool.user_sets("topologyManagerScope"):
        return [pool.user.topology_manager_scope]
    several = any(pod.container_count > 1 for pod in shapes)
    return ["pod", "container"] if several and "topologyManagerScope" not in pool.unavailable else ["container"]


def _reserves_half_cores(pool: GpuPool) -> bool:
    """Whether the reserved CPUs leave a core of which one thread is taken: the user's list does, or an amount that is no whole number of cores."""
    fields = pool.reservations.fields
    if fields.get("reservedSystemCPUs"):
        reserved = set(parse_cpu_list(fields["reservedSystemCPUs"]))
        cores = [set(core) for node in pool.shape.numa_nodes for core in node.cores or ()]
        return any(reserved & core and not core <= reserved for core in cores)
    millicpu = sum(parse_millicpu((fields.get(name) or {}).get("cpu", 0)) for name in ("kubeReserved", "systemReserved"))
    return -(-millicpu // 1000) % pool.threads_per_core != 0


def _memory_choices(pool: GpuPool) -> Iterator[tuple[str, MemorySplit | None]]:
    """Memory manager policies, and the split of the reservation that the plan chooses; pinned memory first."""
    if pool.user_sets("reservedMemory"):
        yield "Static", None
        return
    total_bytes = pool.reservations.memory_bytes
    free = not pool.user_sets("memoryManagerPolicy")
    enumerable = len(pool.shape.numa_nodes) <= MOST_NUMA_NODES_ENUMERATED
    if pool.user.pins_memory or (
        free and enumerable and total_bytes is not None and not pool.unavailable & {"memoryManagerPolicy", "reservedMemory"}
    ):
        splits = () if total_bytes is None else memory_splits(total_bytes, pool.shape)
        for split in splits[:1] if _fits_everywhere(pool, splits) else splits:
            yield "Static", split
        if not splits and not free:
            yield "Static", None
    if not pool.user.pins_memory:
        yield "None", None


def _fits_everywhere(pool: GpuPool, splits: Sequence[MemorySplit]) -> bool:
    """Whether the even split already leaves room for the largest pod on each NUMA node: then no other one can do better."""
    if not splits:
        return False
    largest = max((pod.memory_of_all_containers for pod in pool.pods), default=0)
    rooms = [
        usable_bytes(node.memory_bytes, node.hugepages) - splits[0].by_node.get(node.id, 0)
        for node in pool.shape.numa_nodes
        if node.memory_bytes and node.cpus
    ]
    return largest <= min(rooms)


def whole_cores_only(pod: Mapping[str, Any], threads_per_core: int) -> bool:
    """Whether no container of a pod, init containers too, gets a part of a physical core to itself; fractions of a CPU run in the shared pool."""
    return next(containers_with_part_of_a_core(pod, threads_per_core), None) is None


def containers_with_part_of_a_core(pod: Mapping[str, Any], threads_per_core: int) -> Iterator[tuple[str, int, int]]:
    """(list, index in it, CPUs) of each container whose whole CPUs are no whole cores; lists as in the pod: initContainers, containers."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(field) or ()):
            millicpu = parse_millicpu((container.get("limits") or {}).get("cpu", 0))
            if millicpu % 1000 == 0 and millicpu // 1000 % threads_per_core:
                yield field, index, millicpu // 1000
