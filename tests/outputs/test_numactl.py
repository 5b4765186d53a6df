"""numactl -H line by line: what is complete, what is cut, what contradicts itself."""

from __future__ import annotations

import pytest

from infra.outputs.numactl import is_numactl_line, read_numactl
from infra.outputs.reading import Report

WHOLE = """available: 2 nodes (0-1)
node 0 cpus: 0 1 4 5
node 0 size: 64 MB
node 0 free: 60 MB
node 1 cpus: 2 3
node 1 size: 128 MB
node 1 free: 100 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""


def read(text: str) -> list[Report]:
    return read_numactl(list(enumerate(text.split("\n"), 5)))


def only(text: str) -> Report:
    (report,) = read(text)
    return report


def test_a_whole_output_has_every_field_and_no_note() -> None:
    report = only(WHOLE)
    assert report.fields == {
        "nodes": 2,
        "cpus": 6,
        "cpu_nodes": [0, 1],
        "gpu_mem_nodes": [],
        "node_ids": [0, 1],
        "numa_cpus": {"0": "0-1,4-5", "1": "2-3"},
        "size_mib": {"0": 64, "1": 128},
        "distances": [[10, 21], [21, 10]],
    }
    assert (report.kind, report.first_line, report.notes, report.cut) == ("numactl-H", 5, (), False)


def test_memory_without_cpus_is_a_node_of_its_own_kind() -> None:
    text = WHOLE.replace("node 1 cpus: 2 3", "node 1 cpus:")
    assert only(text).fields["gpu_mem_nodes"] == [1]
    assert only(text).fields["cpu_nodes"] == [0]
    assert only(text.replace("node 1 size: 128", "node 1 size: 0")).fields["gpu_mem_nodes"] == []
    assert only(text.replace("node 1 size: 128", "node 1 size: 1")).fields["gpu_mem_nodes"] == [1]


@pytest.mark.parametrize("lost", ["node 1 cpus: 2 3\n", "node 1 size: 128 MB\n"])
def test_a_node_that_is_announced_and_not_complete_is_a_cut(lost: str) -> None:
    report = only(WHOLE.replace(lost, ""))
    assert report.cut
    assert report.notes == ("2 nodes are announced and 1 are complete: the output is cut",)
    assert report.fields["nodes"] == 2


def test_without_the_announcement_the_nodes_are_counted() -> None:
    report = only(WHOLE.split("\n", 1)[1])
    assert report.fields["nodes"] == 2 and not report.cut
    assert report.notes == ("the line `available: N nodes` is missing; the nodes listed are counted",)


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("  1:  21  10\n", "", "the node distances are not complete"),
        ("  1:  21  10\n", "  1:  21\n", "the node distances are not complete"),
        ("  1:  21  10\n", "  7:  21  10\n", "the node distances are not complete"),
        ("  1:  21  10\n", "  1:  10  21\n", "the node distances are not complete"),
        (WHOLE[WHOLE.index("node distances") :], "", "the node distances are missing"),
    ],
)
def test_distances_count_only_as_a_whole(old: str, new: str, note: str) -> None:
    report = only(WHOLE.replace(old, new))
    assert report.fields["distances"] is None
    assert report.notes == (note,)


def test_what_is_given_twice_with_other_values_is_noted_and_the_first_counts() -> None:
    report = only(WHOLE + "node 0 cpus: 7\nnode 1 size: 3 MB\nnode 1 free: 3 MB\n  0:  10  99\n")
    assert report.notes == tuple(
        f"the {what} is given twice with different values" for what in ("CPUs of node 0", "distances of node 0", "size of node 1")
    )
    assert (report.fields["numa_cpus"]["0"], report.fields["size_mib"]["1"]) == ("0-1,4-5", 128)
    assert only(WHOLE + "node 0 cpus: 0 1 4 5\n").notes == ()


def test_a_cpu_under_two_nodes_is_noted_and_counted_once() -> None:
    report = only(WHOLE.replace("node 1 cpus: 2 3", "node 1 cpus: 1 3"))
    assert report.notes == ("CPU 1 is listed under nodes 0 and 1",)
    assert report.fields["cpus"] == 5


def test_wrapped_lines_are_continued() -> None:
    text = WHOLE.replace("node 0 cpus: 0 1 4 5", "node 0 cpus: 0 1\n 4 5").replace("  0:  10  21", "  0:  10\n  21")
    assert only(text).fields == only(WHOLE).fields
    more = WHOLE.replace("  0:  10  21\n", "  0:  10  21\n  33\n")
    assert only(more).fields["distances"] == [[10, 21], [21, 10]]
    stray = WHOLE.replace("node 0 cpus: 0 1 4 5\n", "node 0 cpus: 0 1 4 5\nwords\n9\n")
    assert only(stray).fields["numa_cpus"]["0"] == "0-1,4-5"
    assert only(WHOLE.replace("node 0 cpus: 0 1 4 5\n", "node 0 cpus: 0 1\n\n4 5\n")).fields["numa_cpus"]["0"] == "0-1,4-5"


def test_rows_before_their_head_are_no_distances() -> None:
    assert only("available: 1 nodes (0)\nnode 0 cpus: 0\nnode 0 size: 1 MB\n  0:  10\n").notes == (
        "the node distances are missing",
    )


def test_each_announcement_begins_an_output_of_its_own() -> None:
    first, second = read(WHOLE + WHOLE)
    assert (first.fields, second.fields) == (only(WHOLE).fields,) * 2
    assert second.first_line == 5 + WHOLE.count("\n")
    assert read("words\n") == []
    assert read_numactl([]) == []
    assert [report.fields["nodes"] for report in read("node 0 size: 3 MB\n" + WHOLE)] == [1, 2]


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("available: 1 node (0)", True),
        ("node 0 cpus:", True),
        ("node 0 free: 3 MB", True),
        ("node distances:", True),
        ("node   0   1", True),
        ("node 0", False),
        ("0:  10", False),
    ],
)
def test_lines_of_numactl_are_known(line: str, is_one: bool) -> None:
    assert is_numactl_line(line) == is_one
