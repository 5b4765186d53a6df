"""The plan on the nodes that are there: pools by selector get the names of the nodes that match, and what is missing is told apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from infra.config.cluster import StackConfig
from infra.diagnosis import Diagnosis
from infra.errors import NumawiseError
from infra.observe.model import ClusterObservation, ObservedNode
from infra.observe.node_fit import matches
from infra.plan.cluster import plan_stack
from infra.plan.model import ClusterPlan, ModelPlan, PoolPlan
from infra.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Starved:
    """The models of a pool that the nodes which are there cannot hold, and why."""

    pool: str
    models: tuple[str, ...]
    why: Diagnosis


def with_selected_nodes(plan: ClusterPlan, seen: ClusterObservation, *, pool_label: str) -> ClusterPlan:
    """Pools by selector with the names of the nodes that match, as many as the plan counts: first those that carry `pool_label` with the pool's name
    already, then by name. Other pools stay as they are."""
    taken = {name for pool in plan.node_pools if pool.nodes.names_given for name in pool.nodes.names}
    pools: list[PoolPlan] = []
    for pool in plan.node_pools:
        if pool.nodes.names_given or not pool.nodes.selector:
            pools.append(pool)
            continue
        found = sorted(
            (node for node in seen.nodes if node.name not in taken and matches(pool.nodes.selector, node.labels)),
            key=lambda node: (node.labels.get(pool_label) != pool.name, node.name),
        )
        names = tuple(node.name for node in found[: pool.nodes.count])
        taken |= set(names)
        pools.append(replace(pool, nodes=replace(pool.nodes, names=names, names_given=True)))
    return replace(plan, node_pools=tuple(pools))


def without_missing_nodes(plan: ClusterPlan, seen: ClusterObservation, *, planned: ClusterPlan) -> ClusterPlan:
    """The plan with the nodes alone that are there; everything else of it stays as decided, but that no pod surges where one is missing.

    `planned` is the plan before nodes of pools by selector were found. Room for a further pod was proven on all nodes: on fewer an update that waits for it may never end.
    """
    there = {node.name for node in seen.nodes}
    pools = tuple(
        replace(pool, nodes=replace(pool.nodes, names=tuple(name for name in pool.nodes.names if name in there)))
        if pool.nodes.names_given
        else pool
        for pool in plan.node_pools
    )
    short = {pool.name for pool in pools if pool.nodes.names_given and len(pool.nodes.names) < planned.pool(pool.name).nodes.count}
    return replace(
        plan, node_pools=pools, models=tuple(_in_place(model) if model.node_pool in short else model for model in plan.models)
    )


def _in_place(model: ModelPlan) -> ModelPlan:
    """The model updated one pod after the other."""
    if not model.placement.max_surge:
        return model
    unavailable = max(model.placement.max_unavailable, 1)
    return replace(model, placement=replace(model.placement, max_surge=0, max_unavailable=unavailable))


def lost_labels(plan: ClusterPlan, seen: ClusterObservation, labelled: Iterable[str], *, pool_label: str) -> Iterator[Diagnosis]:
    """A warning for each node whose labels the state holds and the node does not: it was registered anew, or somebody took them off."""
    for index, pool in enumerate(plan.node_pools):
        for name in pool.nodes.names if pool.nodes.names_given else ():
            node = seen.node(name)
            if node is not None and name in labelled and pool_label not in node.labels:
                yield Diagnosis.warning(
                    f"nodePools[{index}]",
                    "LabelsLost",
                    f"{name} has lost the labels of {pool.name}, and the state does not know it: no model pod starts there; run `pulumi up --refresh`",
                )


def selection(planned: ClusterPlan, found: ClusterPlan, nodes: tuple[ObservedNode, ...]) -> Iterator[Diagnosis]:
    """What is to be said of pools by selector: fewer or more nodes than the plan counts."""
    for index, (pool, bound) in enumerate(zip(planned.node_pools, found.node_pools, strict=True)):
        if pool.nodes.names_given or not pool.nodes.selector:
            continue
        path, chosen = (
            f"nodePools[{index}].nodeSelector",
            ",".join(f"{key}={value}" for key, value in sorted(pool.nodes.selector.items())),
        )
        match = [node.name for node in nodes if matches(pool.nodes.selector, node.labels)]
        if bound.nodes.count < pool.nodes.count:
            yield Diagnosis.warning(
                path,
                "NodesMissing",
                f"{chosen} matches {len(match)} nodes, and the plan counts {pool.nodes.count}; label further ones, or set nodes",
            )
        elif len(match) > pool.nodes.count:
            left = [name for name in match if name not in bound.nodes.names]
            yield Diagnosis.warning(
                path,
                "NodesLeftOver",
                f"{chosen} matches {len(match)} nodes, and the plan counts {pool.nodes.count}: {', '.join(left[:5])}{' ...' if len(left) > 5 else ''} "
                f"{'gets' if len(left) == 1 else 'get'} no label of the pool and no pods; set nodes: {len(match)} to use all",
            )


def starved_models(config: StackConfig, plan: ClusterPlan, seen: ClusterObservation) -> tuple[Starved, ...]:
    """For each pool that lacks nodes: whether those that are there hold its models, by the proof of a plan with what is decided already."""
    there = {node.name for node in seen.nodes}
    found: list[Starved] = []
    for index, pool in enumerate(plan.node_pools):
        models = plan.models_of(pool.name)
        counted = len(config.node_pools[index].names_of_nodes)
        names = tuple(name for name in pool.nodes.names if name in there) if pool.nodes.names_given else pool.nodes.names
        if len(names) == counted or not models:
            continue
        why = _why_not(config, plan, index, names)
        if why:
            missing = [name for name in pool.nodes.names if name not in there]
            who = f" ({', '.join(missing[:5])} {'is' if len(missing) == 1 else 'are'} no node of it)" if missing else ""
            one = len(models) == 1
            diagnosis = Diagnosis(
                f"nodePools[{index}]",
                "NodesMissing",
                f"{len(names)} of the {counted} nodes of {pool.name} are in the cluster{who}, and {', '.join(model.name for model in models)} "
                f"{'does' if one else 'do'} not fit on {'it' if len(names) == 1 else 'them'}: {why} Until then {'it stays' if one else 'they stay'} as "
                f"{'it is' if one else 'they are'}, and the rest of the stack goes on",
            )
            found.append(Starved(pool=pool.name, models=tuple(model.name for model in models), why=diagnosis))
    return tuple(found)


def _why_not(config: StackConfig, plan: ClusterPlan, index: int, names: tuple[str, ...]) -> str:
    """Why the pool's models do not fit on the named nodes; empty where they do."""
    if not names:
        return "none is left. Correct nodeNames or nodeSelector, or add the nodes."
    pool = config.node_pools[index]
    decided = {model.name: model for model in plan.models_of(pool.name)}
    models = tuple(
        model.model_copy(
            update={
                "tensor_parallel_size": decided[model.name].parallelism.tensor_parallel_size,
                "pipeline_parallel_size": decided[model.name].parallelism.pipeline_parallel_size,
                "resources": model.resources.model_copy(
                    update={
                        "cpu": str(decided[model.name].resources.cpu),
                        "memory": format_bytes(decided[model.name].resources.memory_bytes),
                    }
                ),
            }
        )
        for model in config.models
        if model.node_pool == pool.name and model.name in decided
    )
    smaller = pool.model_copy(update={"node_names": names, "nodes": None, "kubelet": dict(plan.node_pools[index].kubelet.fields)})
    try:
        plan_stack(config.model_copy(update={"node_pools": (smaller,), "models": models}))
    except NumawiseError as error:
        return f"{error.problems[0].sentence.rstrip('.')}. Correct nodeNames or nodeSelector, add the node, or lower replicas."
    return ""
