"""What may help where pods of a pool find no room or are refused: offers, the best first, which planning then tries."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from infra.offers import LEFT_OUT, MODEL, MOST_NODES_OFFERED, POOL, Offer, beside_each_other, more_nodes
from infra.plan.placement import NodeCapacity, spread
from infra.plan.pod_resources import cpu_offer, memory_offer
from infra.plan.pod_shape import MAIN_CONTAINER, PodShape
from infra.plan.pool.candidate import CandidateConfiguration
from infra.plan.pool.candidates import containers_with_part_of_a_core
from infra.plan.pool.gpu_pool import GpuPool
from infra.units import GIB


def without_field(field: str) -> Offer:
    return Offer.of(f"leave {field} out", (f"{POOL}.kubelet.{field}", LEFT_OUT))


def smaller_pod(pool: GpuPool, pod: PodShape, resource: str, excess: int, words: str = "use {}") -> Iterator[Offer]:
    """A pod that asks for less of a resource of which it has `excess` too much (thousandths of a CPU, bytes, GPUs, pods)."""
    if resource == "GPUs":
        yield from (
            Offer.of(f"use {size}", (f"{MODEL}.tensorParallelSize", size), kind="size")
            for size in dict.fromkeys((pod.gpus - excess, 8, 4, 2, 1))
            if 0 < size <= pod.gpus - excess
        )
    elif resource == "CPU":
        most = (pod.cpu * 1000 - excess) // 1000
        yield from _fewer_cpus(pool, most, words)
    elif resource == "memory":
        most_gib = (pod.memory_bytes - excess) // GIB
        yield from (
            memory_offer(size * GIB, words) for size in (most_gib, most_gib - 1, most_gib - 4, most_gib * 9 // 10) if size > 0
        )
    else:
        most_pods = pool.user.value_of("maxPods") + excess
        yield Offer.of(f"write maxPods: {most_pods}", (f"{POOL}.kubelet.maxPods", most_pods))


def _fewer_cpus(pool: GpuPool, most: int, words: str) -> Iterator[Offer]:
    threads = pool.threads_per_core
    most -= most % threads
    counts = dict.fromkeys((most, most - threads, most - 2 * threads, most - 4 * threads))
    yield from (cpu_offer(count, words) for count in counts if count > 0)


def room_for_pods(
    pool: GpuPool,
    candidate: CandidateConfiguration,
    capacity: NodeCapacity,
    unplaced: tuple[int, int],
    required: Callable[[], int],
) -> Iterator[Offer]:
    """Room for pods that found none: beside each other, smaller, fewer, or on more nodes (`required` gives how many hold all)."""
    position, missing = unplaced
    pod = candidate.shapes[position]
    placed = pod.copies - missing
    if pod.anti_affinity == "required":
        yield beside_each_other()
    yield from _that_share_a_node(pool, candidate, capacity, position)
    yield from (
        Offer.of(f"use replicas {count}", (f"{MODEL}.replicas", count), kind="replicas")
        for count in dict.fromkeys((placed, placed // 2, placed // 4))
        if count > 0
    )
    nodes = required()
    if nodes <= MOST_NODES_OFFERED:
        yield more_nodes(nodes)


def _that_share_a_node(pool: GpuPool, candidate: CandidateConfiguration, capacity: NodeCapacity, position: int) -> Iterator[Offer]:
    """CPUs or memory with which as many pods stand on one node as the pool needs there."""
    pod = candidate.shapes[position]
    count = -(-pod.copies // pool.nodes)
    if len(candidate.shapes) > 1 or count < 2 or pod.anti_affinity == "required":
        return
    shortfall = capacity.shortfall(candidate.shapes, (count,))
    if shortfall is None or shortfall[0] not in ("CPU", "memory"):
        return
    resource, needed, there = shortfall
    field = "resources.cpu" if resource == "CPU" else "resources.memory"
    yield from smaller_pod(pool, pod, resource, -(-(needed - there) // count), f"use {field} {{}}")


def nodes_required(pool: GpuPool, candidate: CandidateConfiguration, capacity: NodeCapacity) -> int:
    """The nodes that hold all pods."""
    shapes = candidate.shapes
    low, high = pool.nodes, pool.nodes + sum(pod.copies for pod in shapes)
    while low < high:
        middle = (low + high) // 2
        if spread(shapes, capacity, middle).unplaced:
            low = middle + 1
        else:
            high = middle
    return low


def field_of_part_of_a_core(pod: PodShape, threads: int) -> str:
    """The field of the model that asks for a part of a physical core."""
    return next((field for field, _, _ in _parts_of_cores(pod, threads)), "resources.cpu")


def whole_cores(pod: PodShape, threads: int) -> Iterator[Offer]:
    """The container's CPUs in whole cores, rounded up or down; or the option that refuses them off."""
    for field, limits, cpus in _parts_of_cores(pod, threads):
        above = cpus + -cpus % threads
        for count in filter(None, (above, above - threads)):
            changes = [(f"{MODEL}.{limit}", str(count)) for limit in limits]
            yield Offer.of(f"use {count} in {field}" if len(limits) > 1 or "[" in field else f"use {count}", *changes, kind="cpu")
        break
    yield Offer.of("leave cpuManagerPolicyOptions out", (f"{POOL}.kubelet.cpuManagerPolicyOptions", LEFT_OUT))


def _parts_of_cores(pod: PodShape, threads: int) -> Iterator[tuple[str, list[str], int]]:
    """(field that an error points at, fields to write, CPUs) of each container that asks for a part of a core."""
    for kind, index, cpus in containers_with_part_of_a_core(pod.pod, threads):
        if pod.pod[kind][index]["name"] == MAIN_CONTAINER and kind == "containers":
            yield "resources.cpu", ["resources.cpu"], cpus
            continue
        key, number = ("initContainers", index) if kind == "initContainers" else ("sidecars", index - 1)
        container = (pod.init_containers if key == "initContainers" else pod.sidecars)[number]
        requests = (container.get("resources") or {}).get("requests") or {}
        where = f"{key}[{number}].resources"
        fields = [f"{where}.limits.cpu", *([f"{where}.requests.cpu"] if "cpu" in requests else [])]
        yield fields[0], fields, cpus
