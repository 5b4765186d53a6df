"""What can be said of a pod and a topology policy without a proof, from the number of NUMA nodes that each resource needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from itertools import product

from infra.catalog.types import NodeShape
from infra.offers import LEFT_OUT, MODEL, POOL, Offer
from infra.plan.pod_resources import cpu_offer, memory_offer
from infra.plan.pod_shape import PodShape
from infra.plan.pool.machine import MOST_MEMORY, Widths, cpu_widths, gpu_widths, memory_widths
from infra.units import format_gib

GPUS_FIELD = "tensorParallelSize"  # below a model: what an error about the number of GPUs points at


UNPINNED = (
    Offer.of(
        "write memoryManagerPolicy: None",
        (f"{POOL}.kubelet.memoryManagerPolicy", "None"),
        (f"{POOL}.kubelet.reservedMemory", LEFT_OUT),
    ),
)


def policy_offers(*policies: str) -> tuple[Offer, ...]:
    """Topology policies, the best first."""
    return tuple(
        Offer.of(f"write topologyManagerPolicy: {policy}", (f"{POOL}.kubelet.topologyManagerPolicy", policy), kind="policy")
        for policy in policies
    )


def combine(offers: Sequence[Offer]) -> Offer:
    """Several changes that only together help."""
    kind = offers[0].kind if len(offers) == 1 else "combined"
    return Offer(" and ".join(offer.words for offer in offers), tuple(c for offer in offers for c in offer.changes), kind)


@dataclass(frozen=True)
class Conflict:
    """Why a policy cannot admit a pod even on an empty node: the field of its model that the error points at, the sentence, and what may help."""

    field: str
    sentence: str
    offers: tuple[Offer, ...] = dataclass_field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True)
class NodeWidths:
    """The widths of one machine, as far as the kubelet's managers look at them."""

    shape: NodeShape
    gpus: Widths
    cpus: Widths
    memory: Widths | None  # of the stated memory; None without the Static memory manager
    most_memory: Widths | None  # with all that the shape may stand for
    pins_cpus: bool

    @classmethod
    def of(cls, shape: NodeShape, *, reserved_memory: Mapping[int, int] | None, pins_cpus: bool) -> NodeWidths:
        return cls(
            shape=shape,
            gpus=gpu_widths(shape),
            cpus=cpu_widths(shape),
            memory=None if reserved_memory is None else memory_widths(shape, reserved_memory),
            most_memory=None if reserved_memory is None else memory_widths(shape, reserved_memory, MOST_MEMORY),
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

    def with_least_cpus(self, pod: PodShape) -> PodShape:
        """As with_enough_cpus(), but the fewest whole cores that need the NUMA nodes, where an even share of them is more than a machine has."""
        enough = self.with_enough_cpus(pod)
        if enough.cpu == pod.cpu or enough.cpu > self.enough_cpus(self.spans(pod)):
            return enough
        return pod.with_cpu(max(pod.cpu, self.least_cpus(self.spans(pod))))

    def least_cpus(self, width: int) -> int:
        threads = self.shape.threads_per_core or 1
        return -(-self.cpus.least_of_width(width) // threads) * threads

    def wide_enough(self, width: int) -> tuple[Offer, ...]:
        """CPUs that need `width` NUMA nodes: evenly, or as few as that takes."""
        if len(self.cpus.capacities) < width:
            return ()
        counts = dict.fromkeys((self.enough_cpus(width), self.least_cpus(width)))
        return tuple(cpu_offer(count, "ask for {} CPUs") for count in counts)

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
                    (
                        Offer.of(f"use {self.gpus.largest}", (f"{MODEL}.{GPUS_FIELD}", self.gpus.largest)),
                        *policy_offers("restricted", "best-effort"),
                    ),
                )
            if name == "CPUs":
                return Conflict(
                    "resources.cpu",
                    f"{request} CPUs need {width} NUMA nodes of {self.shape.name} ({self._each(self.cpus)}); single-numa-node admits 1",
                    (*self.fewer_cpus(self.cpus.largest), *policy_offers("restricted", "best-effort")),
                )
            assert self.memory is not None
            return Conflict(
                "resources.memory",
                f"{format_gib(request)} of memory need {width} NUMA nodes of {self.shape.name} ({format_gib(self.memory.largest)} at most on one); "
                "single-numa-node admits 1",
                (memory_offer(self.memory.largest), *UNPINNED),
            )
        return None

    def _not_equal(self, needs: list[tuple[str, int, int]]) -> Conflict | None:
        counted = [(name, request, width) for name, request, width in needs if width]
        by_memory = [
            (request, width) for name, request, width in counted if name == "memory" and self._most(request) not in (0, width)
        ]
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
                f"restricted admits the pod only on some of the machines that {self.shape.name} stands for: {format_gib(by_memory[0][0])} of memory need "
                f"{most} NUMA nodes with the memory that is stated, and {self._most(by_memory[0][0])} with the 5 % more that may be there",
                UNPINNED,
            )
        narrow = [name for name, _, width in counted if width < most]
        if [name for name, _, width in counted if width == most] == ["CPUs"]:
            return Conflict(
                "resources.cpu",
                f"restricted admits a pod of {self.shape.name} only where GPUs, CPUs and pinned memory need the same number of NUMA nodes; here {words}",
                (*self.fewer_cpus(self.cpus.largest), *policy_offers("best-effort")),
            )
        fields = {"CPUs": "resources.cpu", "memory": "resources.memory", "GPUs": GPUS_FIELD}
        ways = {
            "CPUs": self.wide_enough(most),
            "memory": UNPINNED[:1],
            "GPUs": (),
        }
        combined = [combine(chosen) for chosen in product(*(ways[name] for name in narrow))]
        return Conflict(
            fields[narrow[0]],
            f"restricted admits a pod of {self.shape.name} only where GPUs, CPUs and pinned memory need the same number of NUMA nodes; here {words}",
            (*combined, *policy_offers("best-effort")),
        )

    def _most(self, request: int) -> int:
        return 0 if self.most_memory is None else self.most_memory.nodes_of(request)

    def fewer_cpus(self, most: int) -> tuple[Offer, ...]:
        """Whole cores below a number of CPUs: what the node keeps for itself comes off."""
        threads = self.shape.threads_per_core or 1
        counts = dict.fromkeys(most - most % threads - cores * threads for cores in (0, 1, 2, 4, 8))
        return tuple(cpu_offer(count, "ask for {} CPUs") for count in counts if count > 0)

    def _each(self, widths: Widths) -> str:
        equal = len(set(widths.capacities)) == 1
        return f"{widths.largest} each" if equal else f"at most {widths.largest} on one"
