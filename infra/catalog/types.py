"""What the catalog knows: accelerators, node shapes, models, pins. None means that a fact is not known; nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from infra.units import GIB

Vendor = Literal["nvidia", "amd"]
Confidence = Literal["high", "medium", "low"]
FabricKind = Literal["nvlink-switch", "nvlink-pairs", "xgmi-mesh", "xgmi-partial", "pcie"]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where an entry's facts come from: ids of the file's `sources`, how far they are trusted, and which fields less."""

    sources: tuple[str, ...] = ()
    confidence: Confidence = "low"
    unverified: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class AcceleratorMemory:
    """Memory of one device, GiB of 2^30 bytes unless the name says otherwise.

    `torch_gib` is what torch reports as total_memory and vLLM multiplies by gpu_memory_utilization: less than nvidia-smi's total
    (`smi_mib`) and far from the marketing size (`marketing_gb`, decimal). `torch_range_gib` is the span seen over drivers.
    `torch_vf_gib` is the same device as an SR-IOV virtual function.
    """

    marketing_gb: int | None = None
    torch_gib: float | None = None
    torch_range_gib: tuple[float, float] | None = None
    torch_vf_gib: float | None = None
    smi_mib: int | None = None
    bandwidth_gbs: float | None = None

    @property
    def total_bytes(self) -> int | None:
        """torch's total_memory in bytes, or None where nobody printed it."""
        return None if self.torch_gib is None else round(self.torch_gib * GIB)


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """How devices of this kind reach each other inside a node.

    `link_gbs` is one device's bandwidth into the fabric in one direction, decimal GB/s (for xGMI: all links together); the marketing number is
    twice that. `domain_size` is the largest number of devices that one fabric joins; `pcie_gbs` one direction of the slot.
    """

    kind: FabricKind
    links: int | None = None
    link_gbs: float | None = None
    domain_size: int | None = None
    pcie_generation: int | None = None
    pcie_gbs: float | None = None

    @property
    def is_fast(self) -> bool:
        """True where devices are joined by NVLink or xGMI, False over PCIe alone."""
        return self.kind != "pcie"


@dataclass(frozen=True, kw_only=True)
class PartitionMode:
    """One AMD partition mode of a card: `compute` (SPX, DPX, QPX, CPX) with `memory` (NPS1, NPS2, NPS4).

    A card becomes `devices` devices with `memory_gib` each. Kubernetes resource: amd.com/gpu with the device plugin's naming strategy
    `single`; `resource_name` (amd.com/cpx_nps4) with `mixed`.
    """

    compute: str
    memory: str
    devices: int
    memory_gib: float | None

    @property
    def resource_name(self) -> str:
        return f"amd.com/{self.compute}_{self.memory}".lower()


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One kind of device as Kubernetes and vLLM see it (on MI250X: one GCD).

    `driver_name` is NVML's name or ROCm's product name; `label_value` the value of the node label `label_key` (None where no
    real node's label was seen); `label_values` all values seen, VF names included. `compute_capability` is CUDA's (9, 0), `architecture` sm_90 or
    gfx942. `fp8` is the native FP8 format or None; `fp4` likewise.
    """

    id: str
    vendor: Vendor
    driver_name: str
    resource_name: str
    label_key: str
    label_value: str | None
    label_values: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    pci_ids: tuple[str, ...] = ()
    architecture: str
    compute_capability: tuple[int, int] | None = None
    compute_units: int | None = None
    memory: AcceleratorMemory
    fabric: Fabric
    fp8: str | None = None
    fp4: str | None = None
    partition_modes: tuple[PartitionMode, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)


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


@dataclass(frozen=True, kw_only=True)
class NetworkInterfaces:
    """The node's fabric interfaces: `count`, `kind` as the vendor calls them (InfiniBand, RoCE, EFA, gVNIC), total Gbit/s, names to NCCL."""

    count: int | None = None
    kind: str | None = None
    total_gbps: float | None = None
    hca_selector: str | None = None


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
    cpu_model: str | None = None
    cpu_count: int | None = None
    threads_per_core: int | None = None
    memory_bytes: int | None = None
    link_domains: tuple[tuple[int, ...], ...] | None = None
    switch_groups: tuple[tuple[int, ...], ...] = ()
    network: NetworkInterfaces = field(default_factory=NetworkInterfaces)
    provider: str | None = None
    instance_type: str | None = None
    virtual_machine: bool | None = None
    numa_in_guest: bool | None = None
    nvlink_domain_nodes: int = 1
    partition: str | None = None
    aliases: tuple[str, ...] = ()
    node_labels: tuple[tuple[str, str], ...] = ()
    provenance: Provenance = field(default_factory=Provenance)

    def __hash__(self) -> int:
        # shapes are keys of caches: all CPU lists of a large machine would be hashed each time
        return hash((self.id, self.accelerator, self.gpus, self.cpu_count, self.memory_bytes))

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


@dataclass(frozen=True, kw_only=True)
class PublishedParameters:
    """A parameter count that the publisher or the hub states, and what it counts."""

    count: int
    source: str
    tolerance: float = 0.001
    counts: str = "all tensors"


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """One model of the catalog: its hub name and the fields of its config.json that decide memory and parallelism.

    `config` has config.json's own names; `infra.plan.architecture.reading.architecture_of` reads it, as it reads an inline `modelConfig:`.
    `vision_parameters` is the published count of the vision tower with its projector, where it is not counted from the widths.
    """

    id: str
    config: Mapping[str, Any]
    aliases: tuple[str, ...] = ()
    published_parameters: PublishedParameters | None = None
    vision_parameters: int | None = None
    provenance: Provenance = field(default_factory=Provenance)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.id == self.id and other.config == self.config

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """What the pinned vLLM can: its version, quantisation methods, and the model classes without pipeline parallel."""

    version: str
    classes_without_pipeline_parallel: frozenset[str]
    quantization_methods: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One released artefact: a container image (`reference`, with `digest` where it is known), a chart or a library version."""

    id: str
    kind: Literal["image", "chart", "release"]
    version: str
    reference: str | None = None
    digest: str | None = None
    note: str = ""
    provenance: Provenance = field(default_factory=Provenance)

    @property
    def pinned_reference(self) -> str:
        """`repository:tag@digest`, or `repository:tag` where no digest is known."""
        base = f"{self.reference}:{self.version}" if self.reference else self.version
        return f"{base}@{self.digest}" if self.digest else base
