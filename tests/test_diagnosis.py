"""One form for errors, warnings, findings and breaches: text, JSON, order, and the nearest known names."""

from __future__ import annotations

import pytest

from infra.diagnosis import Diagnosis, below, did_you_mean, in_order, shown


def test_text_and_json_hold_the_message_with_its_remedy() -> None:
    found = Diagnosis("pods.a", "NoSlot", "a fills no slot.", remedy="Delete it.")
    assert str(found) == "pods.a: a fills no slot. Delete it."
    assert found.as_json() == {"code": "NoSlot", "path": "pods.a", "message": "a fills no slot. Delete it."}
    assert found.as_finding() == {"code": "NoSlot", "path": "pods.a", "severity": "error", "message": "a fills no slot. Delete it."}


def test_without_path_and_remedy_the_message_stands_alone() -> None:
    assert str(Diagnosis("", "X", "it is odd.")) == "it is odd."


def test_a_warning_seen_elsewhere_is_the_same_warning() -> None:
    warning = Diagnosis.warning("a", "X", "m", remedy="r")
    assert warning.severity == "warning"
    assert Diagnosis.info("a", "X", "m", remedy="r") == Diagnosis("a", "X", "m", severity="info", remedy="r")
    assert warning.at("b") == Diagnosis("b", "X", "m", severity="warning", remedy="r")


def test_the_order_is_by_path_with_numbers_as_numbers_then_by_code_and_message() -> None:
    paths = ["", "a", "a[2]", "a[2].b", "a[10]", "b"]
    given = [Diagnosis(path, "X", "m") for path in paths]
    assert [one.path for one in in_order(reversed(given))] == paths
    same_path = [Diagnosis("a", "A", "n"), Diagnosis("a", "B", "m"), Diagnosis("a", "B", "n")]
    assert list(in_order([*reversed(same_path), *same_path])) == same_path


def test_paths_that_begin_with_a_number_have_their_order_too() -> None:
    paths = ["", "0", "9.x", "10.x", "x"]
    assert [one.path for one in in_order([Diagnosis(path, "X", "m") for path in reversed(paths)])] == paths


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("replcas", ["replicas", "name"], " Did you mean 'replicas'?"),
        ("REPLICAS", ["replicas"], " Did you mean 'replicas'?"),
        ("gpu-x", ["gpu-a", "gpu-b", "gpu-c", "gpu-d"], " Did you mean 'gpu-d' or 'gpu-c' or 'gpu-b'?"),
        ("zzz", ["replicas"], ""),
        ("", [], ""),
    ],
)
def test_up_to_three_near_names_are_offered(word: str, known: list[str], hint: str) -> None:
    assert did_you_mean(word, known) == hint


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\n", r"'a\n'"),
        ("x" * 61, f"{'x' * 30!r}... (61 characters)"),
        ("\ud800", r"'\ud800'"),
        (12, "12"),
        (-(10**40), str(-(10**40))),
        (None, "None"),
        ([1, [2]], "[1, [2]]"),
        ({"a": 1}, "{'a': 1}"),
    ],
)
def test_a_value_is_echoed_as_it_is_written_where_it_is_short(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_value_of_any_size_is_echoed_in_some_sixty_characters() -> None:
    nested: list[object] = []
    for _ in range(50):
        nested = [nested] * 1000
    for value in (
        16**100_000,
        [16**100_000],
        "x" * 10**6,
        {"x" * 10**6: "y" * 10**6},
        nested,
        list(range(10**6)),
        b"x" * 10**6,
        {1, 2} | set(range(10**5)),
    ):
        assert len(shown(value)) <= 80


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("A", "env.A"),
        ("a.b/c", "env.a.b/c"),
        ("a b", "env.a b"),
        ("a\nb", r"env.'a\nb'"),
        ("", "env.''"),
        (" a", "env.' a'"),
        (3, "env.3"),
        (None, "env.None"),
    ],
)
def test_a_key_that_no_one_could_read_is_quoted_in_a_path(key: object, path: str) -> None:
    assert below("env", key) == path


def test_a_path_with_a_number_of_thousands_of_digits_is_ordered() -> None:
    assert len(in_order([Diagnosis("a" + "9" * 10_000, "X", "m"), Diagnosis("a1", "X", "m")])) == 2
