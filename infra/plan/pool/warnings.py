"""What works worse than it could in a pool that is decided: hardware, unaligned pods, pods that may stay Pending."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from infra.offers import MODEL, POOL, Offer
from infra.plan.placement import blockable
from infra.plan.pod_shape import MAIN_CONTAINER, PodShape
from infra.plan.pool.gpu_pool import GpuPool, advise_on
from infra.plan.pool.messages import Finding, Location, Message, PodName, PoolPath, warning
from infra.plan.pool.search import ProvenConfiguration
from infra.plan.pool.slots import Layout
from infra.plan.pool.ways_out import whole_cores
from infra.plan.pool.widths import NodeWidths, policy_offers
from infra.units import parse_millicpu

# Of which the plan warns itself, or which does not concern its pods: they have no pod-level resources.
_NOT_TOLD = frozenset({"PodLevelResourcesNotPinned", "DevicesWithoutTopology", "UnknownNumaNode"})


def advice_on(pool: GpuPool, proven: ProvenConfiguration) -> list[Finding]:
    """What the kubelet would do badly with the configuration without saying so; only of fields that the user can change something about.

    Left out too: uneven memory of a split that the plan chose.
    """
    not_told = _NOT_TOLD if pool.user_sets("reservedMemory") else _NOT_TOLD | {"UnevenMemory"}
    return [
        Finding.below_pool(replace(advice, path=f"kubelet.{advice.path}"))
        for advice in advise_on(pool, proven.kubelet)
        if advice.code not in not_told and advice.path.split(".")[0] not in pool.unavailable
    ]


def estimated_reservations(platform: str) -> Finding:
    return warning(
        Location(),
        "ReservationsOfPlatform",
        f"{platform} sets kubeReserved and evictionHard itself, so that allocatable CPUs and memory are estimates here and admission is proven only for "
        "them. Compare with a node of the pool before the models come.",
    )


def misaligned_pods(pool: GpuPool, proven: ProvenConfiguration, widths: NodeWidths) -> Iterator[Finding]:
    """Best-effort and none admit what they cannot align: says of which pods that fit one NUMA node this is so."""
    policy = proven.candidate.topology_policy
    for position, pod in enumerate(proven.candidate.shapes):
        if not proven.candidate.admits_unaligned or widths.spans(pod) != 1:
            continue
        footprints = (footprint.container(MAIN_CONTAINER) for footprint in proven.proof.footprints[position])
        lying = ({node for node, _ in (*place.cpus, *place.devices)} for place in footprints)
        apart = next((nodes for nodes in lying if len(nodes) > 1), None)
        if apart is None:
            continue
        ways = (
            [] if len({other.gpus for other in proven.candidate.shapes}) < 2 else ["give pods of different size pools of their own"]
        )
        if policy == "none":
            ways.append("choose hardware settings with fewer NUMA nodes (NPS1, SNC off, coherent driver memory)")
        fits = (
            "and"
            if pod.cpu <= widths.cpus.largest
            else f"fit one NUMA node of {pool.shape.name}, which has {widths.cpus.largest} CPUs; with"
        )
        end = f"fit one NUMA node of {pool.shape.name}, but" if fits == "and" else "for the pod"
        yield Finding(
            location=Location(pod=position),
            code="AlignmentNotAssured",
            severity="warning",
            message=Message.of(
                f"{pod.gpus} GPUs {fits} {pod.cpu} CPUs {end} topologyManagerPolicy {policy} "
                f"lets a pod come to lie on NUMA nodes {', '.join(map(str, sorted(apart)))} in some orders."
            ),
            offers=tuple(_that_align(pool, pod, widths, policy)),
            remedy=Message.of(f"{ways[0][0].upper()}{' or '.join(ways)[1:]}.") if ways else Message(),
        )


def _that_align(pool: GpuPool, pod: PodShape, widths: NodeWidths, policy: str) -> Iterator[Offer]:
    if pool.user_sets("topologyManagerPolicy"):
        yield from policy_offers("single-numa-node", "restricted", *(["best-effort"] if policy == "none" else []))
    if pod.cpu > widths.cpus.largest - pool.threads_per_core:
        yield from widths.fewer_cpus(widths.cpus.largest)


def pool_warnings(pool: GpuPool, proven: ProvenConfiguration, layout: Layout) -> Iterator[Finding]:
    """Pods that may stay Pending, hidden NUMA nodes, shared cores, and GPUs that no planned size can use."""
    yield from _pending_pods(pool, proven)
    yield from _hidden_numa_nodes(pool, proven)
    yield from _shared_cores(pool, proven)
    yield from _stranded_gpus(pool, proven, layout)


def _pending_pods(pool: GpuPool, proven: ProvenConfiguration) -> Iterator[Finding]:
    """Pods for which there is room, but whose room others can take."""
    for position in blockable(proven.candidate.shapes, proven.capacity, pool.nodes):
        yield warning(
            Location(field="replicas", pod=position),
            "MayStayPending",
            "the scheduler may spread the other models of ",
            PoolPath(),
            f" so that a pod of {proven.candidate.shapes[position].gpus} GPUs finds no node, though there is room for all: "
            "give the models pools of their own, or pack pods (scoring MostAllocated).",
        )


def _hidden_numa_nodes(pool: GpuPool, proven: ProvenConfiguration) -> Iterator[Finding]:
    policy = proven.candidate.topology_policy
    if pool.shape.numa_in_guest is False and policy != "none":
        yield warning(
            Location(field="kubelet.topologyManagerPolicy"),
            "PolicyWithoutEffect",
            f"{pool.shape.name} is a virtual machine that hides NUMA: the device plugin reports no NUMA node, so {policy} aligns CPUs and memory with nothing.",
        )


def _shared_cores(pool: GpuPool, proven: ProvenConfiguration) -> Iterator[Finding]:
    threads = pool.threads_per_core
    for position, pod in enumerate(proven.candidate.shapes):
        if position in proven.proof.share_cores and pod.cpu % threads == 0:
            yield warning(
                Location(field="coTenants") if pool.co_tenants else Location(pod=position),
                "CoresShared",
                "a pod of ",
                PodName(position),
                " may get single threads of physical cores whose other threads run something else: a Guaranteed pod on its nodes asks for CPUs that "
                f"are no multiple of {threads}, so that full-pcpus-only cannot be on.",
                offers=tuple(_whole_cores_everywhere(pool, proven)),
            )


def _whole_cores_everywhere(pool: GpuPool, proven: ProvenConfiguration) -> Iterator[Offer]:
    """Every Guaranteed container of the pool in whole cores, if few are not."""
    threads = pool.threads_per_core
    changes: list[tuple[str, object]] = []
    for number, tenant in enumerate(pool.co_tenants):
        millicpu = parse_millicpu(tenant.cpu)
        if tenant.qos_class == "Guaranteed" and millicpu % 1000 == 0 and millicpu // 1000 % threads:
            cpus = millicpu // 1000
            changes.append((f"{POOL}.coTenants[{number}].cpu", str(cpus + -cpus % threads)))
    for position, pod in enumerate(proven.candidate.shapes):
        for offer in whole_cores(pod, threads):
            if offer.kind == "cpu":
                changes += [(change.path.replace(MODEL, f"{MODEL}{position}", 1), change.value) for change in offer.changes]
                break
    if changes:
        yield Offer.of(f"give its containers a multiple of {threads} CPUs (rounded up that fits)", *changes)


def _stranded_gpus(pool: GpuPool, proven: ProvenConfiguration, layout: Layout) -> Iterator[Finding]:
    if layout.stranded_gpus:
        per_node = [len(node.gpus or ()) for node in pool.shape.numa_nodes if node.gpus]
        uneven = any(gpus % pod.gpus for gpus in per_node for pod in proven.candidate.shapes)
        sizes = ", ".join(map(str, sorted({pod.gpus for pod in proven.candidate.shapes})))
        yield warning(
            Location(),
            "StrandedGpus",
            f"{layout.stranded_gpus} of {layout.idle_gpus} idle GPUs cannot be used by any pod of the planned sizes ({sizes} GPUs) under "
            f"{proven.candidate.topology_policy}. "
            + (
                "Sizes that divide the GPUs of a NUMA node leave none."
                if uneven
                else "The CPUs or the memory that another pod needs are missing there."
            ),
        )
