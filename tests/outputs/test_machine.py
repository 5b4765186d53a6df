"""Outputs put together: which belong to one machine, which contradict each other, and what a matrix hides."""

from __future__ import annotations

from typing import Any

import pytest

from infra.outputs.links import GpuLinks, nvidia_link
from infra.outputs.machine import Machine, contradictions, index_order, is_flat_view, machines, sets_of
from infra.outputs.reading import Notes, Report


def topo(
    *rows: str, numa: Any = None, nics: tuple[str, ...] = (), first_line: int = 1, host: str | None = None, **fields: Any
) -> Report:
    """A matrix of GPUs from its rows of cells; `X` and `?` are no links."""
    cells = [[None if cell in ("X", "?") else cell for cell in row.split()] for row in rows]
    gpus = tuple(range(len(rows)))
    links = {
        (i, j): link
        for i, row in enumerate(cells)
        for j, cell in enumerate(row[: len(rows)])
        if cell and (link := nvidia_link(cell))
    }
    known = {
        "gpus": len(rows),
        "links": [row[: len(rows)] for row in cells],
        "cpu_affinity": None,
        "numa_affinity": numa,
        "nics": list(nics),
        "gpu_nic": [row[len(rows) :] for row in cells] if nics else [],
    }
    homes = {gpu: numa[gpu] if numa else None for gpu in gpus}
    return Report(
        kind="nvidia-smi-topo-m",
        first_line=first_line,
        fields={**known, **fields},
        links=GpuLinks(gpus=gpus, links=links, numa=homes),
        host=host,
    )


def other(kind: str, first_line: int = 1, host: str | None = None, **fields: Any) -> Report:
    return Report(kind=kind, first_line=first_line, fields=fields, host=host)


NVLINK = topo("X NV4", "NV4 X")
PCIE = topo("X SYS", "SYS X")
LSCPU = other("lscpu", nodes=2, numa_cpus={"0": "0-3", "1": "4-7"})
NUMACTL = other("numactl-H", nodes=2, numa_cpus={"0": "0-3", "1": "4-7"})


def grouped(*reports: Report) -> list[tuple[str | None, list[str]]]:
    return [(machine.host, [report.kind for report in machine.reports]) for machine in machines(reports)]


def test_outputs_without_hosts_are_one_machine_until_a_kind_comes_again() -> None:
    again = other("lscpu", nodes=4)
    assert grouped(LSCPU, NUMACTL, again) == [(None, ["lscpu", "numactl-H"]), (None, ["lscpu"])]
    assert grouped(LSCPU, LSCPU) == [(None, ["lscpu"])]


def test_hosts_tell_machines_apart_and_are_remembered() -> None:
    a, b = other("lscpu", host="a", nodes=1), other("lscpu", host="b", nodes=1)
    of_a = other("numactl-H", host="a", nodes=1)
    assert grouped(a, b, of_a) == [("a", ["lscpu", "numactl-H"]), ("b", ["lscpu"])]
    assert grouped(LSCPU, of_a) == [("a", ["lscpu", "numactl-H"])]
    assert grouped(of_a, LSCPU) == [("a", ["numactl-H", "lscpu"])]


def test_a_pcie_view_belongs_to_the_matrix_with_nvlink_in_any_order() -> None:
    for pair in ((NVLINK, PCIE), (PCIE, NVLINK)):
        (machine,) = machines(pair)
        assert machine.matrix is not None and machine.matrix.fields["links"] == NVLINK.fields["links"]
        assert [report.fields.get("pcie_only") for report in machine.reports] == [
            True if report is PCIE or report.fields["links"] == PCIE.fields["links"] else None for report in machine.reports
        ]
    assert len(machines((NVLINK, PCIE, topo("X PIX", "PIX X")))) == 2
    assert len(machines((NVLINK, topo("X NV2", "NV2 X")))) == 2
    assert len(machines((NVLINK, topo("X SYS", "SYS X", numa=[0, 1])))) == 2
    (alone,) = machines((topo("X SYS", "SYS X", pcie_only=True),))
    assert alone.matrix is not None and alone.matrix.fields["pcie_only"]


def test_several_peer_tables_of_the_same_gpus_belong_together() -> None:
    def peers(gpus: int, state: str) -> Report:
        return other("nvidia-smi-topo-p2p", gpus=gpus, p2p=state)

    assert len(machines((peers(2, "all"), peers(2, "none")))) == 1
    assert len(machines((peers(2, "all"), peers(4, "none")))) == 2
    assert len(machines((other("nccl-log", a=1), other("nccl-log", a=2)))) == 2


def test_the_main_output_is_the_matrix_then_the_first_in_order_of_kinds() -> None:
    mixed = Machine(host=None, reports=(other("odd", 1), other("lscpu", 9), other("numactl-H", 5), other("odd", 2)))
    assert mixed.main.kind == "numactl-H"
    assert Machine(host=None, reports=(other("odd", 7), other("even", 3))).main.kind == "even"
    assert Machine(host=None, reports=(LSCPU, NVLINK)).main is NVLINK
    assert mixed.first("x", "lscpu", "odd") is mixed.reports[1]
    assert mixed.first("x") is None


def amd(numa: Any) -> Report | None:
    smi = Report(kind="amd-smi-topology", first_line=1, fields={"gpus": 2}, links=PCIE.links)
    rocm = Report(kind="rocm-smi-showtopo", first_line=2, fields={"gpus": 2, "numa": numa})
    return Machine(host=None, reports=(smi, rocm)).matrix


@pytest.mark.parametrize(
    ("numa", "homes"),
    [([1, 0], {0: 1, 1: 0}), ([-1, None], {0: None, 1: None}), ([0], {0: None, 1: None}), (None, {0: None, 1: None})],
)
def test_rocm_smi_gives_amd_smi_its_numa_nodes(numa: Any, homes: dict[int, int | None]) -> None:
    found = amd(numa)
    assert found is not None and found.links is not None
    assert found.links.numa == homes
    assert ("numa" in found.fields) == (numa is not None and len(numa) == 2)


@pytest.mark.parametrize(
    ("reports", "sentences"),
    [
        ((LSCPU, NUMACTL, NVLINK), []),
        ((NVLINK, other("nvidia-smi-L", gpus=2)), []),
        ((NVLINK, other("nvidia-smi-L", gpus=3)), ["nvidia-smi-topo-m shows 2 GPUs and nvidia-smi-L 3"]),
        ((NVLINK, other("rocm-smi-concise", gpus=None), other("node-labels", gpus=9)), []),
        ((LSCPU, other("numactl-H", nodes=1, numa_cpus={})), ["lscpu shows 2 NUMA nodes and numactl 1"]),
        (
            (LSCPU, other("numactl-H", nodes=2, numa_cpus={"0": "0-2", "1": "9"})),
            ["lscpu gives NUMA node 0 the CPUs 0-3 and numactl 0-2"],
        ),
        ((LSCPU, other("numactl-H", nodes=2, numa_cpus={"0": None, "1": "4,5,6,7"})), []),
        (
            (LSCPU, topo("X NV4", "NV4 X", numa=[0, 2])),
            ["nvidia-smi puts GPUs on NUMA node 2 and lscpu shows 2 nodes"],
        ),
        ((NUMACTL, topo("X NV4", "NV4 X", numa=[0, 1])), []),
        ((NUMACTL, topo("X NV4", "NV4 X", numa=["0-1", "N/A"])), []),
        ((other("lscpu", nodes=None, numa_cpus={}), topo("X NV4", "NV4 X", numa=[0, 7])), []),
    ],
)
def test_what_cannot_be_one_machine_is_told_with_both_numbers(reports: tuple[Report, ...], sentences: list[str]) -> None:
    assert list(contradictions(Machine(host=None, reports=reports))) == sentences


def test_what_is_cut_contradicts_nothing() -> None:
    def cut(report: Report) -> Report:
        return Report(kind=report.kind, first_line=1, fields=report.fields, cut=True)

    fewer = other("numactl-H", nodes=1, numa_cpus={})
    for reports in ((NVLINK, cut(other("nvidia-smi-L", gpus=3))), (LSCPU, cut(fewer)), (cut(LSCPU), fewer)):
        assert contradictions(Machine(host=None, reports=reports)) == ()


PHB = ("X PHB PHB", "PHB X PHB", "PHB PHB X")
FLAT = "every PCIe path is PHB and all GPUs have one NUMA value"


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (topo(*PHB), FLAT),
        (topo(*PHB, numa=[0, 0, 0]), FLAT),
        (topo(*PHB, numa=["N/A"] * 3), FLAT),
        (topo(*PHB, numa=[0, 0, 1]), None),
        (topo("X NV4 PHB", "NV4 X PHB", "PHB PHB X"), FLAT),
        (topo("X SYS PHB", "SYS X PHB", "PHB PHB X"), None),
        (topo("X NV4 NV4", "NV4 X NV4", "NV4 NV4 X"), None),
        (topo("X PHB", "PHB X"), None),
        (topo("X PHB PHB", "PHB X PHB", nics=("m",)), FLAT),
        (topo("X PHB SYS", "PHB X SYS", nics=("m",)), None),
        (topo("X"), None),
        (topo(*PHB, pcie_only=True), None),
        (topo("X PIX", "PIX X", numa=["0-1", "0-1"]), "every GPU is said to be near NUMA nodes 0-1"),
        (topo("X PIX", "PIX X", numa=["0-1", "2-3"]), None),
        (topo("X PIX", "PIX X", numa=["N/A", "N/A"]), None),
        (topo("X PIX", "PIX X", numa=[0, 0]), None),
        (other("rocm-smi-showtopo", gpus=8), None),
    ],
)
def test_a_flat_view_is_one_path_and_one_numa_value(report: Report, why: str | None) -> None:
    assert is_flat_view(report) == why


@pytest.mark.parametrize(
    ("numa", "told"), [([0, 0, 1], False), ([1, 0, 1], True), ([0, None, 0], False), ([1, None, 0], False), (None, False)]
)
def test_indices_that_do_not_follow_numa_nodes_are_told(numa: Any, told: bool) -> None:
    found = index_order(topo(*PHB, numa=numa))
    assert (found is not None) == told
    assert index_order(LSCPU) is None


def test_the_best_sets_are_of_2_4_and_8_gpus() -> None:
    five = topo(*(" ".join("X" if i == j else "NV4" for j in range(5)) for i in range(5)))
    assert list(sets_of(five)) == [2, 4]


def test_notes_hold_each_sentence_once_and_no_more_than_a_person_reads() -> None:
    notes = Notes()
    for number in (*range(14), 0, 3):
        notes.add(f"note {number}")
    assert notes.all() == (*(f"note {number}" for number in range(12)), "and 2 more of the kind")
    few = Notes(most=1)
    few.add("a")
    assert few.all() == ("a",)
