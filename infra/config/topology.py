"""`topology:` - one machine's facts, as its own tools print them. An entry of the catalog's shapes.yaml has the same fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.config.base import CpuList, Groups, Indices, MemoryQuantity, NonNegativeInt, PositiveInt, Texts, Wire

MOST_NUMA_NODES = 1024  # MAX_NUMNODES, 2^10 on x86-64
MOST_GPUS = 256  # of one machine; the largest have 16 cards, or 64 partitions


class NumaNode(Wire):
    """One NUMA node; the list is in the order of the kernel's ids. What is left out is not known."""

    cpus: CpuList | None = Field(
        default=None, description='Logical CPUs, as lscpu prints them: "0-55,112-167"; "" on a node without CPUs.'
    )
    memory: MemoryQuantity | None = Field(
        default=None,
        description="What the kernel reports there at least (numactl -H), and at most 5 % more; huge pages included: 1006Gi.",
    )
    gpus: Annotated[Indices, Field(max_length=MOST_GPUS)] | None = Field(
        default=None, description="Indices of its GPUs in device order; [] where it has none."
    )
    nics: Texts = Field(default=(), description="Names of its network cards: mlx5_0.")
    distances: Indices = Field(default=(), description="Distance to each NUMA node in order, as numactl -H prints it.")
    hugepages: dict[str, NonNegativeInt] = Field(
        default_factory=dict, description="Preallocated huge pages: a page size of Linux (2Mi, 1Gi) and how many."
    )
    socket: NonNegativeInt | None = Field(
        default=None, description="Its processor socket, where the order of nodes does not tell it."
    )


class Topology(Wire):
    """What the catalog and an inline topology both say of a machine."""

    sku: str = Field(description="The accelerator: id, driver name, node label value or common name.")
    threads_per_core: PositiveInt | None = Field(default=None, description="Thread(s) per core of lscpu.")
    numa_nodes: tuple[NumaNode, ...] = Field(
        default=(), strict=False, max_length=MOST_NUMA_NODES, description="All NUMA nodes, in order of id."
    )
    link_domains: Groups | None = Field(
        default=None,
        description="Groups of GPU indices joined by NVLink or xGMI at full rate; [] over PCIe alone. Inline it may be left out where the accelerator tells it.",
    )
    switch_groups: Groups | None = Field(default=None, description="Groups of GPU indices under one PCIe switch (PIX or PXB).")
    sockets: PositiveInt | None = Field(default=None, description="Processor sockets.")
    virtual_machine: bool | None = Field(default=None, description="Whether it is a virtual machine.")
    numa_in_guest: bool | None = Field(default=None, description="false: a virtual machine that hides NUMA from its guest.")
    partition: str | None = Field(
        default=None, description="AMD's partition mode, compute and memory: CPX_NPS4; GPU indices then count partitions."
    )


class InlineNumaNode(NumaNode):
    """One NUMA node of an inline topology: its CPUs and memory are needed to plan."""

    # the same facts, no longer optional
    cpus: CpuList = Field(description=NumaNode.model_fields["cpus"].description)  # pyright: ignore[reportIncompatibleVariableOverride]
    memory: MemoryQuantity = Field(description=NumaNode.model_fields["memory"].description)  # pyright: ignore[reportIncompatibleVariableOverride]


class InlineTopology(Topology):
    """A node shape given in the stack file instead of by its catalog name."""

    numa_nodes: tuple[InlineNumaNode, ...] = Field(  # pyright: ignore[reportIncompatibleVariableOverride]
        min_length=1, max_length=MOST_NUMA_NODES, strict=False, description=Topology.model_fields["numa_nodes"].description
    )
