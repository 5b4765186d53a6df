"""Reads a node shape: an entry of shapes.yaml, or the same facts inline as a pool's `topology:`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.catalog.provenance import read_provenance
from infra.catalog.reader import Reader
from infra.catalog.types import NetworkInterfaces, NodeShape, NumaNode
from infra.units import parse_bytes, parse_cpu_list


def read_shape(reader: Reader, sources: Mapping[str, str]) -> NodeShape | None:
    """One catalog entry, or None where a needed field is missing; problems are added to the reader's."""
    name = reader.text("id", required=True)
    accelerator = reader.text("sku", required=True)
    gpus = reader.integer("gpus", required=True, minimum=1)
    threads = reader.integer("threadsPerCore", minimum=1)
    numa_nodes = read_numa_nodes(reader, gpus, threads)
    count = reader.integer("numaNodeCount", minimum=1)
    if count is not None and numa_nodes and count != len(numa_nodes):
        reader.problem("numaNodeCount", f"is {count}, but numaNodes lists {len(numa_nodes)}.")
    links = read_groups(reader, "linkDomains", gpus)
    switches = read_groups(reader, "switchGroups", gpus)
    network = reader.child("network")
    fields: dict[str, Any] = {
        "sockets": reader.integer("sockets", minimum=1),
        "cpu_model": reader.text("cpuModel"),
        "cpu_count": reader.integer("cpuCount", minimum=1),
        "memory_bytes": reader.parsed("memory", parse_bytes),
        "provider": reader.text("provider"),
        "instance_type": reader.text("instanceType"),
        "virtual_machine": reader.boolean("virtualMachine"),
        "numa_in_guest": reader.boolean("numaInGuest"),
        "nvlink_domain_nodes": reader.integer("nvlinkDomainNodes", minimum=1) or 1,
        "partition": reader.text("partition"),
        "aliases": reader.texts("aliases"),
        "node_labels": tuple(sorted((str(key), str(value)) for key, value in (reader.raw("nodeLabels") or {}).items())),
    }
    provenance = read_provenance(reader, sources)
    interfaces = NetworkInterfaces() if network is None else _network(network)
    if name is None or accelerator is None or gpus is None:
        return None
    if fields["cpu_count"] is None and numa_nodes and all(node.cpus is not None for node in numa_nodes):
        fields["cpu_count"] = sum(len(node.cpus or ()) for node in numa_nodes)
    return NodeShape(
        id=name,
        accelerator=accelerator,
        gpus=gpus,
        numa_nodes=numa_nodes,
        numa_node_count=len(numa_nodes) or count,
        threads_per_core=threads,
        link_domains=links,
        switch_groups=switches or (),
        network=interfaces,
        provenance=provenance,
        **fields,
    )


def read_numa_nodes(reader: Reader, gpus: int | None, threads_per_core: int | None) -> tuple[NumaNode, ...]:
    """`numaNodes` in order of id; GPUs, CPUs and NIC names may stand on one node only."""
    nodes = []
    seen: dict[str, dict[Any, int]] = {"cpus": {}, "gpus": {}, "nics": {}}
    entries = reader.children("numaNodes")
    for index, entry in enumerate(entries):
        node = _numa_node(entry, index, len(entries), threads_per_core)
        entry.finish()
        for kind, values in (("cpus", node.cpus), ("gpus", node.gpus), ("nics", node.nics)):
            for value in values or ():
                if value in seen[kind]:
                    entry.problem(kind, f"{value} is on NUMA node {seen[kind][value]} too.")
                    break
                seen[kind][value] = index
        nodes.append(node)
    listed = sorted(seen["gpus"])
    if gpus is not None and listed and all(node.gpus is not None for node in nodes) and listed != list(range(gpus)):
        reader.problem("numaNodes", f"lists the GPUs {listed}; the indices 0 to {gpus - 1} are expected, each once.")
    return tuple(nodes)


def _numa_node(reader: Reader, index: int, count: int, threads_per_core: int | None) -> NumaNode:
    stated = reader.integer("id")
    if stated is not None and stated != index:
        reader.problem("id", f"is {stated}; NUMA nodes stand in order, so {index} is expected.")
    cpus = reader.parsed("cpus", _cpu_list)
    gpus = reader.integers("gpus") if reader.has("gpus") else (reader.raw("gpus"), None)[1]
    distances = reader.integers("distances") or None
    if distances is not None and len(distances) != count:
        reader.problem("distances", f"has {len(distances)} values; one for each of the {count} NUMA nodes is expected.")
    hugepages = reader.child("hugepages")
    sizes = []
    if hugepages is not None:
        for size in sorted(hugepages.values):
            if size not in ("1Gi", "2Mi", "512Mi", "16Gi", "64Ki", "32Mi"):
                hugepages.problem(size, "is no huge page size of Linux; 2Mi or 1Gi is expected.")
            pages = hugepages.integer(size, minimum=0)
            if pages is not None:
                sizes.append((size, pages))
    cores = None
    if cpus is not None and threads_per_core is not None:
        if len(cpus) % threads_per_core:
            reader.problem(
                "cpus",
                f"lists {len(cpus)} CPUs; with threadsPerCore {threads_per_core} a multiple of {threads_per_core} is expected.",
            )
        else:
            cores = group_into_cores(cpus, threads_per_core)
    return NumaNode(
        id=index,
        cpus=cpus,
        cores=cores,
        memory_bytes=reader.parsed("memory", _memory),
        gpus=gpus,
        nics=reader.texts("nics"),
        distances=distances,
        hugepages=tuple(sizes),
        socket=reader.integer("socket", minimum=0),
    )


def _cpu_list(value: Any) -> tuple[int, ...]:
    if not isinstance(value, str):
        raise ValueError(f'{value!r} is no CPU list; write it in quotes, like "0-55,112-167"')
    return parse_cpu_list(value)


def _memory(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is no quantity; write it like 1007Gi")
    size = parse_bytes(value)
    if size < 0:
        raise ValueError(f"{value!r} is negative")
    return size


def group_into_cores(cpus: tuple[int, ...], threads_per_core: int) -> tuple[tuple[int, ...], ...]:
    """Logical CPUs as physical cores.

    Linux numbers the first threads of all cores before the second ones, so that a NUMA node has `threads_per_core` equal runs (0-55,112-167: core 0 is
    0 and 112); where a node is one run (some hypervisors), the threads of a core are neighbours.
    """
    if threads_per_core == 1:
        return tuple((cpu,) for cpu in cpus)
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    core_count = len(cpus) // threads_per_core
    if len(runs) == 1:
        return tuple(tuple(cpus[start : start + threads_per_core]) for start in range(0, len(cpus), threads_per_core))
    return tuple(tuple(cpus[core + thread * core_count] for thread in range(threads_per_core)) for core in range(core_count))


def read_groups(reader: Reader, key: str, gpus: int | None) -> tuple[tuple[int, ...], ...] | None:
    """A list of groups of GPU indices, or None where it is absent; an index out of range or in two groups is a problem."""
    if not reader.has(key):
        reader.raw(key)
        return None
    groups = []
    seen: set[int] = set()
    for index, group in enumerate(reader.sequence(key)):
        members = group if isinstance(group, list) else [group]
        for gpu in members:
            if isinstance(gpu, bool) or not isinstance(gpu, int) or gpu < 0 or (gpus is not None and gpu >= gpus):
                reader.problem(f"{key}[{index}]", f"names GPU {gpu!r}; an index from 0 to {(gpus or 1) - 1} is expected.")
            elif gpu in seen:
                reader.problem(f"{key}[{index}]", f"names GPU {gpu} a second time.")
            else:
                seen.add(gpu)
        groups.append(tuple(sorted(gpu for gpu in members if isinstance(gpu, int))))
    return tuple(groups)


def _network(reader: Reader) -> NetworkInterfaces:
    network = NetworkInterfaces(
        count=reader.integer("count", minimum=0),
        kind=reader.text("kind"),
        total_gbps=reader.number("totalGbps", minimum=0),
        hca_selector=reader.text("hcaSelector"),
    )
    reader.finish()
    return network
