"""A split of a model over GPUs and pods, and what bounds it: the machines, and what is fixed."""

from __future__ import annotations

from dataclasses import dataclass

from infra.catalog.types import Accelerator, NodeShape
from infra.plan.architecture.partition import ParallelSizes


@dataclass(frozen=True, kw_only=True)
class Size:
    """One split of a model over GPUs. `gpus_per_pod` x `pods_per_replica` = tensor x pipeline x data parallel."""

    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    expert_parallel: bool
    gpus_per_pod: int
    pods_per_replica: int

    @property
    def gpus(self) -> int:
        return self.gpus_per_pod * self.pods_per_replica

    @property
    def parallel(self) -> ParallelSizes:
        """The sizes without the pods."""
        return ParallelSizes(
            tensor_parallel_size=self.tensor_parallel_size,
            pipeline_parallel_size=self.pipeline_parallel_size,
            data_parallel_size=self.data_parallel_size,
            expert_parallel=self.expert_parallel,
        )

    def __str__(self) -> str:
        parts = [f"tensor parallel {self.tensor_parallel_size}"]
        if self.pipeline_parallel_size > 1:
            parts.append(f"pipeline parallel {self.pipeline_parallel_size}")
        if self.data_parallel_size > 1:
            parts.append(f"data parallel {self.data_parallel_size}")
        if self.expert_parallel:
            parts.append("expert parallel")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The equal machines that a model may use: `nodes` of one shape, with its accelerator."""

    shape: NodeShape
    accelerator: Accelerator
    nodes: int


@dataclass(frozen=True, kw_only=True)
class SizeConstraints:
    """What the user fixed, and what the pool allows. None: decided.

    `gpus_per_numa_node_limit`: the pool's policy admits a pod on one NUMA node only (single-numa-node), so a pod takes at most this
    many GPUs. `rdma`: GPUDirect RDMA between the machines is declared; tensor parallel over machines is refused without it.
    `pods_per_node`: pods of the model on one machine (1 with required anti-affinity).
    """

    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    expert_parallel: bool | None = None
    quantization: str | None = None
    replicas: int = 1
    pods_per_node: int | None = None
    gpus_per_numa_node_limit: int | None = None
    rdma: bool = False
    max_num_seqs: int = 256


UNCONSTRAINED = SizeConstraints()


def arrange(tensor: int, pipeline: int, data: int, experts: bool, gpus_per_node: int) -> Size | None:
    """The pods of one replica: one where it fits a machine, else equal pods on as few machines as hold whole tensor-parallel
    groups.

    A tensor-parallel group larger than a machine takes machines whole. None where no equal pods exist.
    """
    unit = min(tensor, gpus_per_node)
    units, rest = divmod(tensor * pipeline * data, unit)
    for in_a_pod in range(gpus_per_node // unit, 0, -1):
        if rest == 0 and units % in_a_pod == 0:
            return Size(
                tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, data_parallel_size=data, expert_parallel=experts,
                gpus_per_pod=in_a_pod * unit, pods_per_replica=units // in_a_pod,
            )  # fmt: skip
    return None
