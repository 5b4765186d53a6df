"""Says why: the reasons of a pool's decision and its pods, rank bindings, and warnings."""

from __future__ import annotations

from collections.abc import Sequence

from infra.diagnosis import Diagnosis
from infra.plan.binding import Unbound, bind_ranks, describe_binding
from infra.plan.model import RankBinding
from infra.plan.placement import PodShape, describe
from infra.plan.pool.configuration import policies_to_try
from infra.plan.pool.failures import Failure
from infra.plan.pool.question import Question
from infra.plan.pool.search import Answer
from infra.plan.pool.slots import Slots
from infra.plan.pool.widths import NodeWidths


def cpu_reasons(asked: PodShape, pod: PodShape, widths: NodeWidths) -> tuple[str, ...]:
    if pod.cpu == asked.cpu:
        return ()
    width = widths.spans(pod)
    return (
        f"{pod.cpu} CPUs instead of {asked.cpu}: {pod.gpus} GPUs lie on {width} NUMA nodes, and only a pod with more than "
        f"{widths.cpus.least_of_width(width) - 1} CPUs gets CPUs on all of them (with fewer the CPU manager takes all from one node).",
    )


def place_reasons(pod: PodShape, slots: Slots) -> tuple[str, ...]:
    """Where pods may lie besides the slots that the plan shows."""
    shown = {slot.numa_nodes for group in slots.by_pod[pod.name] for slot in group.slots}
    other = sorted({slot.numa_nodes for slot in slots.places[pod.name]} - shown)
    if not other:
        return ()
    words = "; ".join(", ".join(map(str, nodes)) for nodes in other)
    return (
        f"Slots show one order of starts: in others a pod comes to lie on NUMA node{'s' if any(len(n) > 1 for n in other) else ''} {words}.",
    )


def binding_of(
    question: Question, answer: Answer, pod: PodShape, slots: Slots, widths: NodeWidths, warnings: list[Diagnosis]
) -> tuple[RankBinding | None, tuple[str, ...]]:
    if not pod.bind_ranks or widths.spans(pod) == 1:
        return None, ()
    if answer.bounded and answer.candidate.topology_policy in ("best-effort", "none"):
        return None, (
            "No rank binding: a node with these pods has more states than can be looked at, so that it is not proven which CPUs a pod holds. "
            "Give the model a pool of its own.",
        )
    example = slots.by_pod[pod.name][0].slots[0]
    homes = question.shape.gpu_numa_nodes
    hidden = question.shape.numa_in_guest is False
    width = max(widths.spans(pod), 1)
    bound = bind_ranks(
        [None if hidden else homes[gpu] for gpu in example.gpus],
        [footprint.container(pod.main_container) for footprint in answer.footprints[pod.name]],
        all_memory_nodes=[node.id for node in question.shape.numa_nodes if node.cpus and node.memory_bytes],
        enough_cpus=widths.enough_cpus(width) if len(widths.cpus.capacities) >= width else pod.cpu,
        threads_per_core=question.shape.threads_per_core or 1,
    )
    if bound is None:
        return None, ()
    if isinstance(bound, Unbound):
        if not hidden:
            warnings.append(Diagnosis.warning(f"{pod.path}.resources.cpu", "RanksNotBound", bound.reason))
        return None, (f"No rank binding: {bound.reason}",)
    memory = ", ".join(map(str, bound.memory_nodes))
    places = {footprint.container(pod.main_container).devices for footprint in answer.footprints[pod.name]}
    elsewhere = " Where it comes to lie on other NUMA nodes the ranks follow their GPUs." if len(places) > 1 else ""
    return bound, (
        f"rank binding: {describe_binding(bound)}; the pod holds as many in every one of the {answer.states} states that were proven and may allocate "
        f"memory on NUMA nodes {memory}.{elsewhere}",
    )


def warn_of_misalignment(question: Question, answer: Answer, pod: PodShape, widths: NodeWidths, warnings: list[Diagnosis]) -> None:
    """Best-effort and none admit what they cannot align: says of which pods that fit one NUMA node this is so."""
    if widths.spans(pod) != 1:
        return
    apart = [
        place
        for place in (f.container(pod.main_container) for f in answer.footprints[pod.name])
        if len({n for n, _ in (*place.cpus, *place.devices)}) > 1
    ]
    if apart:
        nodes = ", ".join(str(node) for node in sorted({n for n, _ in (*apart[0].cpus, *apart[0].devices)}))
        remedy = (
            "Give pods of different size pools of their own."
            if answer.candidate.topology_policy == "best-effort"
            else "Choose a topologyManagerPolicy, or hardware settings with fewer NUMA nodes (NPS1, SNC off, coherent driver memory)."
        )
        warnings.append(
            Diagnosis.warning(
                pod.path,
                "AlignmentNotAssured",
                f"{pod.gpus} GPUs and {pod.cpu} CPUs fit one NUMA node of {question.shape.id}, but topologyManagerPolicy {answer.candidate.topology_policy} "
                f"lets a pod come to lie on NUMA nodes {nodes} in some orders. {remedy}",
            )
        )


def warn_of_hardware(question: Question, answer: Answer, slots: Slots, warnings: list[Diagnosis]) -> None:
    policy, where = answer.candidate.topology_policy, f"{question.path}.kubelet.topologyManagerPolicy"
    if question.shape.numa_in_guest is False and policy != "none":
        warnings.append(
            Diagnosis.warning(
                where,
                "PolicyWithoutEffect",
                f"{question.shape.id} is a virtual machine that hides NUMA: the device plugin reports no NUMA node, so {policy} aligns CPUs and memory with nothing.",
            )
        )
    threads = question.shape.threads_per_core or 1
    for pod in answer.candidate.shapes:
        if pod.name in answer.share_cores and pod.cpu % threads == 0:
            warnings.append(
                Diagnosis.warning(
                    f"{question.path}.coTenants" if question.co_tenants else pod.path,
                    "CoresShared",
                    f"a pod of {pod.name} may get single threads of physical cores whose other threads run something else: a Guaranteed pod on its nodes asks for CPUs that "
                    f"are no multiple of {threads}, so that full-pcpus-only cannot be on. Give that pod a multiple of {threads} CPUs, or a fraction of one.",
                )
            )
    if slots.stranded_gpus:
        sizes = ", ".join(sorted({str(pod.gpus) for pod in answer.candidate.shapes}, key=int))
        warnings.append(
            Diagnosis.warning(
                question.path,
                "StrandedGpus",
                f"{slots.stranded_gpus} of {slots.idle_gpus} idle GPUs cannot be used by any pod of the planned sizes ({sizes} GPUs) under {policy}. "
                "Use sizes that divide the GPUs of a NUMA node.",
            )
        )


def pool_reasons(question: Question, answer: Answer, failures: Sequence[Failure]) -> tuple[str, ...]:
    candidate = answer.candidate
    given = "as the stack file says" if "topologyManagerPolicy" in question.user else "the strictest that admits all pods"
    loads = "; or ".join(describe(candidate.shapes, load) for load in answer.loads[:4]) + ("; ..." if len(answer.loads) > 4 else "")
    reasons = [
        f"topologyManagerPolicy {candidate.topology_policy}, {given}: every order of starts, ends and restarts was tried, {answer.states} states, with what the "
        f"scheduler can put on a node ({loads})" + (" and the Guaranteed co-tenants." if question.guaranteed_co_tenants else ".")
    ]
    seen = set()
    for failure in failures:
        if failure.policy not in seen:
            seen.add(failure.policy)
            reasons.append(f"not {failure.policy}: {failure.summary or failure.problem.message}")
    left_out = policies_to_try(question.user, question.shape)[1]
    if left_out:
        reasons.append(left_out)
    reasons += question.reservations.reasons
    if candidate.split is not None:
        reasons.append(f"{candidate.split.reason} Together {question.reservations.sum_in_words}.")
    elif candidate.memory_policy == "None" and "memoryManagerPolicy" not in question.user:
        reasons.append(_why_no_static_memory(question, answer))
    options = answer.fields.get("cpuManagerPolicyOptions") or {}
    if options.get("distribute-cpus-across-numa") == "true":
        reasons.append(
            "distribute-cpus-across-numa takes the CPUs of a pod that needs several NUMA nodes from all of them alike, instead of filling the first."
        )
    if "strict-cpu-reservation" in options:
        reasons.append("strict-cpu-reservation keeps pods of the shared pool off the reserved CPUs too.")
    if (
        candidate.full_pcpus_only is False
        and answer.fields["cpuManagerPolicy"] == "static"
        and (question.shape.threads_per_core or 1) > 1
    ):
        reasons.append(
            "full-pcpus-only is off: a Guaranteed pod on these nodes asks for CPUs that are no whole physical cores, and the kubelet would refuse it "
            "(SMTAlignmentError)."
        )
    return tuple(reasons)


def _why_no_static_memory(question: Question, answer: Answer) -> str:
    if question.reservations.memory_bytes is None:
        return "memoryManagerPolicy None: the memory threshold of evictionHard is a percentage, and Static would need its bytes."
    static = next((failure for failure in answer.dropped if failure.memory_policy == "Static"), None)
    if static is None:
        return f"memoryManagerPolicy None: Static has no use here, or cannot be had on {question.shape.id}."
    return f"memoryManagerPolicy None, not Static: {static.summary or static.problem.message} Without it pods may allocate on all NUMA nodes, and ranks are bound to theirs."
