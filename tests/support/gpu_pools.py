"""Builders for node shapes and pod shapes, in the short form of issue reports: 2x{112 CPUs, 1007Gi, 4 GPUs}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.catalog.types import NodeShape, NumaNode
from infra.plan.pod_shape import PodShape
from infra.plan.pool.decision import PoolDecision, decide_pool
from infra.plan.pool.gpu_pool import GpuPool
from infra.plan.pool.messages import PodNames, PoolNames
from infra.plan.pool.reading import read_pool
from infra.plan.pool.requirements import PoolRequirements
from infra.units import GIB, parse_bytes


def node_shape(
    numa_nodes: int = 2,
    cpus: int = 112,
    memory: str = "1007Gi",
    gpus: int = 4,
    *,
    threads: int = 2,
    name: str = "dgx-h100",
    hides_numa: bool = False,
    distances: bool = True,
    hugepages: tuple[tuple[str, int], ...] = (),
    memories: tuple[str, ...] | None = None,
) -> NodeShape:
    """Equal NUMA nodes; first threads of all cores are numbered before the second ones, as Linux does on x86."""
    cores_per_node = cpus // threads
    total_cores = cores_per_node * numa_nodes
    nodes = []
    for node in range(numa_nodes):
        cores = tuple(
            tuple(node * cores_per_node + core + thread * total_cores for thread in range(threads))
            for core in range(cores_per_node)
        )
        nodes.append(
            NumaNode(
                id=node,
                cpus=tuple(sorted(cpu for core in cores for cpu in core)),
                cores=cores,
                memory_bytes=parse_bytes(memories[node] if memories else memory),
                gpus=tuple(range(node * gpus, (node + 1) * gpus)),
                distances=tuple(10 if other == node else 21 for other in range(numa_nodes)) if distances else None,
                hugepages=hugepages,
            )
        )
    return NodeShape(
        id=name,
        accelerator="h100-sxm5-80gb",
        gpus=gpus * numa_nodes,
        numa_nodes=tuple(nodes),
        threads_per_core=threads,
        numa_in_guest=False if hides_numa else None,
    )


def pod_shape(gpus: int = 4, cpu: int | None = 32, memory: str | None = "128Gi", **fields: Any) -> PodShape:
    """A model's pod; cpu or memory None: the stack file gives none, and 2 CPUs a GPU with 64 GiB are proposed."""
    return PodShape(
        **{
            "gpus": gpus,
            "cpu": cpu if cpu is not None else 2 * (gpus + 2),
            "memory_bytes": parse_bytes(memory) if memory is not None else 64 * GIB,
            "cpu_given": cpu is not None,
            "copies": 1,
            **fields,
        }
    )


def requirements(shape: NodeShape, *pods: PodShape, kubelet: Mapping[str, Any] | None = None, **fields: Any) -> PoolRequirements:
    return PoolRequirements(
        **{
            "shape": shape,
            "nodes": 1,
            "kubernetes_version": "1.37",
            "user_kubelet": kubelet or {},
            "pods": pods,
            "resource_name": "nvidia.com/gpu",
            **fields,
        }
    )


def gpu_pool(shape: NodeShape, *pods: PodShape, **fields: Any) -> GpuPool:
    """A pool whose requirements have nothing wrong."""
    read = read_pool(requirements(shape, *pods, **fields))
    assert read.pool is not None, read.problems
    return read.pool


def pool_names(count: int, path: str = "nodePools[0]") -> PoolNames:
    """Pods called m0, m1, ... of models[0], models[1], ..."""
    return PoolNames(path=path, pods=tuple(PodNames(f"m{number}", f"models[{number}]") for number in range(count)))


def decide(shape: NodeShape, *pods: PodShape, kubelet: Mapping[str, Any] | None = None, **fields: Any) -> PoolDecision:
    return decide_pool(requirements(shape, *pods, kubelet=kubelet, **fields), pool_names(len(pods)))
