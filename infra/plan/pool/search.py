"""Tries kubelet configurations, strictest topology policy first, until one is proven to admit every planned pod in any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from infra.catalog.machine import devices_of, machine_of
from infra.kubelet import Kubelet, KubeletRefuses
from infra.plan.placement import Load, NodeCapacity, Placement, TooManyLoads, describe, maximal_loads, spread
from infra.plan.pool.bound import NumaRoom, never_blocked
from infra.plan.pool.candidates import candidates, whole_cores_only
from infra.plan.pool.configuration import Candidate, configuration, policies_to_try
from infra.plan.pool.failures import Failure, conflicts_of, no_room, refused, unproven, will_not_start
from infra.plan.pool.machine import memory_variants
from infra.plan.pool.proof import Footprint, NumaMap, Proof, Refusal, Resident, Undecided, prove
from infra.plan.pool.question import ENOUGH_STATES, Question, capacity_of, residents_of, start_kubelet
from infra.units import parse_bytes

_FIRST_STATES = 40
_MOST_STATES_IN_ALL = 3_000  # of all kinds of nodes that one candidate is tried on: seconds


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A configuration that is proven, with what the proof found. `dropped` are the failures of candidates with the same topology policy before it."""

    candidate: Candidate
    fields: Mapping[str, Any]
    capacity: NodeCapacity
    placement: Placement
    loads: tuple[Load, ...]
    states: int
    footprints: Mapping[str, frozenset[Footprint]]
    share_cores: frozenset[str] = frozenset()  # pod shapes that may hold a part of a physical core
    bounded: bool = False  # for some load the condition of kubelet_bound stands in for the states beyond the first ones
    dropped: tuple[Failure, ...] = ()


def search(question: Question) -> tuple[Answer | None, list[Failure]]:
    """The first answer, and the failures on the way: one for each stricter policy, or those of the policy that the user fixed."""
    failures: list[Failure] = []
    policies, _ = policies_to_try(question.user, question.shape)
    for policy in policies:
        of_policy: list[Failure] = []
        dropped: list[Failure] = []
        for candidate in candidates(question, policy):
            outcome = _attempt(question, candidate)
            if isinstance(outcome, Answer):
                return replace(outcome, dropped=tuple(dropped)), failures
            if any(failure.final for failure in outcome):
                return None, outcome
            of_policy = of_policy or outcome
            dropped += [replace(failure, memory_policy=candidate.memory_policy) for failure in outcome]
        failures += of_policy
    return None, failures


def _attempt(question: Question, candidate: Candidate) -> Answer | list[Failure]:
    fields = configuration(candidate, question.user, question.reservations, question.shape, question.unavailable)
    conflicts = conflicts_of(question, candidate, fields)
    devices = devices_of(question.shape, question.resource_name)
    try:
        started = start_kubelet(question, fields)
    except KubeletRefuses as refusal:
        return [will_not_start(question, fields, refusal)]
    capacity = capacity_of(question, started)
    placement = spread(candidate.shapes, capacity, question.nodes)
    if placement.unplaced:
        return [no_room(question, candidate, capacity, index, pods) for index, pods in placement.unplaced]
    if conflicts:
        return conflicts
    outcome = _prove_all(question, candidate, fields, started, devices)
    if isinstance(outcome, Failure):
        return [outcome]
    return replace(outcome, capacity=capacity, placement=placement)


def _prove_all(
    question: Question, candidate: Candidate, fields: Mapping[str, Any], at_bound: Kubelet, devices: Mapping[str, Any]
) -> Answer | Failure:
    """Proves every load that the scheduler can put on a node, on every machine in question; an answer without the placement over nodes."""
    cases = _cases(question, candidate, fields, at_bound, devices)
    if isinstance(cases, Failure):
        return cases
    numa = NumaMap(machine_of(question.shape), devices)
    for kubelet, load, words in cases:  # most refusals come early: they are found before any case is searched through
        outcome = prove(
            kubelet, residents_of(candidate.shapes, load) + question.guaranteed_co_tenants, numa, most_states=_FIRST_STATES
        )
        if isinstance(outcome, Refusal):
            return refused(question, candidate, fields, load, outcome, words)
    states, any_bounded, share_cores = 0, False, set[str]()
    footprints: dict[str, set[Footprint]] = {pod.name: set() for pod in candidate.shapes}
    never_refused = candidate.topology_policy in ("best-effort", "none") and candidate.memory_policy == "None"
    for kubelet, load, words in cases:
        residents = residents_of(candidate.shapes, load) + question.guaranteed_co_tenants
        bounded = _bounded(question, candidate, kubelet, residents)
        if bounded is not None or never_refused:
            most_states = ENOUGH_STATES // (1 if bounded is not None else 4)
        else:
            most_states = min(question.most_states, _MOST_STATES_IN_ALL - states)
            if most_states <= 0:
                return unproven(question, candidate, f"more than {_MOST_STATES_IN_ALL} states of {len(cases)} kinds of nodes")
        outcome = prove(kubelet, residents, numa, most_states=most_states)
        if isinstance(outcome, Refusal):
            return refused(question, candidate, fields, load, outcome, words)
        if isinstance(outcome, Undecided):
            if bounded is None and not never_refused:
                why = f"more than {outcome.limit} states of a node with {describe(candidate.shapes, load)}"
                return unproven(question, candidate, why)
            any_bounded = True
        states += outcome.limit if isinstance(outcome, Undecided) else outcome.states
        share_cores |= outcome.share_cores
        found = outcome.footprints if bounded is None or isinstance(outcome, Proof) else bounded
        for name, places in found.items():
            if name in footprints:
                footprints[name] |= places
    return Answer(
        candidate=candidate,
        fields=fields,
        capacity=capacity_of(question, at_bound),
        placement=Placement(groups=()),
        loads=tuple(sorted({load for _, load, _ in cases}, reverse=True)),
        states=states,
        footprints={name: frozenset(places) for name, places in footprints.items()},
        share_cores=frozenset(share_cores),
        bounded=any_bounded,
    )


def _cases(
    question: Question, candidate: Candidate, fields: Mapping[str, Any], at_bound: Kubelet, devices: Mapping[str, Any]
) -> list[tuple[Kubelet, Load, str]] | Failure:
    """The empty nodes to prove admission on: (kubelet, the fullest load, the machine in words)."""
    cases: list[tuple[Kubelet, Load, str]] = []
    variants = memory_variants(question.shape, pinned=candidate.memory_policy == "Static")
    for (words, factors), listed in product(variants, _device_orders(candidate, devices)):
        try:
            kubelet = start_kubelet(question, fields, factors, listed)
        except KubeletRefuses as refusal:
            return will_not_start(question, fields, refusal)
        try:
            loads = maximal_loads(candidate.shapes, capacity_of(question, kubelet))
        except TooManyLoads:
            return unproven(question, candidate, "more mixtures of pods on a node than can be looked at")
        if (
            factors  # the machine at the bound was first
            and candidate.memory_policy == "Static"
            and set(loads) <= {load for _, load, _ in cases}
            and _memory_never_decides(question, candidate, loads, at_bound)
        ):
            continue
        cases += [(kubelet, load, words) for load in loads]
    return cases


def _device_orders(candidate: Candidate, devices: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The device plugin chooses among the devices that the kubelet offers. Inside one NUMA node that changes nothing; where a pod may get a part of several
    nodes' devices, the choice decides how many come from each: both ends of the list are tried."""
    if candidate.topology_policy == "single-numa-node":
        return [devices]
    return [devices, {name: listed[::-1] for name, listed in devices.items()}]


def _bounded(
    question: Question, candidate: Candidate, kubelet: Kubelet, residents: Sequence[Resident]
) -> Mapping[str, frozenset[Footprint]] | None:
    """Where pods can come to lie, if a condition on counts alone shows that none is ever refused; it saves visiting thousands of states."""
    if candidate.topology_policy != "single-numa-node" or question.shape.numa_in_guest is False:
        return None
    memory = kubelet.allocatable_memory_bytes
    rooms = [
        NumaRoom(
            id=node.id,
            gpus=len(node.gpus or ()),
            cpus=len(set(node.cpus or ()) - kubelet.reserved_cpus),
            memory_bytes=memory.get(node.id, 0) if memory else None,
        )
        for node in question.shape.numa_nodes
    ]
    whole = all(whole_cores_only(resident, question.shape.threads_per_core or 1) for resident in residents)
    return never_blocked(rooms, residents, question.resource_name) if whole else None


def _memory_never_decides(question: Question, candidate: Candidate, loads: Iterable[Load], at_bound: Kubelet) -> bool:
    """Whether any single NUMA node could hold the memory of all pods of a node: then more memory changes no answer."""
    least = min((there for there in at_bound.allocatable_memory_bytes.values() if there), default=0)
    tenants = sum(parse_bytes(tenant.memory) * tenant.per_node for tenant in question.co_tenants)
    most = max(
        sum(count * pod.memory_of_all_containers for count, pod in zip(load, candidate.shapes, strict=True)) for load in loads
    )
    return most + tenants <= least
