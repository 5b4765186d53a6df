"""What the catalog knows: accelerators, node shapes, models, pins. None means that a fact is not known; nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from infra.catalog.entries import Confidence, Entry, Fact
from infra.catalog.vendors import vendors
from infra.config.base import NonNegativeInt, PositiveInt, Texts
from infra.diagnosis import shown
from infra.units import GIB

Vendor = Literal["nvidia", "amd"]
FabricKind = Literal["nvlink-switch", "nvlink-pairs", "xgmi-mesh", "xgmi-partial", "pcie"]
Gib = Annotated[float, Field(ge=0)]


def _range(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 2 or any(isinstance(v, bool) or not isinstance(v, int | float) for v in value):
        raise ValueError(f"{shown(value)} is no pair [low, high] of numbers")
    if value[0] > value[1]:
        raise ValueError(f"low {value[0]} is above high {value[1]}")
    return float(value[0]), float(value[1])


def _digest(value: str) -> str:
    if not (value.startswith("sha256:") and len(value) == 71):
        raise ValueError(f"is {shown(value)}; sha256: and 64 hexadecimal digits are expected")
    return value


class AcceleratorMemory(Fact):
    """Memory of one device, GiB of 2^30 bytes unless the name says otherwise."""

    marketing_gb: PositiveInt | None = Field(
        default=None, description="The size in its name, decimal GB; `H100 80GB` is found by it."
    )
    torch_gib: Gib | None = Field(
        default=None,
        description="torch's total_memory, GiB, which vLLM multiplies by gpu_memory_utilization: less than nvidia-smi's total.",
    )
    torch_range_gib: Annotated[tuple[float, float], BeforeValidator(_range)] | None = Field(
        default=None, description="[low, high] of torch's total_memory as seen over drivers, GiB."
    )
    torch_vf_gib: Gib | None = Field(
        default=None, description="torch's total_memory of the same device as an SR-IOV virtual function, GiB."
    )
    smi_mib: PositiveInt | None = Field(default=None, description="memory.total of nvidia-smi, MiB.")

    @property
    def total_bytes(self) -> int | None:
        """torch's total_memory in bytes, or None where nobody printed it."""
        return None if self.torch_gib is None else round(self.torch_gib * GIB)


class Fabric(Fact):
    """How devices of this kind reach each other inside a node."""

    kind: FabricKind = Field(description="nvlink-switch, nvlink-pairs (bridges), xgmi-mesh (all with all), xgmi-partial or pcie.")
    links: PositiveInt | None = Field(default=None, description="Links of one device into the fabric.")
    domain_size: PositiveInt | None = Field(default=None, description="Most devices that one fabric joins.")

    @property
    def is_fast(self) -> bool:
        """True where devices are joined by NVLink or xGMI, False over PCIe alone."""
        return self.kind != "pcie"


class PartitionMode(Fact):
    """One AMD partition mode of a card, which becomes `devices` devices.

    Kubernetes resource: amd.com/gpu with the device plugin's naming strategy `single`.
    """

    compute: Literal["SPX", "DPX", "TPX", "QPX", "CPX"] = Field(description="The compute partition.")
    memory: Literal["NPS1", "NPS2", "NPS4", "NPS8"] = Field(description="The memory partition.")
    devices: PositiveInt = Field(description="Devices of one card.")
    memory_gib: Gib | None = Field(default=None, description="torch's total_memory of one of them, GiB.")

    @property
    def name(self) -> str:
        """As a shape's `partition` writes it: CPX_NPS4."""
        return f"{self.compute}_{self.memory}"


class Accelerator(Entry):
    """One kind of device as Kubernetes and vLLM see it (on MI250X: one GCD)."""

    vendor: Vendor = Field(description="An id of vendors.yaml.")
    driver_name: str = Field(description="NVML's name or ROCm's product name.")
    label_value: str | None = Field(
        default=None, description="Value of the vendor's node label; left out where no real node's was seen."
    )
    other_label_values: Texts = Field(default=(), description="Other values seen there, names of virtual functions included.")
    aliases: Texts = Field(default=(), description="Common names.")
    pci_ids: Texts = Field(default=(), description='PCI vendor and device ids: "10de:2330".')
    architecture: str = Field(description="sm_90, gfx942.")
    memory: AcceleratorMemory = Field(default=AcceleratorMemory(), description="Memory of one device.")
    fabric: Fabric = Field(description="How devices reach each other inside a node.")
    partition_modes: tuple[PartitionMode, ...] = Field(default=(), strict=False, description="AMD: how a card can be divided.")

    def __hash__(self) -> int:
        # a key of large caches
        return hash((self.id, self.memory))

    @property
    def resource_name(self) -> str:
        return vendors()[self.vendor].resource_name

    @property
    def label_key(self) -> str:
        return vendors()[self.vendor].product_label

    @property
    def label_values(self) -> tuple[str, ...]:
        """All values of the node label that were seen."""
        return tuple(dict.fromkeys(value for value in (self.label_value, *self.other_label_values) if value))

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """CUDA's, (9, 0) for sm_90; None for others."""
        digits = self.architecture.removeprefix("sm_")
        return (int(digits[:-1]), int(digits[-1])) if self.architecture.startswith("sm_") and digits.isdigit() else None


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    """One NUMA node in the kernel's order.

    `memory_bytes` is a lower bound of what the kernel reports there (huge pages included), None where unknown. `cpus` are logical CPU ids, () on a
    memory-only node, None where unknown; `cores` groups them into physical cores. `gpus` are indices in device order, None where the
    device-to-node map is unknown. `hugepages` maps a page size ("1Gi") to a count.
    """

    id: int
    cpus: tuple[int, ...] | None
    cores: tuple[tuple[int, ...], ...] | None
    memory_bytes: int | None
    gpus: tuple[int, ...] | None
    nics: tuple[str, ...] = ()
    distances: tuple[int, ...] | None = None
    hugepages: tuple[tuple[str, int], ...] = ()
    socket: int | None = None


class NetworkInterfaces(Fact):
    """The node's fabric interfaces, those between machines."""

    count: NonNegativeInt | None = Field(default=None, description="How many it has.")
    kind: str | None = Field(default=None, description="As the vendor calls them: InfiniBand, RoCE, EFA, gVNIC.")


@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """One kind of node: its NUMA nodes, CPUs, memory and devices.

    `numa_nodes` is () where the layout is unknown (`numa_node_count` may still be known); `missing` names the facts that a plan would need.
    `link_domains` are groups of GPU indices joined by NVLink or xGMI at full rate; on a PCIe-only node every GPU is alone. `switch_groups`
    are GPUs under one PCIe switch. `numa_in_guest` False: a virtual machine that hides NUMA (flat topology), so that the device plugin gives no hint.
    `partition` names the AMD partition mode ("CPX_NPS4") that the devices of this shape are in; GPU indices then count partitions.
    `threads_per_core` None: unknown, and then `cores` of each NUMA node are too.
    """

    id: str
    accelerator: str
    gpus: int
    numa_nodes: tuple[NumaNode, ...] = ()
    numa_node_count: int | None = None
    sockets: int | None = None
    cpu_count: int | None = None
    threads_per_core: int | None = None
    memory_bytes: int | None = None
    link_domains: tuple[tuple[int, ...], ...] | None = None
    switch_groups: tuple[tuple[int, ...], ...] = ()
    network: NetworkInterfaces | None = None
    provider: str | None = None
    instance_type: str | None = None
    virtual_machine: bool | None = None
    numa_in_guest: bool | None = None
    partition: str | None = None
    aliases: tuple[str, ...] = ()
    confidence: Confidence = "low"
    unverified: tuple[str, ...] = ()

    def __hash__(self) -> int:
        # shapes are keys of caches: all CPU lists of a large machine would be hashed each time
        return hash((self.id, self.accelerator, self.gpus, self.cpu_count, self.memory_bytes))

    @property
    def name(self) -> str:
        """What a sentence calls it: its id, or that it was given."""
        return "the given topology" if self.id == "inline" else self.id

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Names of the facts that are not known, as they are written inline: `numaNodes`, `threadsPerCore`, `numaNodes[0].memory`."""
        if not self.numa_nodes:
            names = ["numaNodes"]
        else:
            names = []
            for node in self.numa_nodes:
                for name, value in (("cpus", node.cpus), ("memory", node.memory_bytes), ("gpus", node.gpus)):
                    if value is None:
                        names.append(f"numaNodes[{node.id}].{name}")
        if self.threads_per_core is None:
            names.append("threadsPerCore")
        return tuple(names)

    @property
    def lists_cpus(self) -> bool:
        """Whether the CPUs of every NUMA node are known."""
        return bool(self.numa_nodes) and all(node.cpus is not None for node in self.numa_nodes)

    @property
    def hides_numa(self) -> bool:
        """True for a virtual machine with a flat topology: its device plugin reports no NUMA node of a GPU."""
        return self.virtual_machine is True and self.numa_in_guest is False

    @cached_property
    def gpu_numa_nodes(self) -> tuple[int | None, ...]:
        """NUMA node of each GPU in device order; None where it is unknown or hidden."""
        if self.hides_numa:
            return (None,) * self.gpus
        home = {gpu: node.id for node in self.numa_nodes for gpu in node.gpus or ()}
        return tuple(home.get(gpu) for gpu in range(self.gpus))

    @cached_property
    def gpus_per_numa_node(self) -> tuple[int, ...] | None:
        """GPUs of each NUMA node, or None where the map is not known for all, or hidden."""
        if self.hides_numa or not self.numa_nodes or any(node.gpus is None for node in self.numa_nodes):
            return None
        return tuple(len(node.gpus or ()) for node in self.numa_nodes)

    @cached_property
    def largest_link_domain(self) -> int | None:
        return None if self.link_domains is None else max((len(domain) for domain in self.link_domains), default=1)


PositiveCount = Annotated[int, Field(ge=1)]


class PublishedParameters(Fact):
    """A parameter count that the publisher or the hub states; the tests hold our own arithmetic against it."""

    count: PositiveCount = Field(description="Parameters.")
    source: str = Field(description="An id of the file's `sources`.")
    tolerance: Annotated[float, Field(ge=0)] = Field(default=0.001, description="By what share ours may differ.")
    counts: str = Field(default="all tensors", description="What it counts: `model`, or `with MTP`.")


class Model(Entry):
    """One model of the catalog: its hub name and the fields of its config.json that decide memory and parallelism.

    `infra.plan.architecture.reading.architecture_of` reads `config`, as it reads an inline `modelConfig:`.
    """

    config: dict[str, Any] = Field(description="Fields of config.json under its own names, nested configs included.")
    aliases: Texts = Field(default=(), description="Other hub names with the same config.json.")
    published_parameters: PublishedParameters | None = Field(default=None, description="The count that is published.")
    vision_parameters: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Published count of the vision tower with its projector, where it is not counted from the widths."
    )

    @property
    def citations(self) -> Mapping[str, str]:
        published = self.published_parameters
        return {**super().citations, **({} if published is None else {"publishedParameters.source": published.source})}

    def __hash__(self) -> int:
        # a key of caches, and `config` has no hash
        return hash(self.id)


class EngineFacts(Fact):
    """What the pinned vLLM can, as far as a plan asks."""

    version: str
    classes_without_pipeline_parallel: Annotated[frozenset[str], Field(strict=False)]
    quantization_methods: Annotated[frozenset[str], Field(strict=False)]
    quantization_overrides: dict[str, Texts]


class Pin(Entry):
    """One released artefact: a container image, a chart or a library version."""

    kind: Literal["image", "chart", "release"] = Field(description="image, chart or release.")
    version: str = Field(description="Tag of the image, version of the chart or release.")
    reference: str | None = Field(default=None, description="The image without tag, or the chart's address.")
    digest: Annotated[str, AfterValidator(_digest)] | None = Field(
        default=None, description="sha256: and 64 digits; the note of an image without one says so."
    )

    @property
    def pinned_reference(self) -> str:
        """`repository:tag@digest`, or `repository:tag` where no digest is known."""
        base = f"{self.reference}:{self.version}" if self.reference else self.version
        return f"{base}@{self.digest}" if self.digest else base
