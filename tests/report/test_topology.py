"""A machine's outputs as text and as JSON: each line and key from a machine that is made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest

from infra.diagnosis import Diagnosis
from infra.outputs.expected import Comparison, Difference
from infra.outputs.links import GpuLinks, GpuSet, Judgement, nvidia_link
from infra.outputs.machine import Machine
from infra.outputs.reading import Report
from infra.report.topology import machine_text, topology_as_json, topology_as_text


def link(cell: str) -> Any:
    found = nvidia_link(cell)
    assert found is not None
    return found


def matrix(
    cells: Mapping[tuple[int, int], str], homes: Mapping[int, int | None], *, kind: str = "nvidia-smi-topo-m", **fields: Any
) -> Report:
    """A report of a GPU matrix from one cell a pair; a pair that is missing cannot be read."""
    gpus = tuple(sorted(homes))
    labels = [[None if a == b else cells.get((min(a, b), max(a, b))) for b in gpus] for a in gpus]
    nodes = [homes[gpu] for gpu in gpus]
    return Report(
        kind=kind,
        first_line=1,
        fields={"gpus": len(gpus), "links": labels, "numa_affinity": nodes, "nics": [], "gpu_nic": [], **fields},
        links=GpuLinks(gpus=gpus, links={pair: link(cell) for pair, cell in cells.items()}, numa=homes),
    )


def all_pairs(count: int, cell: str) -> dict[tuple[int, int], str]:
    return dict.fromkeys(combinations(range(count), 2), cell)


def of(*reports: Report, host: str | None = None) -> Machine:
    return Machine(host=host, reports=reports)


PAIR = matrix({(0, 1): "NV18"}, {0: 0, 1: 0}, cpu_affinity=["0-7", None])
FOUR = matrix({**all_pairs(4, "SYS"), (0, 1): "NV4", (2, 3): "NV4"}, {0: 0, 1: 0, 2: 1, 3: 1})


def test_two_gpus_are_a_sentence_a_table_of_links_and_a_table_of_sets() -> None:
    assert machine_text(of(PAIR)).split("\n") == [
        "2 GPUs; up to 2 are joined by NVLink with each other, up to 2 within one NUMA node.",
        "",
        "        0     1     NUMA  CPUs",
        "  GPU0  ·     NV18  0     0-7",
        "  GPU1  NV18  ·     0     -",
        "",
        "  size  best GPUs  worst link  class        NUMA nodes  equal sets",
        "  2     0-1        NV18        nvlink/xgmi  1           1",
    ]


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (matrix({}, {0: 0}), "One GPU."),
        (FOUR, "4 GPUs; up to 2 are joined by NVLink with each other, up to 2 within one NUMA node."),
        (
            matrix(all_pairs(4, "NV4"), {0: 0, 1: 0, 2: 1, 3: 1}),
            "4 GPUs; up to 4 are joined by NVLink with each other, up to 2 within one NUMA node.",
        ),
        (matrix(all_pairs(4, "NV4"), dict.fromkeys(range(4))), "4 GPUs; up to 4 are joined by NVLink with each other."),
        (matrix({(0, 1): "NV4"}, {0: 0, 1: 1}), "2 GPUs; up to 2 are joined by NVLink with each other."),
        (
            matrix({(0, 1): "NV4", (0, 2): "SYS"}, {0: 0, 1: 0, 2: 1}),
            "3 GPUs; 1 of 3 links cannot be read, so what is best among the rest is told.",
        ),
        (matrix(all_pairs(2, "PIX"), {0: 0, 1: 0}), "2 GPUs; no two GPUs are joined by NVLink, the nearest are joined by PIX."),
        (
            matrix(all_pairs(2, "PIX"), {0: 0, 1: 0}, kind="amd-smi-topology"),
            "2 GPUs; no two GPUs are joined by xGMI, the nearest are joined by PIX.",
        ),
        (
            matrix(all_pairs(2, "PIX"), {0: 0, 1: 0}, pcie_only=True),
            "2 GPUs; `topo -mp` does not show NVLink, the nearest are joined by PIX.",
        ),
        (
            matrix(all_pairs(3, "PHB"), {0: 0, 1: 0, 2: 0}),
            "3 GPUs in a flat view that hides NUMA (every PCIe path is PHB and all GPUs have one NUMA value): a virtual machine's. "
            "The links below hold, NUMA nodes do not.",
        ),
    ],
)
def test_the_first_line_names_the_largest_group_and_the_largest_on_one_node(report: Report, sentence: str) -> None:
    assert machine_text(of(report)).split("\n")[0] == sentence


def test_links_and_sets_that_cannot_be_read_are_marked() -> None:
    lines = machine_text(of(matrix({(0, 1): "NV4"}, {0: None, 1: None, 2: None, 3: None}))).split("\n")
    assert "  GPU2  ?    ?    ·  ?" in lines
    assert lines[-2:] == [
        "  2     0-1                              NV4         nvlink/xgmi  unknown     1",
        "  4     not known: links cannot be read",
    ]


@pytest.mark.parametrize(("count", "shown"), [(16, True), (17, False)])
def test_up_to_sixteen_gpus_have_their_links_in_a_table(count: int, shown: bool) -> None:
    head, first = machine_text(of(matrix(all_pairs(count, "NV4"), dict.fromkeys(range(count), 0)))).split("\n")[2:4]
    assert head.split() == ([*map(str, range(count))] if shown else []) + ["NUMA"]
    assert first.split()[:2] == (["GPU0", "·"] if shown else ["GPU0", "0"])


def test_columns_are_there_where_an_output_fills_them() -> None:
    report = matrix(
        {(0, 1): "PIX"},
        {0: None, 1: None},
        bdf=["c1:00.0", "c6:00.0"],
        numa=[3, None],
        cpu_affinity=["N/A", "N/A"],
        gpu_numa_id=["N/A", "2"],
        nics=["mlx5_0", "mlx5_1"],
        nearest_nics=[["mlx5_0", "mlx5_1"], []],
    )
    assert machine_text(of(report)).split("\n")[2:5] == [
        "           0    1    NUMA  GPU NUMA  nearest NICs",
        "  c1:00.0  ·    PIX  3     N/A       mlx5_0, mlx5_1",
        "  c6:00.0  PIX  ·    -     2         -",
    ]


def test_gpus_whose_addresses_are_not_all_there_have_their_index() -> None:
    assert "  GPU1  PIX  ·" in machine_text(of(matrix({(0, 1): "PIX"}, {0: None, 1: None}, bdf=["c1:00.0"]))).split("\n")


def test_nics_that_are_near_no_gpu_are_counted_below_the_table() -> None:
    far = matrix({(0, 1): "PIX"}, {0: 0, 1: 0}, nics=["mlx5_0"], nearest_nics=[[], []])
    assert "  none of the 1 NICs shares a PCIe switch with a GPU" in machine_text(of(far)).split("\n")
    none = matrix({(0, 1): "PIX"}, {0: 0, 1: 0}, nearest_nics=[[], []])
    assert "NICs" not in machine_text(of(none))


def lscpu(**fields: Any) -> Report:
    known = {"nodes": 2, "cpus": 8, "sockets": 2, "threads_per_core": 1, "hypervisor": None, "model": "Xeon"}
    return Report(kind="lscpu", first_line=9, fields={**known, "numa_cpus": {"0": "0-3", "1": "4-7"}, **fields})


def numactl(**fields: Any) -> Report:
    known = {"nodes": 3, "cpus": 8, "numa_cpus": {"0": "0-3", "1": "4-7", "2": ""}, "size_mib": {"0": 64, "1": 0, "2": 0}}
    return Report(kind="numactl-H", first_line=5, fields={**known, **fields})


def test_nodes_have_their_cpus_memory_and_gpus() -> None:
    assert machine_text(of(FOUR, numactl(), lscpu(hypervisor="KVM"))).split("\n\n")[3].split("\n") == [
        "3 NUMA nodes, 8 CPUs, 2 sockets, 1 threads per core, a virtual machine (KVM), Xeon.",
        "  node  CPUs  count  memory  GPUs",
        "  0     0-3   4      64 MiB  0-1",
        "  1     4-7   4      0 MiB   2-3",
        "  without CPUs and memory: 2",
    ]


def test_what_no_output_gives_has_no_column() -> None:
    unknown = lscpu(sockets=None, threads_per_core=None, model=None, numa_cpus={"0": None, "1": "4-7"})
    assert machine_text(of(unknown)).split("\n") == [
        "2 NUMA nodes, 8 CPUs.",
        "  node  CPUs  count",
        "  1     4-7   4",
        "  without CPUs and memory: 0",
    ]
    sized = numactl(numa_cpus={"0": None, "1": ""}, size_mib={"0": 5, "1": 6})
    assert machine_text(of(sized)).split("\n")[2:] == ["  0     unreadable  0      5 MiB", "  1     none        0      6 MiB"]


@pytest.mark.parametrize(("length", "end"), [(60, "1"), (61, "...")])
def test_long_cpu_lists_are_shortened_to_sixty_characters(length: int, end: str) -> None:
    cpus = ",".join(["100"] * 20)[: length - 1] + "1"
    (row,) = machine_text(of(lscpu(numa_cpus={"0": cpus}))).split("\n")[2:]
    shown = row.split()[1]
    assert len(shown) == 60 and shown.endswith(end)


def test_other_outputs_are_listed_field_by_field_and_lscpu_is_not_listed_again() -> None:
    fields = {
        "policy": None,
        "rows": [[1]],
        "empty": [],
        "on": True,
        "off": False,
        "names": ["a", None],
        "by_node": {"0": {"x": None}},
    }
    other = Report(kind="node-labels", first_line=1, fields=fields)
    assert machine_text(of(lscpu(), numactl(), other)).split("\n\n")[1].split("\n") == [
        "node-labels:",
        "  on: yes",
        "  off: no",
        "  names: a, -",
        "  by node:",
        "    0:",
        "      x: unknown",
    ]


@pytest.mark.parametrize(("length", "shown"), [(200, "x" * 200), (201, "x" * 197 + "...")])
def test_long_lists_are_shortened_to_two_hundred_characters(length: int, shown: str) -> None:
    assert machine_text(of(Report(kind="k", first_line=1, fields={"ids": ["x" * length]}))) == f"k:\n  ids: {shown}"


def test_notes_and_findings_come_last() -> None:
    warned = Report(
        kind="k",
        first_line=1,
        fields={"a": 1},
        notes=("row 3 is cut",),
        findings=(Diagnosis.warning("", "X", "it is odd.", remedy="Look."),),
    )
    crossed = matrix({(0, 1): "NV4"}, {0: 1, 1: 0})
    assert machine_text(of(crossed, warned)).split("\n\n")[-1].split("\n") == [
        "note: row 3 is cut",
        "warning: it is odd. Look.",
        "info: GPU indices do not follow NUMA nodes: by index they are on nodes 1, 0. Bind ranks by each GPU's own node, not by halves.",
    ]


BEST = GpuSet(gpus=(0, 1), worst=link("NV18"), numa_nodes=1, ties=1)
JUDGED = Judgement(verdict="bad", reason="their worst link is SYS", worst=link("SYS"), best=BEST)
COMPARED = Comparison(
    shape="dgx-h100",
    verdict="different",
    differences=(Difference(message="one", worse=False), Difference(message="two", worse=True)),
    compared=("the links",),
    not_compared=("NUMA",),
)
BEST_JSON = {"gpus": [0, 1], "class": "nvlink/xgmi", "worst_link": "NV18", "numa_nodes": 1, "ties": 1}


def test_verdicts_come_before_the_machine_and_further_differences_after_it() -> None:
    lines = topology_as_text(of(PAIR), gpus="0,2", judgement=JUDGED, comparison=COMPARED).split("\n")
    assert lines[:5] == [
        "This is not dgx-h100: one (and 1 more).",
        "",
        "GPUs 0,2: bad; their worst link is SYS.",
        "",
        "2 GPUs; up to 2 are joined by NVLink with each other, up to 2 within one NUMA node.",
    ]
    assert lines[-2:] == ["differs: two", "not compared: NUMA"]
    assert topology_as_text(of(PAIR)) == machine_text(of(PAIR))


def test_the_document_of_one_output_is_its_fields_and_verdicts() -> None:
    document = topology_as_json(of(PAIR), judgement=JUDGED, comparison=COMPARED)
    assert document == {
        "kind": "nvidia-smi-topo-m",
        **PAIR.fields,
        "verdict": {"tp2": BEST_JSON},
        "unreadable": [],
        "truncated": False,
        "notes": [],
        "findings": [],
        "judgement": {"verdict": "bad", "reason": "their worst link is SYS", "worst_link": "SYS", "best": BEST_JSON},
        "expect": {
            "shape": "dgx-h100",
            "verdict": "different",
            "differences": ["one", "two"],
            "compared": ["the links"],
            "notCompared": ["NUMA"],
        },
    }


def test_the_document_of_several_outputs_holds_each_by_itself_too() -> None:
    matrix_of_three = matrix({(0, 1): "NV4"}, {0: 1, 1: 0, 2: 0})
    warned = lscpu(gpus="not the matrix's")
    warned = Report(
        kind=warned.kind,
        first_line=9,
        fields=warned.fields,
        notes=("odd",),
        findings=(Diagnosis.warning("", "X", "m"),),
        cut=True,
    )
    document = topology_as_json(of(matrix_of_three, warned, host="gpu-a"))
    assert (document["host"], document["outputs"], document["gpus"], document["sockets"]) == (
        "gpu-a",
        ["nvidia-smi-topo-m", "lscpu"],
        3,
        2,
    )
    assert document["reports"][1] == {"kind": "lscpu", **warned.fields}
    assert document["unreadable"] == [[0, 2], [1, 2]]
    assert document["truncated"] is True
    assert document["notes"] == ["lscpu: odd"]
    assert [(finding["code"], finding["severity"]) for finding in document["findings"]] == [
        ("X", "warning"),
        ("GpuOrderIsNotNumaOrder", "info"),
    ]


def test_a_flat_view_and_sets_that_are_not_known_are_in_the_document() -> None:
    flat = topology_as_json(of(matrix(all_pairs(3, "PHB"), {0: 0, 1: 0, 2: 0})))
    assert flat["view"] == {"verdict": "virtual", "reason": "every PCIe path is PHB and all GPUs have one NUMA value"}
    unread = matrix({}, {0: 0, 1: 0})
    assert topology_as_json(of(unread))["verdict"] == {"tp2": None}
    without = Report(kind="rocm-smi-showtopo", first_line=1, fields={"gpus": 2, "numa": None})
    assert topology_as_json(of(without))["verdict"] is None
    assert "unreadable" not in topology_as_json(of(without))
    nothing = Judgement(verdict="good", reason="one GPU needs no link")
    assert topology_as_json(of(PAIR), judgement=nothing)["judgement"]["worst_link"] is None


def test_outputs_without_a_matrix_have_no_verdict_on_sets() -> None:
    assert topology_as_json(of(lscpu())) == {"kind": "lscpu", **lscpu().fields, "truncated": False, "notes": [], "findings": []}
