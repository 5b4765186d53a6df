"""A kubelet on one machine: it starts with a configuration or refuses, and admits pods one after the other.

The order is the kubelet's: the topology manager asks the device, CPU and memory managers for hints, merges them and has them
allocate; then the node fit; then the containers start (which frees what init containers held).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from infra.kubelet.admission.node import Node, start_node
from infra.kubelet.admission.node_fit import Preemption, fit_requests, preempt, shortages, used_requests
from infra.kubelet.admission.pod_defaults import with_pod_level_defaults
from infra.kubelet.admission.pod_validation import pod_errors
from infra.kubelet.faults import AllocationError, KubeletHangs, KubeletPanics, KubeletRefuses
from infra.kubelet.machine import Device, Machine
from infra.kubelet.managers.cpu import CPUState, StaticCPUManager
from infra.kubelet.managers.cpu_topology import cpu_ids
from infra.kubelet.managers.devices import DeviceState
from infra.kubelet.managers.hints import ProviderHints
from infra.kubelet.managers.memory import MemoryState, Reusable, StaticMemoryManager
from infra.kubelet.managers.topology import ANYWHERE, POD_SCOPE, TopologyHint
from infra.kubelet.pods import Container, Pod, ResourceList

__all__ = ["ContainerResult", "Kubelet", "KubeletRefuses", "PodResult"]


@dataclass(frozen=True, slots=True)
class ContainerResult:
    """What a container got: exclusive CPUs (empty: the shared pool), NUMA nodes of its memory, device ids by resource.

    `topology` are the NUMA nodes of the merged hint, None where no manager had a preference; `start_error` is set where devices
    that are only allocated at the start of the container could not be had.
    """

    name: str
    cpus: frozenset[int]
    memory_numa: tuple[int, ...]
    devices: Mapping[str, tuple[str, ...]]
    topology: tuple[int, ...] | None
    preferred: bool
    start_error: str | None = None


@dataclass(frozen=True, slots=True)
class PodResult:
    """Whether a pod is admitted. `handler` says who refuses: topologymanager, predicate, podfeatures or apiserver."""

    name: str
    admitted: bool
    reason: str = ""
    message: str = ""
    handler: str = ""
    qos: str = ""
    containers: tuple[ContainerResult, ...] = ()
    pod_cpus: frozenset[int] = frozenset()
    preempted: tuple[str, ...] = ()


class _Active(NamedTuple):
    uid: str
    pod: Pod
    qos: str
    counted: ResourceList


class _Refused(Exception):
    def __init__(self, handler: str, reason: str, message: str) -> None:
        self.handler, self.reason, self.message = handler, reason, message
        super().__init__(message)


@dataclass(slots=True)
class _Admission:
    """One pod on its way through: the hints of its containers, and what its init containers leave to later ones."""

    uid: str
    pod: Pod
    qos: str
    hints: dict[str, TopologyHint]
    reusable_cpus: int
    reusable_devices: dict[str, int]
    reusable_memory: Reusable


class Kubelet:
    """A started kubelet with its pods. `copy()` is cheap; a copy and its original go on independently."""

    __slots__ = ("_active", "_cpus", "_devices", "_memory", "_next_uid", "_used", "hold_start", "node", "ordered_devices", "trace")

    def __init__(self, node: Node, *, hold_start: bool = False, ordered_devices: bool = True) -> None:
        self.node = node
        # Called with (container or "", hints of the device, CPU and memory manager, merged hint, admitted) at each merge.
        self.trace: Callable[[str, list[ProviderHints | None], TopologyHint, bool], None] | None = None
        self.hold_start = hold_start
        self.ordered_devices = ordered_devices
        self._active: list[_Active] = []
        self._used: dict[str, int] = {}
        self._next_uid = 0
        self._devices: DeviceState = node.devices.initial_state()
        self._cpus: CPUState | None = node.cpus.initial_state() if node.cpus else None
        self._memory: MemoryState | None = node.memory.initial_state() if node.memory else None

    @classmethod
    def start(
        cls,
        machine: Machine,
        kubelet_configuration: Mapping[str, Any],
        devices: Mapping[str, Sequence[Device]],
        *,
        kubernetes_version: str = "1.37",
    ) -> Kubelet:
        """Starts a kubelet; KubeletRefuses says at which stage and why it would not start."""
        return cls(start_node(machine, kubelet_configuration, devices, kubernetes_version=kubernetes_version))

    # A manager is there where its state is.
    @property
    def _cpu_manager(self) -> StaticCPUManager:
        assert self.node.cpus is not None
        return self.node.cpus

    @property
    def _memory_manager(self) -> StaticMemoryManager:
        assert self.node.memory is not None
        return self.node.memory

    # What the node offers
    @property
    def capacity(self) -> Mapping[str, int]:
        """Capacity: cpu in thousandths, everything else in whole units."""
        return self.node.capacity

    @property
    def allocatable(self) -> Mapping[str, int]:
        """What pods may request: cpu in thousandths, everything else in whole units."""
        return {**self.node.allocatable.amounts, "pods": self.node.allocatable.pods}

    @property
    def reserved_cpus(self) -> frozenset[int]:
        """CPUs that no container gets exclusively (static CPU manager; empty otherwise)."""
        return frozenset(cpu_ids(self.node.cpus.reserved)) if self.node.cpus else frozenset()

    @property
    def shared_cpus(self) -> frozenset[int]:
        """CPUs that no container has to itself at the moment (static CPU manager)."""
        return frozenset(cpu_ids(self._cpus.shared)) if self._cpus else frozenset()

    @property
    def shared_cpus_mask(self) -> int:
        """The same as a set of bits."""
        return self._cpus.shared if self._cpus else 0

    @property
    def allocatable_memory_bytes(self) -> Mapping[int, int]:
        """Per NUMA node what the static memory manager can give away on an empty node; empty without that policy."""
        if self.node.memory is None:
            return {}
        return dict(zip(self.node.numa_ids, self.node.memory.allocatable["memory"], strict=True))

    @property
    def pods(self) -> tuple[str, ...]:
        """Names of the pods that run, in order of admission."""
        return tuple(active.pod.name for active in self._active)

    def copy(self) -> Kubelet:
        """A kubelet in the same state."""
        other = object.__new__(Kubelet)
        other.node, other.hold_start, other.ordered_devices = self.node, self.hold_start, self.ordered_devices
        other.trace = self.trace
        other._active, other._used, other._next_uid = list(self._active), dict(self._used), self._next_uid
        other._devices = self._devices.copy()
        other._cpus = self._cpus.copy() if self._cpus else None
        other._memory = self._memory.copy() if self._memory else None
        return other

    def state_key(self) -> tuple[object, ...]:
        """A hashable state: equal keys mean that the kubelets answer all later pods alike, up to the names of pods that run."""
        pods = []
        for uid, pod, qos, counted in self._active:
            devices = self._devices.containers.get(uid, {})
            pods.append(
                (
                    qos,
                    -1 if pod.priority is None else pod.priority,
                    tuple(sorted(counted.items())),
                    tuple((c, tuple(sorted(d.items()))) for c, d in sorted(devices.items())),
                    tuple(sorted(self._cpus.containers.get(uid, {}).items())) if self._cpus else (),
                    tuple((c, tuple(b)) for c, b in sorted(self._memory.blocks.get(uid, {}).items())) if self._memory else (),
                )
            )
        return (
            tuple(sorted(pods)),
            self.shared_cpus_mask,
            tuple(sorted(self._devices.allocated.items())),
            (tuple(self._memory.assignments), tuple(self._memory.groups)) if self._memory else (),
            tuple((name, tuple(amounts)) for name, amounts in sorted(self._memory.free.items())) if self._memory else (),
        )

    # Pods
    def remove(self, pod_name: str) -> bool:
        """Ends the first pod of that name; whether there was one."""
        for active in self._active:
            if active.pod.name == pod_name:
                self._drop(active)
                return True
        return False

    def admit(self, pod: Pod | Mapping[str, Any]) -> PodResult:
        """What the kubelet does with the next pod. ConfigError where the document is no pod at all."""
        if not isinstance(pod, Pod):
            pod = Pod.from_dict(pod)
        rules = self.node.configuration.rules
        if self.node.pod_level_resources:
            pod = with_pod_level_defaults(pod, rules, fixed=self.node.pod_level_fixed_defaults)
        restarts = self.node.configuration.gates["ContainerRestartRules"]
        errors = pod_errors(pod, rules, pod_level=self.node.pod_level_resources, container_restarts=restarts)
        if errors:
            return PodResult(pod.name, False, "InvalidPod", "; ".join(errors), "apiserver")
        qos = pod.qos(pod_level=self.node.pod_level_resources, empty_level_counts=self.node.empty_pod_level_counts)
        uid = f"uid-{self._next_uid}"
        self._next_uid += 1
        admission = _Admission(uid, pod, qos, {}, 0, {}, {})
        preempted: tuple[str, ...] = ()
        counted = used_requests(pod, pod_level=self.node.pod_level_resources)
        try:
            self._admit_topology(admission)
            preempted = self._admit_fit(pod, counted)
            if pod.has_pod_level_resources and not self.node.pod_level_resources and rules.refuses_unsupported_pod_level:
                raise _Refused("podfeatures", "PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled")
        except _Refused as refusal:
            self._release(uid)
            return PodResult(pod.name, False, refusal.reason, refusal.message, refusal.handler, qos, preempted=preempted)
        except KubeletPanics as panic:
            return PodResult(pod.name, False, "KubeletPanic", str(panic), "topologymanager", qos)
        except KubeletHangs as hang:
            return PodResult(pod.name, False, "KubeletHangs", str(hang), "topologymanager", qos)
        self._active.append(_Active(uid, pod, qos, counted))
        for name, amount in counted.items():
            self._used[name] = self._used.get(name, 0) + amount
        containers = self._start_containers(admission)
        pod_cpus = frozenset(cpu_ids(self._cpus.pods.get(uid, 0))) if self._cpus else frozenset()
        return PodResult(pod.name, True, qos=qos, containers=containers, pod_cpus=pod_cpus, preempted=preempted)

    def _admit_topology(self, admission: _Admission) -> None:
        node, pod = self.node, admission.pod
        try:
            if node.policy is None:
                for container in pod.all_containers:
                    admission.hints[container.name] = ANYWHERE
                    self._allocate_container(admission, container)
            elif node.policy.scope == POD_SCOPE:
                self._admit_pod_scope(admission)
            else:
                for container in pod.all_containers:
                    hint, admit = self._merge(container.name, self._container_hints(admission, container))
                    if not admit:
                        raise _Refused("topologymanager", "TopologyAffinityError", _affinity_message(pod, node, scope="container"))
                    admission.hints[container.name] = hint
                    self._allocate_container(admission, container)
        except AllocationError as error:
            raise _Refused("topologymanager", error.reason, error.message) from None

    def _merge(self, container: str, hints: list[ProviderHints | None]) -> tuple[TopologyHint, bool]:
        policy = self.node.policy
        assert policy is not None
        hint, admit = policy.merge(hints)
        if self.trace is not None:
            self.trace(container, hints, hint if admit else policy.best_refused(hints), admit)
        return hint, admit

    def _admit_pod_scope(self, admission: _Admission) -> None:
        node, pod = self.node, admission.pod
        hint, admit = self._merge("", self._pod_hints(admission))
        if not admit:
            raise _Refused("topologymanager", "TopologyAffinityError", _affinity_message(pod, node, scope="pod"))
        for container in pod.all_containers:
            admission.hints[container.name] = hint
        if not (node.pod_level_managers and pod.has_pod_level_resources):
            for container in pod.all_containers:
                self._allocate_container(admission, container)
            return
        if self._cpus:
            self._cpu_manager.allocate_pod(self._cpus, admission.uid, pod, admission.qos, hint.nodes)
        if self._memory:
            self._memory_manager.allocate_pod(self._memory, admission.uid, pod, admission.qos, hint)

    def _container_hints(self, admission: _Admission, container: Container) -> list[ProviderHints | None]:
        node, pod, qos = self.node, admission.pod, admission.qos
        hints = [node.devices.container_hints(self._devices, container, admission.reusable_devices)]
        reusable_cpus, reusable_memory = admission.reusable_cpus, admission.reusable_memory
        cpus, memory = self._cpus, self._memory
        hints.append(self._cpu_manager.container_hints(cpus, pod, qos, container, reusable_cpus) if cpus else None)
        hints.append(self._memory_manager.container_hints(memory, pod, qos, container, reusable_memory) if memory else None)
        return hints

    def _pod_hints(self, admission: _Admission) -> list[ProviderHints | None]:
        node, pod, qos = self.node, admission.pod, admission.qos
        hints = [node.devices.pod_hints(self._devices, pod)]
        hints.append(self._cpu_manager.pod_hints(self._cpus, pod, qos) if self._cpus else None)
        hints.append(self._memory_manager.pod_hints(self._memory, pod, qos) if self._memory else None)
        return hints

    def _allocate_container(self, admission: _Admission, container: Container) -> None:
        uid, pod, qos = admission.uid, admission.pod, admission.qos
        hint = admission.hints[container.name]
        self._allocate_devices(admission, container)
        if self._cpus:
            admission.reusable_cpus = self._cpu_manager.allocate_container(
                self._cpus, uid, pod, qos, container, hint.nodes, admission.reusable_cpus
            )
        if self._memory:
            self._memory_manager.allocate_container(self._memory, uid, pod, qos, container, hint, admission.reusable_memory)

    def _allocate_devices(self, admission: _Admission, container: Container) -> None:
        self.node.devices.allocate_container(
            self._devices,
            admission.uid,
            container,
            admission.hints[container.name].nodes,
            admission.reusable_devices,
            ordered=self.ordered_devices,
        )

    def _admit_fit(self, pod: Pod, counted: ResourceList) -> tuple[str, ...]:
        """The node fit; returns the names of the pods that were evicted to make room."""
        allocatable, pod_level = self.node.allocatable, self.node.pod_level_resources
        requests = fit_requests(pod, allocatable, counted, pod_level=pod_level)
        short = shortages(requests, self._used, len(self._active), allocatable)
        if not short:
            return ()
        if not pod.is_critical:
            raise _Refused("predicate", short[0].reason, short[0].message)
        others = [(active.pod, active.qos) for active in self._active]
        outcome: Preemption = preempt(pod, others, short, pod_level=pod_level)
        if outcome.error:
            message = f"Unexpected error while attempting to recover from admission failure: {outcome.error}"
            raise _Refused("predicate", "UnexpectedAdmissionError", message)
        victims = [self._active[index] for index in outcome.evicted]
        for victim in victims:
            self._drop(victim)
        return tuple(victim.pod.name for victim in victims)

    def _start_containers(self, admission: _Admission) -> tuple[ContainerResult, ...]:
        node, uid, pod = self.node, admission.uid, admission.pod
        memory = self._memory.blocks.get(uid, {}) if self._memory else {}
        nodes_of = {}
        for container in pod.all_containers:
            nodes = 0
            for block in memory.get(container.name, ()):
                nodes |= block.nodes
            nodes_of[container.name] = node.ids(nodes)
        cpus = self._cpus.containers.get(uid, {}) if self._cpus else {}
        results = []
        for container in pod.all_containers:
            error = None
            if not self.hold_start:
                if node.devices.missing(self._devices, uid, container):
                    try:
                        self._allocate_devices(admission, container)
                    except AllocationError as failure:
                        error = str(failure)
                if self._memory:
                    self._memory_manager.container_started(self._memory, uid, pod, container)
            hint = admission.hints[container.name] if node.policy else ANYWHERE
            results.append(
                ContainerResult(
                    name=container.name,
                    cpus=frozenset(cpu_ids(cpus.get(container.name, 0))),
                    memory_numa=nodes_of[container.name],
                    devices={name: tuple(ids) for name, ids in node.devices.ids(self._devices, uid, container.name).items()},
                    topology=None if hint.nodes is None else node.ids(hint.nodes),
                    preferred=hint.preferred,
                    start_error=error,
                )
            )
        return tuple(results)

    def _drop(self, active: _Active) -> None:
        self._active.remove(active)
        for name, amount in active.counted.items():
            self._used[name] -= amount
        self._release(active.uid)

    def _release(self, uid: str) -> None:
        self.node.devices.release(self._devices, uid)
        if self._cpus:
            self._cpu_manager.release(self._cpus, uid)
        if self._memory:
            self._memory_manager.release(self._memory, uid)


def _affinity_message(pod: Pod, node: Node, *, scope: str) -> str:
    if not (node.pod_level_managers and pod.has_pod_level_resources):
        return "Resources cannot be allocated with Topology locality"
    if scope == "pod":
        return "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
    return "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
