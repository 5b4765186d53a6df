"""Reads a pool's inline `topology:` into the same NodeShape as a catalog entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infra.catalog.names import find_accelerator
from infra.catalog.reading import read
from infra.catalog.shapes import cpu_count_of, group_problems, numa_nodes_of, sorted_groups
from infra.catalog.types import Accelerator, NodeShape
from infra.config.topology import Topology
from infra.diagnosis import Diagnosis, shown
from infra.errors import ConfigError


def shape_from_topology(raw: Mapping[str, Any], path: str = "topology") -> NodeShape:
    """The NodeShape of an inline topology as it is written; ConfigError lists all problems at once."""
    problems: list[Diagnosis] = []
    facts = read(_Lenient, raw, path, problems)
    if facts is None:
        raise ConfigError(problems)
    return inline_shape(facts, path, problems)


class _Lenient(Topology):
    """Without a sku the rest is still looked at."""

    sku: str = ""


def inline_shape(facts: Topology, path: str, problems: list[Diagnosis] | None = None) -> NodeShape:
    """The NodeShape of an inline topology; its id is "inline". ConfigError with `problems` and all contradictions between the fields."""
    found = list(problems or ())
    accelerator = _accelerator(facts, path, found)
    if facts.threads_per_core is None:
        _missing(found, f"{path}.threadsPerCore", "write what lscpu prints as Thread(s) per core.")
    if not facts.numa_nodes:
        _missing(found, f"{path}.numaNodes", "list the NUMA nodes in order of id, each with cpus, memory and gpus.")
    for index, node in enumerate(facts.numa_nodes):
        for key, value in (("cpus", node.cpus), ("memory", node.memory)):
            if value is None:
                _missing(found, f"{path}.numaNodes[{index}].{key}", "it is needed to plan CPUs and memory.")
    nodes = tuple(node if node.gpus is not None else replace(node, gpus=()) for node in numa_nodes_of(facts, path, found))
    gpus = sorted(gpu for node in nodes for gpu in node.gpus or ())
    if nodes and not gpus:
        found.append(Diagnosis(f"{path}.numaNodes", "MissingField", "lists no gpus; give each NUMA node's GPU indices."))
    elif gpus != list(range(len(gpus))):
        message = f"lists the GPUs {gpus}; the indices 0 to {len(gpus) - 1} are expected, each once."
        found.append(Diagnosis(f"{path}.numaNodes", "InvalidValue", message))
    found += group_problems(facts, path, len(gpus))
    if accelerator is not None and facts.partition is not None:
        found += _partition_problems(accelerator, facts.partition, len(gpus), path)
    if found or accelerator is None:
        raise ConfigError(found)
    return NodeShape(
        id="inline",
        accelerator=accelerator.id,
        gpus=len(gpus),
        numa_nodes=nodes,
        numa_node_count=len(nodes),
        sockets=facts.sockets,
        cpu_count=cpu_count_of(nodes),
        threads_per_core=facts.threads_per_core,
        memory_bytes=sum(node.memory_bytes or 0 for node in nodes),
        link_domains=default_link_domains(accelerator, len(gpus))
        if facts.link_domains is None
        else sorted_groups(facts.link_domains),
        switch_groups=sorted_groups(facts.switch_groups) or (),
        virtual_machine=facts.virtual_machine,
        numa_in_guest=facts.numa_in_guest,
        partition=facts.partition,
        confidence="high",
    )


def _missing(found: list[Diagnosis], path: str, remedy: str) -> None:
    """A field that was wrong, and is left out for that, is not missing besides."""
    if not any(problem.path == path for problem in found):
        found.append(Diagnosis(path, "MissingField", f"is missing; {remedy}"))


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


def _accelerator(facts: Topology, path: str, found: list[Diagnosis]) -> Accelerator | None:
    if not facts.sku:
        _missing(found, f"{path}.sku", "it is needed here.")
        return None
    try:
        return find_accelerator(facts.sku, f"{path}.sku")
    except ConfigError as error:
        found.extend(error.problems)
        return None


def _partition_problems(accelerator: Accelerator, partition: str, gpus: int, path: str) -> list[Diagnosis]:
    devices = {mode.name: mode.devices for mode in accelerator.partition_modes}
    of_a_card = devices.get(partition.upper())
    if of_a_card is not None and gpus % of_a_card == 0:
        return []
    if of_a_card is not None:
        message = f"is {shown(partition)}, which makes {of_a_card} devices of a card; {gpus} GPUs are listed, and a multiple of {of_a_card} is expected."
    elif devices:
        message = f"is {shown(partition)}; {accelerator.id} knows {', '.join(devices)}."
    else:
        message = f"is {shown(partition)}; {accelerator.id} has no partition modes."
    return [Diagnosis(f"{path}.partition", "InvalidValue", message)]
