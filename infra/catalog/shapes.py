"""Node shapes: from an entry of shapes.yaml, or the same facts inline, to the machine that a plan counts with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from pydantic import Field

from infra.catalog.entries import Entry
from infra.catalog.types import NetworkInterfaces, NodeShape, NumaNode
from infra.config import topology as wire
from infra.config.base import MemoryQuantity, PositiveInt, Texts
from infra.diagnosis import Diagnosis
from infra.units import parse_bytes, parse_cpu_list

_LOCAL_DISTANCE, _UNREACHABLE = 10, 255  # of an ACPI SLIT
_PAGE_SIZES = ("1Gi", "2Mi", "512Mi", "16Gi", "64Ki", "32Mi")


class ShapeEntry(wire.Topology, Entry):
    """One kind of machine: the facts of a topology, and what a catalog says besides."""

    gpus: PositiveInt = Field(description="How many devices it has.")
    numa_node_count: PositiveInt | None = Field(default=None, description="NUMA nodes, where their layout is not known.")
    cpu_count: PositiveInt | None = Field(default=None, description="Logical CPUs, where the NUMA nodes do not list them.")
    memory: MemoryQuantity | None = Field(
        default=None, description="Of the whole machine, as maker or provider state it: an upper bound; never planned with."
    )
    network: NetworkInterfaces | None = Field(default=None, description="Fabric interfaces between machines.")
    provider: str | None = Field(default=None, description="The cloud: aws, azure, gcp, oci; `aws p5.48xlarge` is found by it.")
    instance_type: str | None = Field(default=None, description="The cloud's name of it.")
    aliases: Texts = Field(default=(), description="Common names.")


def resolve_shape(entry: ShapeEntry, path: str, problems: list[Diagnosis]) -> NodeShape:
    """The machine of a catalog entry; contradictions between its fields are added to `problems`."""
    nodes = numa_nodes_of(entry, path, problems)
    listed = sorted(gpu for node in nodes for gpu in node.gpus or ())
    if listed and all(node.gpus is not None for node in nodes) and listed != list(range(entry.gpus)):
        problems.append(
            _wrong(f"{path}.numaNodes", f"lists the GPUs {listed}; the indices 0 to {entry.gpus - 1} are expected, each once.")
        )
    if entry.numa_node_count is not None and nodes and entry.numa_node_count != len(nodes):
        problems.append(_wrong(f"{path}.numaNodeCount", f"is {entry.numa_node_count}, but numaNodes lists {len(nodes)}."))
    problems += group_problems(entry, path, entry.gpus)
    return NodeShape(
        id=entry.id,
        accelerator=entry.sku,
        gpus=entry.gpus,
        numa_nodes=nodes,
        numa_node_count=len(nodes) or entry.numa_node_count,
        sockets=entry.sockets,
        cpu_count=entry.cpu_count or cpu_count_of(nodes),
        threads_per_core=entry.threads_per_core,
        memory_bytes=None if entry.memory is None else parse_bytes(entry.memory),
        link_domains=sorted_groups(entry.link_domains),
        switch_groups=sorted_groups(entry.switch_groups) or (),
        network=entry.network,
        provider=entry.provider,
        instance_type=entry.instance_type,
        virtual_machine=entry.virtual_machine,
        numa_in_guest=entry.numa_in_guest,
        partition=entry.partition,
        aliases=entry.aliases,
        confidence=entry.confidence,
        unverified=entry.unverified,
    )


def cpu_count_of(nodes: Sequence[NumaNode]) -> int | None:
    """Logical CPUs of all nodes, or None where one of them is not known."""
    if not nodes or any(node.cpus is None for node in nodes):
        return None
    return sum(len(node.cpus or ()) for node in nodes)


def sorted_groups(groups: Sequence[Sequence[int]] | None) -> tuple[tuple[int, ...], ...] | None:
    return None if groups is None else tuple(tuple(sorted(group)) for group in groups)


def numa_nodes_of(facts: wire.Topology, path: str, problems: list[Diagnosis]) -> tuple[NumaNode, ...]:
    """The NUMA nodes with their ids and physical cores; GPUs, CPUs and NIC names may stand on one node only."""
    nodes = []
    homes: dict[str, dict[object, int]] = {"cpus": {}, "gpus": {}, "nics": {}}
    for index, given in enumerate(facts.numa_nodes):
        where = f"{path}.numaNodes[{index}]"
        node = _numa_node(given, index, facts.threads_per_core, where, problems)
        if given.distances and len(given.distances) != len(facts.numa_nodes):
            problems.append(
                _wrong(
                    f"{where}.distances",
                    f"has {len(given.distances)} values; one for each of the {len(facts.numa_nodes)} NUMA nodes is expected.",
                )
            )
        for kind, values in (("cpus", node.cpus), ("gpus", node.gpus), ("nics", node.nics)):
            home = homes[kind]
            for value in values or ():
                if value in home:
                    problems.append(_wrong(f"{where}.{kind}", f"{value} is on NUMA node {home[value]} too."))
                    break
                home[value] = index
        nodes.append(node)
    problems += _distance_problems(facts, path)
    return tuple(nodes)


def _distance_problems(facts: wire.Topology, path: str) -> Iterator[Diagnosis]:
    """A node is 10 from itself and more from others, as far there as back: what numactl -H prints and the kernel insists on."""
    rows = [node.distances for node in facts.numa_nodes]
    for index, row in enumerate(rows):
        where = f"{path}.numaNodes[{index}].distances"
        for other, distance in enumerate(row[: len(rows)] if len(row) == len(rows) else ()):
            back = rows[other][index] if len(rows[other]) == len(rows) else distance
            if other == index and distance != _LOCAL_DISTANCE:
                yield _wrong(where, f"says {distance} from NUMA node {index} to itself; {_LOCAL_DISTANCE} is expected.")
            elif other != index and not _LOCAL_DISTANCE <= distance <= _UNREACHABLE:
                yield _wrong(where, f"says {distance} to NUMA node {other}; {_LOCAL_DISTANCE} to {_UNREACHABLE} is expected.")
            elif index < other and distance != back:
                yield _wrong(
                    where, f"says {distance} to NUMA node {other}, whose own say {back} back; write what numactl -H prints."
                )


def _numa_node(given: wire.NumaNode, index: int, threads_per_core: int | None, where: str, problems: list[Diagnosis]) -> NumaNode:
    for size in sorted(set(given.hugepages) - set(_PAGE_SIZES)):
        problems.append(_wrong(f"{where}.hugepages.{size}", "is no huge page size of Linux; 2Mi or 1Gi is expected."))
    cpus = None if given.cpus is None else parse_cpu_list(given.cpus)
    cores = None
    if cpus is not None and threads_per_core is not None:
        if len(cpus) % threads_per_core:
            problems.append(
                _wrong(
                    f"{where}.cpus",
                    f"lists {len(cpus)} CPUs; with threadsPerCore {threads_per_core} a multiple of {threads_per_core} is expected.",
                )
            )
        else:
            cores = group_into_cores(cpus, threads_per_core)
    return NumaNode(
        id=index,
        cpus=cpus,
        cores=cores,
        memory_bytes=None if given.memory is None else parse_bytes(given.memory),
        gpus=given.gpus,
        nics=given.nics,
        distances=given.distances or None,
        hugepages=tuple(sorted(given.hugepages.items())),
        socket=given.socket,
    )


def group_into_cores(cpus: tuple[int, ...], threads_per_core: int) -> tuple[tuple[int, ...], ...]:
    """Logical CPUs as physical cores.

    Linux numbers the first threads of all cores before the second ones, so that a NUMA node has `threads_per_core` equal runs (0-55,112-167: core 0 is
    0 and 112); where a node is one run (some hypervisors), the threads of a core are neighbours.
    """
    if threads_per_core == 1:
        return tuple((cpu,) for cpu in cpus)
    core_count = len(cpus) // threads_per_core
    if all(after == before + 1 for before, after in pairwise(cpus)):
        return tuple(tuple(cpus[start : start + threads_per_core]) for start in range(0, len(cpus), threads_per_core))
    return tuple(tuple(cpus[core + thread * core_count] for thread in range(threads_per_core)) for core in range(core_count))


def group_problems(facts: wire.Topology, path: str, gpus: int) -> Iterator[Diagnosis]:
    """Indices that no GPU has, or that stand in two groups of a kind; nothing where the GPUs are not known."""
    if gpus == 0:
        return
    for key, groups in (("linkDomains", facts.link_domains), ("switchGroups", facts.switch_groups)):
        seen: set[int] = set()
        for index, group in enumerate(groups or ()):
            for gpu in group:
                if gpu >= gpus:
                    yield _wrong(f"{path}.{key}[{index}]", f"names GPU {gpu}; an index from 0 to {gpus - 1} is expected.")
                elif gpu in seen:
                    yield _wrong(f"{path}.{key}[{index}]", f"names GPU {gpu} a second time.")
                seen.add(gpu)


def _wrong(path: str, message: str) -> Diagnosis:
    return Diagnosis(path=path, code="InvalidValue", message=message)
