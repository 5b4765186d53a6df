"""Sentences with names left open, worded for one pool."""

from __future__ import annotations

import pytest

from infra.diagnosis import Diagnosis
from infra.plan.pool.messages import Finding, Location, Message, PodName, PodNames, PoolNames, PoolPath, described, warning
from tests.support.gpu_pools import pod_shape

NAMES = PoolNames(path="nodePools[3]", pods=(PodNames("llama-70b", "models[4]"), PodNames("qwen", "models[7]")))


def test_names_and_the_pools_path_come_in_where_a_message_is_worded():
    message = Message.of("pods of ", PodName(1), " keep ", Message.of(PodName(0), " off ", PoolPath()), ".")
    assert message.worded(NAMES) == "pods of qwen keep llama-70b off nodePools[3]."
    assert message.worded(PoolNames(path="p", pods=(PodNames("a", ""), PodNames("b", "")))) == "pods of b keep a off p."


@pytest.mark.parametrize(("count", "words"), [(0, ""), (1, "a"), (3, "a, a, a")])
def test_messages_are_joined_as_strings_are(count, words):
    assert Message.of(", ").joined(Message.of("a") for _ in range(count)).worded(NAMES) == words


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (Location(), "nodePools[3]"),
        (Location(field="kubelet.maxPods"), "nodePools[3].kubelet.maxPods"),
        (Location(pod=0), "models[4]"),
        (Location(field="resources.cpu", pod=1), "models[7].resources.cpu"),
    ],
)
def test_a_location_is_below_the_pool_or_below_the_model_of_a_pod(location, path):
    assert location.path(NAMES) == path


def test_a_finding_is_a_diagnosis_of_each_pool():
    found = warning(Location(pod=1), "Code", "of ", PodName(1)).with_more(" and ", PodName(0))
    assert found.worded(NAMES) == Diagnosis.warning("models[7]", "Code", "of qwen and llama-70b")
    below = Finding.below_pool(Diagnosis("kubelet.x", "Code", "is wrong.", severity="info", remedy="Mend it."))
    assert below.worded(NAMES) == Diagnosis("nodePools[3].kubelet.x", "Code", "is wrong.", severity="info", remedy="Mend it.")


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ((0, 0), "nothing"),
        ((1, 0), "1 pod of llama-70b (4 GPUs)"),
        ((0, 1), "1 pod of qwen (1 GPU)"),
        ((2, 3), "2 pods of llama-70b (4 GPUs each) and 3 pods of qwen (1 GPU each)"),
    ],
)
def test_a_load_in_words(load, words):
    assert described((pod_shape(gpus=4), pod_shape(gpus=1)), load).worded(NAMES) == words
