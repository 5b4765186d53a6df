"""Values one by one: Go's types, quantities, and the texts of flags."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from infra.kubelet import KubeletRefuses
from infra.kubelet.configuration.flags import field_flags
from infra.kubelet.configuration.go_types import (
    BOOL,
    DURATION,
    FLOAT64,
    FLUSH_FREQUENCY,
    INT32,
    INT64,
    QUANTITY,
    STRING,
    STRING_MAP,
    STRINGS,
    TIME,
    UINT32,
    Kind,
    WrongType,
    parse_duration,
    pointer,
    struct,
)
from infra.kubelet.configuration.merge import effective_configuration
from infra.kubelet.quantity import NANO, format_quantity, parse_json_quantity, parse_quantity, round_up
from tests.kubelet.merges import HEADER


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [(INT32, -(2**31), 2**31 - 1), (INT64, -(2**63), 2**63 - 1), (UINT32, 0, 2**32 - 1)],
)
def test_an_integer_fits_its_bits_and_no_more(kind: Kind, lowest: int, highest: int) -> None:
    assert [kind.decode(value, "x") for value in (lowest, highest)] == [lowest, highest]
    for value in (lowest - 1, highest + 1):
        with pytest.raises(WrongType, match=f"x: {value} does not fit into u?int.*{lowest} to {highest}"):
            kind.decode(value, "x")


@pytest.mark.parametrize(
    ("kind", "zero"),
    [(STRING, ""), (BOOL, False), (INT32, 0), (UINT32, 0), (STRINGS, None), (STRING_MAP, None), (pointer(INT32), None), (struct(a=INT32), {"a": 0}), (TIME, None)],
)  # fmt: skip
def test_null_is_the_zero_value(kind: Kind, zero: Any) -> None:
    assert kind.decode(None, "x") == kind.zero == zero


@pytest.mark.parametrize(
    ("kind", "value", "decoded"),
    [(INT32, 3.0, 3), (FLOAT64, 1, 1.0), (STRINGS, ("a",), ["a"]), (struct(a=INT32), {"a": 1, "b": 2}, {"a": 1}), (TIME, "2026-01-31T12:00:00.5+01:00", "2026-01-31T12:00:00.5+01:00"),
     (FLUSH_FREQUENCY, 5, 5), (FLUSH_FREQUENCY, "5s", 5 * NANO), (QUANTITY, "1Gi", (2**30 * NANO, 2**30))],
)  # fmt: skip
def test_values_that_go_takes(kind: Kind, value: Any, decoded: Any) -> None:
    assert kind.decode(value, "x") == decoded


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [(STRING, 5, "x: number 5 where the kubelet takes a string"), (STRING, True, "x: boolean True"), (STRING, [], "x: list"), (BOOL, "true", "true or false"), (INT32, 1.5, "a whole number"),
     (INT32, True, "a whole number"), (INT32, 1e21, "a whole number"), (FLOAT64, True, "a number"), (FLOAT64, "1", "a number"), (DURATION, 5, "a duration in quotes"), (DURATION, "5", "no duration"),
     (STRINGS, "a", "x: string where the kubelet takes a list"), (STRINGS, ["a", 5], r"x\[1\]: number 5"), (STRING_MAP, [], "x: list where the kubelet takes a map"),
     (STRING_MAP, {"a": 5}, r"x\.a: number 5"), (struct(a=INT32), 5, "x: number where the kubelet takes a map"), (struct(a=INT32), {"a": "1"}, r"x\.a: '1'"), (QUANTITY, "x", "x: 'x'"),
     (TIME, "2026", "a time like"), (TIME, 5, "a time like")],
)  # fmt: skip
def test_values_that_go_does_not_take(kind: Kind, value: Any, words: str) -> None:
    with pytest.raises(WrongType, match=words):
        kind.decode(value, "x")


@pytest.mark.parametrize(
    ("text", "nano"),
    [("0", 0), ("+0", 0), ("1ns", 1), ("1us", 10**3), ("1µs", 10**3), ("1ms", 10**6), ("1s", NANO), ("1m", 60 * NANO), ("1h", 3600 * NANO),
     ("1.5h", 5400 * NANO), (".5s", NANO // 2), ("1h1m1s", 3661 * NANO), ("+2s", 2 * NANO), ("-2s", -2 * NANO), ("2540400h", 2540400 * 3600 * NANO), ("9223372036854775807ns", 2**63 - 1)],
)  # fmt: skip
def test_durations_are_gos(text: str, nano: int) -> None:
    assert parse_duration(text) == nano


@pytest.mark.parametrize(
    "text", ["", "-", "+", "1", "s", ".s", "1 s", "1s ", "1x", "1s2", "--1s", "2562048h", "9223372036854775808ns"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


SUFFIXES: dict[str, Any] = {
    **{"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "m": Fraction(1, 1000)},
    **{
        "u": Fraction(1, 10**6),
        "n": Fraction(1, NANO),
        "Ki": 2**10,
        "Mi": 2**20,
        "Gi": 2**30,
        "Ti": 2**40,
        "Pi": 2**50,
        "Ei": 2**60,
    },
}


@pytest.mark.parametrize(("suffix", "size"), SUFFIXES.items())
def test_each_suffix_stands_for_its_size(suffix: str, size: Any) -> None:
    assert parse_quantity(f"3{suffix}").nano == -((-3 * size * NANO) // 1)
    assert parse_quantity(f"0.5{suffix}").nano == -((-size * NANO) // 2)


@pytest.mark.parametrize("seed", range(120))
def test_a_quantity_is_its_number_times_its_suffix(seed: int) -> None:
    rng = random.Random(seed)
    whole, fraction = rng.randrange(10 ** rng.randint(1, 9)), rng.choice(["", "", f".{rng.randrange(1000):03}"])
    suffix = rng.choice(list(SUFFIXES))
    exact = Fraction(f"{whole}{fraction}") * SUFFIXES[suffix]
    found = parse_quantity(f"{whole}{fraction}{suffix}")
    if exact < 2**63:
        assert found.nano == -((-exact * NANO).__floor__())
        assert found.value == -((-exact).__floor__())
        assert found.milli == -((-exact * 1000).__floor__())
    negative = parse_quantity(f"-{whole}{fraction}{suffix}")
    assert (negative.nano, negative.value) == (-found.nano, -found.value)
    if found.int64 is not None:
        assert found.int64 == exact


@pytest.mark.parametrize(
    ("text", "int64"),
    [("999999999999999999", 999999999999999999), ("9223372036854775807", None), ("1E", 10**18), ("9E", 9 * 10**18), ("10E", None), ("1.0", None),
     ("1n", None), ("1u", None), ("100m", None), ("1e18", 10**18), ("0.0000000000000000001e20", None), ("1e19", None), ("92233720368547758e2", 9223372036854775800), ("92233720368547759e2", None), ("1e-1", None), ("9999Pi", None), ("8Ei", None), ("1023Gi", 1023 * 2**30),
     ("99Ti", 99 * 2**40), ("100Ti", None), ("1Pi", None), ("00001Gi", 2**30), ("10000Gi", 10000 * 2**30), ("100000Gi", None)],
)  # fmt: skip
def test_which_quantities_are_an_int64_inside(text: str, int64: int | None) -> None:
    assert parse_quantity(text).int64 == int64


@pytest.mark.parametrize(
    ("amount", "binary", "text"),
    [(0, True, "0"), (1, True, "1"), (1023, True, "1023"), (1024, True, "1Ki"), (1025, True, "1025"), (1536 * 2**20, True, "1536Mi"), (-1024, True, "-1Ki"),
     (1000, False, "1k"), (1001, False, "1001"), (10**18, False, "1E"), (15 * 10**8, False, "1500M"), (Fraction(1, 2), False, "500m"),
     (Fraction(1, 10**6), False, "1u"), (Fraction(1, NANO), False, "1n")],
)  # fmt: skip
def test_a_quantity_is_written_with_its_largest_suffix(amount: Any, binary: bool, text: str) -> None:
    assert format_quantity(int(amount * NANO), binary=binary) == text


@pytest.mark.parametrize(
    ("amount", "unit", "rounded"), [(0, 7, 0), (1, 7, 1), (6, 7, 1), (7, 7, 1), (8, 7, 2), (-1, 7, -1), (-7, 7, -1), (-8, 7, -2)]
)
def test_rounding_is_away_from_zero(amount: int, unit: int, rounded: int) -> None:
    assert round_up(amount, unit) == rounded


@pytest.mark.parametrize(
    ("value", "nano"), [(None, 0), (" 1 ", NANO), (2, 2 * NANO), (2.0, 2 * NANO), (0.5, NANO // 2), (1e21, 10**30)]
)
def test_quantities_of_json(value: Any, nano: int) -> None:
    assert parse_json_quantity(value).nano == nano


@pytest.mark.parametrize("value", [True, [], {}])
def test_no_quantities_of_json(value: Any) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        parse_json_quantity(value)


def test_no_exponent_is_beyond_64() -> None:
    assert parse_quantity("1e63") != parse_quantity("1e64") == parse_quantity("1e65")
    assert parse_quantity("1e-70") == parse_quantity("1e-64")
    assert parse_quantity("9Ei").nano == (2**63 - 1) * NANO


@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        ("max-pods", "x", "must be a whole number"),
        ("fail-swap-on", "yes", "must be true or false"),
        ("kube-reserved", "cpu", "must look like name=value"),
        ("cpu-manager-policy-options", "x", "must look like name=value"),
        ("eviction-hard", "memory.available=1", "must look like name<value"),
        ("feature-gates", "NodeSwap=x", "must be true or false"),
        ("manifest-url-header", "A", "must look like name:value"),
        ("vmodule", "a=x", "must be a whole number"),
        ("reserved-memory", "0", "must look like 0:memory=1Gi"),
        ("reserved-memory", "0:memory=1Gi:1", "must look like 0:memory=1Gi"),
        ("reserved-memory", "x:memory=1Gi", "must look like 0:memory=1Gi"),
        ("reserved-memory", "0:cpu=1", "neither memory nor hugepages"),
        ("register-with-taints", "a=b", "must look like key=value:NoSchedule"),
        ("register-with-taints", ":NoSchedule", "must look like key=value:NoSchedule"),
    ],
)
def test_what_is_wrong_with_the_text_of_a_flag(flag: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        field_flags()[flag].parse([text])


@pytest.mark.parametrize(
    ("flag", "texts", "value"),
    [
        ("max-pods", ["0x10"], 16),
        ("fail-swap-on", ["F"], False),
        ("fail-swap-on", ["1"], True),
        ("kube-reserved", [""], {}),
        ("kube-reserved", [" cpu = 1 ,memory=1Gi"], {"cpu": "1", "memory": "1Gi"}),
        ("cluster-dns", ["", "10.0.0.1"], ["10.0.0.1"]),
        ("reserved-memory", [""], []),
        ("reserved-memory", ["-1:memory=1Gi"], [{"numaNode": -1, "limits": {"memory": "1Gi"}}]),
        ("register-with-taints", ["a:NoSchedule"], [{"key": "a", "value": "", "effect": "NoSchedule"}]),
    ],
)
def test_what_the_text_of_a_flag_means(flag: str, texts: list[str], value: Any) -> None:
    assert field_flags()[flag].parse(texts) == value


@pytest.mark.parametrize(
    ("words", "stage", "message"),
    [(["x"], "flags", "is no flag"), (["--max-pods"], "flags", "flag needs an argument: --max-pods"), (["--nonsense=1"], "flags", "unknown flag: --nonsense"),
     (["--max-pods=x"], "flags", "--max-pods: 'x' must be"), (["--cpu-manager-policy-options=a"], "flags", "name=value")],
)  # fmt: skip
def test_command_lines_that_stop_the_kubelet(words: list[str], stage: str, message: str) -> None:
    with pytest.raises(KubeletRefuses) as refusal:
        effective_configuration(base=HEADER, flags=words)
    assert refusal.value.stage == stage
    assert message in refusal.value.errors[0]


def test_a_flag_for_a_truth_needs_no_text() -> None:
    found = effective_configuration(
        base=HEADER, flags=["--runonce", "--max-pods", "9", "--help", "--node-ip", "10.0.0.1", "--fail-swap-on=false"]
    )
    assert (found.document["runOnce"], found.document["maxPods"], found.document["failSwapOn"]) == (True, 9, False)
