"""What can happen to a decided pool later: an update that waits for room, and models that are described and do not run yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.plan.pool.failures import Failure
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.messages import Finding, Location, Message, PoolPath, warning
from infra.plan.pool.search import ProvenConfiguration
from infra.plan.strategy import without_room


def updates_without_room(pool: GpuPool, proven: ProvenConfiguration) -> Iterator[Finding]:
    """Errors: a given strategy by which no old pod may end before a new one is ready, where that one may find no room."""
    shapes = proven.candidate.shapes
    for position in sorted(without_room(shapes, proven.capacity, pool.nodes)):
        shape = shapes[position]
        if shape.must_surge and shape.copies:
            yield Finding(
                location=Location(field="strategy", pod=position),
                code="SurgeFindsNoRoom",
                message=Message.of(
                    f"with maxUnavailable 0 no old pod ends before a new one is ready, and beside the {shape.copies} pods of {shape.gpus} GPUs and all others "
                    f"{pool.nodes} node{'s' if pool.nodes > 1 else ''} of ",
                    PoolPath(),
                    f" have no room for {shape.surge} more in every order: the update would never end. Use maxSurge: 0, maxUnavailable: 1, or leave it out",
                ),
            )


def not_proven_beside(pool: GpuPool, failures: Sequence[Failure]) -> Iterator[Finding]:
    """Warnings: models of no replicas whose pods were left out of the proof."""
    reason = failures[0].reason if failures else Message.of("no configuration admits them")
    for position, shape in enumerate(pool.pods):
        if not shape.copies:
            yield warning(
                Location(field="replicas", pod=position),
                "NotProvenBesideOthers",
                "is 0, and with the other models its pods are not proven to be admitted, so that replicas above 0 may be refused here: ",
                reason,
            )
