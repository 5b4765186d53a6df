"""Which live workloads give their room to which planned ones before these start: the engine deletes last (pulumi/pulumi#2877). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.diagnosis import Diagnosis
from infra.errors import CheckError
from infra.kinds import ObjectKey
from infra.observe.rollouts import Raw, Rollouts, has_ended
from infra.plan.model import ClusterPlan, ModelPlan, PoolPlan
from infra.units import parse_bytes, parse_millicpu

ROOM_GIVEN = "numawise.dev/room-given"
"""Annotation of a workload that was scaled down to give room, until the engine deletes or updates it or an update scales it back."""


@dataclass(frozen=True, kw_only=True)
class Giving:
    """A live workload that is scaled down before the takers of its pool start."""

    key: ObjectKey
    pool: str
    replicas: int  # now
    remaining: int  # afterwards: 0 where the plan does not hold it
    gpus: int  # that it gives
    takers: tuple[ObjectKey, ...]


@dataclass(frozen=True, kw_only=True)
class Restoring:
    """A planned workload that an update which did not end has scaled down."""

    key: ObjectKey
    pool: str
    replicas: int  # now
    planned: int


@dataclass(frozen=True, kw_only=True)
class RoomPlan:
    """`taking`: the pool of each planned workload that needs more room than it holds."""

    giving: tuple[Giving, ...] = ()
    taking: Mapping[ObjectKey, str]
    restoring: tuple[Restoring, ...] = ()
    warnings: tuple[Diagnosis, ...] = ()

    def on(self, pool: str) -> tuple[Giving, ...]:
        return tuple(giving for giving in self.giving if giving.pool == pool)


def plan_room(
    plan: ClusterPlan, planned: Mapping[ObjectKey, ModelPlan], seen: Rollouts, *, undeclared: Collection[ObjectKey] = ()
) -> RoomPlan:
    """`planned`: the models by the workloads that they are declared as, in the plan's order; the `undeclared` of them stay as they are. CheckError where one update cannot do it, with the two steps that can."""
    live = {key: _Live.of(key, workload, seen) for key, workload in seen.workloads.items()}
    taking: dict[ObjectKey, str] = {}
    giving: list[Giving] = []
    for pool in plan.node_pools:
        here = {key: model for key, model in planned.items() if model.node_pool == pool.name}
        takers = [key for key, model in here.items() if key not in undeclared and _needs_room(model, live.get(key), pool)]
        taking |= dict.fromkeys(takers, pool.name)
        for key, workload in live.items():
            if key in undeclared or not workload.gpus(pool) or not workload.stands_on(pool) or (key in planned and key not in here):
                continue
            remaining = planned[key].placement.replicas if key in planned else 0
            others = tuple(taker for taker in takers if taker != key)
            if remaining < workload.replicas and others:
                given = (workload.replicas - remaining) * workload.gpus(pool)
                giving.append(
                    Giving(key=key, pool=pool.name, replicas=workload.replicas, remaining=remaining, gpus=given, takers=others)
                )
    restoring = tuple(
        Restoring(key=key, pool=model.node_pool, replicas=live[key].replicas, planned=model.placement.replicas)
        for key, model in planned.items()
        if key in live and key not in undeclared and live[key].gave_room
    )
    problems = list(_cannot_roll(plan, planned, live, giving))
    if problems:
        raise CheckError(problems)
    warnings = (*_told(giving), *_told_restoring(planned, restoring, giving))
    return RoomPlan(giving=tuple(giving), taking=taking, restoring=restoring, warnings=warnings)


@dataclass(frozen=True, kw_only=True)
class _Live:
    key: ObjectKey
    replicas: int
    pods_per_replica: int
    templates: tuple[Raw, ...]  # of each pod of a replica
    nodes: frozenset[str]  # where its pods are, and where they could come to be
    pods_on: Mapping[str, int]
    gave_room: bool

    @classmethod
    def of(cls, key: ObjectKey, workload: Raw, seen: Rollouts) -> _Live:
        spec = workload["spec"]
        group = spec.get("leaderWorkerTemplate")
        size = group.get("size", 1) if group else 1
        worker = (group["workerTemplate"] if group else spec["template"])["spec"]
        leader = ((group.get("leaderTemplate") if group else None) or {"spec": worker})["spec"]
        selector = worker.get("nodeSelector") or {}
        pods = [pod for pod in seen.pods_of(key) if not has_ended(pod) and pod["spec"].get("nodeName")]
        on = [pod["spec"]["nodeName"] for pod in pods]
        possible = [name for name, labels in seen.nodes.items() if selector.items() <= labels.items()]
        return cls(
            key=key,
            replicas=spec.get("replicas", 1),
            pods_per_replica=size,
            templates=(leader, *[worker] * (size - 1)),
            nodes=frozenset((*on, *possible)),
            pods_on={name: on.count(name) for name in on},
            gave_room=ROOM_GIVEN in (workload["metadata"].get("annotations") or {}),
        )

    def stands_on(self, pool: PoolPlan) -> bool:
        return not self.nodes.isdisjoint(pool.nodes.names)

    def gpus(self, pool: PoolPlan) -> int:
        """Of one replica."""
        return sum(_requests(template, pool)[0] for template in self.templates)

    def pod(self, pool: PoolPlan) -> tuple[int, int, int]:
        """GPUs, thousandths of a CPU and bytes of the main container of its largest pod."""
        return max(_requests(template, pool) for template in self.templates)


def _requests(pod: Raw, pool: PoolPlan) -> tuple[int, int, int]:
    main = next(iter(pod.get("containers") or ()), {})
    limits = (main.get("resources") or {}).get("limits") or {}
    return (
        int(parse_millicpu(limits.get(pool.hardware.resource_name, "0")) / 1000),
        int(parse_millicpu(limits.get("cpu", "0"))),
        parse_bytes(limits.get("memory", "0")),
    )


def _planned_pod(model: ModelPlan) -> tuple[int, int, int]:
    return model.parallelism.gpus_per_pod, model.resources.cpu * 1000, model.resources.memory_bytes


def _needs_room(model: ModelPlan, live: _Live | None, pool: PoolPlan) -> bool:
    """Whether it needs more of the pool than it holds there, while it is updated too."""
    placement = model.placement
    if not placement.replicas:
        return False
    if live is None or not live.stands_on(pool) or live.pods_per_replica != model.parallelism.pods_per_replica:
        return True
    more = placement.replicas + placement.max_surge > live.replicas
    return more or any(planned > there for planned, there in zip(_planned_pod(model), live.pod(pool), strict=True))


def _cannot_roll(
    plan: ClusterPlan, planned: Mapping[ObjectKey, ModelPlan], live: Mapping[ObjectKey, _Live], giving: Sequence[Giving]
) -> Iterator[Diagnosis]:
    """A rolling update that has to see a new pod ready before an old one may end, on nodes that have no room for it until then."""
    leaving = {given.key for given in giving if not given.remaining}
    for index, (key, model) in enumerate(planned.items()):
        old, pool = live.get(key), plan.pool(model.node_pool)
        if old is None or not old.replicas or old.gave_room or old.pod(pool) == _planned_pod(model):
            continue
        if old.replicas > model.placement.replicas - model.placement.max_unavailable:
            continue
        free = dict.fromkeys(pool.nodes.names, pool.allocatable.gpus)
        for workload in live.values():
            for node, pods in workload.pods_on.items():
                if node in free and workload.key not in leaving:
                    free[node] -= pods * workload.pod(pool)[0]
        largest = max(free.values(), default=0)
        if model.parallelism.gpus_per_pod > largest:
            yield Diagnosis(
                f"models[{index}].replicas",
                "CannotRoll",
                f"{old.replicas} pods of {old.pod(pool)[0]} GPUs become {model.placement.replicas} of {model.parallelism.gpus_per_pod}: its rolling update "
                f"needs a new pod ready before an old one may end, and no node of {pool.name} has more than {max(largest, 0)} GPUs free. Do it in two "
                f"steps: update with replicas: 0, then with replicas: {model.placement.replicas}",
            )


def _told(giving: Iterable[Giving]) -> Iterator[Diagnosis]:
    for given in giving:
        yield Diagnosis.warning(
            str(given.key),
            "GivesRoom",
            f"goes from {given.replicas} to {given.remaining} replicas and gives {given.gpus} GPUs of {given.pool} before "
            f"{_names(given.takers)} {'starts' if len(given.takers) == 1 else 'start'}",
        )


def _told_restoring(
    planned: Mapping[ObjectKey, ModelPlan], restoring: Iterable[Restoring], giving: Sequence[Giving]
) -> Iterator[Diagnosis]:
    for one in restoring:
        if one.replicas >= one.planned:
            continue
        first = [given.key for given in giving if given.pool == one.pool]
        after = f", once {_names(first)} {'has' if len(first) == 1 else 'have'} given room" if first else ""
        yield Diagnosis.warning(
            f"models[{list(planned).index(one.key)}].replicas",
            "RestoresReplicas",
            f"{one.key.namespace}/{one.key.name} runs {one.replicas}: an update that did not end had scaled it down to give room; this one brings "
            f"it back to {one.planned}{after}",
        )


def _names(keys: Sequence[ObjectKey]) -> str:
    return ", ".join(f"{key.namespace}/{key.name}" for key in keys)
