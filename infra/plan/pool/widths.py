"""What can be said of a pod and a topology policy without a proof, from the number of NUMA nodes that each resource needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.catalog.types import NodeShape
from infra.plan.pod_shape import PodShape
from infra.plan.pool.machine import Widths, cpu_widths, gpu_widths, memory_widths
from infra.units import format_gib

GPUS_FIELD = "tensorParallelSize"  # below a model: what an error about the number of GPUs points at


@dataclass(frozen=True)
class Conflict:
    """Why a policy cannot admit a pod even on an empty node: the field of its model that the error points at, the sentence, and a remedy."""

    field: str
    sentence: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class NodeWidths:
    """The widths of one machine, as far as the kubelet's managers look at them."""

    shape: NodeShape
    gpus: Widths
    cpus: Widths
    memory: Widths | None  # None without the Static memory manager
    pins_cpus: bool

    @classmethod
    def of(cls, shape: NodeShape, *, reserved_memory: Mapping[int, int] | None, pins_cpus: bool) -> NodeWidths:
        return cls(
            shape=shape,
            gpus=gpu_widths(shape),
            cpus=cpu_widths(shape),
            memory=None if reserved_memory is None else memory_widths(shape, reserved_memory),
            pins_cpus=pins_cpus,
        )

    def spans(self, pod: PodShape) -> int:
        """NUMA nodes that the pod's GPUs need; 0 where the devices have no NUMA node or the machine has too few."""
        return self.gpus.nodes_of(pod.gpus)

    def with_enough_cpus(self, pod: PodShape) -> PodShape:
        """The pod with as many CPUs as need the NUMA nodes of its GPUs, in whole cores and evenly; unchanged where the CPUs are given.

        Only then does the CPU manager give it CPUs on each of these nodes, and `restricted` admits it.
        """
        width = self.spans(pod)
        if pod.cpu_given or not self.pins_cpus or width < 2 or len(self.cpus.capacities) < width:
            return pod
        return pod.with_cpu(max(pod.cpu, self.enough_cpus(width)))

    def enough_cpus(self, width: int) -> int:
        step = (self.shape.threads_per_core or 1) * width
        return -(-self.cpus.least_of_width(width) // step) * step

    def conflict(self, policy: str, pod: PodShape) -> Conflict | None:
        """Why `single-numa-node` or `restricted` refuses the pod's main container on an empty node; None where this alone does not refuse it."""
        if policy not in ("single-numa-node", "restricted"):
            return None
        needs = [("GPUs", pod.gpus, self.spans(pod))]
        if self.pins_cpus:
            needs.append(("CPUs", pod.cpu, self.cpus.nodes_of(pod.cpu)))
        if self.memory is not None:
            needs.append(("memory", pod.memory_bytes, self.memory.nodes_of(pod.memory_bytes)))
        return self._not_single(needs) if policy == "single-numa-node" else self._not_equal(needs)

    def _not_single(self, needs: list[tuple[str, int, int]]) -> Conflict | None:
        for name, request, width in needs:
            if width < 2:
                continue
            if name == "GPUs":
                return Conflict(
                    GPUS_FIELD,
                    f"{request} GPUs need {width} NUMA nodes of {self.shape.name} ({self._each(self.gpus)}); single-numa-node admits 1",
                    f"Use {self.gpus.largest}, or topologyManagerPolicy restricted with more than {self.cpus.least_of_width(width) - 1} CPUs for the pod",
                )
            if name == "CPUs":
                return Conflict(
                    "resources.cpu",
                    f"{request} CPUs need {width} NUMA nodes of {self.shape.name} ({self._each(self.cpus)}); single-numa-node admits 1",
                    f"Use fewer than {self.cpus.largest}, less what the node keeps for itself, or another topologyManagerPolicy",
                )
            assert self.memory is not None
            return Conflict(
                "resources.memory",
                f"{format_gib(request)} of memory need {width} NUMA nodes of {self.shape.name} ({format_gib(self.memory.largest)} at most on one); "
                "single-numa-node admits 1",
                f"Use at most {format_gib(self.memory.largest)}, or memoryManagerPolicy None",
            )
        return None

    def _not_equal(self, needs: list[tuple[str, int, int]]) -> Conflict | None:
        counted = [(name, request, width) for name, request, width in needs if width]
        by_memory = [width for name, _, width in counted if name == "memory" and width > 1]
        widths = {width for _, _, width in counted}
        if len(widths) <= 1 and not by_memory:
            return None
        words = ", ".join(
            f"{format_gib(request) if name == 'memory' else f'{request} {name}'} need {width}" for name, request, width in counted
        )
        most = max(widths)
        if len(widths) <= 1:
            return Conflict(
                "resources.memory",
                f"restricted would admit the pod only as long as its memory needs {most} NUMA nodes, and the catalog's memory is a lower bound: "
                "on a machine with more it would be refused",
                "Leave memoryManagerPolicy out, or set it to None",
            )
        narrow = [name for name, _, width in counted if width < most]
        fields = {"CPUs": "resources.cpu", "memory": "resources.memory", "GPUs": GPUS_FIELD}
        remedies = {
            "CPUs": f"ask for more than {self.cpus.least_of_width(most) - 1} CPUs",
            "memory": "set memoryManagerPolicy to None",
            "GPUs": f"ask for at most {self.cpus.largest} CPUs",
        }
        remedy = " and ".join(remedies[name] for name in narrow)
        return Conflict(
            fields[narrow[0]],
            f"restricted admits a pod of {self.shape.name} only where GPUs, CPUs and pinned memory need the same number of NUMA nodes; here {words}",
            f"{remedy[0].upper()}{remedy[1:]}",
        )

    def _each(self, widths: Widths) -> str:
        equal = len(set(widths.capacities)) == 1
        return f"{widths.largest} each" if equal else f"at most {widths.largest} on one"
