"""A node's own outputs to the inline `topology:` of a stack file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from infra.catalog.names import find_accelerator
from infra.catalog.topology import default_link_domains, shape_from_topology
from infra.catalog.types import Accelerator
from infra.diagnosis import Diagnosis
from infra.errors import ConfigError, NumawiseError
from infra.outputs.links import FABRIC_CLASS, nvidia_link
from infra.outputs.machine import Machine, is_flat_view
from infra.outputs.reading import Report
from infra.units import parse_cpu_list


@dataclass(frozen=True, kw_only=True)
class InlineShape:
    """`topology` as it stands in a stack file; `remarks` what could not be read and was left out."""

    topology: Mapping[str, Any]
    remarks: tuple[str, ...]


def shape_of(machine: Machine, *, sku: str | None = None, source: str = "") -> InlineShape:
    """The inline topology of a machine. ConfigError names each fact that no output gives, with the output to add, or contradictions."""
    problems: list[Diagnosis] = []
    remarks: list[str] = []

    def missing(fact: str, add: str) -> None:
        problems.append(Diagnosis(path=source, code="MissingOutput", message=f"{fact} is not in these outputs; add {add}."))

    accelerator = _accelerator(machine, sku, problems, source)
    if accelerator is None and not problems:
        missing("the kind of GPU (sku)", "`nvidia-smi -L` (on AMD `rocm-smi` without options), or give --sku")
    nodes = _node_cpus(machine)
    if nodes is None:
        missing("the CPUs of each NUMA node", "`lscpu` or `numactl -H`")
    lscpu = machine.first("lscpu")
    if lscpu is None or lscpu.fields["threads_per_core"] is None:
        missing("the number of threads of a core", "`lscpu`")
    if lscpu is not None and (split := _split_core(lscpu)):
        problems.append(Diagnosis(path=source, code="OfflineCpus", message=split))
    sizes = _node_sizes(machine)
    if sizes is None:
        missing("the memory of each NUMA node", "`numactl -H`")
    matrix = machine.matrix or machine.first("rocm-smi-showtopo")
    homes: dict[int, int] | None = None
    if matrix is None:
        missing("the NUMA node of each GPU", "`nvidia-smi topo -m` (on AMD `rocm-smi --showtopo`)")
    elif nodes is not None:
        homes = _gpu_homes(matrix, nodes, missing, problems, source)
    if nodes is not None and sizes is not None and (unlike := sorted({*nodes} ^ {*sizes})):
        problems.append(
            Diagnosis(
                path=source,
                code="Contradiction",
                message=f"NUMA nodes {', '.join(map(str, unlike))} have CPUs or memory in one output only; take all "
                f"outputs on one node, uncut.",
            )
        )
    if nodes is not None and sorted(nodes) != list(range(len(nodes))):
        problems.append(
            Diagnosis(
                path=source,
                code="NodesNotConsecutive",
                message=f"the NUMA nodes are {', '.join(map(str, sorted(nodes)))}; an inline topology lists nodes 0 to "
                f"{len(nodes) - 1}.",
            )
        )
    for report in machine.reports:
        if report.cut and report.kind in ("lscpu", "numactl-H"):
            problems.append(
                Diagnosis(path=source, code="CutOutput", message=f"{report.kind} is cut: {'; '.join(report.notes[:2])}.")
            )
    if problems or accelerator is None or nodes is None or sizes is None or matrix is None or homes is None:
        raise ConfigError(problems)
    topology = _topology(machine, matrix, accelerator, nodes, sizes, homes, remarks)
    # What is handed out must be what a stack file takes.
    shape_from_topology(topology, path="topology")
    return InlineShape(topology=topology, remarks=tuple(remarks))


def _split_core(lscpu: Report) -> str:
    """Why a plan cannot count with the CPUs that are on-line: some have their core's other thread off-line. lscpu does not say which."""
    offline, fields = lscpu.fields.get("offline_cpus"), lscpu.fields
    listed = sum(len(parse_cpu_list(cpus)) for cpus in fields["numa_cpus"].values() if cpus)
    sockets, cores, threads = fields["sockets"], fields["cores_per_socket"], fields["threads_per_core"]
    if not offline or not sockets or not cores or not threads or listed == sockets * cores * threads:
        return ""
    return (
        f"CPUs {offline} are off-line, and {listed} CPUs on {sockets * cores} cores are no whole cores of {threads} thread{'s' if threads > 1 else ''}: "
        "a plan hands out whole cores. Bring them on-line (echo 1 > /sys/devices/system/cpu/cpuN/online), or take the other threads of their cores off-line "
        "too, and take the outputs again."
    )


def _topology(
    machine: Machine,
    matrix: Report,
    accelerator: Accelerator,
    nodes: Mapping[int, str],
    sizes: Mapping[int, int],
    homes: Mapping[int, int],
    remarks: list[str],
) -> dict[str, Any]:
    topology: dict[str, Any] = {"sku": accelerator.id}
    lscpu = machine.first("lscpu")
    topology["threadsPerCore"] = lscpu.fields["threads_per_core"] if lscpu is not None else None
    nics, unplaced = _nic_homes(matrix, homes)
    if unplaced:
        remarks.append(
            f"no GPU is near {_some(unplaced)}: add them to their NUMA node by hand (/sys/class/infiniband/*/device/numa_node)"
        )
    distances = _distances(machine)
    if distances is None and len(nodes) > 1:
        remarks.append("distances are not known: add the output of `numactl -H`")
    entries = []
    for node in sorted(nodes):
        entry: dict[str, Any] = {"cpus": nodes[node], "memory": _memory(sizes[node])}
        entry["gpus"] = sorted(gpu for gpu, home in homes.items() if home == node)
        if names := [nic for nic, home in nics.items() if home == node]:
            entry["nics"] = names
        if distances is not None:
            entry["distances"] = distances[node]
        entries.append(entry)
    topology["numaNodes"] = entries
    domains = _link_domains(matrix)
    if domains is None:
        default = default_link_domains(accelerator, len(homes))
        if default is None:
            remarks.append("linkDomains cannot be read from this output: list the GPU indices that NVLink or xGMI joins")
    elif domains != [list(domain) for domain in default_link_domains(accelerator, len(homes)) or ()] or (
        default_link_domains(accelerator, len(homes)) is None
    ):
        topology["linkDomains"] = domains
    if switches := _switch_groups(matrix):
        topology["switchGroups"] = switches
    if lscpu is not None and lscpu.fields["sockets"] is not None:
        topology["sockets"] = lscpu.fields["sockets"]
    if lscpu is not None and lscpu.fields["hypervisor"]:
        topology["virtualMachine"] = True
    if (partition := _partition(machine)) is not None:
        topology["partition"] = partition
    return topology


def _accelerator(machine: Machine, sku: str | None, problems: list[Diagnosis], source: str) -> Accelerator | None:
    names: list[str] = []
    for report in machine.reports:
        if report.kind in ("nvidia-smi-L", "nvidia-smi-query"):
            names += [name for name in report.fields["names"] if name]
            if report.fields.get("mig"):
                problems.append(
                    Diagnosis(
                        path=source,
                        code="MigSlices",
                        message="MIG is on: a slice is no GPU of a shape; take the outputs with MIG off (`nvidia-smi -mig 0`).",
                    )
                )
        elif report.kind == "rocm-smi-concise" and report.fields["did"]:
            names.append(report.fields["did"])
        elif report.kind == "node-labels" and report.fields["product"]:
            names.append(report.fields["product"])
    kinds = sorted({*names})
    if len(kinds) > 1 and len({*map(_found, kinds)}) > 1:
        problems.append(
            Diagnosis(
                path=source, code="MixedGpus", message=f"the machine has different GPUs ({', '.join(kinds)}); a shape has one kind."
            )
        )
        return None
    try:
        read = find_accelerator(_pci(kinds[0]), "sku") if kinds else None
    except NumawiseError as error:
        if sku is None:
            problems += [Diagnosis(path=source, code=p.code, message=f"{p.message} Or give --sku.") for p in error.problems]
            return None
        read = None
    if sku is None:
        return read
    wanted = find_accelerator(sku, "--sku")
    if read is not None and wanted.id != read.id:
        problems.append(
            Diagnosis(
                path="--sku",
                code="Contradiction",
                message=f"is {wanted.id}, and the machine says {kinds[0]} ({read.id}); leave one out.",
            )
        )
        return None
    return wanted


def _found(name: str) -> str:
    try:
        return find_accelerator(_pci(name)).id
    except NumawiseError:
        return name


def _pci(name: str) -> str:
    """The name to look up: rocm-smi gives a device id without AMD's vendor id."""
    return f"1002:{name[2:].lower()}" if re.fullmatch(r"0x[0-9a-fA-F]{4}", name) else name


def _node_cpus(machine: Machine) -> dict[int, str] | None:
    for kind in ("lscpu", "numactl-H"):
        report = machine.first(kind)
        if report is not None and report.fields["numa_cpus"] and None not in report.fields["numa_cpus"].values():
            return {int(node): cpus for node, cpus in report.fields["numa_cpus"].items()}
    return None


def _node_sizes(machine: Machine) -> dict[int, int] | None:
    report = machine.first("numactl-H")
    return {int(node): size for node, size in report.fields["size_mib"].items()} if report is not None else None


def _distances(machine: Machine) -> list[list[int]] | None:
    report = machine.first("numactl-H")
    return report.fields["distances"] if report is not None else None


def _memory(size_mib: int) -> str:
    """What the tool prints is rounded; in whole GiB it is the lower bound that a shape asks for."""
    return f"{size_mib // 1024}Gi" if size_mib >= 16 * 1024 or size_mib == 0 else f"{size_mib}Mi"


def _gpu_homes(
    matrix: Report, nodes: Mapping[int, str], missing: Any, problems: list[Diagnosis], source: str
) -> dict[int, int] | None:
    """The NUMA node of each GPU by index, from the NUMA column or, on older drivers, from the CPUs that it is near."""
    numa_column = matrix.fields.get("numa_affinity") or matrix.fields.get("numa")
    gpus = matrix.links.gpus if matrix.links is not None else tuple(range(matrix.fields["gpus"]))
    if gpus != tuple(range(len(gpus))):
        problems.append(
            Diagnosis(
                path=source,
                code="GpusHidden",
                message=f"GPU indices {', '.join(map(str, gpus))} are shown; take it where all GPUs are visible.",
            )
        )
        return None
    if (why := is_flat_view(matrix)) is not None and len([cpus for cpus in nodes.values() if cpus]) > 1:
        missing(f"the NUMA node of each GPU ({why})", "the outputs of the bare machine, or write the nodes by hand")
        return None
    affinities = matrix.fields.get("cpu_affinity") or [None] * len(gpus)
    homes: dict[int, int] = {}
    for gpu in gpus:
        known = matrix.links.numa.get(gpu) if matrix.links is not None else numa_column[gpu] if numa_column else None
        text = affinities[gpu]
        near = set(parse_cpu_list(text)) if isinstance(text, str) and text != "N/A" else set()
        fitting = [node for node, cpus in nodes.items() if near and near <= {*parse_cpu_list(cpus)}]
        if isinstance(known, int) and known not in nodes:
            problems.append(
                Diagnosis(
                    path=source,
                    code="Contradiction",
                    message=f"GPU {gpu} is on NUMA node {known}, and the nodes are 0 to {max(nodes)}.",
                )
            )
            return None
        if isinstance(known, int) and near and known not in fitting:
            message = (
                f"GPU {gpu} is on NUMA node {known} and near CPUs {text}, and that node's CPUs are "
                f"{nodes[known]}; take all outputs on one node."
            )
            problems.append(Diagnosis(path=source, code="Contradiction", message=message))
            return None
        if isinstance(known, int):
            homes[gpu] = known
        elif len(fitting) == 1:
            homes[gpu] = fitting[0]
        elif len(nodes) == 1:
            homes[gpu] = 0
        else:
            missing(
                f"the NUMA node of GPU {gpu}", "`nvidia-smi topo -m` of a driver that prints it (on AMD `rocm-smi --showtoponuma`)"
            )
            return None
    return homes


def _nic_homes(matrix: Report, homes: Mapping[int, int]) -> tuple[dict[str, int], list[str]]:
    """The NUMA node of each NIC: that of the GPUs it reaches without crossing sockets, where those are on one node."""
    placed: dict[str, int] = {}
    unplaced: list[str] = []
    sys = nvidia_link("SYS")
    assert sys is not None
    for column, nic in enumerate(matrix.fields.get("nics") or []):
        near: dict[int, set[int]] = {}
        for gpu, row in enumerate(matrix.fields["gpu_nic"]):
            link = nvidia_link(row[column]) if row[column] else None
            if link is not None and link.rank < sys.rank:
                near.setdefault(link.rank, set()).add(homes[gpu])
        best = near[min(near)] if near else set()
        if len(best) == 1:
            placed[nic] = best.pop()
        else:
            unplaced.append(nic)
    return placed, unplaced


def _link_domains(matrix: Report) -> list[list[int]] | None:
    """Groups of GPUs that are all joined with each other by NVLink or one-hop xGMI; None where groups overlap or links are not known."""
    if matrix.links is None or matrix.fields.get("pcie_only") or matrix.links.unknown_pairs():
        return None
    gpus = matrix.links.gpus
    joined = {
        (a, b)
        for a, b in combinations(gpus, 2)
        if (link := matrix.links.link(a, b)) is not None and link.kind == FABRIC_CLASS and _is_direct(link.label)
    }
    groups: list[list[int]] = []
    for gpu in gpus:
        home = next((group for group in groups if (group[0], gpu) in joined), None)
        if home is None:
            groups.append([gpu])
        else:
            home.append(gpu)
    inside = {pair for group in groups for pair in combinations(group, 2)}
    return [group for group in groups if len(group) > 1] if inside == joined else None


def _is_direct(label: str) -> bool:
    return label.startswith("NV") or label in ("XGMI", "XGMIh1")


def _switch_groups(matrix: Report) -> list[list[int]]:
    """GPUs under one PCIe switch, where the GPU cells themselves show it (NVLink hides it)."""
    if matrix.links is None or matrix.kind != "nvidia-smi-topo-m":
        return []
    pix, pxb = nvidia_link("PIX"), nvidia_link("PXB")
    assert pix is not None and pxb is not None
    groups: list[list[int]] = []
    for gpu in matrix.links.gpus:
        home = next(
            (g for g in groups if (link := matrix.links.link(g[0], gpu)) is not None and pix.rank <= link.rank <= pxb.rank), None
        )
        if home is None:
            groups.append([gpu])
        else:
            home.append(gpu)
    return [group for group in groups if len(group) > 1]


def _partition(machine: Machine) -> str | None:
    report = machine.first("rocm-smi-concise")
    if report is None or report.fields["compute_partition"] in (None, "N/A", "SPX") or not report.fields["mem_partition"]:
        return None
    return f"{report.fields['compute_partition']}_{report.fields['mem_partition']}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
