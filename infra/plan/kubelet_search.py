"""Tries kubelet configurations, strictest topology policy first, until one is proven to admit every planned pod in any order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from infra.catalog.types import NodeShape
from infra.config.pools import CoTenant
from infra.errors import Problem
from infra.kubelet import Kubelet, KubeletRefuses, Machine
from infra.kubelet.advice import advise
from infra.kubelet.machine import Device
from infra.plan.kubelet_bound import NumaRoom, never_blocked
from infra.plan.kubelet_config import MOST_NUMA_NODES_ENUMERATED, Candidate, configuration, policies_to_try
from infra.plan.kubelet_machine import devices_of, machine_of, memory_variants
from infra.plan.kubelet_proof import MOST_STATES, Footprint, NumaMap, Proof, Refusal, Resident, Undecided, prove
from infra.plan.kubelet_reserve import DEFAULT_MAX_PODS, MemorySplit, Reservations, mebibytes, memory_splits, usable_bytes
from infra.plan.kubelet_widths import NodeWidths
from infra.plan.placement import Load, NodeCapacity, Placement, PodShape, TooManyLoads, amount, describe, maximal_loads, spread
from infra.units import GIB, format_gib, parse_bytes, parse_cpu_list, parse_millicpu

# What our own and the platform's DaemonSets on a GPU node request together (network plugin, kube-proxy, feature discovery, device plugin,
# exporters); they are Burstable or BestEffort, so that only the node fit counts them.
DAEMON_MILLICPU, DAEMON_MEMORY_BYTES, DAEMON_PODS = 1000, 2 * GIB, 12

ENOUGH_STATES = 400  # of a node whose pods are known not to block each other: the rest are more of the same
_FIRST_STATES = 40


@dataclass(frozen=True, kw_only=True)
class Question:
    """A pool as far as its kubelet matters. `user` holds the stack file's fields, read and spelled right."""

    path: str
    shape: NodeShape
    nodes: int
    kubernetes_version: str
    user: Mapping[str, Any]
    reservations: Reservations
    pods: tuple[PodShape, ...]
    co_tenants: tuple[CoTenant, ...]
    resource_name: str
    unavailable: frozenset[str] = frozenset()  # fields that the platform cannot express
    most_states: int = MOST_STATES

    @property
    def guaranteed_co_tenants(self) -> tuple[Resident, ...]:
        """Co-tenants for which the CPU and memory managers set something aside; the others count only in the node fit."""
        residents = []
        for tenant in self.co_tenants:
            if tenant.qos_class == "Guaranteed":
                sizes = {"cpu": tenant.cpu, "memory": tenant.memory}
                container = {"name": tenant.name, "requests": sizes, "limits": sizes}
                residents.append(Resident(name=tenant.name, pod={"containers": [container]}, count=tenant.per_node))
        return tuple(residents)


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
    bounded: bool = False  # for some load the condition of kubelet_bound stands in for the states beyond the first ones
    dropped: tuple[Failure, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a candidate was given up. `final`: no other candidate can do better (the kubelet refuses the user's own fields, the pool is too small)."""

    policy: str
    problem: Problem
    summary: str = ""  # the same without numbers of the node and remedies, for the plan's reasons
    memory_policy: str = ""
    final: bool = False
    proven_refusal: bool = False


def search(question: Question) -> tuple[Answer | None, list[Failure]]:
    """The first answer, and the failures on the way: one for each stricter policy, or those of the policy that the user fixed."""
    failures: list[Failure] = []
    policies, _ = policies_to_try(question.user, question.shape)
    for policy in policies:
        of_policy: list[Failure] = []
        dropped: list[Failure] = []
        for candidate in _candidates(question, policy):
            outcome = _attempt(question, candidate)
            if isinstance(outcome, Answer):
                return replace(outcome, dropped=tuple(dropped)), failures
            if any(failure.final for failure in outcome):
                return None, outcome
            of_policy = of_policy or outcome
            dropped += [replace(failure, memory_policy=candidate.memory_policy) for failure in outcome]
        failures += of_policy
    return None, failures


def _candidates(question: Question, policy: str) -> Iterator[Candidate]:
    user, shape = question.user, question.shape
    options = user.get("cpuManagerPolicyOptions") or {}
    pins_cpus = user.get("cpuManagerPolicy", "static") == "static"
    plain = NodeWidths.of(shape, reserved_memory=None, pins_cpus=pins_cpus)
    shapes = tuple(plain.with_enough_cpus(pod) if policy != "single-numa-node" else pod for pod in question.pods)
    spans = any(plain.spans(pod) > 1 and (plain.cpus.of_request(pod.cpu) or 0) > 1 for pod in shapes)
    optional = pins_cpus and "cpuManagerPolicyOptions" not in question.unavailable
    distribute = optional and spans and not {"align-by-socket", "prefer-align-cpus-by-uncorecache"} & set(options)
    several = any(pod.container_count > 1 for pod in shapes)
    scopes = (
        [user["topologyManagerScope"]] if "topologyManagerScope" in user else ["pod", "container"] if several else ["container"]
    )
    if "topologyManagerScope" in question.unavailable and "topologyManagerScope" not in user:
        scopes = ["container"]
    whole = all(_whole_cores(resident, shape.threads_per_core or 1) for resident in _all_residents(question, shapes))
    whole = whole and not (distribute and _reserves_half_cores(question))  # both together may loop for ever then
    full_pcpus_only = options["full-pcpus-only"] == "true" if "full-pcpus-only" in options else optional and whole
    for memory_policy, split in _memory_choices(question):
        for scope in scopes:
            yield Candidate(
                topology_policy=policy,
                scope=scope,
                memory_policy=memory_policy,
                full_pcpus_only=full_pcpus_only,
                distribute=distribute,
                split=split,
                shapes=shapes,
            )


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
        free = "memoryManagerPolicy" not in user
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


def _attempt(question: Question, candidate: Candidate) -> Answer | list[Failure]:
    fields = configuration(candidate, question.user, question.reservations, question.shape, question.unavailable)
    conflicts = _conflicts(question, candidate, fields)
    devices = devices_of(question.shape, question.resource_name)
    started = _start(question, fields, {}, devices)
    if isinstance(started, Failure):
        return [started]
    capacity = capacity_of(question, started)
    placement = spread(candidate.shapes, capacity, question.nodes)
    if placement.unplaced:
        return [_no_room(question, candidate, capacity, index, pods) for index, pods in placement.unplaced]
    if conflicts:
        return conflicts
    outcome = _prove_all(question, candidate, fields, started, devices)
    if isinstance(outcome, Failure):
        return [outcome]
    loads, states, footprints, bounded = outcome
    return Answer(
        candidate=candidate,
        fields=fields,
        capacity=capacity,
        placement=placement,
        loads=tuple(sorted(loads, reverse=True)),
        states=states,
        footprints=footprints,
        bounded=bounded,
    )


_Proven = tuple[set[Load], int, dict[str, frozenset[Footprint]], bool]


def _prove_all(
    question: Question, candidate: Candidate, fields: Mapping[str, Any], at_bound: Kubelet, devices: Mapping[str, Any]
) -> _Proven | Failure:
    """Every load that the scheduler can put on a node, on every machine in question: (loads, states, footprints by pod shape, bounded)."""
    cases = _cases(question, candidate, fields, at_bound, devices)
    if isinstance(cases, Failure):
        return cases
    numa = NumaMap(machine_of(question.shape), devices)
    for kubelet, load, words in cases:  # most refusals come early: they are found before any case is searched through
        outcome = prove(
            kubelet, _residents(candidate.shapes, load) + question.guaranteed_co_tenants, numa, most_states=_FIRST_STATES
        )
        if isinstance(outcome, Refusal):
            return _refused(question, candidate, fields, load, outcome, words)
    states, any_bounded = 0, False
    footprints: dict[str, set[Footprint]] = {pod.name: set() for pod in candidate.shapes}
    for kubelet, load, words in cases:
        residents = _residents(candidate.shapes, load) + question.guaranteed_co_tenants
        bounded = _bounded(question, candidate, kubelet, residents)
        never_refused = candidate.topology_policy in ("best-effort", "none") and candidate.memory_policy == "None"
        outcome = prove(
            kubelet, residents, numa, most_states=ENOUGH_STATES if bounded is not None or never_refused else question.most_states
        )
        if isinstance(outcome, Refusal):
            return _refused(question, candidate, fields, load, outcome, words)
        if isinstance(outcome, Undecided):
            if bounded is None and not never_refused:
                why = f"more than {outcome.limit} states of a node with {describe(candidate.shapes, load)}"
                return _unproven(question, candidate, why)
            any_bounded = True
        states += outcome.limit if isinstance(outcome, Undecided) else outcome.states
        found = outcome.footprints if bounded is None or isinstance(outcome, Proof) else bounded
        for name, places in found.items():
            if name in footprints:
                footprints[name] |= places
    loads = {load for _, load, _ in cases}
    return loads, states, {name: frozenset(places) for name, places in footprints.items()}, any_bounded


def _cases(
    question: Question, candidate: Candidate, fields: Mapping[str, Any], at_bound: Kubelet, devices: Mapping[str, Any]
) -> list[tuple[Kubelet, Load, str]] | Failure:
    """The empty nodes to prove admission on: (kubelet, the fullest load, the machine in words)."""
    cases: list[tuple[Kubelet, Load, str]] = []
    variants = memory_variants(question.shape, pinned=candidate.memory_policy == "Static")
    for (words, factors), listed in product(variants, _device_orders(candidate, devices)):
        kubelet = _start(question, fields, factors, listed)
        if isinstance(kubelet, Failure):
            return kubelet
        try:
            loads = maximal_loads(candidate.shapes, capacity_of(question, kubelet))
        except TooManyLoads:
            return _unproven(question, candidate, "more mixtures of pods on a node than can be looked at")
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
    whole = all(_whole_cores(resident, question.shape.threads_per_core or 1) for resident in residents)
    return never_blocked(rooms, residents, question.resource_name) if whole else None


def _whole_cores(resident: Resident, threads_per_core: int) -> bool:
    return all(
        parse_millicpu((c.get("limits") or {}).get("cpu", 0)) % (1000 * threads_per_core) == 0 for c in resident.pod["containers"]
    )


def _memory_never_decides(question: Question, candidate: Candidate, loads: Iterable[Load], at_bound: Kubelet) -> bool:
    """Whether any single NUMA node could hold the memory of all pods of a node: then more memory changes no answer."""
    least = min((there for there in at_bound.allocatable_memory_bytes.values() if there), default=0)
    tenants = sum(parse_bytes(tenant.memory) * tenant.per_node for tenant in question.co_tenants)
    most = max(
        sum(count * pod.memory_of_all_containers for count, pod in zip(load, candidate.shapes, strict=True)) for load in loads
    )
    return most + tenants <= least


def start_kubelet(question: Question, fields: Mapping[str, Any]) -> Kubelet:
    """The kubelet of an answer on the catalog's machine; it is known to start."""
    kubelet = _start(question, fields, {}, devices_of(question.shape, question.resource_name))
    assert isinstance(kubelet, Kubelet)
    return kubelet


def advise_on(question: Question, fields: Mapping[str, Any]) -> list[Problem]:
    """Warnings of the kubelet's own rules about a configuration with which it starts; paths are fields."""
    machine, devices = _machine(question, fields, {}), devices_of(question.shape, question.resource_name)
    return advise(machine, fields, _devices(devices), kubernetes_version=question.kubernetes_version)


def _machine(question: Question, fields: Mapping[str, Any], factors: Mapping[int, int]) -> Machine:
    unmanaged = fields["topologyManagerPolicy"] == "none" and fields["memoryManagerPolicy"] == "None"
    return Machine.from_dict(machine_of(question.shape, factors, without_empty_nodes=unmanaged))


def _devices(devices: Mapping[str, Any]) -> dict[str, list[Device]]:
    return {name: [Device.from_dict(device) for device in listed] for name, listed in devices.items()}


def _start(
    question: Question, fields: Mapping[str, Any], factors: Mapping[int, int], devices: Mapping[str, Any]
) -> Kubelet | Failure:
    try:
        return Kubelet.start(
            _machine(question, fields, factors), fields, _devices(devices), kubernetes_version=question.kubernetes_version
        )
    except KubeletRefuses as refusal:
        message = "; ".join(refusal.errors)
        field = next(
            (name for name in sorted(fields, key=len, reverse=True) if name.lower() in message.lower()),
            _STAGE_FIELDS.get(refusal.stage),
        )
        where = f"{question.path}.kubelet" + (f".{field}" if field else "")
        text = f"the kubelet would not start ({refusal.stage}): {message}"
        return Failure(policy=str(fields["topologyManagerPolicy"]), problem=Problem(where, "KubeletRefuses", text), final=True)


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


def capacity_of(question: Question, kubelet: Kubelet) -> NodeCapacity:
    """What the scheduler may give to planned pods on a node: allocatable less co-tenants and DaemonSets."""
    there = kubelet.allocatable
    counted = [tenant for tenant in question.co_tenants if tenant.qos_class != "BestEffort"]
    return NodeCapacity(
        millicpu=int(there["cpu"]) - DAEMON_MILLICPU - sum(parse_millicpu(tenant.cpu) * tenant.per_node for tenant in counted),
        memory_bytes=int(there["memory"])
        - DAEMON_MEMORY_BYTES
        - sum(parse_bytes(tenant.memory) * tenant.per_node for tenant in counted),
        gpus=int(there.get(question.resource_name, 0)),
        pods=int(there.get("pods", question.user.get("maxPods", DEFAULT_MAX_PODS)))
        - DAEMON_PODS
        - sum(t.per_node for t in question.co_tenants),
    )


def _residents(shapes: tuple[PodShape, ...], load: Load) -> tuple[Resident, ...]:
    return tuple(Resident(name=pod.name, pod=pod.pod, count=count) for pod, count in zip(shapes, load, strict=True) if count)


def reserved_by_node(fields: Mapping[str, Any]) -> dict[int, int] | None:
    """reservedMemory by NUMA node in bytes; None without the Static memory manager."""
    if fields.get("memoryManagerPolicy") != "Static":
        return None
    reserved: dict[int, int] = {}
    for entry in fields.get("reservedMemory") or ():
        node = int(entry.get("numaNode", 0))
        reserved[node] = reserved.get(node, 0) + parse_bytes((entry.get("limits") or {}).get("memory", 0))
    return reserved


def _conflicts(question: Question, candidate: Candidate, fields: Mapping[str, Any]) -> list[Failure]:
    widths = NodeWidths.of(
        question.shape, reserved_memory=reserved_by_node(fields), pins_cpus=fields["cpuManagerPolicy"] == "static"
    )
    found = [widths.conflict(candidate.topology_policy, pod) for pod in candidate.shapes]
    return [
        Failure(
            policy=candidate.topology_policy,
            problem=Problem(conflict.path, "TopologyAffinityError", f"{conflict}."),
            summary=f"{conflict.sentence}.",
        )
        for conflict in found
        if conflict is not None
    ]


def _no_room(question: Question, candidate: Candidate, capacity: NodeCapacity, index: int, pods: int) -> Failure:
    pod = candidate.shapes[index]
    alone = capacity.shortfall(candidate.shapes, tuple(int(other == index) for other in range(len(candidate.shapes))))
    if alone is not None:
        resource, needed, there = alone
        field = {"GPUs": pod.gpus_path, "CPU": "resources.cpu", "memory": "resources.memory", "pods": "replicas"}[resource]
        text = (
            f"one pod needs {amount(resource, needed)} {resource}; a node of {question.shape.id} has {amount(resource, max(there, 0))} for pods after what "
            f"the node, its DaemonSets and co-tenants keep. Use at most {amount(resource, max(there, 0))}, or a larger node."
        )
        return Failure(policy=candidate.topology_policy, problem=Problem(f"{pod.path}.{field}", "PodTooLarge", text), final=True)
    apart = " (required anti-affinity: one a node)" if pod.anti_affinity == "required" else ""
    text = (
        f"{_pods(pod.copies)} of {pod.gpus} GPUs, {format_gib(pod.requests[1])} and {amount('CPU', pod.requests[0])} CPUs are wanted{apart}; "
        f"{question.nodes} node{'s' if question.nodes > 1 else ''} of {question.shape.id} hold {pod.copies - pods}{_because(candidate, capacity, index)}. "
        f"Use fewer replicas, or at least {_nodes_wanted(question, candidate, capacity)} nodes."
    )
    return Failure(policy=candidate.topology_policy, problem=Problem(f"{pod.path}.replicas", "PoolTooSmall", text), final=True)


def _pods(count: int) -> str:
    return f"{count} pod{'s' if count != 1 else ''}"


def _because(candidate: Candidate, capacity: NodeCapacity, index: int) -> str:
    """The resource that a node with as many of these pods as fit lacks for one more."""
    if len(candidate.shapes) > 1:
        return " beside the pool's other models"
    load = tuple(0 for _ in candidate.shapes)
    while capacity.holds(candidate.shapes, load):
        load = (*load[:index], load[index] + 1, *load[index + 1 :])
    if candidate.shapes[index].anti_affinity == "required" and load[index] > 1:
        return ""
    resource, needed, there = capacity.shortfall(candidate.shapes, load) or ("", 0, 0)
    return f" ({_pods(load[index])} on one node need {amount(resource, needed)} {resource}, and {amount(resource, there)} is there)"


def _nodes_wanted(question: Question, candidate: Candidate, capacity: NodeCapacity) -> int:
    low, high = question.nodes, question.nodes + sum(pod.copies for pod in candidate.shapes)
    while low < high:
        middle = (low + high) // 2
        if spread(candidate.shapes, capacity, middle).unplaced:
            low = middle + 1
        else:
            high = middle
    return low


def _refused(
    question: Question, candidate: Candidate, fields: Mapping[str, Any], load: Load, refusal: Refusal, machine: str
) -> Failure:
    pod = next((pod for pod in candidate.shapes if pod.name == refusal.resident), None)
    where = _refusal_path(question, pod, refusal)
    text = f"{candidate.topology_policy} does not admit {describe(candidate.shapes, load)} in every order on one node of {question.shape.id} {machine}: {refusal}."
    if question.shape.numa_in_guest is False and question.resource_name.startswith("amd.com/"):
        text += (
            " AMD's device plugin reports NUMA node -1 in a virtual machine that hides NUMA, and no NUMA node has that id: use best-effort, or expose NUMA "
            "nodes to the guest."
        )
    return Failure(
        policy=candidate.topology_policy,
        problem=Problem(where, refusal.reason or "Refused", f"{text}{_free_by_node(question, fields, pod)}"),
        summary=text,
        proven_refusal=True,
    )


def _refusal_path(question: Question, pod: PodShape | None, refusal: Refusal) -> str:
    if refusal.reason == "SMTAlignmentError":
        return f"{pod.path}.resources.cpu" if pod else f"{question.path}.kubelet.cpuManagerPolicyOptions"
    for name in ("reservedMemory", "topologyManagerPolicy"):
        if name in question.user:
            return f"{question.path}.kubelet.{name}"
    return f"{pod.path}.resources" if pod else f"{question.path}.coTenants"


def _free_by_node(question: Question, fields: Mapping[str, Any], pod: PodShape | None) -> str:
    """The numbers of an empty node next to what the pod needs."""
    reserved = reserved_by_node(fields)
    if pod is None:
        return ""
    per_node = []
    taken = start_kubelet(question, fields).reserved_cpus
    for node in question.shape.numa_nodes:
        if not node.cpus:
            continue
        parts = [f"{len(node.gpus or ())} GPUs", f"{len(set(node.cpus) - taken)} CPUs"]
        if reserved is not None:
            memory = (node.memory_bytes or 0) - reserved.get(node.id, 0)
            parts.append(f"{format_gib(memory)} ({mebibytes(reserved.get(node.id, 0))} reserved)")
        per_node.append(f"NUMA node {node.id} has {', '.join(parts)}")
    need = f"{pod.gpus} GPUs, {pod.cpu} CPUs" + (f" and {format_gib(pod.requests[1])}" if reserved is not None else "")
    return f" On an empty node {'; '.join(per_node)}; the pod needs {need}."


def _unproven(question: Question, candidate: Candidate, why: str) -> Failure:
    return Failure(
        policy=candidate.topology_policy,
        problem=Problem(
            question.path,
            "NotProven",
            f"admission under {candidate.topology_policy} is not proven: {why}. Use dedicated pools for pods of different size.",
        ),
    )


def without(question: Question, field: str) -> Question:
    """The same question as if the user had left a field out; for a hint, so that few states are enough."""
    return replace(
        question, most_states=ENOUGH_STATES, user={name: value for name, value in question.user.items() if name != field}
    )
