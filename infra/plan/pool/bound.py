"""A sufficient condition, without looking at states, that single-numa-node admits pods in every order: no set of the others can block all NUMA nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from infra.plan.pool.proof import ContainerFootprint, Footprint, Resident
from infra.units import parse_bytes, parse_millicpu

_MOST_NODES = 12


@dataclass(frozen=True, kw_only=True)
class NumaRoom:
    """What pods can get of one empty NUMA node; `memory_bytes` None where memory is not pinned."""

    id: int
    gpus: int
    cpus: int
    memory_bytes: int | None


def never_blocked(
    rooms: Sequence[NumaRoom], residents: Sequence[Resident], resource_name: str
) -> Mapping[int, frozenset[Footprint]] | None:
    """All single NUMA nodes that each kind of pod can come to lie on, by number, if the condition holds; None where it does not.

    Holds for pods of one container that takes GPUs, whole CPUs and memory from one node: a pod is refused only if every NUMA node lacks something for it,
    so that the others together hold at least what each node would have to lack. That is compared resource by resource, for every way to
    assign a lacking resource to each node. The node fit (sums over the whole node) is not looked at here.
    """
    needs = [_need(resident, resource_name) for resident in residents]
    if len(rooms) > _MOST_NODES or any(need is None for need in needs):
        return None
    known = [need for need in needs if need is not None]
    totals = [sum(resident.count * need[r] for resident, need in zip(residents, known, strict=True)) for r in range(3)]
    places: dict[int, frozenset[Footprint]] = {}
    for resident, need in zip(residents, known, strict=True):
        others = [total - own for total, own in zip(totals, need, strict=True)]
        enough = len(residents) == 1 and resident.count <= sum(_slots(room, need) for room in rooms)
        if not enough and _can_block(rooms, need, others):
            return None
        places[resident.number] = frozenset(_places(rooms, resident, need))
    return places


def _need(resident: Resident, resource_name: str) -> tuple[int, int, int] | None:
    containers = resident.pod["containers"]
    if len(containers) != 1 or resident.pod.get("initContainers"):
        return None
    limits = containers[0].get("limits") or {}
    millicpu = parse_millicpu(limits.get("cpu", 0))
    cpus = millicpu // 1000 if millicpu % 1000 == 0 else 0  # a fraction of a CPU runs in the shared pool
    return int(limits.get(resource_name, 0)), cpus, parse_bytes(limits.get("memory", 0))


def _lacks(room: NumaRoom, need: tuple[int, int, int]) -> list[int | None]:
    """By resource, how much of the node the others must hold so that it lacks that resource for the pod; None: it cannot lack it."""
    lacks: list[int | None] = []
    for available, requested in zip((room.gpus, room.cpus, room.memory_bytes), need, strict=True):
        lacks.append(None if available is None or not requested else max(available - requested + 1, 0))
    return lacks


def _slots(room: NumaRoom, need: tuple[int, int, int]) -> int:
    """How many such pods a node holds; equal pods cannot waste room, so that they always fit while there are no more of them than slots."""
    fits = [
        available // requested
        for available, requested in zip((room.gpus, room.cpus, room.memory_bytes), need, strict=True)
        if requested and available is not None
    ]
    return min(fits, default=0)


def _can_block(rooms: Sequence[NumaRoom], need: tuple[int, int, int], others: Sequence[int]) -> bool:
    choices = [[(r, lack) for r, lack in enumerate(_lacks(room, need)) if lack is not None and lack <= others[r]] for room in rooms]
    for assignment in product(*choices):
        held = [sum(lack for r, lack in assignment if r == resource) for resource in range(3)]
        if all(amount <= available for amount, available in zip(held, others, strict=True)):
            return True
    return False


def _places(rooms: Sequence[NumaRoom], resident: Resident, need: tuple[int, int, int]) -> list[Footprint]:
    gpus, cpus, _ = need
    return [
        Footprint(
            (
                ContainerFootprint(
                    name=resident.pod["containers"][0]["name"],
                    cpus=((room.id, cpus),) if cpus else (),
                    devices=((room.id, gpus),) if gpus else (),
                    memory_numa=(room.id,) if room.memory_bytes is not None else (),
                    topology=(room.id,),
                ),
            )
        )
        for room in rooms
        if all(lack != 0 for lack in _lacks(room, need))
    ]
