"""A machine's outputs against the node shape that it should have."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from infra.catalog.types import Accelerator, NodeShape
from infra.catalog.vendors import vendors
from infra.outputs.links import FABRIC_CLASS, GpuLinks, Link
from infra.outputs.machine import Machine, is_flat_view
from infra.outputs.reading import Report
from infra.units import format_bytes, format_cpu_list, parse_cpu_list

Agreement = Literal["same", "degraded", "different", "virtual"]
MIB = 2**20
LEAST_MEMORY_SHARE = 0.85  # of what the maker states: firmware, kernel and a hypervisor take the rest
MEMORY_TOLERANCE = 0.02  # ECC and drivers move what nvidia-smi prints by less


@dataclass(frozen=True, kw_only=True)
class Difference:
    """`worse`: the machine is of the shape, and something of it does not work; else it is another machine."""

    message: str
    worse: bool


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`same`, `degraded` (a link, a card or memory is missing), `different`, or `virtual`: a flat view that hides NUMA."""

    shape: str
    verdict: Agreement
    differences: tuple[Difference, ...]
    compared: tuple[str, ...]
    not_compared: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self.verdict in ("same", "virtual")

    @property
    def sentence(self) -> str:
        if self.verdict == "same":
            return f"This fits {self.shape}: {', '.join(self.compared) or 'nothing that could be compared'} agree."
        if self.verdict == "virtual":
            return f"As far as it can be seen this is {self.shape}; {'; '.join(self.not_compared)}."
        first = self.differences[0].message
        more = f" (and {len(self.differences) - 1} more)" if len(self.differences) > 1 else ""
        return f"This is {'a degraded' if self.verdict == 'degraded' else 'not'} {self.shape}: {first}{more}."


def compare(machine: Machine, shape: NodeShape, accelerator: Accelerator) -> Comparison:
    """Compares what the outputs show; what they do not show is named in `not_compared` and is no difference."""
    found: list[Difference] = []
    compared: list[str] = []
    unseen: list[str] = []
    flat: str | None = None
    matrix = machine.matrix
    if matrix is None:
        unseen.append("no output shows how the GPUs are linked")
    else:
        _compare_links(matrix, shape, accelerator, found, compared, unseen)
        flat = _compare_numa(matrix, shape, found, compared, unseen)
        _compare_nics(matrix, shape, found, compared)
    _compare_nodes(machine, shape, found, compared)
    _compare_totals(machine, shape, found)
    _compare_names(machine, shape, accelerator, found, compared)
    if any(not difference.worse for difference in found):
        verdict: Agreement = "different"
    elif found:
        verdict = "degraded"
    elif flat is not None:
        verdict = "virtual"
    else:
        verdict = "same"
    found.sort(key=lambda difference: difference.worse)
    return Comparison(
        shape=shape.id, verdict=verdict, differences=tuple(found), compared=tuple(compared), not_compared=tuple(unseen)
    )


def _compare_links(
    matrix: Report, shape: NodeShape, accelerator: Accelerator, found: list[Difference], compared: list[str], unseen: list[str]
) -> None:
    assert matrix.links is not None
    count = len(matrix.links.gpus)
    if count != shape.gpus:
        found.append(Difference(message=f"{count} GPUs are shown and {shape.gpus} are expected", worse=False))
        return
    compared.append("the number of GPUs")
    if shape.link_domains is None:
        unseen.append(f"the catalog does not know the link domains of {shape.id}")
        return
    if matrix.fields.get("pcie_only"):
        unseen.append("`topo -mp` does not show NVLink; run `nvidia-smi topo -m`")
        _compare_switches(matrix.links, shape, found, compared)
        return
    inside = {pair for domain in shape.link_domains for pair in combinations(domain, 2)}
    lost: list[tuple[int, int, Link]] = []
    extra: list[tuple[int, int, Link]] = []
    fewer: dict[int, list[tuple[int, int]]] = {}
    fabric_pairs = unread = 0
    expected_links = accelerator.fabric.links if matrix.kind == "nvidia-smi-topo-m" else None
    for position in combinations(range(count), 2):
        link = matrix.links.link(matrix.links.gpus[position[0]], matrix.links.gpus[position[1]])
        if link is None:
            unread += 1
        elif position in inside and link.kind != FABRIC_CLASS:
            lost.append((*position, link))
        elif position in inside:
            fabric_pairs += 1
            number = -link.rank
            if expected_links is not None and number != expected_links:
                fewer.setdefault(number, []).append(position)
        elif link.kind == FABRIC_CLASS and accelerator.fabric.kind != "xgmi-partial":
            extra.append((*position, link))
    name = vendors()[accelerator.vendor].fabric_name
    if lost:
        pairs = _pairs([(a, b) for a, b, _ in lost])
        found.append(
            Difference(message=f"GPUs {pairs} are joined by {lost[0][2].label} and should be by {name}", worse=fabric_pairs > 0)
        )
    for number, pairs in sorted(fewer.items()):
        everywhere = len(pairs) == fabric_pairs
        found.append(
            Difference(
                message=f"{'all GPUs' if everywhere else f'GPUs {_pairs(pairs)}'} have {number} NVLinks and "
                f"{expected_links} are expected",
                worse=not everywhere and number < (expected_links or 0),
            )
        )
    if extra:
        pairs = _pairs([(a, b) for a, b, _ in extra])
        found.append(
            Difference(message=f"GPUs {pairs} are joined by {extra[0][2].label}, which {shape.id} does not have", worse=False)
        )
    if unread:
        unseen.append(f"{unread} links cannot be read")
    if not (lost or fewer or extra):
        compared.append("the links" if not unread else "the links that can be read")


def _compare_switches(links: GpuLinks, shape: NodeShape, found: list[Difference], compared: list[str]) -> None:
    """GPUs of one PCIe switch, which only the view without NVLink shows."""
    pairs = [pair for group in shape.switch_groups for pair in combinations(group, 2)]
    for a, b in pairs:
        link = links.link(links.gpus[a], links.gpus[b])
        if link is not None and link.label not in ("PIX", "PXB"):
            found.append(
                Difference(message=f"GPUs {a}-{b} are joined by {link.label} and should be under one PCIe switch", worse=False)
            )
            return
    if pairs:
        compared.append("the PCIe switches")


def _compare_numa(matrix: Report, shape: NodeShape, found: list[Difference], compared: list[str], unseen: list[str]) -> str | None:
    """Compares each GPU's NUMA node; returns why the view is flat where it is."""
    assert matrix.links is not None
    seen = [matrix.links.numa.get(gpu) for gpu in matrix.links.gpus]
    expected = shape.gpu_numa_nodes
    if len(seen) != len(expected) or None in expected:
        if len(seen) == len(expected):
            unseen.append(f"the catalog does not know the NUMA nodes of the GPUs of {shape.id}")
        return None
    hidden = shape.virtual_machine is True and shape.numa_in_guest is False
    flat = is_flat_view(matrix)
    if flat is None and len({*expected}) > 1 and len({*seen}) == 1 and matrix.kind == "nvidia-smi-topo-m":
        flat = "all GPUs have one NUMA value" if seen[0] is not None else "no GPU has a NUMA node"
    if flat is not None:
        unseen.append(f"NUMA cannot be compared: {flat}, as a virtual machine or a container with few CPUs shows it")
        return None if hidden else flat
    if all(node is None for node in seen):
        unseen.append("this output does not tell the NUMA nodes of the GPUs")
        return None
    wrong = [i for i, (one, other) in enumerate(zip(seen, expected, strict=True)) if one is not None and one != other]
    if wrong:
        first = wrong[0]
        found.append(
            Difference(
                message=f"GPU {first} is on NUMA node {seen[first]} and should be on {expected[first]}"
                + (f", and {len(wrong) - 1} more GPUs differ" if len(wrong) > 1 else ""),
                worse=False,
            )
        )
    else:
        compared.append("the NUMA node of each GPU")
    _compare_affinity(matrix, shape, found, unseen)
    return None


def _compare_affinity(matrix: Report, shape: NodeShape, found: list[Difference], unseen: list[str]) -> None:
    affinities = matrix.fields.get("cpu_affinity") or []
    for gpu, text in enumerate(affinities):
        node = shape.gpu_numa_nodes[gpu]
        cpus = shape.numa_nodes[node].cpus if node is not None else None
        if not text or text == "N/A" or not cpus:
            continue
        near = set(parse_cpu_list(text))
        if strange := near - set(cpus):
            found.append(
                Difference(
                    message=f"GPU {gpu} is near CPUs {format_cpu_list(strange)}, which are not on its NUMA node {node} "
                    f"({format_cpu_list(cpus)})",
                    worse=False,
                )
            )
            return
        if near != set(cpus):
            unseen.append(f"GPU {gpu} shows CPUs {text} of {format_cpu_list(cpus)}: CPUs are off-line, or the cpuset is smaller")
            return


def _compare_nics(matrix: Report, shape: NodeShape, found: list[Difference], compared: list[str]) -> None:
    nics = matrix.fields.get("nics") or []
    count = shape.network.count if shape.network is not None else None
    if not nics or "nics_found" in matrix.fields:
        return
    named = [nic for node in shape.numa_nodes for nic in node.nics]
    if missing := [nic for nic in named if nic not in nics]:
        found.append(Difference(message=f"NICs {', '.join(missing)} are missing", worse=True))
    elif count is not None and len(nics) < count:
        kind = f" ({shape.network.kind})" if shape.network is not None and shape.network.kind else ""
        found.append(Difference(message=f"{len(nics)} NICs are shown and {count}{kind} are expected", worse=True))
    elif named or count is not None:
        compared.append("the NICs")


def _compare_nodes(machine: Machine, shape: NodeShape, found: list[Difference], compared: list[str]) -> None:
    for kind in ("numactl-H", "lscpu"):
        report = machine.first(kind)
        if report is None:
            continue
        nodes = report.fields["nodes"]
        if shape.numa_node_count is not None and nodes is not None and nodes != shape.numa_node_count:
            found.append(Difference(message=f"{nodes} NUMA nodes are shown and {shape.numa_node_count} are expected", worse=False))
            continue
        before = len(found)
        for node in shape.numa_nodes:
            shown = report.fields["numa_cpus"].get(str(node.id))
            if shown is None or node.cpus is None:
                continue
            have, want = set(parse_cpu_list(shown)), set(node.cpus)
            if have < want:
                missing = format_cpu_list(want - have)
                found.append(Difference(message=f"CPUs {missing} of NUMA node {node.id} are off-line", worse=True))
            elif have != want:
                message = f"NUMA node {node.id} has CPUs {shown} and {format_cpu_list(want)} are expected"
                found.append(Difference(message=message, worse=False))
            size = report.fields.get("size_mib", {}).get(str(node.id))
            if size is not None and node.memory_bytes is not None and (size + 1) * MIB <= node.memory_bytes:
                message = (
                    f"NUMA node {node.id} has {size} MiB of memory and at least {format_bytes(node.memory_bytes)} are expected"
                )
                found.append(Difference(message=message, worse=True))
        for name, want_number in (("sockets", shape.sockets), ("threads_per_core", shape.threads_per_core)):
            have_number = report.fields.get(name)
            if have_number is not None and want_number is not None and have_number != want_number:
                what = name.replace("_", " ")
                found.append(Difference(message=f"{what} is {have_number} and {want_number} is expected", worse=False))
        if len(found) == before and shape.numa_nodes:
            compared.append("CPUs and memory" if kind == "numactl-H" else "the CPUs of each NUMA node")


def _compare_totals(machine: Machine, shape: NodeShape, found: list[Difference]) -> None:
    """CPUs and memory of the whole machine, where the catalog does not know them by NUMA node."""
    lscpu, numactl = machine.first("lscpu"), machine.first("numactl-H")
    cpus = lscpu.fields.get("cpus") if lscpu is not None else None
    if cpus is not None and shape.cpu_count is not None and not shape.lists_cpus and cpus != shape.cpu_count:
        found.append(Difference(message=f"{cpus} CPUs are shown and {shape.cpu_count} are expected", worse=False))
    sizes = list(numactl.fields.get("size_mib", {}).values()) if numactl is not None else []
    if not sizes or None in sizes or shape.memory_bytes is None:
        return
    total = sum(sizes) * MIB
    if not LEAST_MEMORY_SHARE * shape.memory_bytes <= total <= shape.memory_bytes:
        message = f"{format_bytes(total)} of memory are shown and {format_bytes(shape.memory_bytes)}, less what the kernel takes, are expected"
        found.append(Difference(message=message, worse=total < shape.memory_bytes))


def _compare_names(
    machine: Machine, shape: NodeShape, accelerator: Accelerator, found: list[Difference], compared: list[str]
) -> None:
    for report in machine.reports:
        if report.kind in ("nvidia-smi-L", "nvidia-smi-query"):
            names = {name for name in report.fields["names"] if name}
            if strange := sorted(name for name in names if not _is_called(name, accelerator)):
                found.append(
                    Difference(
                        message=f"the GPUs are called {', '.join(strange)} and {accelerator.driver_name} is expected", worse=False
                    )
                )
            elif names:
                compared.append("the GPUs' name")
            size, wanted = report.fields.get("mib"), accelerator.memory.smi_mib
            if size is not None and wanted is not None and abs(size - wanted) > MEMORY_TOLERANCE * wanted:
                found.append(Difference(message=f"the GPUs have {size} MiB and {wanted} MiB are expected", worse=False))
            if report.fields["gpus"] and report.fields["gpus"] != shape.gpus and machine.matrix is None:
                found.append(
                    Difference(message=f"{report.fields['gpus']} GPUs are shown and {shape.gpus} are expected", worse=False)
                )
            if report.fields.get("mig"):
                found.append(Difference(message="MIG is on", worse=True))
        if report.kind == "rocm-smi-concise" and (device := report.fields["did"]) and accelerator.pci_ids:
            known = {item.lower().rpartition(":")[2] for item in accelerator.pci_ids}
            if device.lower().removeprefix("0x") not in known:
                found.append(
                    Difference(message=f"the device id is {device} and {', '.join(sorted(known))} is expected", worse=False)
                )
            else:
                compared.append("the device id")


def _is_called(name: str, accelerator: Accelerator) -> bool:
    def plain(text: str) -> str:
        return text.lower().replace("nvidia", "").replace("-", " ").strip()

    return plain(name) in {plain(text) for text in (accelerator.driver_name, *accelerator.label_values) if text}


def _pairs(pairs: list[tuple[int, int]]) -> str:
    return ", ".join(f"{a}-{b}" for a, b in pairs[:4]) + (f" and {len(pairs) - 4} more pairs" if len(pairs) > 4 else "")
