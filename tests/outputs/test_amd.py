"""AMD's tables and documents: each table by itself, what is cut, what contradicts itself."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from infra.outputs.amd_smi import read_amd_smi_json, read_amd_smi_topologies
from infra.outputs.amd_tables import link_findings
from infra.outputs.reading import Line, Report
from infra.outputs.rocm_smi import is_numa_line, is_rocm_title, read_rocm_concise, read_rocm_json, read_rocm_topologies

BDFS = ("0000:05:00.0", "0000:26:00.0", "0000:46:00.0")


def lines(text: str) -> list[Line]:
    return list(enumerate(text.split("\n"), 4))


def table(title: str, own: str, cells: list[str], labels: tuple[str, ...] = BDFS) -> str:
    """A square table from the cells of its pairs, the same in both directions."""
    of_pair = dict(zip(combinations(range(len(labels)), 2), cells, strict=True))
    rows = [" " * 14 + " ".join(f"{label:<12}" for label in labels)]
    for i, label in enumerate(labels):
        row = [own if i == j else of_pair[min(i, j), max(i, j)] for j in range(len(labels))]
        rows.append(f"{label:<13} " + " ".join(f"{cell:<12}" for cell in row))
    return f"{title}:\n" + "\n".join(rows) + "\n\n"


ACCESS, WEIGHT, HOPS, TYPE = "ACCESS TABLE", "WEIGHT TABLE", "HOPS TABLE", "LINK TYPE TABLE"
WHOLE = (
    table(ACCESS, "ENABLED", ["ENABLED"] * 3)
    + table(WEIGHT, "0", ["15", "30", "15"])
    + table(HOPS, "0", ["1", "1", "1"])
    + table(TYPE, "SELF", ["XGMI"] * 3)
)


def amd_smi(text: str) -> Report:
    (report,) = read_amd_smi_topologies(lines(text))
    return report


def ranks(report: Report) -> dict[tuple[int, int], int]:
    assert report.links is not None
    return {pair: link.rank for pair, link in report.links.links.items() if pair[0] < pair[1]}


def test_a_whole_output_has_each_table_and_the_weight_decides_the_hops() -> None:
    report = amd_smi(WHOLE)
    assert report.fields == {
        "gpus": 3,
        "bdf": list(BDFS),
        "weight": [[0, 15, 30], [15, 0, 15], [30, 15, 0]],
        "hops": [[0, 1, 1], [1, 0, 1], [1, 1, 0]],
        "link_type": [["SELF", "XGMI", "XGMI"], ["XGMI", "SELF", "XGMI"], ["XGMI", "XGMI", "SELF"]],
        "p2p": "all",
    }
    assert (report.first_line, report.notes, report.cut) == (4, (), False)
    assert ranks(report) == {(0, 1): -99, (0, 2): -98, (1, 2): -99}
    assert [finding.code for finding in report.findings] == ["IndirectXgmi"]
    assert "(weights 15, 30)" in report.findings[0].message


@pytest.mark.parametrize(
    ("access", "p2p"),
    [
        (["ENABLED"] * 3, "all"),
        (["True"] * 3, "all"),
        (["DISABLED"] * 3, "none"),
        (["ENABLED", "DISABLED", "ENABLED"], "some"),
        (["ENABLED", "x", "ENABLED"], "some"),
        (["DISABLED", "x", "DISABLED"], "some"),
        (["N/A"] * 3, "none"),
    ],
)
def test_peer_to_peer_is_all_none_or_some(access: list[str], p2p: str) -> None:
    report = amd_smi(table(ACCESS, "ENABLED", access) + table(TYPE, "SELF", ["PCIE"] * 3))
    assert report.fields["p2p"] == p2p
    assert [finding.code for finding in report.findings] == ["PeerToPeerRefused"] * (p2p != "all")


def test_tables_that_are_missing_are_none_and_without_any_there_is_no_report() -> None:
    report = amd_smi(table(TYPE, "SELF", ["PCIE"] * 3))
    assert (report.fields["p2p"], report.fields["weight"], report.fields["hops"], report.findings) == (None, None, None, ())
    assert ranks(report) == dict.fromkeys(ranks(report), 3000) and len(ranks(report)) == 3
    assert amd_smi(table(WEIGHT, "0", ["15"] * 3)).links is None
    assert read_amd_smi_topologies(lines("WEIGHT TABLE:\nwords\n")) == []


def test_an_xgmi_pair_without_its_weight_is_not_known() -> None:
    report = amd_smi(table(WEIGHT, "0", ["15", "N/A", "15"]) + table(TYPE, "SELF", ["XGMI"] * 3))
    assert ranks(report) == {(0, 1): -99, (1, 2): -99}
    pcie = amd_smi(table(WEIGHT, "0", ["15", "N/A", "15"]) + table(TYPE, "SELF", ["XGMI", "PCIE", "XGMI"]))
    assert ranks(pcie) == {(0, 1): -99, (0, 2): 3000, (1, 2): -99}


def test_a_row_that_is_missing_is_a_cut_and_one_that_does_not_fit_a_note() -> None:
    whole = table(WEIGHT, "0", ["15", "30", "15"])
    cut = amd_smi(whole[: whole.rindex(BDFS[2])])
    assert cut.cut and cut.notes == (f"the weight table has no row {BDFS[2]}",)
    odd = amd_smi(whole.replace("15           30", "15           xx"))
    assert not odd.cut and odd.notes == (f"the weight table: row {BDFS[0]} cannot be placed completely",)


def test_other_devices_in_a_later_table_are_not_used() -> None:
    others = table(HOPS, "0", ["1"], labels=("0000:aa:00.0", "0000:bb:00.0"))
    report = amd_smi(table(WEIGHT, "0", ["15"] * 3) + others)
    assert report.notes == ("the hops table has other devices than the one before; it is not used",)
    assert report.fields["hops"] is None


def test_a_table_that_comes_again_begins_another_output() -> None:
    first, second = read_amd_smi_topologies(lines(WHOLE + WHOLE))
    assert first.fields == second.fields
    assert second.first_line == 4 + WHOLE.count("\n")


def entry(gpu: int, *links: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"gpu": gpu, "bdf": BDFS[gpu], "links": list(links), **more}


def to(gpu: int, **more: Any) -> dict[str, Any]:
    return {"gpu": gpu, "link_type": "XGMI", "num_hops": 1, "weight": 15, "link_status": "ENABLED", **more}


def of_json(document: Any, **more: Any) -> Report:
    report = read_amd_smi_json(document, 2, **more)
    assert report is not None
    return report


PAIR = [entry(0, to(1)), entry(1, to(0))]


@pytest.mark.parametrize("document", [PAIR, {"topology": PAIR}, {"gpus": PAIR}])
def test_the_document_is_read_in_each_of_its_forms(document: Any) -> None:
    report = of_json(document)
    assert (report.kind, report.first_line, report.notes, report.cut) == ("amd-smi-topology-json", 2, (), False)
    assert report.fields["bdf"] == list(BDFS[:2])
    assert (report.fields["weight"], report.fields["p2p"]) == ([[None, 15], [15, None]], "all")
    assert ranks(report) == {(0, 1): -99}


@pytest.mark.parametrize(
    "document",
    [None, {}, [], {"topology": {}}, [{"gpu": 0}], [{"gpu": "0", "links": []}], [{"links": []}], ["x"], [{"gpu": 0, "links": {}}]],
)
def test_other_documents_are_none(document: Any) -> None:
    assert read_amd_smi_json(document, 1) is None


def test_gpus_that_are_only_named_are_a_cut() -> None:
    report = of_json([{**entry(0), "links": [to(1), "x", {"gpu": "1"}]}])
    assert report.cut and report.notes == ("no entry for 1 of 2 GPUs: the document is cut",)
    assert (report.fields["gpus"], report.fields["bdf"]) == (2, [BDFS[0]])
    assert of_json([*PAIR], cut=True).cut


def test_what_comes_twice_or_differs_by_direction_is_not_used() -> None:
    twice = of_json([*PAIR, entry(1)])
    assert twice.notes == ("GPU 1 stands there twice; the second is not used",)
    again = of_json([entry(0, to(1), to(1, weight=30)), entry(1, to(0))])
    assert again.notes == ("weight of GPUs 0 and 1 is given twice with different values",)
    assert again.fields["weight"] == [[None, None], [15, None]]
    contradicted = of_json([entry(0, to(1, num_hops=2)), entry(1, to(0))])
    assert contradicted.notes == ("num_hops 0-1 is 2 in one row and 1 in the other; neither is used",)
    assert contradicted.fields["hops"] == [[None, None], [None, None]]


def test_values_of_other_types_are_none() -> None:
    report = of_json(
        [
            entry(0, to(1, weight=True, link_status=None, num_hops=1.5)),
            entry(1, to(0, weight=None, num_hops=None, link_status=None)),
        ]
    )
    assert (report.fields["weight"], report.fields["hops"], report.fields["p2p"]) == (None, None, None)


def test_no_more_than_256_gpus_are_taken() -> None:
    assert of_json([entry(0, *(to(gpu) for gpu in range(1, 300)))]).fields["gpus"] == 256


CARDS = ("GPU0", "GPU1")
ROCM = (
    table("===== Weight between two GPUs =====", "0", ["15"], CARDS)
    + table("===== Hops between two GPUs =====", "0", ["1"], CARDS)
    + table("===== Link Type between two GPUs =====", "0", ["XGMI"], CARDS)
    + "===== Numa Nodes =====\n"
)
NUMA = "GPU[0]\t\t: (Topology) Numa Node: 0\nGPU[0]\t\t: (Topology) Numa Affinity: 2\nGPU[1]\t\t: (Topology) Numa Node: 1\nGPU[1]\t\t: (Topology) Numa Affinity: 3\n"


def rocm(text: str) -> Report:
    (report,) = read_rocm_topologies(lines(text))
    return report


def test_rocm_smi_gives_links_and_numa_nodes() -> None:
    report = rocm(ROCM + NUMA)
    assert report.fields == {
        "gpus": 2,
        "weight": [[0, 15], [15, 0]],
        "hops": [[0, 1], [1, 0]],
        "link_type": [[0, "XGMI"], ["XGMI", 0]],
        "numa": [0, 1],
    }
    assert report.links is not None and report.links.numa == {0: 0, 1: 1}
    assert (report.notes, report.cut, ranks(report)) == ((), False, {(0, 1): -99})


@pytest.mark.parametrize(
    ("numa", "nodes", "known", "notes"),
    [
        (NUMA.replace("Node: 0", "Node: -1"), [-1, 1], {0: None, 1: 1}, ()),
        (NUMA.replace("Node: 0", "Node: N/A"), [None, 1], {0: None, 1: 1}, ()),
        (
            "\n".join(NUMA.split("\n")[:2]) + "\n",
            [0, None],
            {0: 0, 1: None},
            ("no NUMA node is given for 1 of 2 GPUs",),
        ),
        (
            NUMA + "GPU[1]\t\t: (Topology) Numa Node: 0\n",
            [0, None],
            {0: 0, 1: None},
            ("the NUMA node of GPU 1 is given twice with different values",),
        ),
    ],
)
def test_numa_nodes_that_are_not_known_are_none(numa: str, nodes: Any, known: Any, notes: Any) -> None:
    report = rocm(ROCM + numa)
    assert report.links is not None
    assert (report.fields["numa"], report.links.numa, report.notes) == (nodes, known, notes)
    assert report.cut == (notes != () and "no NUMA" in notes[0])


def test_the_affinity_counts_where_there_is_no_node() -> None:
    text = "\n".join(line for line in NUMA.split("\n") if "Affinity" in line)
    assert rocm(text).fields == {"gpus": 2, "weight": None, "hops": None, "link_type": None, "numa": [2, 3]}
    assert rocm(ROCM).fields["numa"] is None
    assert read_rocm_topologies(lines("words")) == []


def test_a_node_for_one_gpu_and_an_affinity_for_the_other_leave_none_unknown() -> None:
    report = rocm(ROCM + "\n".join(line for i, line in enumerate(NUMA.split("\n")) if i in (0, 3)) + "\n")
    assert (report.fields["numa"], report.notes, report.cut) == ([0, 3], (), False)


@pytest.mark.parametrize(("lines_of_header", "devices"), [(4, 4), (5, 4)])
def test_a_header_may_take_four_lines(lines_of_header: int, devices: int) -> None:
    labels = tuple(f"0000:{i:02x}:00.0" for i in range(1, lines_of_header + 1))
    head, *rows = table(WEIGHT, "0", ["15"] * (len(labels) * (len(labels) - 1) // 2), labels).split("\n")[1:]
    report = amd_smi("WEIGHT TABLE:\n" + "\n".join([*head.split(), *rows]))
    assert report.fields["gpus"] == devices
    if lines_of_header == devices:
        assert report.notes == () and report.fields["weight"][0] == [0, 15, 15, 15]


def test_a_second_gpu_0_begins_another_output() -> None:
    affinity = "GPU[0]\t\t: (Topology) Numa Affinity: 2\n"
    assert len(read_rocm_topologies(lines(NUMA + NUMA))) == 2
    assert len(read_rocm_topologies(lines(NUMA + affinity))) == 1


def test_indices_that_are_not_consecutive_are_told() -> None:
    report = rocm(table("Link Type between two GPUs", "0", ["XGMI"], ("GPU2", "GPU3")))
    assert report.fields["gpu_indices"] == [2, 3]
    assert "gpu_indices" not in rocm(ROCM).fields


def test_lines_of_rocm_smi_are_known() -> None:
    assert is_rocm_title("==== Hops between two GPUs ====") and is_rocm_title("== Numa Nodes ==") and not is_rocm_title("GPU0")
    assert is_numa_line(NUMA.split("\n")[0]) and not is_numa_line("(Topology)") and not is_numa_line("GPU[0] : Numa Node: 0")


def system(**more: Any) -> dict[str, Any]:
    pair = "between DRM devices 0 and 1"
    return {
        "system": {
            f"(Topology) Weight {pair}": "15",
            f"(Topology) Hops {pair}": 1,
            f"(Topology) Link type {pair}": "XGMI",
            "x": "y",
        },
        "card0": {"(Topology) Numa Node": "0"},
        "card1": {"(Topology) Numa Node": 1, "(Topology) Numa Affinity": "7"},
        **more,
    }


def test_rocm_smi_as_json_has_the_same_form() -> None:
    report = read_rocm_json(system(odd=3, cardX={"(Topology) Numa Node": "9"}), 2)
    assert report is not None and report.first_line == 2
    assert report.fields == {
        "gpus": 2,
        "weight": [[0, 15], [15, 0]],
        "hops": [[0, 1], [1, 0]],
        "link_type": [[0, "XGMI"], ["XGMI", 0]],
        "numa": [0, 1],
    }
    alone = read_rocm_json({"card0": {"(Topology) Numa Node": "-1"}, "card1": {"(Topology) Numa Node": "x"}}, 1)
    assert alone is not None and (alone.fields["gpus"], alone.fields["numa"], alone.links) == (1, [-1], None)
    links = read_rocm_json({"system": system()["system"]}, 1)
    assert links is not None and links.fields["numa"] is None
    assert read_rocm_json({}, 1) is None and read_rocm_json([], 1) is None and read_rocm_json({"card0": {"a": "b"}}, 1) is None


HEAD = "Device  Node  IDs              Temp        Power     Partitions          SCLK\n"


def row(device: int, *, did: str = "0x74a1", memory: str = "NPS1", compute: str = "SPX") -> str:
    return f"{device}       {device + 2}     {did},   28851  35.0°C      140.0W    {memory}, {compute}, 0        132Mhz\n"


def concise(text: str) -> list[Report]:
    return read_rocm_concise(lines(text))


def test_the_concise_table_gives_device_id_and_partitions() -> None:
    (report,) = concise(row(9) + HEAD + row(0) + row(1) + row(1))
    assert report.fields == {"gpus": 2, "did": "0x74a1", "mem_partition": "NPS1", "compute_partition": "SPX"}
    assert (report.first_line, report.notes) == (5, ())
    assert len(concise(HEAD + row(0) + HEAD + row(0))) == 2
    assert concise(HEAD) == []


def test_devices_that_differ_have_no_common_value() -> None:
    (report,) = concise(HEAD + row(0) + row(1, did="0x74a5", memory="NPS4"))
    assert (report.fields["did"], report.fields["mem_partition"], report.fields["compute_partition"]) == (None, None, "SPX")
    assert report.notes == ("the devices differ in device id: 0x74a1, 0x74a5", "the devices differ in memory partition: NPS1, NPS4")


@pytest.mark.parametrize(
    ("hops", "weight", "kinds", "codes"),
    [
        ([[0, 1], [1, 0]], [[0, 15], [30, 0]], [[0, "XGMI"], ["XGMI", 0]], ["IndirectXgmi"]),
        ([[0, 1], [1, 0]], [[0, 15], [15, 0]], [[0, "XGMI"], ["XGMI", 0]], []),
        ([[0, 1], [1, 0]], [[15, 30], [30, 15]], [["XGMI", "XGMI"], ["XGMI", "XGMI"]], []),
        ([[0, 1], [1, 0]], [[0, 15], [30, 0]], [[0, "XGMI"], ["PCIE", 0]], []),
        ([[0, 1], [1, 0]], [[0, 15], ["N/A", 0]], [[0, "XGMI"], ["XGMI", 0]], []),
        (None, [[0, 15], [30, 0]], [[0, "XGMI"], ["XGMI", 0]], []),
        ([[0, 1], [1, 0]], None, [[0, "XGMI"], ["XGMI", 0]], []),
        (None, None, [[0, "XXXX"], ["PCIE", 0]], ["PartitionedGpus"]),
        (None, None, None, []),
    ],
)
def test_findings_on_links(hops: Any, weight: Any, kinds: Any, codes: list[str]) -> None:
    assert [finding.code for finding in link_findings(hops, weight, kinds)] == codes
