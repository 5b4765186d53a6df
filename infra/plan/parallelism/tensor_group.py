"""Where a tensor-parallel group lies on a machine: the links between its GPUs and the NUMA nodes of its pod."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from infra.catalog.types import Accelerator, NodeShape
from infra.catalog.vendors import vendors

LinkClass = Literal["none", "link-domain", "pcie", "cross-socket", "network", "unknown"]


@dataclass(frozen=True, kw_only=True)
class TensorGroup:
    """The best place for a pod of `gpus` GPUs with tensor-parallel groups of `size`.

    `link` is the worst link inside a group: one link domain (NVLink, xGMI), PCIe inside a NUMA node, PCIe across sockets, or the
    network; "unknown" where the catalog does not know which GPUs are linked. `numa_nodes` are the fewest NUMA nodes that hold the
    pod, None where the map is not known.
    """

    size: int
    gpus: int
    link: LinkClass
    numa_nodes: int | None

    def explain(self, shape: NodeShape, accelerator: Accelerator) -> str:
        """One sentence for people."""
        where = (
            f"which GPU of {shape.name} is on which NUMA node is not known"
            if self.numa_nodes is None
            else f"{self.gpus} GPU{'s' if self.gpus > 1 else ''} of one NUMA node"
            if self.numa_nodes == 1
            else f"{self.gpus} GPUs over {self.numa_nodes} NUMA nodes of {shape.name}"
        )
        fabric = vendors()[accelerator.vendor].fabric_name
        link = {
            "none": "one GPU a rank group, nothing to exchange",
            "link-domain": f"inside one {fabric} domain",
            "pcie": "over PCIe inside a NUMA node",
            "cross-socket": "over PCIe across sockets",
            "network": "over the network",
            "unknown": "links not known",
        }[self.link]
        return f"{where}; tensor parallel {self.size} {link}" if self.size > 1 else f"{where}; {link}"


@cache
def tensor_group(shape: NodeShape, accelerator: Accelerator, size: int, gpus: int) -> TensorGroup:
    """The best place that the machine has for a pod of `gpus` GPUs with groups of `size`."""
    return TensorGroup(
        size=size,
        gpus=gpus,
        link=_link(shape, accelerator, size),
        numa_nodes=_fewest_numa_nodes(shape, gpus),
    )


def _fewest_numa_nodes(shape: NodeShape, gpus: int) -> int | None:
    per_node = shape.gpus_per_numa_node
    if per_node is None or gpus > shape.gpus:
        return None
    held = 0
    for count, size in enumerate(sorted(per_node, reverse=True), start=1):
        held += size
        if held >= gpus:
            return count
    return None


def _link(shape: NodeShape, accelerator: Accelerator, size: int) -> LinkClass:
    if size == 1:
        return "none"
    if size > shape.gpus:
        return "network"
    largest = shape.largest_link_domain
    if largest is None and accelerator.fabric.is_fast:
        return "unknown"
    if largest is not None and largest >= size:
        return "link-domain"
    nodes = _fewest_numa_nodes(shape, size)
    return "cross-socket" if nodes is not None and nodes > 1 else "pcie"
