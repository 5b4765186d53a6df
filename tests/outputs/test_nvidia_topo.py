"""nvidia-smi topo as matrices that are made by hand: headers, affinity columns, NICs, cuts and peer states."""

from __future__ import annotations

from typing import Any

import pytest

from infra.outputs.nvidia_topo import find_header, is_row, numa_key, read_nvidia_topologies
from infra.outputs.reading import Report

WHOLE = """\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tPIX\tSYS\t0-3\t0\tN/A
GPU1\tNV4\t X \tSYS\tPXB\t4-7\t1\tN/A
NIC0\tPIX\tSYS\t X \tSYS\t\t\t
NIC1\tSYS\tPXB\tSYS\t X \t\t\t

Legend:

  NIC0: mlx5_0
  NIC1: mlx5_7
"""


def read(text: str, first_line: int = 3) -> list[Report]:
    return read_nvidia_topologies(list(enumerate(text.split("\n"), first_line)))


def only(text: str) -> Report:
    (report,) = read(text)
    return report


def test_a_whole_matrix_has_every_field_and_no_note() -> None:
    report = only(WHOLE)
    assert report.fields == {
        "gpus": 2,
        "links": [["X", "NV4"], ["NV4", "X"]],
        "cpu_affinity": ["0-3", "4-7"],
        "numa_affinity": [0, 1],
        "gpu_numa_id": ["N/A", "N/A"],
        "nics": ["mlx5_0", "mlx5_7"],
        "gpu_nic": [["PIX", "SYS"], ["SYS", "PXB"]],
        "nearest_nics": [["mlx5_0"], ["mlx5_7"]],
    }
    assert (report.kind, report.first_line, report.notes, report.findings, report.cut) == ("nvidia-smi-topo-m", 3, (), (), False)
    assert report.links is not None
    assert (report.links.gpus, report.links.numa) == ((0, 1), {0: 0, 1: 1})
    assert {pair: link.label for pair, link in report.links.links.items()} == {(0, 1): "NV4", (1, 0): "NV4"}


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        ("\t0\tN/A\nGPU1", "\t0-1\tN/A\nGPU1", "numa_affinity", ["0-1", 1]),
        ("\t0\tN/A\nGPU1", "\tN/A\tN/A\nGPU1", "numa_affinity", ["N/A", 1]),
        ("\t0-3\t0", "\tN/A\t0", "cpu_affinity", ["N/A", "4-7"]),
        ("\t0-3\t0", "\t\t0", "cpu_affinity", [None, "4-7"]),
        ("\t0\tN/A\nGPU1", "\t0\t2\nGPU1", "gpu_numa_id", ["2", "N/A"]),
        ("PIX", "PXB", "nearest_nics", [["mlx5_0"], ["mlx5_7"]]),
        ("PIX", "PHB", "nearest_nics", [[], ["mlx5_7"]]),
    ],
)
def test_values_are_read_as_they_stand(old: str, new: str, field: str, value: Any) -> None:
    assert only(WHOLE.replace(old, new)).fields[field] == value


def test_indices_that_are_not_consecutive_are_told() -> None:
    report = only(WHOLE.replace("GPU1", "GPU3"))
    assert report.fields["gpu_indices"] == [0, 3]
    assert report.links is not None and report.links.gpus == (0, 3)
    assert "gpu_indices" not in only(WHOLE).fields


def test_rows_that_are_missing_are_a_cut_and_name_their_nics_by_order() -> None:
    cut = only(WHOLE[: WHOLE.index("NIC0\tPIX")])
    assert cut.cut
    assert cut.notes == (
        "no row for NIC0, NIC1: the report is cut",
        "the NIC legend is cut off; NIC0 is taken for mlx5_0 and so on",
    )
    assert cut.fields["nics"] == ["mlx5_0", "mlx5_1"]
    inner = only(WHOLE.replace("GPU1\tNV4\t X \tSYS\tPXB\t4-7\t1\tN/A\n", ""))
    assert inner.cut and inner.notes[0] == "no row for GPU1"
    assert inner.fields["cpu_affinity"] == ["0-3", None]


def test_cells_that_cannot_be_placed_are_counted() -> None:
    assert only(WHOLE.replace("GPU0\t X \tNV4\tPIX\tSYS", "GPU0\t X \t??\tPIX\tSYS")).notes == (
        "row GPU0: 1 of 4 cells cannot be placed",
    )
    assert only(WHOLE.replace("\t0-3\t0\tN/A", "\t3-0\t0\tN/A")).notes == ("the affinity of GPU0 cannot be placed",)


def test_a_mirror_image_that_differs_is_dropped() -> None:
    report = only(WHOLE.replace("GPU1\tNV4", "GPU1\tSYS"))
    assert "GPU0-GPU1 is NV4 in one row and SYS in the other; neither is used" in report.notes
    assert report.fields["links"] == [["X", None], [None, "X"]]


def test_a_nic_with_two_names_keeps_the_first() -> None:
    report = only(WHOLE + "  NIC0: mlx5_9\n  NIC1: mlx5_7\n")
    assert report.notes == ("NIC0 has two names, mlx5_0 and mlx5_9",)
    assert report.fields["nics"] == ["mlx5_0", "mlx5_7"]


def test_more_nics_than_are_shown_are_noted() -> None:
    for text in (
        WHOLE + "40 NICs found in the topology, only displaying 32\n",
        "40 NICs found in the topology, only displaying 32\n" + WHOLE,
    ):
        report = only(text)
        assert report.fields["nics_found"] == 40
        assert report.notes == ("the tool found 40 NICs and shows 2 of them",)


def gpus(count: int, cell: Any = lambda i, j: "NV4") -> str:
    head = "\t" + "\t".join(f"GPU{i}" for i in range(count))
    rows = [f"GPU{i}\t" + "\t".join(" X " if i == j else cell(i, j) for j in range(count)) for i in range(count)]
    return "\n".join([head, *rows, ""])


@pytest.mark.parametrize(
    ("weak", "named"),
    [
        ({(0, 1)}, "0-1 have"),
        ({(0, 1), (0, 2), (0, 3), (1, 2)}, "0-1, 0-2, 0-3, 1-2 have"),
        ({(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)}, "0-1, 0-2, 0-3, 1-2 and others have"),
    ],
)
def test_uneven_nvlinks_are_a_finding(weak: set[tuple[int, int]], named: str) -> None:
    report = only(gpus(4, lambda i, j: "NV2" if (min(i, j), max(i, j)) in weak else "NV4"))
    (finding,) = report.findings
    assert finding.message == f"GPUs {named} 2 NVLinks where others have 4: links may be down."
    assert only(gpus(4)).findings == ()


@pytest.mark.parametrize(
    ("states", "summary", "codes"),
    [
        ({}, "all", []),
        ({(0, 1): "CNS", (1, 0): "CNS"}, "some", ["PeerToPeerRefused"]),
        ({(0, 1): "U", (1, 0): "U"}, "some", []),
        ({(i, j): "NS" for i in range(3) for j in range(3)}, "none", ["PeerToPeerRefused"]),
        ({**{(i, j): "NS" for i in range(3) for j in range(3)}, (0, 1): "?", (1, 0): "?"}, "some", ["PeerToPeerRefused"]),
    ],
)
def test_peer_states_are_all_none_or_some(states: dict[tuple[int, int], str], summary: str | None, codes: list[str]) -> None:
    report = only(gpus(3, lambda i, j: states.get((i, j), "OK")))
    assert report.kind == "nvidia-smi-topo-p2p"
    assert (report.fields["gpus"], report.fields["p2p"]) == (3, summary)
    assert [finding.code for finding in report.findings] == codes


def test_a_refused_state_is_told_in_words() -> None:
    report = only(gpus(3, lambda i, j: {1: "CNS", 2: "TNS", 3: "GNS"}[i + j]))
    assert report.findings[0].message == (
        "GPUs cannot read each other's memory (CNS: the chipset does not support it; GNS: the GPUs or their driver do not support it "
        "(GeForce drivers refuse it); TNS: the PCIe topology does not support it); collectives go through host memory."
    )


def test_each_header_begins_a_matrix_of_its_own() -> None:
    first, second = read(WHOLE + gpus(2))
    assert (first.fields["gpus"], second.fields["gpus"], second.first_line) == (2, 2, 3 + WHOLE.count("\n"))
    assert read("words\n") == []


@pytest.mark.parametrize(
    ("lines", "labels", "tail", "count"),
    [
        (["\tGPU0\tGPU1\tCPU Affinity"], ("GPU0", "GPU1"), ("CPU Affinity",), 1),
        (["\tGPU0\tGPU1", "\tGPU2\tCPU Affinity", "GPU0 X"], ("GPU0", "GPU1", "GPU2"), ("CPU Affinity",), 2),
        (["\tGPU0\tGPU1\tCPU Affi", "nity"], ("GPU0", "GPU1"), ("CPU Affinity",), 2),
        (["\tGPU0\tGPU1\tmlx5_0\tmlx5_bond_1"], ("GPU0", "GPU1", "mlx5_0", "mlx5_bond_1"), (), 1),
        (["\tGPU0", "GPU0\t X"], ("GPU0",), (), 1),
    ],
)
def test_headers_are_found_also_where_they_are_wrapped(
    lines: list[str], labels: tuple[str, ...], tail: tuple[str, ...], count: int
) -> None:
    header = find_header(lines, 0)
    assert header is not None
    assert (header.labels, header.tail, header.lines) == (labels, tail, count)


@pytest.mark.parametrize(
    "lines",
    [["words"], ["\tGPU0"], ["\tGPU0", "words"], ["\tNIC0\tGPU0"], ["\tGPU0\tGPU0"], ["\tGPU0\tCPU Affinity\tGPU1"], ["GPU words"]],
)
def test_other_lines_are_no_header(lines: list[str]) -> None:
    assert find_header(lines, 0) is None


def test_rows_are_known_by_their_first_cell() -> None:
    assert is_row("GPU0 X NV4") and is_row("mlx5_0 PIX") and not is_row("GPU 0: NVIDIA") and not is_row("GPU0 words")


@pytest.mark.parametrize(("value", "node"), [(3, 3), ("0,2-17", 0), ("12-13", 12), ("N/A", None), (None, None), ("", None)])
def test_a_list_of_nodes_counts_for_its_first(value: Any, node: int | None) -> None:
    assert numa_key(value) == node


@pytest.mark.parametrize(("last", "cell"), [("NV1", None), ("NV18", None), ("SYS", "SYS")])
def test_a_last_cell_that_a_cut_may_have_shortened_is_not_used(last: str, cell: str | None) -> None:
    text = gpus(2, lambda i, j: last).rstrip("\n")
    assert only(text).fields["links"][1][0] == last
    wide = f"\tGPU0\tGPU1\tGPU2\nGPU0\t X \t{last}\t{last}"
    assert read(wide)[0].fields["links"][0][2] == cell
    assert read(wide + "\n")[0].fields["links"][0][2] == last
