"""Quantities and CPU lists are read exactly as Kubernetes and the kernel read them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    format_bytes,
    format_cpu_list,
    format_gib,
    format_millicpu,
    parse_bytes,
    parse_cpu_list,
    parse_millicpu,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        (4, 4),
        (0.5, Fraction(1, 2)),
        ("500m", Fraction(1, 2)),
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("1Ei", 2**60),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("-1", -1),
        ("128974848", 128974848),
        ("129e6", 129_000_000),
        ("100n", Fraction(1, 10**7)),
    ],
)
def test_quantities_are_exact(text: str | float, value: Fraction | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "Gi", "1GiB", "1 Gi", "1gi", "0x10", "1_000", "١", "inf", "nan", "1e", "1e9999", "--1", "1Ki2"]
)
def test_what_kubernetes_refuses_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        parse_quantity(text)


DECIMAL = ["", "k", "M", "G", "T", "P", "E"]
BINARY = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


@pytest.mark.parametrize(
    ("suffix", "factor"),
    [(suffix, 1000**power) for power, suffix in enumerate(DECIMAL)]
    + [(suffix, 1024**power) for power, suffix in enumerate(BINARY, 1)]
    + [(suffix, Fraction(1, 1000**power)) for power, suffix in enumerate(["m", "u", "n"], 1)],
)
def test_each_suffix_is_its_power(suffix: str, factor: int | Fraction) -> None:
    assert parse_quantity(f"3{suffix}") == 3 * factor


def test_the_binary_units_are_powers_of_1024() -> None:
    assert [KIB, MIB, GIB, TIB] == [1024, 1024**2, 1024**3, 1024**4]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("1GiB", "1Gi"),
        ("1MiB", "1Mi"),
        ("1TiB", "1Ti"),
        ("1KiB", "1Ki"),
        ("1GB", "1G"),
        ("1MB", "1M"),
        ("1TB", "1T"),
        ("1kB", "1k"),
        ("1KB", "1Ki"),
        ("1gi", "1Gi"),
        ("1mi", "1Mi"),
        ("4K", "4Ki"),
        ("4g", "4G"),
        ("1 Gi", "1Gi"),
        ("1 GiB", "1Gi"),
        ("512mb", "it like 4, 500m, 512Mi or 128Gi"),
        ("xGB", "it like 4, 500m, 512Mi or 128Gi"),
    ],
)
def test_a_wrong_unit_gets_the_right_spelling(text: str, right: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_quantity(text)
    assert str(caught.value) == f"{text!r} is no quantity; write {right}"


@pytest.mark.parametrize("value", [True, None, [1], {}])
def test_booleans_and_what_is_neither_text_nor_number_are_no_quantities(value: Any) -> None:
    with pytest.raises(ValueError) as caught:
        parse_quantity(value)
    assert str(caught.value) == f"{value!r} is no quantity; write it like 4, 500m, 512Mi or 128Gi"


def test_millicpu_and_bytes_round_up_as_the_api_server_does() -> None:
    assert parse_millicpu("0.0001") == 1
    assert parse_bytes("100m") == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1"), (1023, "1023"), (1024, "1Ki"), (1536, "1536"), (134217728, "128Mi"), (2**30, "1Gi"), (2**40, "1024Gi")],
)
def test_bytes_have_the_shortest_exact_binary_suffix(value: int, text: str) -> None:
    assert format_bytes(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (1, "1m"), (999, "999m"), (1000, "1"), (1500, "1500m"), (32000, "32")])
def test_whole_cpus_are_written_without_suffix(value: int, text: str) -> None:
    assert format_millicpu(value) == text


def test_gib_for_people_have_one_digit() -> None:
    assert format_gib(1007.54 * 2**30) == "1007.5 GiB"


@given(st.integers(min_value=0, max_value=2**62))
def test_bytes_survive_their_text(value: int) -> None:
    assert parse_bytes(format_bytes(value)) == value


@given(st.integers(min_value=0, max_value=10**9))
def test_cpus_survive_their_text(value: int) -> None:
    assert parse_millicpu(format_millicpu(value)) == value


@given(st.sets(st.integers(min_value=0, max_value=999)))
def test_cpu_lists_survive_their_text(cpus: set[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == tuple(sorted(cpus))


@pytest.mark.parametrize(
    ("cpus", "text"),
    [((), ""), ((5,), "5"), ((0, 1), "0-1"), ((0, 2), "0,2"), ((8, 2, 1, 0, 2), "0-2,8"), ((0, 1, 3, 4, 6), "0-1,3-4,6")],
)
def test_cpu_lists_are_as_short_as_the_kernel_prints_them(cpus: tuple[int, ...], text: str) -> None:
    assert format_cpu_list(cpus) == text


def test_a_cpu_list_of_one_number_may_be_a_range() -> None:
    assert parse_cpu_list("3-3,999999") == (3, 999999)
    with pytest.raises(ValueError, match="'2-1' is no CPU list: 2-1 runs backwards"):
        parse_cpu_list("2-1")
    with pytest.raises(ValueError, match="is no CPU list; write it like 0-55"):
        parse_cpu_list("1000000")


@pytest.mark.parametrize("text", ["a", "3-1", "1-", "-1", "1--2", "0x1", "1:2"])
def test_what_the_kernel_refuses_is_no_cpu_list(text: str) -> None:
    with pytest.raises(ValueError, match="is no CPU list"):
        parse_cpu_list(text)


def test_cpu_lists_may_have_blanks_and_doubles() -> None:
    assert parse_cpu_list(" 0-2, 1 ,8,") == (0, 1, 2, 8)


@pytest.mark.parametrize(
    "text", ["1e19", "1e999", "-1e999", "8Ei", "99999999999999999999Gi", "9" * 5000, "9" * 5000 + "Gi", 10**400, 1e300]
)
def test_more_than_the_api_server_holds_is_no_quantity(text: str | int | float) -> None:
    with pytest.raises(ValueError, match=r"largest quantity of Kubernetes is 2\^63 - 1"):
        parse_quantity(text)


def test_the_largest_quantity_is_one() -> None:
    assert parse_quantity(str(2**63 - 1)) == 2**63 - 1
    assert parse_quantity("-7Ei") == -7 * 2**60


def test_a_quantity_may_have_sixty_digits_and_no_more() -> None:
    assert parse_quantity("0." + "0" * 57 + "1") == Fraction(1, 10**58)
    with pytest.raises(ValueError) as caught:
        parse_quantity("0." + "0" * 58 + "1")
    assert str(caught.value) == f"0.{'0' * 18}... has 61 digits; the largest quantity of Kubernetes is 2^63 - 1, about 9.2E or 8Ei"
    with pytest.raises(ValueError, match="is too much"):
        parse_quantity(str(2**63))
    with pytest.raises(ValueError, match="is no quantity"):
        parse_quantity("1e1000")
    assert parse_quantity("1e-999") > 0
