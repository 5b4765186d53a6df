"""Reads a pool's inline `topology:` into the same NodeShape as a catalog entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infra.catalog.names import find_accelerator
from infra.catalog.reader import Reader
from infra.catalog.shapes import read_groups, read_numa_nodes
from infra.catalog.types import Accelerator, NodeShape, NumaNode, Provenance
from infra.diagnosis import Diagnosis
from infra.errors import ConfigError


def shape_from_topology(raw: Mapping[str, Any], path: str = "topology") -> NodeShape:
    """The NodeShape of an inline topology; its id is "inline".

    Fields: sku, threadsPerCore, numaNodes (cpus, memory, gpus, nics, distances, hugepages, socket; in order of id), and where the accelerator does not
    tell, linkDomains and switchGroups (lists of GPU indices), virtualMachine, partition. ConfigError lists all problems at once.
    """
    problems: list[Diagnosis] = []
    reader = Reader(raw, path, problems)
    accelerator = _accelerator(reader)
    threads = reader.integer("threadsPerCore", minimum=1)
    if not reader.has("threadsPerCore"):
        reader.problem("threadsPerCore", "is missing; write what lscpu prints as Thread(s) per core.", code="MissingField")
    if not reader.has("numaNodes"):
        reader.problem(
            "numaNodes", "is missing; list the NUMA nodes in order of id, each with cpus, memory and gpus.", code="MissingField"
        )
    numa_nodes = read_numa_nodes(reader, None, threads)
    for index, node in enumerate(numa_nodes):
        for key, value in (("cpus", node.cpus), ("memory", node.memory_bytes)):
            if value is None and not any(p.path.startswith(f"{path}.numaNodes[{index}].{key}") for p in problems):
                reader.problem(
                    f"numaNodes[{index}].{key}", "is missing; it is needed to plan CPUs and memory.", code="MissingField"
                )
    gpus = sorted(gpu for node in numa_nodes for gpu in node.gpus or ())
    if reader.has("numaNodes") and not gpus:
        reader.problem("numaNodes", "lists no gpus; give each NUMA node's GPU indices.", code="MissingField")
    elif gpus != list(range(len(gpus))):
        reader.problem("numaNodes", f"lists the GPUs {gpus}; the indices 0 to {len(gpus) - 1} are expected, each once.")
    links = read_groups(reader, "linkDomains", len(gpus))
    switches = read_groups(reader, "switchGroups", len(gpus))
    sockets, virtual, partition = reader.integer("sockets", minimum=1), reader.boolean("virtualMachine"), reader.text("partition")
    _check_partition(reader, accelerator, partition)
    numa_in_guest = reader.boolean("numaInGuest")
    reader.finish()
    if problems or accelerator is None:
        raise ConfigError(problems)
    nodes = tuple(_with_empty_gpus(node) for node in numa_nodes)
    return NodeShape(
        id="inline",
        accelerator=accelerator.id,
        gpus=len(gpus),
        numa_nodes=nodes,
        numa_node_count=len(nodes),
        sockets=sockets,
        cpu_count=sum(len(node.cpus or ()) for node in nodes),
        threads_per_core=threads,
        memory_bytes=sum(node.memory_bytes or 0 for node in nodes),
        link_domains=links if links is not None else default_link_domains(accelerator, len(gpus)),
        switch_groups=switches or (),
        virtual_machine=virtual,
        numa_in_guest=numa_in_guest,
        partition=partition,
        provenance=Provenance(sources=(), confidence="high", note="given inline"),
    )


def default_link_domains(accelerator: Accelerator, gpus: int) -> tuple[tuple[int, ...], ...] | None:
    """The link domains that an accelerator's fabric makes by itself: one board of NVSwitch or full xGMI, or none over PCIe.

    None where the fabric joins only some devices (bridges, MI250X) and nobody said which.
    """
    fabric = accelerator.fabric
    if fabric.kind == "pcie":
        return ()
    if fabric.kind in ("nvlink-switch", "xgmi-mesh") and (fabric.domain_size is None or gpus <= max(fabric.domain_size, 16)):
        return (tuple(range(gpus)),)
    return None


def _accelerator(reader: Reader) -> Accelerator | None:
    name = reader.text("sku", required=True)
    if name is None:
        return None
    try:
        return find_accelerator(name, reader.at("sku"))
    except ConfigError as error:
        reader.problems.extend(error.problems)
        return None


def _check_partition(reader: Reader, accelerator: Accelerator | None, partition: str | None) -> None:
    if partition is None or accelerator is None:
        return
    known = [f"{mode.compute}_{mode.memory}" for mode in accelerator.partition_modes]
    if partition.upper() not in known:
        reader.problem(
            "partition",
            f"is {partition!r}; {accelerator.id} knows {', '.join(known)}."
            if known
            else f"is {partition!r}; {accelerator.id} has no partition modes.",
        )


def _with_empty_gpus(node: NumaNode) -> NumaNode:
    return node if node.gpus is not None else replace(node, gpus=())
