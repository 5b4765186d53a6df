"""Proves that a kubelet admits every planned pod in whatever order the pods of a node start, end and start again.

All states that can be reached are visited. Two states count as one where they differ only in which of equal CPUs and devices of a NUMA node are taken,
and in which of equal pods took them: admission looks at counts for each NUMA node.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from infra.kubelet import Kubelet, Pod, PodResult

MOST_STATES = 2_000


@dataclass(frozen=True, kw_only=True)
class Resident:
    """A kind of pod that lives on a node: `count` equal pods, admitted as `pod` says (containers with requests and limits).

    `number` tells it from the other kinds.
    """

    number: int
    pod: Mapping[str, Any]
    count: int

    def instance(self, index: int) -> dict[str, Any]:
        """One of the pods, with a name of its own."""
        return {"name": f"pod-{self.number}-{index}", **self.pod}


@dataclass(frozen=True, order=True)
class ContainerFootprint:
    """Where a container's resources lie: pairs of NUMA node id and count, ids of memory nodes, NUMA nodes of the merged hint."""

    name: str
    cpus: tuple[tuple[int, int], ...]
    devices: tuple[tuple[int, int], ...]
    memory_numa: tuple[int, ...]
    topology: tuple[int, ...]


@dataclass(frozen=True, order=True)
class Footprint:
    """Where a pod lies, container by container; CPUs and devices are counted by NUMA node (-1: the device has none)."""

    containers: tuple[ContainerFootprint, ...]

    def container(self, name: str) -> ContainerFootprint:
        return next(container for container in self.containers if container.name == name)

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """Where any of its CPUs, devices or pinned memory lies."""
        containers = self.containers
        held = {node for container in containers for node, _ in (*container.cpus, *container.devices) if node >= 0}
        return tuple(sorted(held | {node for container in containers for node in container.memory_numa}))


@dataclass(frozen=True, kw_only=True)
class Admission:
    """One admitted pod: its footprint, and for each container the CPU ids and device ids that this run gave it."""

    footprint: Footprint
    cpus: Mapping[str, tuple[int, ...]]
    devices: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Event:
    """A pod of the kind `resident` starts or ends, on these NUMA nodes (none: it has nothing to itself)."""

    change: Literal["start", "end"]
    resident: int
    numa_nodes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An order of events after which the kubelet refuses a pod of the kind `resident`."""

    events: tuple[Event, ...]
    resident: int
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Every order was tried: the number of states, and all the places that each kind of pod can come to lie in, by number.

    `share_cores`: kinds of which a pod held a part of a physical core in some state, so that another one may have run on the rest.
    """

    states: int
    footprints: Mapping[int, frozenset[Footprint]]
    share_cores: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Undecided:
    """More states than `limit`; nothing was refused in those that were visited, and these places were seen."""

    limit: int
    footprints: Mapping[int, frozenset[Footprint]]
    share_cores: frozenset[int] = frozenset()


class NumaMap:
    """NUMA nodes of CPUs and devices of one machine, for counting by node."""

    def __init__(self, machine: Mapping[str, Any], devices: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self.of_cpu: dict[int, int] = {}
        self.core_of_cpu: dict[int, tuple[int, ...]] = {}
        for node in machine["numa"]:
            for core in node["cpus"]:
                for cpu in core:
                    self.of_cpu[cpu] = node["id"]
                    self.core_of_cpu[cpu] = tuple(core)
        self.of_device = {device["id"]: (device.get("numa") or [-1])[0] for listed in devices.values() for device in listed}

    def split_cores(self, cpus: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Cores of which these CPUs are a part only, counted by NUMA node."""
        taken = set(cpus)
        cores = {self.core_of_cpu[cpu] for cpu in cpus}
        return _counted(self.of_cpu[core[0]] for core in cores if not taken.issuperset(core))


def _counted(numbers: Iterator[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(Counter(numbers).items()))


def admission_of(result: PodResult, numa: NumaMap) -> Admission:
    """Reads a kubelet's answer for an admitted pod."""
    footprints, cpus, devices = [], {}, {}
    for container in result.containers:
        own = tuple(sorted(container.cpus))
        ids = tuple(i for listed in container.devices.values() for i in listed)
        cpus[container.name], devices[container.name] = own, ids
        footprints.append(
            ContainerFootprint(
                name=container.name,
                cpus=_counted(numa.of_cpu[cpu] for cpu in own),
                devices=_counted(numa.of_device[i] for i in ids),
                memory_numa=container.memory_numa,
                topology=tuple(container.topology or ()),
            )
        )
    return Admission(footprint=Footprint(tuple(footprints)), cpus=cpus, devices=devices)


@dataclass(frozen=True)
class _Pod:
    """A running pod; pods with the same `place` are of one kind and lie alike, so that nothing later depends on which of them ends."""

    place: int
    kind: int
    name: str
    cpus: tuple[int, ...]
    half_cores: bool
    numa_nodes: tuple[int, ...]


@dataclass
class _State:
    kubelet: Kubelet
    pods: tuple[_Pod, ...]
    parent: _State | None = None
    event: Event | None = None

    def events(self) -> tuple[Event, ...]:
        events: list[Event] = []
        state: _State | None = self
        while state is not None and state.event is not None:
            events.append(state.event)
            state = state.parent
        return tuple(reversed(events))


class _Exploration:
    """The search through the states of one node."""

    def __init__(self, residents: Sequence[Resident], numa: NumaMap) -> None:
        self.residents, self.numa = residents, numa
        self.footprints: dict[int, set[Footprint]] = {resident.number: set() for resident in residents}
        self.share_cores: set[int] = set()
        self._pods = [[Pod.from_dict(resident.instance(index)) for index in range(resident.count)] for resident in residents]
        self._places: dict[tuple[int, Footprint, tuple[tuple[int, int], ...]], int] = {}

    def places(self) -> dict[int, frozenset[Footprint]]:
        return {number: frozenset(found) for number, found in self.footprints.items()}

    def starts(self, state: _State) -> Iterator[_State | Refusal]:
        """The states after one more pod has started; a refusal ends them."""
        names = {pod.name for pod in state.pods}
        for kind, resident in enumerate(self.residents):
            pod = next((pod for pod in self._pods[kind] if pod.name not in names), None)
            if pod is None:
                continue
            kubelet = state.kubelet.copy()
            result = kubelet.admit(pod)
            if not result.admitted:
                yield Refusal(events=state.events(), resident=resident.number, reason=result.reason, message=result.message)
                return
            started = self._started(kind, pod.name, admission_of(result, self.numa))
            yield _State(kubelet, (*state.pods, started), state, Event("start", resident.number, started.numa_nodes))

    def _started(self, kind: int, name: str, admission: Admission) -> _Pod:
        cpus = tuple(cpu for own in admission.cpus.values() for cpu in own)
        half_cores = self.numa.split_cores(cpus)
        self.footprints[self.residents[kind].number].add(admission.footprint)
        if half_cores:
            self.share_cores.add(self.residents[kind].number)
        place = self._places.setdefault((kind, admission.footprint, half_cores), len(self._places))
        return _Pod(place, kind, name, cpus, bool(half_cores), admission.footprint.numa_nodes)

    def ends(self, state: _State, seen: set[tuple[Any, ...]]) -> Iterator[_State]:
        """The states after one pod has ended, one for each place that pods lie in; none that was seen."""
        for place in {pod.place for pod in state.pods}:
            pod = next(pod for pod in state.pods if pod.place == place)
            remaining = tuple(other for other in state.pods if other is not pod)
            if self.key(remaining) not in seen:
                kubelet = state.kubelet.copy()
                kubelet.remove(pod.name)
                yield _State(kubelet, remaining, state, Event("end", self.residents[pod.kind].number, pod.numa_nodes))

    def key(self, pods: Sequence[_Pod]) -> tuple[Any, ...]:
        """What later admissions depend on: the kinds and places of the running pods, and how many cores of each NUMA node are half taken."""
        places = tuple(sorted(pod.place for pod in pods))
        if not any(pod.half_cores for pod in pods):
            return places
        return (places, self.numa.split_cores([cpu for pod in pods for cpu in pod.cpus]))


def prove(
    start: Kubelet, residents: Sequence[Resident], numa: NumaMap, *, most_states: int = MOST_STATES
) -> Proof | Refusal | Undecided:
    """Visits every state that starts and ends of these pods can reach on a node, nearest first; the first refusal found is the shortest.

    At each state every pod that is not running must be admitted: that is what a restart, a rescheduled replica or a rolling update asks for.
    """
    exploration = _Exploration(residents, numa)
    first = _State(start, ())
    seen = {exploration.key(())}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for following in (*exploration.starts(state), *exploration.ends(state, seen)):
            if isinstance(following, Refusal):
                return following
            key = exploration.key(following.pods)
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > most_states:
                return Undecided(most_states, exploration.places(), frozenset(exploration.share_cores))
            queue.append(following)
    return Proof(states=len(seen), footprints=exploration.places(), share_cores=frozenset(exploration.share_cores))


def fill(start: Kubelet, residents: Sequence[Resident], numa: NumaMap) -> tuple[Kubelet, dict[int, list[Admission]]]:
    """Starts the pods once in the given order on a copy of `start`; where a pod is refused the rest of its kind is left out."""
    kubelet = start.copy()
    admitted: dict[int, list[Admission]] = {resident.number: [] for resident in residents}
    for resident in residents:
        for index in range(resident.count):
            result = kubelet.admit(resident.instance(index))
            if not result.admitted:
                break
            admitted[resident.number].append(admission_of(result, numa))
    return kubelet, admitted
