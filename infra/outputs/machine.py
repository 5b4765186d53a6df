"""The outputs of one machine put together, and outputs of several machines separated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from infra.diagnosis import Diagnosis
from infra.outputs.links import GpuSet, best_sets
from infra.outputs.reading import Report
from infra.units import parse_cpu_list

MATRIX_KINDS = ("nvidia-smi-topo-m", "rocm-smi-showtopo", "amd-smi-topology", "amd-smi-topology-json")
# Which output stands for a machine, where there are several.
_ORDER = (*MATRIX_KINDS, "nvidia-smi-topo-p2p", "numactl-H", "lscpu", "nvidia-smi-L", "nvidia-smi-query", "rocm-smi-concise")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """All outputs of one machine, none twice."""

    host: str | None
    reports: tuple[Report, ...]

    def first(self, *kinds: str) -> Report | None:
        """The first output of these kinds, in the order given."""
        return next((report for kind in kinds for report in self.reports if report.kind == kind), None)

    @property
    def matrix(self) -> Report | None:
        """The output that shows how the GPUs are linked; `-mp` only where there is no other."""
        found = [report for kind in MATRIX_KINDS for report in self.reports if report.kind == kind and report.links is not None]
        best = next((report for report in found if not report.fields.get("pcie_only")), found[0] if found else None)
        return self._with_numa(best) if best is not None and best.kind.startswith("amd-smi") else best

    def _with_numa(self, report: Report) -> Report:
        """amd-smi prints no NUMA nodes; `rocm-smi --showtoponuma` of the same machine does, in the same order of GPUs."""
        rocm = self.first("rocm-smi-showtopo")
        numa = rocm.fields["numa"] if rocm is not None else None
        if report.links is None or numa is None or len(numa) != len(report.links.gpus):
            return report
        homes = {gpu: node if node is not None and node >= 0 else None for gpu, node in zip(report.links.gpus, numa, strict=True)}
        return replace(report, links=replace(report.links, numa=homes), fields={**report.fields, "numa": numa})

    @property
    def main(self) -> Report:
        """The output that the machine's document is made of."""
        if self.matrix is not None:
            return self.matrix
        rank = {kind: position for position, kind in enumerate(_ORDER)}
        return min(self.reports, key=lambda report: (rank.get(report.kind, len(_ORDER)), report.first_line))


def machines(reports: Sequence[Report]) -> tuple[Machine, ...]:
    """The outputs by machine: by host name where prompts or banners give it, else a kind that comes again begins a new machine."""
    groups: list[tuple[str | None, list[Report]]] = []
    for report in reports:
        group = next((g for g in groups if report.host is not None and g[0] == report.host), None)
        if group is None and groups and (report.host is None or groups[-1][0] is None):
            group = groups[-1]
        if group is None:
            groups.append((report.host, [report]))
            continue
        same = [other for other in group[1] if other.kind == report.kind]
        if any(other.fields == report.fields for other in same):
            continue
        if same and not _complementary(same, report):
            groups.append((report.host, [report]))
            continue
        if same and report.kind == "nvidia-smi-topo-m":
            _mark_pcie_only(group[1], report)
        else:
            group[1].append(report)
        if group[0] is None and report.host is not None:
            groups[groups.index(group)] = (report.host, group[1])
    return tuple(Machine(host=host, reports=tuple(members)) for host, members in groups)


def _complementary(same: Sequence[Report], report: Report) -> bool:
    """Whether `report` adds to outputs of its kind: `topo -mp` beside `-m`, or another log."""
    if report.kind in ("kubelet-log", "nccl-log"):
        return False
    if report.kind == "nvidia-smi-topo-m":
        return len(same) == 1 and _is_pcie_view(same[0], report)
    if report.kind == "nvidia-smi-topo-p2p":
        return all(other.fields["gpus"] == report.fields["gpus"] for other in same)
    return False


def _is_pcie_view(one: Report, other: Report) -> bool:
    def has_nvlink(report: Report) -> bool:
        return any(str(cell).startswith("NV") for row in report.fields["links"] for cell in row)

    alike = all(one.fields[name] == other.fields[name] for name in ("gpus", "cpu_affinity", "numa_affinity", "nics", "gpu_nic"))
    return alike and has_nvlink(one) != has_nvlink(other)


def _mark_pcie_only(group: list[Report], report: Report) -> None:
    position = next(i for i, other in enumerate(group) if other.kind == report.kind)
    views = [group[position], report]
    marked = [
        view
        if any(str(cell).startswith("NV") for row in view.fields["links"] for cell in row)
        else replace(view, fields={**view.fields, "pcie_only": True})
        for view in views
    ]
    group[position] = marked[0]
    group.append(marked[1])


def contradictions(machine: Machine) -> tuple[str, ...]:
    """Where the outputs cannot be of one machine, each as a sentence with both numbers."""
    found: list[str] = []
    counted = [
        (report.kind, report.fields["gpus"])
        for report in machine.reports
        if report.kind in (*MATRIX_KINDS, "nvidia-smi-topo-p2p", "nvidia-smi-L", "nvidia-smi-query", "rocm-smi-concise")
        and isinstance(report.fields.get("gpus"), int)
        and not report.cut
    ]
    for (one, count), (other, other_count) in combinations(counted, 2):
        if count != other_count:
            found.append(f"{one} shows {count} GPUs and {other} {other_count}")
    found += _links_that_differ(machine)
    lscpu, numactl = machine.first("lscpu"), machine.first("numactl-H")
    if lscpu is not None and numactl is not None and not lscpu.cut and not numactl.cut:
        if lscpu.fields["nodes"] != numactl.fields["nodes"]:
            found.append(f"lscpu shows {lscpu.fields['nodes']} NUMA nodes and numactl {numactl.fields['nodes']}")
        else:
            for node, cpus in lscpu.fields["numa_cpus"].items():
                other_cpus = numactl.fields["numa_cpus"].get(node)
                if cpus is not None and other_cpus is not None and parse_cpu_list(cpus) != parse_cpu_list(other_cpus):
                    found.append(f"lscpu gives NUMA node {node} the CPUs {cpus} and numactl {other_cpus}")
                    break
    nvidia = machine.first("nvidia-smi-topo-m")
    nodes = lscpu or numactl
    if nvidia is not None and nodes is not None and isinstance(nodes.fields.get("nodes"), int):
        beyond = [n for n in nvidia.fields.get("numa_affinity") or [] if isinstance(n, int) and n >= nodes.fields["nodes"]]
        if beyond:
            found.append(f"nvidia-smi puts GPUs on NUMA node {max(beyond)} and {nodes.kind} shows {nodes.fields['nodes']} nodes")
    return tuple(found)


def _links_that_differ(machine: Machine) -> Iterator[str]:
    """Matrices of two tools that join the same two GPUs by NVLink or xGMI here and by PCIe there."""
    matrices = [report for report in machine.reports if report.kind in MATRIX_KINDS and not report.fields.get("pcie_only")]
    for one, other in combinations(matrices, 2):
        if one.links is None or other.links is None or one.links.gpus != other.links.gpus:
            continue
        for a, b in combinations(one.links.gpus, 2):
            here, there = one.links.link(a, b), other.links.link(a, b)
            if here is not None and there is not None and here.kind != there.kind:
                yield f"{one.kind} joins GPUs {a} and {b} by {here.label} and {other.kind} by {there.label}"
                break


def is_flat_view(report: Report) -> str | None:
    """Why a matrix is a virtual machine's flat view (or a container's) that does not show NUMA; None where it is not.

    A hypervisor that hides PCIe switches leaves PHB everywhere but for NVLink, and one NUMA value (or none, or a span) for all GPUs.
    """
    if report.kind != "nvidia-smi-topo-m" or report.fields["gpus"] < 2 or report.fields.get("pcie_only"):
        return None
    numa = report.fields["numa_affinity"]
    if numa and _is_one_span(numa):
        return f"every GPU is said to be near NUMA nodes {numa[0]}"
    flat = numa is None or len({str(value) for value in numa}) == 1
    cells = {cell for i, row in enumerate(report.fields["links"]) for j, cell in enumerate(row) if i != j and cell is not None}
    nic_cells = {cell for row in report.fields["gpu_nic"] for cell in row if cell is not None}
    outside = {cell for cell in cells | nic_cells if not cell.startswith("NV")}
    if flat and outside == {"PHB"} and (nic_cells or report.fields["gpus"] > 2):
        return "every PCIe path is PHB and all GPUs have one NUMA value"
    return None


def _is_one_span(numa: Sequence[int | str | None]) -> bool:
    """One span such as `0-1` for all GPUs. On Grace machines the lists differ by GPU (and hold memory-only nodes)."""
    return len({*numa}) == 1 and isinstance(numa[0], str) and numa[0] != "N/A"


def index_order(report: Report) -> Diagnosis | None:
    """Tells where GPU indices do not follow NUMA nodes: the first half of the GPUs is then no NUMA half."""
    if report.links is None:
        return None
    nodes = [report.links.numa.get(gpu) for gpu in report.links.gpus]
    known = [node for node in nodes if isinstance(node, int)]
    if len(known) < len(nodes) or known == sorted(known):
        return None
    return Diagnosis.info(
        path="",
        code="GpuOrderIsNotNumaOrder",
        message=f"GPU indices do not follow NUMA nodes: by index they are on nodes {', '.join(map(str, known))}.",
        remedy="Bind ranks by each GPU's own node, not by halves.",
    )


def sets_of(report: Report) -> dict[int, GpuSet | None]:
    """The best GPU set of each size; a size that would take too long is left out."""
    found: dict[int, GpuSet | None] = {}
    assert report.links is not None
    for size in (2, 4, 8):
        try:
            found |= best_sets(report.links, (size,))
        except ValueError:
            continue
    return found
