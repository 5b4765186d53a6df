"""lscpu field by field: what contradicts itself, what is cut, what is not there."""

from __future__ import annotations

import pytest

from infra.outputs.lscpu import is_strong, lscpu_field, lscpu_json_lines, read_lscpu
from infra.outputs.reading import Report

WHOLE = """Architecture:            x86_64
CPU(s):                  8
On-line CPU(s) list:     0-7
Model name:              Xeon
Thread(s) per core:      2
Core(s) per socket:      2
Socket(s):               2
NUMA node(s):            2
NUMA node0 CPU(s):       0-3
NUMA node1 CPU(s):       4-7
"""


def read(text: str) -> list[Report]:
    return read_lscpu(list(enumerate(text.split("\n"), 3)))


def only(text: str) -> Report:
    (report,) = read(text)
    return report


def test_a_whole_output_has_every_field_and_no_note() -> None:
    report = only(WHOLE)
    assert report.fields == {
        "cpus": 8,
        "nodes": 2,
        "sockets": 2,
        "threads_per_core": 2,
        "cores_per_socket": 2,
        "numa_cpus": {"0": "0-3", "1": "4-7"},
        "model": "Xeon",
        "hypervisor": None,
    }
    assert (report.kind, report.first_line, report.notes, report.cut) == ("lscpu", 3, (), False)


def test_arm_has_clusters_for_sockets() -> None:
    text = WHOLE.replace("Socket(s):               2", "Cluster(s):              4\nSocket(s):               -").replace(
        "Core(s) per socket:      2", "Core(s) per cluster:     3"
    )
    report = only(text)
    assert (report.fields["sockets"], report.fields["cores_per_socket"], report.notes) == (4, 3, ())
    both = only(
        WHOLE.replace("Socket(s): ", "Cluster(s):  9\nSocket(s): ").replace(
            "Core(s) per socket:", "Core(s) per cluster: 7\nCore(s) per socket:"
        )
    )
    assert (both.fields["sockets"], both.fields["cores_per_socket"]) == (2, 2)


@pytest.mark.parametrize(
    ("old", "new", "field", "value", "note"),
    [
        ("Socket(s):               2", "Socket(s):  many", "sockets", None, "sockets: 'many' is no number"),
        ("Socket(s):               2", f"Socket(s):  {'x' * 40}", "sockets", None, f"sockets: {'x' * 30!r} is no number"),
        ("Socket(s):               2", "Socket(s): 2\nSocket(s): 3", "sockets", None, "sockets is 2 and 3; neither is used"),
        (
            "NUMA node1 CPU(s):       4-7",
            "NUMA node1 CPU(s):       7-4",
            "numa_cpus",
            {"0": "0-3", "1": None},
            "the CPUs of NUMA node 1 cannot be read",
        ),
        (
            "NUMA node1 CPU(s):       4-7",
            "NUMA node1 CPU(s):       4-7\nNUMA node1 CPU(s): 4-6",
            "numa_cpus",
            {"0": "0-3", "1": None},
            "the CPUs of NUMA node 1 cannot be read",
        ),
        ("NUMA node(s):            2\n", "", "nodes", 2, "the number of NUMA nodes is not there; the nodes listed are counted"),
        ("0-3\n", "0-2\n", "cpus", 8, "8 CPUs are on-line and 7 are listed under NUMA nodes"),
        ("0-3\n", "0-4\n", "cpus", 8, "a CPU is listed under two NUMA nodes"),
        ("0-7\n", "0-5\n", "cpus", 8, "6 CPUs are on-line and 8 are listed under NUMA nodes"),
        ("Model name:", "Off-line CPU(s) list: 8-9\nModel name:", "offline_cpus", "8-9", "CPUs 8-9 are off-line"),
    ],
)
def test_what_is_odd_is_one_note(old: str, new: str, field: str, value: object, note: str) -> None:
    report = only(WHOLE.replace(old, new))
    assert report.fields[field] == value
    assert report.notes == (note,)
    assert not report.cut


def test_fewer_nodes_than_announced_are_a_cut_and_their_cpus_are_not_counted() -> None:
    report = only(WHOLE.replace("NUMA node1 CPU(s):       4-7\n", ""))
    assert report.cut
    assert report.notes == ("2 NUMA nodes are announced and 1 are listed: the output is cut",)


def test_without_numa_lines_or_a_count_nothing_is_compared() -> None:
    assert only(WHOLE.split("NUMA")[0]).notes == ()
    assert only(WHOLE.replace("CPU(s):                  8\n", "")).notes == ()
    assert only(WHOLE.replace("On-line CPU(s) list:     0-7\n", "")).notes == ()
    assert only(WHOLE.replace("CPU(s):                  8\n", "")).fields["cpus"] is None
    assert read("Model name: Xeon\nVendor ID: x\n") == []
    assert only("CPU(s): 4\n").fields["nodes"] is None
    assert only("NUMA node(s): 4\n").fields["nodes"] == 4


def test_a_second_output_begins_where_architecture_or_count_come_again_with_another_value() -> None:
    other = WHOLE.replace("x86_64", "aarch64")
    assert [report.first_line for report in read(WHOLE + other)] == [3, 3 + WHOLE.count("\n")]
    assert len(read(WHOLE + WHOLE)) == 1
    fewer = WHOLE.split("\n", 1)[1].replace("CPU(s):                  8", "CPU(s):   4")
    assert len(read(WHOLE + fewer)) == 2
    # Two fields are too few for an output of their own.
    assert only("Model name: a\nCPU(s): 8\nCPU(s): 4\nNUMA node(s): 1\n").fields["cpus"] is None


def test_models_and_vendors_that_come_twice_are_no_contradiction() -> None:
    report = only(WHOLE + "Model name: other\nBIOS Model name: x\n")
    assert (report.fields["model"], report.notes) == ("Xeon", ())


def test_a_list_that_was_wrapped_is_continued_by_the_next_line_alone() -> None:
    wrapped = WHOLE.replace("NUMA node0 CPU(s):       0-3\n", "NUMA node0 CPU(s):       0-1,\n      2-3\n")
    assert only(wrapped).fields["numa_cpus"]["0"] == "0-1,2-3"
    stray = WHOLE.replace("NUMA node0 CPU(s):       0-3\n", "NUMA node0 CPU(s):       0-3\nwords\n     9\n")
    assert only(stray).fields["numa_cpus"]["0"] == "0-3"
    after_another = WHOLE.replace("Socket(s):               2\n", "Socket(s):               2\n     9\n")
    assert only(after_another).fields == only(WHOLE).fields


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("CPU(s):  8", ("cpus", "8")),
        ("CPU(s)：8", ("cpus", "8")),
        ("NUMA node12 CPU(s): 0-3, 8", ("numa 12", "0-3, 8")),
        ("NUMA node0 CPU(s):", ("numa 0", "")),
        ("NUMA node0 CPU(s): words", None),
        ("NUMA node12345 CPU(s): 0", None),
        ("NUMA node1 of 2: 0", None),
        ("no colon", None),
        (f"{'k' * 54}NUMA 1: 0", ("numa 1", "0")),
        (f"{'k' * 55}NUMA 1: 0", None),
        ("Unknown: 3", None),
    ],
)
def test_lines_of_lscpu_are_known(line: str, found: tuple[str, str] | None) -> None:
    assert lscpu_field(line) == found


def test_strong_fields_are_those_that_other_texts_hardly_have() -> None:
    assert is_strong("sockets") and is_strong("numa 3")
    assert not is_strong("model") and not is_strong("cpus")


def test_json_is_read_as_text_with_its_children() -> None:
    document = {
        "lscpu": [
            {"field": "CPU(s):", "data": "8", "children": [{"field": "NUMA node(s):", "data": None}]},
            {"field": 3},
            "x",
        ]
    }
    assert lscpu_json_lines(document) == ["CPU(s): 8", "NUMA node(s): "]
    assert lscpu_json_lines({"lscpu": None}) == []
    assert only("CPU(s): -\nNUMA node(s): 1\nNUMA node0 CPU(s): -\n").fields["numa_cpus"] == {"0": ""}
