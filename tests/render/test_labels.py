from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.render.labels import field_manager, label_value, owner

VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])\Z")


@given(st.text(max_size=100))
def test_any_text_becomes_a_value_that_the_api_server_takes(text: str) -> None:
    value = label_value(text)
    assert VALUE.match(value)
    assert len(value) <= 63
    assert len(field_manager(text)) <= 128


@pytest.mark.parametrize("text", ["local", "prod.eu-1", "A_b", "x" * 63])
def test_what_is_a_value_already_stays(text: str) -> None:
    assert label_value(text) == text


def test_texts_that_lose_characters_do_not_become_equal() -> None:
    assert label_value("org/prod") != label_value("org-prod")
    assert owner("org/prod") != owner("org-prod")
