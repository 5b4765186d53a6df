"""Reads a pool's requirements: what is unknown, misspelt, not to be had on the platform, or does not add up, before anything is searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.catalog.machine import missing_facts
from infra.catalog.platforms import base_of
from infra.diagnosis import Diagnosis
from infra.offers import LEFT_OUT, MODEL, POOL, Offer
from infra.plan.model.kubelet import KubeletPlan
from infra.plan.pool.fields import read_user_fields
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.memory_split import mebibytes
from infra.plan.pool.messages import Finding, Location, Message, warning
from infra.plan.pool.platforms import PlatformFields, kube_reserved_millicpu
from infra.plan.pool.requirements import PoolRequirements
from infra.plan.pool.reserve import Reservations, reserve
from infra.units import parse_bytes

_KUBELET = "kubelet"  # the field of the pool below which the user's fields stand


@dataclass(frozen=True, kw_only=True)
class ReadPool:
    """The pool, or None with the problems for which there is none; warnings concern fields without effect."""

    pool: GpuPool | None
    problems: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()


def read_pool(requirements: PoolRequirements) -> ReadPool:
    """The requirements as a pool to plan for, with every problem that one look at them shows."""
    platform = PlatformFields.of(requirements.platform)
    fields, problems = _read_fields(requirements, platform)
    if problems:
        return ReadPool(pool=None, problems=problems)
    ineffective = "reservedMemory" in fields and fields.get("memoryManagerPolicy") == "None"
    user = KubeletPlan(
        fields={name: value for name, value in fields.items() if name != "reservedMemory" or not ineffective},
        base=base_of(requirements.platform),
    )
    reservations, problems = _reserve(requirements, platform, user)
    if problems:
        return ReadPool(pool=None, problems=problems)
    pool = GpuPool(
        shape=requirements.shape,
        nodes=requirements.nodes,
        kubernetes_version=requirements.kubernetes_version,
        user=user,
        reservations=reservations,
        pods=requirements.pods,
        co_tenants=requirements.co_tenants,
        resource_name=requirements.resource_name,
        platform=requirements.platform,
        unavailable=platform.unavailable,
    )
    return ReadPool(pool=pool, warnings=(_WITHOUT_EFFECT,) if ineffective else ())


_WITHOUT_EFFECT = warning(
    Location(field=f"{_KUBELET}.reservedMemory"),
    "WithoutEffect",
    "has no effect with memoryManagerPolicy None and is left out of the configuration.",
)


def _read_fields(requirements: PoolRequirements, platform: PlatformFields) -> tuple[Mapping[str, Any], tuple[Finding, ...]]:
    shape = requirements.shape
    fields, problems = read_user_fields(requirements.user_kubelet, _KUBELET)
    problems += missing_facts(shape, "topology" if shape.id == "inline" else "nodeShape")
    problems += platform.problems(fields, _KUBELET)
    fields = {name: value for name, value in fields.items() if not platform.has_anyway(name, value)}
    return fields, (*map(Finding.below_pool, problems), *_not_guaranteed(requirements))


def _not_guaranteed(requirements: PoolRequirements) -> list[Finding]:
    return [
        Finding(
            location=Location(field=field, pod=position),
            code="NotGuaranteed",
            message=Message.of(
                f"container {name} makes the pod Burstable, and none of its containers would get CPUs or memory of a NUMA node to itself: it needs cpu and memory "
                "limits with equal requests."
            ),
            offers=(
                Offer.of("leave its requests out, which are then the limits", (f"{MODEL}.{field}.requests", LEFT_OUT)),
                Offer.of("give it limits", (f"{MODEL}.{field}", {"limits": {"cpu": "500m", "memory": "512Mi"}})),
            ),
        )
        for position, pod in enumerate(requirements.pods)
        for field, name in pod.not_guaranteed
    ]


def _reserve(
    requirements: PoolRequirements, platform: PlatformFields, user: KubeletPlan
) -> tuple[Reservations, tuple[Finding, ...]]:
    cpus = sum(len(node.cpus or ()) for node in requirements.shape.numa_nodes)
    millicpu = kube_reserved_millicpu(cpus) if platform.decides_reservations else None
    reservations, problems = reserve(user, requirements.shape, _KUBELET, platform_millicpu=millicpu)
    if not problems:
        problems = _unknown_threshold(user, reservations)
        problems += check_reserved_memory(user, reservations, _KUBELET) if "reservedMemory" in user.fields else []
    return reservations, tuple(map(Finding.below_pool, problems))


def _unknown_threshold(user: KubeletPlan, reservations: Reservations) -> list[Diagnosis]:
    """Pinned memory needs the sum of all reservations before the node is seen."""
    pinned = user.pins_memory or "reservedMemory" in user.fields
    if not pinned or reservations.memory_bytes is not None:
        return []
    return [
        Diagnosis(
            f"{_KUBELET}.evictionHard.memory.available",
            "PercentWithStaticMemory",
            f"{reservations.fields['evictionHard']['memory.available']} is a share of the kernel's own MemTotal, and reservedMemory has to match it to the byte: "
            "memoryManagerPolicy Static needs a quantity",
            offers=(
                Offer.of(
                    "write 100Mi", (f"{POOL}.kubelet.evictionHard", {**user.fields["evictionHard"], "memory.available": "100Mi"})
                ),
            ),
        )
    ]


_DIVIDED = Offer.of("leave reservedMemory out and the plan divides it", (f"{POOL}.kubelet.reservedMemory", LEFT_OUT))


def check_reserved_memory(user: KubeletPlan, reservations: Reservations, path: str) -> list[Diagnosis]:
    """The user's reservedMemory against kubeReserved, systemReserved and evictionHard, as the kubelet compares them at start."""
    where = f"{path}.reservedMemory"
    total = 0
    for index, entry in enumerate(user.fields["reservedMemory"]):
        limits = entry.get("limits")
        if not isinstance(limits, Mapping):
            text = 'is missing; it is written like {numaNode: 0, limits: {memory: "1Gi"}}'
            return [Diagnosis(f"{where}[{index}].limits", "WrongType", text, offers=(_DIVIDED,))]
        try:
            total += parse_bytes(limits.get("memory", 0))
        except ValueError as error:
            return [Diagnosis(f"{where}[{index}].limits.memory", "WrongQuantity", f"{error}.")]
    required = reservations.memory_bytes
    if required is None or total == required:
        return []
    return [
        Diagnosis(
            where,
            "ReservedMemoryMismatch",
            f"sums to {mebibytes(total)}, must be {mebibytes(required)} = {reservations.sum_in_words}; the kubelet does not start otherwise",
            offers=(_DIVIDED,),
        )
    ]
