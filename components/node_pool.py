"""A pool of existing nodes: our labels on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from components.base import Component
from infra.plan.model import PoolPlan
from infra.render.labels import FIELD_MANAGER, field_manager
from infra.render.nodes import node_labels


@dataclass(frozen=True, kw_only=True)
class NodePoolArgs:
    stack: str
    pool: PoolPlan


class NodePool(Component):
    """Labels each node by a patch. The nodes are not ours: destroy takes the labels off and leaves the nodes."""

    def __init__(
        self,
        name: str,
        args: NodePoolArgs,
        *,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        pool = args.pool
        facts = {
            "nodeShape": pool.node_shape,
            "sku": pool.sku,
            "nodes": list(pool.nodes),
            "gpusPerNode": sum(len(node.gpus) for node in pool.numa_nodes),
            "topologyManagerPolicy": pool.kubelet.get("topologyManagerPolicy", "none"),
            "cpuManagerPolicy": pool.kubelet.get("cpuManagerPolicy", "none"),
            "memoryManagerPolicy": pool.kubelet.get("memoryManagerPolicy", "None"),
            "kubeletConfigHash": pool.kubelet_config_hash,
            "idleGpus": pool.idle_gpus,
            "strandedGpus": pool.stranded_gpus,
        }
        super().__init__("numawise:gpu:NodePool", name, facts, after=after, opts=opts)
        self.labels = [
            kubernetes.core.v1.NodePatch(
                f"{name}-node/{patch.node}",  # the slash keeps pool a-b, node c apart from pool a, node b-c
                metadata={
                    "name": patch.node,
                    "labels": patch.labels,
                    # A name of our own for the field manager: without it each patch gets a random one and destroy could not find
                    # its labels.
                    "annotations": {FIELD_MANAGER: field_manager(args.stack)},
                },
                opts=self.child(),
            )
            for patch in node_labels(pool)
        ]
        self.register_outputs(facts)
