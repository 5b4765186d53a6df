"""What would work where no configuration admits all pods: the problems of a search that failed, with what to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from infra.offers import LEFT_OUT, POOL, Offer
from infra.plan.pool.failures import Failure
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.messages import Finding, Message
from infra.plan.pool.search import search
from infra.plan.pool.ways_out import without_field

# In this order: the first without which the search succeeds is the remedy.
_FIELDS_IN_THE_WAY = (
    "reservedMemory",
    "memoryManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicy",
    "cpuManagerPolicyOptions",
)


def with_remedy(pool: GpuPool, failures: Sequence[Failure]) -> list[Finding]:
    """The problems of the failures of a search; where a field of the user stands in the way, with what would work without it."""
    if any(failure.final for failure in failures):
        return [failure.finding for failure in failures]
    refused = any(failure.proven_refusal for failure in failures)
    told = next((failure.policy for failure in failures if failure.proven_refusal), failures[0].policy)
    several = len({failure.policy for failure in failures}) > 1
    others = " No other topologyManagerPolicy admits them in every order either." if several else ""
    offers = tuple(_fields_in_the_way(pool))
    remedy = Message()
    if offers:
        if refused and len({pod.gpus for pod in pool.pods}) > 1:
            remedy = Message.of("Or give models of different size pools of their own, whose taints keep the others off.")
    elif refused and len(pool.pods) > 1:
        remedy = Message.of("Give the models pools of their own (taints keep others off).")
        if pool.user_sets("topologyManagerPolicy"):
            offers = (without_field("topologyManagerPolicy"),)
    return [
        replace(failure.finding.with_more(others), offers=_distinct((*failure.finding.offers, *offers)), remedy=remedy)
        for failure in failures
        if failure.policy == told
    ]


def _distinct(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Without those that write the same."""
    known: dict[str, Offer] = {}
    for offer in offers:
        known.setdefault(str(offer.changes), offer)
    return tuple(known.values())


def _fields_in_the_way(pool: GpuPool) -> Iterator[Offer]:
    """The user's first field without which all pods are admitted: the value that works, and to leave it out."""
    for field in filter(pool.user_sets, _FIELDS_IN_THE_WAY):
        proven, _ = search(pool.without(field))
        if proven is None:
            continue
        value = proven.kubelet.fields.get(field)
        if isinstance(value, str):
            yield Offer.of(
                f"write {field}: {value}, which admits all pods in every order", (f"{POOL}.kubelet.{field}", value), kind="policy"
            )
        elif field == "reservedMemory" and value is not None:
            split = " and ".join(f"{entry['limits']['memory']} on NUMA node {entry['numaNode']}" for entry in value)
            yield Offer.of(f"leave reservedMemory out, and the plan writes {split}", (f"{POOL}.kubelet.{field}", LEFT_OUT))
        else:
            yield Offer.of(
                f"leave {field} out: without it all pods are admitted in every order", (f"{POOL}.kubelet.{field}", LEFT_OUT)
            )
        return
