"""Why a candidate configuration is given up: one sentence with the path, both numbers and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.diagnosis import Diagnosis
from infra.kubelet import KubeletRefuses
from infra.plan.placement import Load, NodeCapacity, PodShape, amount, describe, spread
from infra.plan.pool.configuration import Candidate
from infra.plan.pool.proof import Refusal
from infra.plan.pool.question import Question, reserved_by_node, start_kubelet
from infra.plan.pool.reserve import mebibytes
from infra.plan.pool.widths import NodeWidths
from infra.units import format_gib


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a candidate was given up. `final`: no other candidate can do better (the kubelet refuses the user's own fields, the pool is too small)."""

    policy: str
    problem: Diagnosis
    summary: str = ""  # the same without numbers of the node and remedies, for the plan's reasons
    memory_policy: str = ""
    final: bool = False
    proven_refusal: bool = False


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


def will_not_start(question: Question, fields: Mapping[str, Any], refusal: KubeletRefuses) -> Failure:
    """The kubelet refuses the configuration itself, which no other candidate changes: all that it refuses are the user's own fields."""
    message = "; ".join(refusal.errors)
    named = (name for name in sorted(fields, key=len, reverse=True) if name.lower() in message.lower())
    field = next(named, _STAGE_FIELDS.get(refusal.stage))
    where = f"{question.path}.kubelet" + (f".{field}" if field else "")
    text = f"the kubelet would not start ({refusal.stage}): {message}"
    return Failure(policy=str(fields["topologyManagerPolicy"]), problem=Diagnosis(where, "KubeletRefuses", text), final=True)


def conflicts_of(question: Question, candidate: Candidate, fields: Mapping[str, Any]) -> list[Failure]:
    widths = NodeWidths.of(
        question.shape, reserved_memory=reserved_by_node(fields), pins_cpus=fields["cpuManagerPolicy"] == "static"
    )
    found = [widths.conflict(candidate.topology_policy, pod) for pod in candidate.shapes]
    return [
        Failure(
            policy=candidate.topology_policy,
            problem=Diagnosis(conflict.path, "TopologyAffinityError", f"{conflict}."),
            summary=f"{conflict.sentence}.",
        )
        for conflict in found
        if conflict is not None
    ]


def no_room(question: Question, candidate: Candidate, capacity: NodeCapacity, index: int, pods: int) -> Failure:
    pod, final = candidate.shapes[index], candidate.shapes == question.pods
    alone = capacity.shortfall(candidate.shapes, tuple(int(other == index) for other in range(len(candidate.shapes))))
    if alone is not None:
        resource, needed, there = alone
        field = {"GPUs": pod.gpus_path, "CPU": "resources.cpu", "memory": "resources.memory", "pods": "replicas"}[resource]
        text = (
            f"one pod needs {amount(resource, needed)} {resource}; a node of {question.shape.id} has {amount(resource, max(there, 0))} for pods after what "
            f"the node, its DaemonSets and co-tenants keep. Use at most {amount(resource, max(there, 0))}, or a larger node."
        )
        return Failure(policy=candidate.topology_policy, problem=Diagnosis(f"{pod.path}.{field}", "PodTooLarge", text), final=final)
    apart = " (required anti-affinity: one a node)" if pod.anti_affinity == "required" else ""
    text = (
        f"{_pods(pod.copies)} of {pod.gpus} GPUs, {format_gib(pod.requests[1])} and {amount('CPU', pod.requests[0])} CPUs are wanted{apart}; "
        f"{question.nodes} node{'s' if question.nodes > 1 else ''} of {question.shape.id} hold {pod.copies - pods}{_because(candidate, capacity, index)}. "
        f"Use fewer replicas, or at least {_nodes_wanted(question, candidate, capacity)} nodes."
    )
    return Failure(policy=candidate.topology_policy, problem=Diagnosis(f"{pod.path}.replicas", "PoolTooSmall", text), final=final)


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


def refused(
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
        problem=Diagnosis(where, refusal.reason or "Refused", f"{text}{_free_by_node(question, fields, pod)}"),
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


def unproven(question: Question, candidate: Candidate, why: str) -> Failure:
    return Failure(
        policy=candidate.topology_policy,
        problem=Diagnosis(
            question.path,
            "NotProven",
            f"admission under {candidate.topology_policy} is not proven: {why}. Use dedicated pools for pods of different size.",
        ),
    )
