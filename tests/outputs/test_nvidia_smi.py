"""nvidia-smi -L and queries: which GPUs a machine has, in lists that are whole, mixed or incomplete."""

from __future__ import annotations

from typing import Any

import pytest

from infra.outputs.nvidia_smi import csv_columns, is_bare_row, is_list_line, read_lists, read_queries
from infra.outputs.reading import Line, Report

UUID = "GPU-00000000-0000-4000-8000-00000000000"


def gpu(index: int, name: str = "NVIDIA L40S", uuid: int | None = None) -> str:
    return f"GPU {index}: {name} (UUID: {UUID}{index if uuid is None else uuid})\n"


MIG = "  MIG 1g.10gb     Device  0: (UUID: MIG-0000)\n"


def lines(text: str) -> list[Line]:
    return list(enumerate(text.split("\n"), 3))


def lists(text: str) -> list[Report]:
    return read_lists(lines(text))


def test_a_list_gives_names_and_ids_in_order_of_index() -> None:
    (report,) = lists(gpu(1) + gpu(0))
    assert report.fields == {
        "gpus": 2,
        "names": ["NVIDIA L40S", "NVIDIA L40S"],
        "name": "NVIDIA L40S",
        "uuids": [f"{UUID}0", f"{UUID}1"],
        "mig": False,
    }
    assert (report.first_line, report.notes, report.findings) == (3, (), ())
    (plain,) = lists("\nGPU 0: NVIDIA L40S\n")
    assert (plain.fields["uuids"], plain.first_line) == ([None], 4)


def test_different_gpus_have_no_common_name_and_gaps_are_noted() -> None:
    (report,) = lists(gpu(0) + gpu(2, "NVIDIA A2"))
    assert report.fields["name"] is None
    assert report.notes == ("GPU indices 0, 2 are not consecutive: lines are missing, or devices are hidden",)


def test_an_index_that_comes_again_with_another_id_begins_another_list() -> None:
    first, second = lists(gpu(0) + gpu(1) + gpu(0, uuid=7))
    assert (first.fields["gpus"], second.fields["gpus"], second.first_line) == (2, 1, 5)
    assert len(lists(gpu(0) + gpu(0))) == 1


def test_mig_slices_are_counted_by_profile_and_a_finding() -> None:
    (report,) = lists(gpu(0) + MIG + MIG + MIG.replace("1g.10gb", "3g.40gb"))
    assert (report.fields["mig"], report.fields["mig_profiles"], report.fields["tp_max"]) == (True, {"1g.10gb": 2, "3g.40gb": 1}, 1)
    assert report.notes == ()
    assert report.findings[0].message.startswith("3 MIG slices:")
    (orphan,) = lists(MIG + gpu(0))
    assert orphan.notes == ("a MIG slice stands there before its GPU",)
    assert orphan.first_line == 3
    assert lists("words") == []


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        (gpu(0), True),
        (MIG, True),
        ("GPU 0: NVIDIA L40S", True),
        ("GPU 0: words (UUID: x)", False),
        ("GPU 0: Radeon", False),
    ],
)
def test_lines_of_a_list_are_known(line: str, is_one: bool) -> None:
    assert is_list_line(line.rstrip("\n")) == is_one


def queries(text: str) -> list[Report]:
    return read_queries(lines(text))


def test_a_query_gives_names_sizes_and_addresses() -> None:
    (report,) = queries(
        "index, name, memory.total [MiB], pci.bus_id\n0, NVIDIA L40S, 46068 MiB, 00000000:01:00.0\n1, NVIDIA L40S, 46068, 0:2\n"
    )
    assert report.fields == {
        "gpus": 2,
        "names": ["NVIDIA L40S"] * 2,
        "name": "NVIDIA L40S",
        "mib": 46068,
        "bus_ids": ["00000000:01:00.0", "0:2"],
    }
    assert (report.kind, report.first_line, report.notes) == ("nvidia-smi-query", 3, ())


def test_other_names_of_the_columns_are_read_too() -> None:
    (report,) = queries("gpu_name, gpu_bus_id\nA, 1\nB, 2\n")
    assert (report.fields["names"], report.fields["name"], report.fields["bus_ids"]) == (["A", "B"], None, ["1", "2"])
    assert report.fields["mib"] is None


@pytest.mark.parametrize(
    ("rows", "notes", "mib"),
    [
        ("0, a, 5 MiB\n1, a, 6 MiB\n", ("the GPUs differ in memory: 5, 6 MiB",), None),
        ("0, a, 5 MiB\n1, a, [N/A]\n", (), 5),
        ("0, a, 5 MiB\n0, a, 5 MiB\n", ("a GPU index stands there twice",), 5),
        ("0, a, 5 MiB\n1, a\n", ("line 5 has 2 values for 3 columns",), 5),
        ("0, a, 5 MiB\nwords\n", (), 5),
    ],
)
def test_what_is_odd_is_noted(rows: str, notes: tuple[str, ...], mib: int | None) -> None:
    (report,) = queries("index, name, memory.total\n" + rows)
    assert (report.notes, report.fields["mib"]) == (notes, mib)


def test_rows_without_a_header_are_known_by_their_values() -> None:
    (report,) = queries("words\n0, NVIDIA L40S, 46068 MiB, 00000000:01:00.0, P0\n1, NVIDIA L40S, 46068 MiB, 00000000:02:00.0, P0\n")
    assert (report.fields["gpus"], report.fields["mib"], report.first_line) == (2, 46068, 4)
    assert report.fields["bus_ids"] == ["00000000:01:00.0", "00000000:02:00.0"]
    assert len(queries("index, name\n0, a\nindex, name\n0, a\n")) == 2
    assert queries("index, name\n") == []


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ("index, name [x], uuid", ["index", "name", "uuid"]),
        ("name", None),
        ("one, two", None),
        ("index, Name", None),
        ("index, näme", None),
        ("index, " + "a" * 1994, None),
        ("index, " + "a" * 1993, ["index", "a" * 1993]),
    ],
)
def test_a_header_has_known_columns_alone(line: str, columns: Any) -> None:
    assert csv_columns(line) == columns


def test_bare_rows_begin_with_index_and_name() -> None:
    assert is_bare_row("0, NVIDIA L40S, x") and not is_bare_row("0, words, x")
