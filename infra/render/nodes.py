"""Labels of existing nodes, and the kubelet drop-in of each pool."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from infra.plan.model import ClusterPlan, PoolPlan
from infra.render.labels import FIELD_MANAGER, KUBELET_CONFIG, POOL, field_manager
from infra.render.part import Object, Part

POOL_TOKEN = "numawise:gpu:NodePool"


@dataclass(frozen=True, kw_only=True)
class NodeResources:
    """What the engine's state holds of nodes' labels. A patch is named by its node alone: a renamed pool, or a node that moves to another, is an update of
    the labels and no deletion, which under our one field manager would take the new labels off as well.

    `released`: nodes that have left the cluster. Deleting their patch would make them anew, so that the state forgets it in two steps: it is retained in
    this update, and no longer declared in the next. `there` is a node that exists: where a refresh within the update has dropped the patch already, what is
    declared is made anew, as a patch without content of that one.
    """

    earlier_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # node -> names of its patch in the state
    released: tuple[str, ...] = ()
    there: str = ""


def node_pool_part(pool: PoolPlan, *, stack: str, nodes: NodeResources | None = None) -> Part:
    """Labels each node by a patch. The nodes are not ours: destroy takes the labels off and leaves the nodes. `nodes.released` become children too."""
    kubelet, nodes = pool.kubelet, nodes or NodeResources()
    facts = {
        "nodeShape": pool.hardware.node_shape,
        "sku": pool.hardware.sku,
        "nodes": list(pool.nodes.names),
        "gpusPerNode": sum(len(node.gpus) for node in pool.hardware.numa_nodes),
        "topologyManagerPolicy": kubelet.topology_manager_policy,
        "cpuManagerPolicy": kubelet.cpu_manager_policy,
        "memoryManagerPolicy": kubelet.memory_manager_policy,
        "kubeletConfigHash": kubelet.config_hash,
        "idleGpus": pool.idle_gpus,
        "strandedGpus": pool.stranded_gpus,
    }
    children = [
        _patch(patch.node, _label_patch(patch, stack), nodes.earlier_names.get(patch.node) or (f"{pool.name}-node/{patch.node}",))
        for patch in node_labels(pool)
    ]
    for node in nodes.released:
        bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": nodes.there or node}}
        children.append(replace(_patch(node, bare, nodes.earlier_names.get(node, ())), released=True, retain=True))
    return Part(token=POOL_TOKEN, name=pool.name, facts=facts, children=tuple(children))


def _patch(node: str, manifest: dict[str, Any], earlier_names: tuple[str, ...]) -> Object:
    name = f"node/{node}"
    return Object(manifest=manifest, name=name, resource_name=name, earlier_names=earlier_names, patch=True)


@dataclass(frozen=True, kw_only=True)
class NodeLabels:
    """Labels that we add to a node that is not ours: a patch, never an object to be applied or deleted."""

    node: str
    pool: str
    labels: dict[str, str]


def pool_labels(pool: PoolPlan) -> dict[str, str]:
    """The labels of every node of the pool. Model pods select the second, so that they wait for a node with their own plan's kubelet."""
    return {**pool.nodes.labels, POOL: pool.name, KUBELET_CONFIG: pool.kubelet.config_hash}


def node_labels(pool: PoolPlan) -> tuple[NodeLabels, ...]:
    """One for each named node; none where a pool is planned by count alone."""
    if not pool.nodes.names_given:
        return ()
    return tuple(NodeLabels(node=node, pool=pool.name, labels=pool_labels(pool)) for node in pool.nodes.names)


def _label_patch(patch: NodeLabels, stack: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": patch.node,
            "labels": patch.labels,
            # A name of our own for the field manager: without it each patch gets a random one and destroy could not find its
            # labels.
            "annotations": {FIELD_MANAGER: field_manager(stack)},
        },
    }


def node_selector(pool: PoolPlan) -> dict[str, str]:
    """Selects the pool's nodes: by our own label where we set it."""
    if pool.nodes.names_given:
        return {**pool.nodes.selector, POOL: pool.name}
    return dict(pool.nodes.selector) or {POOL: pool.name}


def label_commands(plan: ClusterPlan) -> str:
    """What to run by hand where the objects are applied without Pulumi."""
    lines = ["# Node labels are patches of nodes that are not ours. Applying the rendered objects by hand, run these first:"]
    for pool in plan.node_pools:
        if not pool.nodes.names_given and not pool.nodes.selector:
            lines.append(
                f"# Pool {pool.name} is planned by count alone ({len(pool.nodes.names)} nodes): each of its nodes needs {POOL}={pool.name}"
            )
        for patch in node_labels(pool):
            pairs = " ".join(shlex.quote(f"{key}={value}") for key, value in sorted(patch.labels.items()))
            lines.append(f"kubectl label node {patch.node} --overwrite {pairs}")
    return "\n".join(lines) + "\n"


def kubelet_drop_in(pool: PoolPlan) -> str:
    """The pool's KubeletConfiguration drop-in, as it has to stand beside any base file. Every list stands in full: a drop-in's list replaces the base file's."""
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **pool.kubelet.drop_in,
    }
    return yaml.safe_dump(_plain(document), sort_keys=True, default_flow_style=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
