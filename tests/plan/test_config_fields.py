"""config.json's fields under their several names, and what is said of a wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from infra.diagnosis import Diagnosis
from infra.plan.architecture.fields import ConfigFields


def fields(path: str = "modelConfig", **values: Any) -> tuple[ConfigFields, list[Diagnosis]]:
    problems: list[Diagnosis] = []
    return ConfigFields(values, path, problems), problems


@pytest.mark.parametrize(
    ("value", "expected", "message"),
    [
        (0, 0, None),
        (-1, None, "is -1; a number from 0 to 1000000000 is expected."),
        (10**9, 10**9, None),
        (10**9 + 1, None, "is 1000000001; a number from 0 to 1000000000 is expected."),
        ([7, 7], 7, None),
        ([7, 8], None, "is [7, 8]; a whole number, as in config.json, is expected."),
        ([], None, "is []; a whole number, as in config.json, is expected."),
        (True, None, "is True; a whole number, as in config.json, is expected."),
        (2.0, None, "is 2.0; a whole number, as in config.json, is expected."),
        (None, None, None),
    ],
)
def test_whole_numbers(value: Any, expected: int | None, message: str | None) -> None:
    config, problems = fields(width=value)
    assert config.integer("width") == expected
    assert [(problem.path, problem.message) for problem in problems] == (
        [] if message is None else [("modelConfig.width", message)]
    )


def test_bounds_of_a_whole_number_are_allowed_values() -> None:
    config, problems = fields(low=1, below=0, high=5, above=6)
    assert (config.integer("low", minimum=1), config.integer("high", maximum=5)) == (1, 5)
    assert not problems
    assert (config.integer("below", minimum=1, default=3), config.integer("above", maximum=5)) == (3, None)
    assert [problem.path for problem in problems] == ["modelConfig.below", "modelConfig.above"]


def test_the_first_name_that_is_there_counts() -> None:
    config, problems = fields(second=2, third=3)
    assert config.integer("first", "second", "third") == 2
    assert config.integer("first", default=9) == 9 and config.integer("first") is None
    assert not problems


def test_a_needed_field_is_told_with_all_its_names_and_a_near_one() -> None:
    config, problems = fields(path="", hiden_size=4)
    assert config.integer("hidden_size", "n_embd", required=True) is None
    assert config.required_integer("head_dim") == 1
    [size, width] = problems
    assert (size.path, size.code) == ("hidden_size", "MissingField")
    assert size.message.startswith(
        "is missing; the plan needs it from config.json (hidden_size or n_embd). Did you mean 'hiden_size'"
    )
    assert width.path == "head_dim"
    assert fields(head_dim=5)[0].required_integer("head_dim") == 5


def test_truth_values_lists_and_maps() -> None:
    config, problems = fields(yes=True, no=False, word="yes", items=[1], other={"a": 1})
    assert config.boolean("yes") and not config.boolean("no", default=True) and config.boolean("absent", "yes")
    assert not config.boolean("absent") and config.boolean("absent", default=True)
    assert config.sequence("items") == [1] and config.sequence("absent") is None
    assert (
        config.mapping("other") == {"a": 1} and config.mapping("absent", "other") == {"a": 1} and config.mapping("absent") is None
    )
    assert not problems
    assert config.boolean("word", default=True) and config.sequence("word") is None and config.mapping("word") is None
    assert [problem.message for problem in problems] == [
        "is 'yes'; true or false is expected.",
        "is 'yes'; a list is expected.",
        "is 'yes'; a map is expected.",
    ]
