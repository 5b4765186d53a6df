"""No two Services of a namespace share a name, those that the LeaderWorkerSet controller makes included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.plan.service_names import NamedModel, service_name, service_name_problems

MODEL = NamedModel(path="models[0]", name="llama", namespace="inference", replicas=2, pods_per_replica=1)
GROUP = replace(MODEL, pods_per_replica=2)


def problems(*models: NamedModel) -> list[tuple[str, str]]:
    placed = [replace(model, path=f"models[{index}]") for index, model in enumerate(models)]
    return [(problem.path, problem.code) for problem in service_name_problems(placed)]


@pytest.mark.parametrize("other", ["llama-0", "llama-1", "llama-2", "llama-10"])
def test_a_model_named_like_a_replica_of_a_group_is_refused_whatever_the_groups_replicas_are(other: str) -> None:
    assert problems(GROUP, replace(MODEL, name=other)) == [("models[1].name", "ServiceNameTaken")]
    assert problems(replace(MODEL, name=other), GROUP) == [("models[0].name", "ServiceNameTaken")]


@pytest.mark.parametrize("other", ["llama-01", "llama-a", "llama-0-a", "llama", "llamas-0", "xllama-0"])
def test_other_names_beside_a_group_are_accepted(other: str) -> None:
    assert problems(GROUP, replace(MODEL, name=other, namespace="inference" if other != "llama" else "other")) == []


def test_a_replicas_name_in_another_namespace_is_accepted() -> None:
    assert problems(GROUP, replace(MODEL, name="llama-0", namespace="other")) == []


def test_a_number_beside_a_model_of_one_pod_is_accepted() -> None:
    assert problems(MODEL, replace(MODEL, name="llama-0")) == []


def test_two_names_that_give_one_service_are_refused() -> None:
    assert problems(replace(MODEL, name="7b"), replace(MODEL, name="vllm-7b")) == [("models[1].name", "ServiceNameTaken")]


def test_a_group_cannot_begin_with_a_digit_and_what_is_offered_can() -> None:
    group = replace(GROUP, name="405b")
    assert problems(group) == [("models[0].name", "GroupNameRefused")]
    (problem,) = service_name_problems([group])
    offered = problem.message.rpartition("call it ")[2]
    assert problems(replace(group, name=offered)) == []


@pytest.mark.parametrize(("replicas", "longest"), [(1, 50), (10, 50), (11, 49)])
def test_a_groups_name_leaves_room_for_the_label_of_its_pods(replicas: int, longest: int) -> None:
    group = replace(GROUP, replicas=replicas)
    assert problems(replace(group, name="a" * longest)) == []
    assert problems(replace(group, name="a" * (longest + 1))) == [("models[0].name", "GroupNameRefused")]


def test_a_service_name_begins_with_a_letter() -> None:
    assert (service_name("7b-chat"), service_name("llama")) == ("vllm-7b-chat", "llama")
