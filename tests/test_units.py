"""Quantities and CPU lists are read exactly as Kubernetes and the kernel read them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.units import format_bytes, format_cpu_list, format_millicpu, parse_bytes, parse_cpu_list, parse_millicpu, parse_quantity


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


@pytest.mark.parametrize(("text", "right"), [("1GiB", "1Gi"), ("1GB", "1G"), ("1 Gi", "1Gi"), ("512mb", "512"), ("4K", "4Ki")])
def test_a_wrong_unit_gets_the_right_spelling(text: str, right: str) -> None:
    with pytest.raises(ValueError, match=f"write .*{right[:1]}"):
        parse_quantity(text)


def test_booleans_are_no_quantities() -> None:
    with pytest.raises(ValueError, match="True is no quantity"):
        parse_quantity(True)


def test_millicpu_and_bytes_round_up_as_the_api_server_does() -> None:
    assert parse_millicpu("0.0001") == 1
    assert parse_bytes("100m") == 1


@given(st.integers(min_value=0, max_value=2**62))
def test_bytes_survive_their_text(value: int) -> None:
    assert parse_bytes(format_bytes(value)) == value


@given(st.integers(min_value=0, max_value=10**9))
def test_cpus_survive_their_text(value: int) -> None:
    assert parse_millicpu(format_millicpu(value)) == value


@given(st.sets(st.integers(min_value=0, max_value=999)))
def test_cpu_lists_survive_their_text(cpus: set[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == tuple(sorted(cpus))


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
