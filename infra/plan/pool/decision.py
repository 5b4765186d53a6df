"""Decides a pool's KubeletConfiguration: the strictest one with which the kubelet starts and admits every planned pod in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infra.catalog.machine import missing_facts
from infra.catalog.types import NodeShape
from infra.config.pools import CoTenant
from infra.diagnosis import Diagnosis
from infra.errors import PlanError
from infra.kubelet import Kubelet
from infra.plan.model import NumaNodePlan, RankBinding, Slot, SlotGroup
from infra.plan.placement import PodShape, blockable
from infra.plan.pool.failures import Failure
from infra.plan.pool.fields import read_user_fields
from infra.plan.pool.platforms import PlatformFields, kube_reserved_millicpu
from infra.plan.pool.question import Question, advise_on, reserved_by_node, start_kubelet, without
from infra.plan.pool.reasons import binding_of, cpu_reasons, place_reasons, pool_reasons, warn_of_hardware, warn_of_misalignment
from infra.plan.pool.reserve import check_reserved_memory, reserve
from infra.plan.pool.search import Answer, search
from infra.plan.pool.slots import lay_out
from infra.plan.pool.widths import NodeWidths


@dataclass(frozen=True, kw_only=True)
class PoolDecision:
    """What is decided for one pool; equal for all its nodes.

    `kubelet` holds the KubeletConfiguration fields to roll out. `pods` are the shapes as they will run (CPUs raised where the stack file gave none).
    `slots`, `places`, `bindings` and `pod_reasons` are keyed by pod shape. `slots` place all pods once; `places` are all that a pod can come to lie in on
    any node, whatever the scheduler and the order of starts, with example GPUs of these NUMA nodes and no CPU ids. A binding is None where every place of the pod is one NUMA node or where ranks cannot be
    bound (then `pod_reasons` and a warning say why). `allocatable_cpu` in whole CPUs; memory at the catalog's lower bound.
    """

    kubelet: Mapping[str, Any]
    numa_nodes: tuple[NumaNodePlan, ...]
    allocatable_cpu: int
    allocatable_memory_bytes: int
    allocatable_gpus: int
    pods: tuple[PodShape, ...]
    slots: Mapping[str, tuple[SlotGroup, ...]]
    places: Mapping[str, tuple[Slot, ...]]
    bindings: Mapping[str, RankBinding | None]
    idle_gpus: int
    stranded_gpus: int
    reasons: tuple[str, ...]
    pod_reasons: Mapping[str, tuple[str, ...]]
    warnings: tuple[Diagnosis, ...]

    def pod(self, name: str) -> PodShape:
        return next(pod for pod in self.pods if pod.name == name)


def decide_pool(
    *,
    path: str,
    shape: NodeShape,
    nodes: int,
    kubernetes_version: str,
    user_kubelet: Mapping[str, Any],
    pods: Sequence[PodShape],
    resource_name: str,
    co_tenants: Sequence[CoTenant] = (),
    platform: str = "existing",
) -> PoolDecision:
    """The decision for `nodes` equal machines; `path` is the pool's in the stack file (`nodePools[0]`), and the pods carry their own.

    Raises PlanError with every problem that one pass can find, each with its path: unknown or misspelled fields, reservations that do not add up, a
    configuration that the kubelet refuses, pods that find no room, and a policy that refuses a pod in some order, with that order.
    """
    where = f"{path}.kubelet"
    user, problems = read_user_fields(user_kubelet, where)
    problems += missing_facts(shape, f"{path}.{'topology' if shape.id == 'inline' else 'nodeShape'}")
    fields_of = PlatformFields.of(platform)
    problems += fields_of.problems(user, where)
    problems += [
        Diagnosis(
            f"{pod.path}.{field}",
            "NotGuaranteed",
            f"container {name} makes the pod Burstable, and none of its containers would get CPUs or memory of a NUMA node to itself: give cpu and memory limits "
            "with equal requests.",
        )
        for pod in pods
        for field, name in pod.not_guaranteed
    ]
    if problems:
        raise PlanError(problems)
    cpus = sum(len(node.cpus or ()) for node in shape.numa_nodes)
    reservations, found = reserve(
        user, shape, where, platform_millicpu=kube_reserved_millicpu(cpus) if fields_of.decides_reservations else None
    )
    problems += found
    static_memory = user.get("memoryManagerPolicy", "Static" if "reservedMemory" in user else None) == "Static"
    if static_memory and not found and reservations.memory_bytes is None:
        problems.append(
            Diagnosis(
                f"{where}.evictionHard.memory.available",
                "PercentWithStaticMemory",
                f"{reservations.fields['evictionHard']['memory.available']} is a share of the kernel's own MemTotal, and reservedMemory has to match it to the byte: "
                "with memoryManagerPolicy Static give a quantity, for example 100Mi.",
            )
        )
    warnings: list[Diagnosis] = []
    if "reservedMemory" in user:
        if user.get("memoryManagerPolicy") == "None":
            user = {name: value for name, value in user.items() if name != "reservedMemory"}
            warnings.append(
                Diagnosis.warning(
                    f"{where}.reservedMemory",
                    "WithoutEffect",
                    "has no effect with memoryManagerPolicy None and is left out of the configuration.",
                )
            )
        elif not found:
            problems += check_reserved_memory(user, reservations, where)
    if problems:
        raise PlanError(problems)
    question = Question(
        path=path,
        shape=shape,
        nodes=nodes,
        kubernetes_version=kubernetes_version,
        user=user,
        reservations=reservations,
        pods=tuple(pods),
        co_tenants=tuple(co_tenants),
        resource_name=resource_name,
        unavailable=fields_of.unavailable,
    )
    answer, failures = search(question)
    if answer is None:
        raise PlanError(_with_way_out(question, failures))
    advice = _advice(question, answer)
    stops = [problem for problem in advice if problem.severity == "error"]
    if stops:
        raise PlanError(stops)
    warnings += advice
    if fields_of.decides_reservations:
        warnings.append(
            Diagnosis.warning(
                path,
                "ReservationsOfPlatform",
                f"{platform} sets kubeReserved and evictionHard itself, so that allocatable CPUs and memory are estimates here and admission is proven only for "
                "them. Compare with a node of the pool before the models come.",
            )
        )
    return replace(_decision(question, answer, failures, warnings), kubelet=fields_of.rolled_out(answer.fields))


def _advice(question: Question, answer: Answer) -> list[Diagnosis]:
    """What the kubelet would do badly with the configuration without saying so; only of fields that the user can change something about.

    Left out: uneven memory of a split that the plan chose, pod-level resources (our pods have none), and devices without NUMA nodes, of which the plan warns itself.
    """
    silent = {"PodLevelResourcesNotPinned", "DevicesWithoutTopology", "UnknownNumaNode"}
    if "reservedMemory" not in question.user:
        silent.add("UnevenMemory")
    return [
        replace(problem, path=f"{question.path}.kubelet.{problem.path}")
        for problem in advise_on(question, answer.fields)
        if problem.code not in silent and problem.path.split(".")[0] not in question.unavailable
    ]


def _with_way_out(question: Question, failures: Sequence[Failure]) -> list[Diagnosis]:
    """The failures' problems; where a field of the user stands in the way, what would work without it."""
    if any(failure.final for failure in failures):
        return [failure.problem for failure in failures]
    first = next((failure.policy for failure in failures if failure.proven_refusal), failures[0].policy)
    others = (
        ""
        if len({failure.policy for failure in failures}) == 1
        else " No other topologyManagerPolicy admits them in every order either."
    )
    problems = [
        replace(failure.problem, message=failure.problem.message + others) for failure in failures if failure.policy == first
    ]
    for name in (
        "reservedMemory",
        "memoryManagerPolicy",
        "topologyManagerScope",
        "topologyManagerPolicy",
        "cpuManagerPolicyOptions",
    ):
        if name not in question.user:
            continue
        answer, _ = search(without(question, name))
        if answer is None:
            continue
        works = answer.fields.get(name)
        if works is None:
            hint = f" Leave {question.path}.kubelet.{name} out: without it all pods are admitted in every order."
        elif name == "reservedMemory":
            split = " and ".join(f"{entry['limits']['memory']} on NUMA node {entry['numaNode']}" for entry in works)
            hint = f" The split that works: {split}; leave reservedMemory out and the plan writes it."
        else:
            hint = f" {name} {works} admits all pods in every order."
        if any(failure.proven_refusal for failure in failures) and len({pod.gpus for pod in question.pods}) > 1:
            hint += " Or give models of different size pools of their own, whose taints keep the others off."
        return [replace(problem, message=problem.message + hint) for problem in problems]
    if any(failure.proven_refusal for failure in failures) and len(question.pods) > 1:
        return [
            replace(
                problem,
                message=f"{problem.message} Give the models pools of their own (taints keep others off), or leave topologyManagerPolicy out.",
            )
            for problem in problems
        ]
    return problems


def _decision(question: Question, answer: Answer, failures: Sequence[Failure], warnings: list[Diagnosis]) -> PoolDecision:
    shape, candidate = question.shape, answer.candidate
    kubelet = start_kubelet(question, answer.fields)
    slots = lay_out(question, answer, kubelet)
    widths = NodeWidths.of(
        shape, reserved_memory=reserved_by_node(answer.fields), pins_cpus=answer.fields["cpuManagerPolicy"] == "static"
    )
    bindings: dict[str, RankBinding | None] = {}
    pod_reasons: dict[str, tuple[str, ...]] = {}
    for asked, pod in zip(question.pods, candidate.shapes, strict=True):
        reasons = cpu_reasons(asked, pod, widths)
        bindings[pod.name], said = binding_of(question, answer, pod, slots, widths, warnings)
        pod_reasons[pod.name] = (*reasons, *said, *place_reasons(pod, slots))
        if candidate.topology_policy in ("best-effort", "none"):
            warn_of_misalignment(question, answer, pod, widths, warnings)
    for index in blockable(candidate.shapes, answer.capacity, question.nodes):
        pod = candidate.shapes[index]
        warnings.append(
            Diagnosis.warning(
                f"{pod.path}.replicas",
                "MayStayPending",
                f"the scheduler may spread the other models of {question.path} so that a pod of {pod.gpus} GPUs finds no node, though there is room for all: "
                "give the models pools of their own, or pack pods (scoring MostAllocated).",
            )
        )
    warn_of_hardware(question, answer, slots, warnings)
    return PoolDecision(
        kubelet=answer.fields,
        numa_nodes=_numa_nodes(question, answer, kubelet),
        allocatable_cpu=int(kubelet.allocatable["cpu"]) // 1000,
        allocatable_memory_bytes=int(kubelet.allocatable["memory"]),
        allocatable_gpus=shape.gpus,
        pods=candidate.shapes,
        slots=slots.by_pod,
        places=slots.places,
        bindings=bindings,
        idle_gpus=slots.idle_gpus,
        stranded_gpus=slots.stranded_gpus,
        reasons=pool_reasons(question, answer, failures),
        pod_reasons=pod_reasons,
        warnings=tuple(sorted(set(warnings))),
    )


def _numa_nodes(question: Question, answer: Answer, kubelet: Kubelet) -> tuple[NumaNodePlan, ...]:
    pinned = kubelet.allocatable_memory_bytes
    with_memory = [node.id for node in question.shape.numa_nodes if node.memory_bytes]
    kept = int(kubelet.capacity["memory"]) - int(kubelet.allocatable["memory"])
    share, rest = divmod(kept, max(len(with_memory), 1))
    plans = []
    for node in question.shape.numa_nodes:
        memory = node.memory_bytes or 0
        even = max(memory - share - (rest if node.id == with_memory[0] else 0), 0) if node.id in with_memory else 0
        plans.append(
            NumaNodePlan(
                id=node.id,
                cpus=node.cpus or (),
                reserved_cpus=tuple(sorted(set(node.cpus or ()) & kubelet.reserved_cpus)),
                memory_bytes=memory,
                allocatable_memory_bytes=pinned.get(node.id, even),
                gpus=node.gpus or (),
                nics=node.nics,
            )
        )
    return tuple(plans)
