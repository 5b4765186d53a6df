"""Proves a candidate configuration on every kind of node that the scheduler's freedom and the range of a stated memory leave open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from infra.catalog.machine import devices_of
from infra.kubelet import Kubelet, KubeletRefuses
from infra.plan.model.kubelet import KubeletPlan
from infra.plan.placement import Load, TooManyLoads, maximal_loads
from infra.plan.pool.bound import NumaRoom, never_blocked
from infra.plan.pool.candidate import CandidateConfiguration
from infra.plan.pool.candidates import whole_cores_only
from infra.plan.pool.failures import Failure, refused, unproven, will_not_start
from infra.plan.pool.gpu_pool import ENOUGH_STATES, GpuPool, capacity_of, start_kubelet
from infra.plan.pool.machine import memory_variants
from infra.plan.pool.messages import Message, described
from infra.plan.pool.proof import Footprint, Proof, Refusal, Resident, Undecided, prove
from infra.units import parse_bytes

_FIRST_STATES = 40


@dataclass(frozen=True, kw_only=True)
class AdmissionProof:
    """That every planned pod is admitted in any order, and what that showed; places and positions are of the candidate's pod shapes."""

    loads: tuple[Load, ...]
    states: int
    footprints: tuple[tuple[Footprint, ...], ...]  # in order, so that the same input gives the same words
    share_cores: frozenset[int] = frozenset()  # pods that may hold a part of a physical core
    bounded: bool = False  # for some load a condition on counts stands in for the states beyond the first ones


@dataclass(frozen=True, kw_only=True)
class _Node:
    """An empty node to prove admission on: its kubelet, the fullest load, and its memory in words."""

    kubelet: Kubelet
    load: Load
    memory: str


def prove_admission(
    pool: GpuPool, candidate: CandidateConfiguration, kubelet: KubeletPlan, *, at_bound: Kubelet
) -> AdmissionProof | Failure:
    """The proof of a candidate with its effective configuration; `at_bound` is its kubelet with the memory that the catalog promises."""
    nodes = _nodes_to_prove(pool, candidate, kubelet, at_bound)
    return nodes if isinstance(nodes, Failure) else _Proving(pool, candidate, kubelet).all_nodes(nodes)


def _nodes_to_prove(
    pool: GpuPool, candidate: CandidateConfiguration, kubelet: KubeletPlan, at_bound: Kubelet
) -> list[_Node] | Failure:
    """Every load that the scheduler can put on a node, on every machine in question."""
    nodes: list[_Node] = []
    pinned = candidate.memory_policy == "Static"
    devices = devices_of(pool.shape, pool.resource_name)
    for (memory, factors), listed in product(memory_variants(pool.shape, pinned=pinned), _device_orders(candidate, devices)):
        try:
            started = start_kubelet(pool, kubelet, factors, listed)
        except KubeletRefuses as refusal:
            return will_not_start(kubelet, refusal)
        try:
            loads = maximal_loads(candidate.shapes, capacity_of(pool, started))
        except TooManyLoads:
            return unproven(pool, candidate, Message.of("more mixtures of pods on a node than can be looked at"))
        if (
            factors  # the machine at the bound was first
            and pinned
            and set(loads) <= {node.load for node in nodes}
            and _memory_never_decides(pool, candidate, loads, at_bound)
        ):
            continue
        nodes += [_Node(kubelet=started, load=load, memory=memory) for load in loads]
    return nodes


def _device_orders(candidate: CandidateConfiguration, devices: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The device plugin chooses among the devices that the kubelet offers. Inside one NUMA node that changes nothing; where a pod may get a part of several
    nodes' devices, the choice decides how many come from each: both ends of the list are tried."""
    if candidate.topology_policy == "single-numa-node":
        return [devices]
    return [devices, {name: listed[::-1] for name, listed in devices.items()}]


def _memory_never_decides(pool: GpuPool, candidate: CandidateConfiguration, loads: Iterable[Load], at_bound: Kubelet) -> bool:
    """Whether any single NUMA node could hold the memory of all pods of a node: then more memory changes no answer."""
    least = min((free for free in at_bound.allocatable_memory_bytes.values() if free), default=0)
    tenants = sum(parse_bytes(tenant.memory) * tenant.per_node for tenant in pool.co_tenants)
    most = max(
        sum(count * pod.memory_of_all_containers for count, pod in zip(load, candidate.shapes, strict=True)) for load in loads
    )
    return most + tenants <= least


class _Proving:
    """The proof of one candidate on all nodes, and what it has found so far."""

    def __init__(self, pool: GpuPool, candidate: CandidateConfiguration, kubelet: KubeletPlan) -> None:
        self.pool, self.candidate, self.kubelet = pool, candidate, kubelet
        self.numa = pool.numa_map
        self.never_refuses = candidate.admits_unaligned and candidate.memory_policy == "None"
        self.states = 0
        self.bounded = False
        self.share_cores: set[int] = set()
        self.footprints: list[set[Footprint]] = [set() for _ in candidate.shapes]

    def all_nodes(self, nodes: Sequence[_Node]) -> AdmissionProof | Failure:
        for node in nodes:  # most refusals come early: they are found before any node is searched through
            outcome = prove(node.kubelet, self._residents(node), self.numa, most_states=_FIRST_STATES)
            if isinstance(outcome, Refusal):
                return self._refused(node, outcome)
        for node in nodes:
            failure = self._one_node(node, len(nodes))
            if failure is not None:
                return failure
        return AdmissionProof(
            loads=tuple(sorted({node.load for node in nodes}, reverse=True)),
            states=self.states,
            footprints=tuple(tuple(sorted(found)) for found in self.footprints),
            share_cores=frozenset(self.share_cores),
            bounded=self.bounded,
        )

    def _one_node(self, node: _Node, kinds_of_nodes: int) -> Failure | None:
        pool, residents = self.pool, self._residents(node)
        bound = _bound(pool, self.candidate, node.kubelet, residents)
        if bound is not None or self.never_refuses:
            most_states = ENOUGH_STATES // (1 if bound is not None else 4)
        else:
            most_states = min(pool.most_states, pool.most_states_in_all - self.states)
            if most_states <= 0:
                why = Message.of(f"more than {pool.most_states_in_all} states of {kinds_of_nodes} kinds of nodes")
                return unproven(pool, self.candidate, why)
        outcome = prove(node.kubelet, residents, self.numa, most_states=most_states)
        if isinstance(outcome, Refusal):
            return self._refused(node, outcome)
        if isinstance(outcome, Undecided):
            if bound is None and not self.never_refuses:
                load = described(self.candidate.shapes, node.load)
                return unproven(pool, self.candidate, Message.of(f"more than {outcome.limit} states of a node with ", load))
            self.bounded = True
        self.states += outcome.limit if isinstance(outcome, Undecided) else outcome.states
        self.share_cores |= outcome.share_cores
        found = outcome.footprints if bound is None or isinstance(outcome, Proof) else bound
        for position, places in enumerate(self.footprints):
            places |= found.get(position, frozenset())
        return None

    def _residents(self, node: _Node) -> tuple[Resident, ...]:
        return self.pool.residents(self.candidate.shapes, node.load) + self.pool.guaranteed_co_tenants

    def _refused(self, node: _Node, refusal: Refusal) -> Failure:
        return refused(self.pool, self.candidate, self.kubelet, node.load, refusal, node.memory)


def _bound(
    pool: GpuPool, candidate: CandidateConfiguration, kubelet: Kubelet, residents: Sequence[Resident]
) -> Mapping[int, frozenset[Footprint]] | None:
    """Where pods can come to lie, if a condition on counts alone shows that none is ever refused; it saves visiting thousands of states."""
    if candidate.topology_policy != "single-numa-node" or pool.shape.numa_in_guest is False:
        return None
    memory = kubelet.allocatable_memory_bytes
    rooms = [
        NumaRoom(
            id=node.id,
            gpus=len(node.gpus or ()),
            cpus=len(set(node.cpus or ()) - kubelet.reserved_cpus),
            memory_bytes=memory.get(node.id, 0) if memory else None,
        )
        for node in pool.shape.numa_nodes
    ]
    whole = all(whole_cores_only(resident.pod, pool.threads_per_core) for resident in residents)
    return never_blocked(rooms, residents, pool.resource_name) if whole else None
