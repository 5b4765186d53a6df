from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.render import names
from infra.render.labels import field_manager, label_value, owner
from infra.render.manifest import checksum
from tests.support.builders import changed, cluster_plan

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


@pytest.mark.parametrize(
    ("text", "readable"),
    [("x" * 64, "x" * 50), ("x" * 49 + "." * 20 + "y", "x" * 49), ("a/b", "a-b"), ("-a-", "a"), ("//", "x"), ("", "x")],
)
def test_a_long_or_odd_text_keeps_at_most_fifty_characters_and_gets_eight_of_its_hash(text: str, readable: str) -> None:
    assert label_value(text) == f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def test_a_cluster_scoped_name_carries_the_stack_and_is_a_dns_name() -> None:
    assert names.cluster_scoped("Prod_EU", "numawise-guard") == "numawise-guard-prod-eu"


def test_a_checksum_changes_with_any_byte_and_has_sixteen_digits() -> None:
    assert checksum({"a": "1", "b": "2"}) == checksum({"b": "2", "a": "1"})
    assert checksum({"a": "1"}) != checksum({"a": "2"})
    assert re.fullmatch(r"[0-9a-f]{16}", checksum({"a": "1"}))


def test_a_service_name_is_cut_to_a_dns_label() -> None:
    model = changed(cluster_plan().models[0], name="7" + "b" * 57 + "-cdef")
    assert names.service(model) == "vllm-7" + "b" * 57
    assert len(names.service(changed(model, name="7" * 63))) == 63
