"""Secrets that exist: looked for before anything is touched, by the names of their keys alone."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config.load import parse_cluster_document
from infra.observe.client import ApiError
from infra.observe.look import observe
from infra.observe.secrets import given_twice, named_secrets
from tests.observe.stub_client import StubClient
from tests.support.builders import changed, cluster_plan
from tests.support.documents import small_document, with_change

SECRET = "/api/v1/namespaces/inference/secrets/vllm-keys"
NAMESPACE = {"/api/v1/namespaces/inference": {"metadata": {}}}


class Refusing(StubClient):
    def find(self, path: str, **_: Any) -> Any:
        if path == SECRET:
            raise ApiError(403, "secrets is forbidden")
        return super().find(path)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({"api-key": "YQ==", "hub-token": "Yg=="}, []),
        ({"api-key": "YQ=="}, []),
        ({"hub-token": "Yg=="}, [("NoApiKey", "warning")]),
        ({"apiKey": "YQ=="}, [("SecretWithoutKeys", "error")]),
        ({}, [("SecretWithoutKeys", "error")]),
        (None, [("NoSecret", "error")]),
        ("forbidden", [("SecretUnread", "warning")]),
    ],
)
def test_a_named_secret_has_to_be_there_with_one_of_the_keys(data: Any, found: list[tuple[str, str]]) -> None:
    plan = cluster_plan()
    plan = changed(plan, models=(changed(plan.models[0], credentials_secret="vllm-keys"),))
    objects = {**NAMESPACE, **({SECRET: {"data": data}} if isinstance(data, dict) else {})}
    seen = observe(plan, (Refusing if data == "forbidden" else StubClient)(objects), ())
    problems = list(named_secrets(plan, seen))
    assert [(problem.code, problem.severity) for problem in problems] == found
    assert all(problem.path == "models[0].credentials.existingSecret" for problem in problems)
    assert "YQ==" not in str(seen)


def test_secrets_that_no_model_names_are_not_asked_for() -> None:
    assert observe(cluster_plan(), Refusing(NAMESPACE), ()).secrets == {}


@pytest.mark.parametrize(("held", "count"), [((), 0), (("api-key",), 1), (("hub-token",), 1), (("api-key", "hub-token"), 1)])
def test_a_secret_beside_the_stacks_own_is_an_error(held: tuple[str, ...], count: int) -> None:
    config = parse_cluster_document(with_change("models[0].credentials", {"existingSecret": "vllm-keys"}))
    problems = list(given_twice(config, held))
    assert [problem.code for problem in problems] == ["CredentialsGivenTwice"] * count
    assert list(given_twice(parse_cluster_document(small_document()), held)) == []
