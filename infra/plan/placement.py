"""Which pods can come to stand on one node: what the scheduler may do with the planned pods, whatever it prefers.

Nodes of a pool are equal, so that a plan groups them: the cost depends on the kinds of pods, never on the number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from infra.units import format_millicpu, parse_bytes, parse_millicpu

Load = tuple[int, ...]  # pods on one node, one count per pod shape

_MOST_LOADS = 5_000
_MOST_BLOCKING_STEPS = 20_000


@dataclass(frozen=True, kw_only=True)
class PodShape:
    """What admission needs to know of a model's pods, which are all equal.

    `cpu` and `memory_bytes` are the main container's requests and limits; where the stack file gives no CPUs (`cpu_given` False) the
    decision may raise `cpu`. `copies` pods have to run at once (replicas times pods per replica), `surge` more may during an update.
    `repels` names other shapes that a required anti-affinity keeps off its nodes; its own copies are kept apart by `anti_affinity` alone.
    `gpus_path` is what an error about the number of GPUs points at, below `path`. `init_containers` and `sidecars` are Kubernetes containers.
    """

    name: str
    path: str
    gpus: int
    cpu: int
    memory_bytes: int
    copies: int
    resource_name: str = "nvidia.com/gpu"
    cpu_given: bool = False
    surge: int = 0
    anti_affinity: Literal["required", "preferred", "none"] = "required"
    repels: frozenset[str] = frozenset()
    bind_ranks: bool = True
    gpus_path: str = "tensorParallelSize"
    main_container: str = "vllm"
    init_containers: tuple[Mapping[str, Any], ...] = ()
    sidecars: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def pod(self) -> dict[str, Any]:
        """The pod as the kubelet admits it: containers with requests and limits, no name."""
        sizes = {"cpu": str(self.cpu), "memory": str(self.memory_bytes), self.resource_name: str(self.gpus)}
        main = {"name": self.main_container, "requests": sizes, "limits": sizes}
        pod: dict[str, Any] = {"containers": [main, *(_container(c, n) for n, c in enumerate(self.sidecars))]}
        if self.init_containers:
            pod["initContainers"] = [_container(c, n) for n, c in enumerate(self.init_containers)]
        return pod

    @cached_property
    def requests(self) -> tuple[int, int]:
        """Effective requests of the whole pod for the scheduler: thousandths of a CPU, bytes of memory."""
        return pod_requests(self.pod)

    @cached_property
    def memory_of_all_containers(self) -> int:
        """Bytes of all containers together, init containers too: more than the kubelet can ever pin for the pod at a time."""
        containers = (*self.pod.get("initContainers", ()), *self.pod["containers"])
        return sum(parse_bytes({**(c.get("limits") or {}), **(c.get("requests") or {})}.get("memory", 0)) for c in containers)

    @property
    def not_guaranteed(self) -> tuple[tuple[str, str], ...]:
        """Containers that cost the pod its QoS class Guaranteed: (path below the model, name).

        Every container needs CPU and memory limits, and requests that are left out or equal; one that does not unpins all of them.
        """
        lists = (("initContainers", self.init_containers), ("sidecars", self.sidecars))
        return tuple(
            (f"{field}[{index}].resources", made["name"])
            for field, containers in lists
            for index, made in enumerate(_container(c, n) for n, c in enumerate(containers))
            if not _is_guaranteed(made)
        )

    @property
    def container_count(self) -> int:
        return 1 + len(self.sidecars) + len(self.init_containers)

    def with_cpu(self, cpu: int) -> PodShape:
        return self if cpu == self.cpu else replace(self, cpu=cpu)


def _container(container: Mapping[str, Any], index: int) -> dict[str, Any]:
    resources = container.get("resources")
    resources = resources if isinstance(resources, Mapping) else {}
    made: dict[str, Any] = {"name": str(container.get("name") or f"container-{index}")}
    for kind in ("requests", "limits"):
        if isinstance(resources.get(kind), Mapping):
            made[kind] = {str(name): str(value) for name, value in resources[kind].items()}
    if container.get("restartPolicy") is not None:
        made["restartPolicy"] = container["restartPolicy"]
    return made


def _is_guaranteed(container: Mapping[str, Any]) -> bool:
    limits, requests = container.get("limits") or {}, container.get("requests") or {}
    for name, parse in (("cpu", parse_millicpu), ("memory", parse_bytes)):
        try:
            limit = parse(limits.get(name, 0))
            if limit <= 0 or parse(requests.get(name, limits[name])) != limit:
                return False
        except ValueError:
            return False
    return True


def pod_requests(pod: Mapping[str, Any]) -> tuple[int, int]:
    """What the scheduler counts for a pod: the larger of all that run together and the largest moment of the init phase.

    Restartable init containers (sidecars) keep running and are added to the init containers after them and to the app containers.
    """
    totals = []
    for name, parse in (("cpu", parse_millicpu), ("memory", parse_bytes)):

        def amount(container: Mapping[str, Any], name: str = name, parse: Any = parse) -> int:
            value = {**(container.get("limits") or {}), **(container.get("requests") or {})}.get(name, 0)
            return int(parse(value))

        restartable = peak = 0
        for container in pod.get("initContainers") or ():
            if container.get("restartPolicy") == "Always":
                restartable += amount(container)
                peak = max(peak, restartable)
            else:
                peak = max(peak, restartable + amount(container))
        totals.append(max(peak, restartable + sum(amount(c) for c in pod.get("containers") or ())))
    return totals[0], totals[1]


@dataclass(frozen=True, kw_only=True)
class NodeCapacity:
    """What is left for the planned pods on every node, after the co-tenants and DaemonSets."""

    millicpu: int
    memory_bytes: int
    gpus: int
    pods: int

    def holds(self, shapes: Sequence[PodShape], load: Load) -> bool:
        return self.shortfall(shapes, load) is None

    def shortfall(self, shapes: Sequence[PodShape], load: Load) -> tuple[str, int, int] | None:
        """The first resource of which a load needs more than there is: (name, needed, there), or None."""
        for name, there, sizes in (
            ("GPUs", self.gpus, [shape.gpus for shape in shapes]),
            ("CPU", self.millicpu, [shape.requests[0] for shape in shapes]),
            ("memory", self.memory_bytes, [shape.requests[1] for shape in shapes]),
            ("pods", self.pods, [1] * len(shapes)),
        ):
            needed = sum(count * size for count, size in zip(load, sizes, strict=True))
            if needed > there:
                return name, needed, there
        return None


@dataclass(frozen=True)
class Placement:
    """One way to place all pods: groups of equal nodes (number of nodes, load), and what found no room (shape index, pods)."""

    groups: tuple[tuple[int, Load], ...]
    unplaced: tuple[tuple[int, int], ...] = ()


def tolerates(shapes: Sequence[PodShape], load: Load) -> bool:
    """Whether required anti-affinity lets these pods stand on one node. It works both ways: who is repelled repels."""
    present = [index for index, count in enumerate(load) if count]
    for index in present:
        if load[index] > 1 and shapes[index].anti_affinity == "required":
            return False
        if any(other != index and shapes[other].name in shapes[index].repels for other in present):
            return False
    return True


def maximal_loads(shapes: Sequence[PodShape], capacity: NodeCapacity) -> tuple[Load, ...]:
    """Every fullest set of planned pods that the scheduler could put on one node; every other one is part of one of these.

    Bounded by resources, required anti-affinity and the number of pods that exist (copies and surge), not by the number of nodes.
    """
    limits = [shape.copies + shape.surge for shape in shapes]
    loads: set[Load] = set()
    for load in _loads(shapes, capacity, limits):
        larger = (_plus(load, index) for index in range(len(shapes)) if load[index] < limits[index])
        if not any(capacity.holds(shapes, more) and tolerates(shapes, more) for more in larger):
            loads.add(load)
    return tuple(sorted(loads, reverse=True))


def _loads(shapes: Sequence[PodShape], capacity: NodeCapacity, limits: Sequence[int]) -> Iterator[Load]:
    seen: set[Load] = set()
    stack: list[Load] = [(0,) * len(shapes)]
    while stack:
        load = stack.pop()
        if load in seen:
            continue
        seen.add(load)
        if len(seen) > _MOST_LOADS:
            raise TooManyLoads(len(shapes))
        yield load
        for index in range(len(shapes)):
            more = _plus(load, index)
            if more[index] <= limits[index] and more not in seen and capacity.holds(shapes, more) and tolerates(shapes, more):
                stack.append(more)


class TooManyLoads(Exception):
    """More mixtures of pods on one node than can be looked at; `args[0]` is the number of pod shapes."""


def _plus(load: Load, index: int, pods: int = 1) -> Load:
    return (*load[:index], load[index] + pods, *load[index + 1 :])


def spread(shapes: Sequence[PodShape], capacity: NodeCapacity, nodes: int) -> Placement:
    """The pods over `nodes` equal nodes as a scheduler that prefers free nodes would: the largest first, evenly."""
    groups: dict[Load, int] = {(0,) * len(shapes): nodes}
    unplaced: list[tuple[int, int]] = []
    for index in sorted(range(len(shapes)), key=lambda i: (-shapes[i].gpus, i)):
        remaining = shapes[index].copies
        while remaining:
            room = [
                load
                for load in groups
                if capacity.holds(shapes, _plus(load, index)) and tolerates(shapes, _plus(load, index)) and groups[load]
            ]
            if not room:
                unplaced.append((index, remaining))
                break
            emptiest = min(room, key=lambda load: (_gpus(shapes, load), load))
            moved = min(remaining, groups[emptiest])
            groups[emptiest] -= moved
            if not groups[emptiest]:
                del groups[emptiest]
            filled = _plus(emptiest, index)
            groups[filled] = groups.get(filled, 0) + moved
            remaining -= moved
    ordered = sorted(groups.items(), key=lambda item: (-_gpus(shapes, item[0]), item[0]))
    return Placement(groups=tuple((count, load) for load, count in ordered), unplaced=tuple(sorted(unplaced)))


def _gpus(shapes: Sequence[PodShape], load: Load) -> int:
    return sum(count * shape.gpus for count, shape in zip(load, shapes, strict=True))


def blockable(shapes: Sequence[PodShape], capacity: NodeCapacity, nodes: int) -> tuple[int, ...]:
    """Shapes of which a pod may stay Pending for good, though `spread` finds room for all: the others can take a part of every node.

    With one shape this never happens. Where the search would take too long a shape counts as blockable.
    """
    if len(shapes) < 2:
        return ()
    return tuple(index for index in range(len(shapes)) if _can_be_blocked(shapes, capacity, nodes, index))


def _can_be_blocked(shapes: Sequence[PodShape], capacity: NodeCapacity, nodes: int, index: int) -> bool:
    available = [shape.copies - (1 if other == index else 0) for other, shape in enumerate(shapes)]
    if nodes > sum(available):
        return False
    try:
        loads = list(_loads(shapes, capacity, available))
    except TooManyLoads:
        return True
    blocking = [
        load for load in loads if not (capacity.holds(shapes, _plus(load, index)) and tolerates(shapes, _plus(load, index)))
    ]
    least = [load for load in blocking if not any(other != load and _within(other, load) for other in blocking)]
    budget = [_MOST_BLOCKING_STEPS]
    return _cover(least, available, nodes, budget)


def _within(small: Load, large: Load) -> bool:
    return all(a <= b for a, b in zip(small, large, strict=True))


def _cover(kinds: Sequence[Load], available: Sequence[int], nodes: int, budget: list[int]) -> bool:
    """Whether `nodes` nodes can each get one of `kinds` out of the available pods."""
    if nodes <= 0:
        return True
    if not kinds:
        return False
    budget[0] -= 1
    if budget[0] < 0:
        return True
    first, rest = kinds[0], kinds[1:]
    most = min(nodes, *(there // need for there, need in zip(available, first, strict=True) if need))
    for count in range(most, -1, -1):
        left = [there - count * need for there, need in zip(available, first, strict=True)]
        if _cover(rest, left, nodes - count, budget):
            return True
        if budget[0] < 0:
            return True
    return False


def describe(shapes: Sequence[PodShape], load: Load) -> str:
    """A load in words: `2 pods of llama-70b (4 GPUs each) and 1 pod of qwen (8 GPUs)`."""
    parts = []
    for count, shape in zip(load, shapes, strict=True):
        if count:
            gpus = f"{shape.gpus} GPU{'s' if shape.gpus != 1 else ''}"
            parts.append(f"{count} pod{'s' if count != 1 else ''} of {shape.name} ({gpus}{' each' if count > 1 else ''})")
    return " and ".join(parts) or "nothing"


def amount(resource: str, value: int) -> str:
    """A number of a resource as people read it."""
    if resource == "memory":
        return f"{value / 2**30:.1f} GiB"
    return format_millicpu(value) if resource == "CPU" else str(value)
