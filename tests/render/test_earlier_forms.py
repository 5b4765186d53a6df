"""Which differences of a running workload are kept, and that no other is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.kinds import ObjectKey, key_of
from infra.observe.managed_fields import fields_of_owner
from infra.plan.model import ClusterPlan
from infra.render.labels import CHECKSUM, CREDENTIALS_CHECKSUM, owner
from infra.render.manifest import Manifest
from infra.render.parts import objects_of, stack_parts
from infra.render.serving.earlier_forms import Kept, kept_workloads, with_kept
from infra.render.serving.model import pod_templates
from tests.support.builders import STACK, changed, cluster_plan
from tests.support.live import add_as, live_object

Change = Callable[[Manifest], None]
PLAN = cluster_plan()
_LLAMA = changed(PLAN.models[0], pods_per_replica=2, pipeline_parallel_size=2)
GROUPS = changed(PLAN, models=(_LLAMA, PLAN.models[1]))
LLAMA = ObjectKey(kind="Deployment", namespace="inference", name="llama-70b")
GROUP = ObjectKey(kind="LeaderWorkerSet", namespace="inference", name="llama-70b")
QWEN = ObjectKey(kind="Deployment", namespace="inference", name="qwen-72b")  # on AMD, of 32 tokens a block


def planned(plan: ClusterPlan, key: ObjectKey) -> Manifest:
    (found,) = (one.manifest for one in objects_of(stack_parts(plan, stack=STACK)) if key_of(one.manifest) == key)
    return found


def with_checksum(manifest: Manifest) -> None:
    for template in pod_templates(manifest):
        template["metadata"] = {**template["metadata"], "annotations": {CHECKSUM: "8f0af52cb3aac73f"}}


def with_block_size(manifest: Manifest, size: str = "16", place: int = 13) -> None:
    for template in pod_templates(manifest):
        args = template["spec"]["containers"][0]["args"]
        template["spec"]["containers"][0]["args"] = [*args[:place], "--block-size", size, *args[place:]]


def both(manifest: Manifest) -> None:
    with_checksum(manifest)
    with_block_size(manifest)


def earlier(plan: ClusterPlan, key: ObjectKey, change: Change) -> Manifest:
    """The workload's manifest of a release that rendered it otherwise."""
    manifest = copy.deepcopy(planned(plan, key))
    change(manifest)
    return manifest


def keep(plan: ClusterPlan, *raws: dict[str, Any], credentials: str = "") -> tuple[Kept, ...]:
    live = fields_of_owner({key_of(raw): raw for raw in raws}, owner(STACK))
    return kept_workloads(plan, stack_parts(plan, stack=STACK), live, credentials=credentials)


@pytest.mark.parametrize(
    ("plan", "key", "change", "words"),
    [
        (PLAN, LLAMA, with_checksum, "keeps the annotation numawise.dev/checksum of"),
        (PLAN, LLAMA, with_block_size, "keeps --block-size 16 of"),
        (PLAN, LLAMA, both, "keeps the annotation numawise.dev/checksum and --block-size 16 of"),
        (PLAN, QWEN, with_checksum, "keeps the annotation numawise.dev/checksum of"),
        (GROUPS, GROUP, with_checksum, "keeps the annotation numawise.dev/checksum of"),
        (GROUPS, GROUP, both, "keeps the annotation numawise.dev/checksum and --block-size 16 of"),
    ],
)
def test_earlier_forms_alone_are_kept_as_they_run(plan: ClusterPlan, key: ObjectKey, change: Change, words: str) -> None:
    before = earlier(plan, key, change)
    (kept,) = keep(plan, live_object(before))
    assert (kept.key, kept.manifest) == (key, before)
    assert words in str(kept.why)
    assert kept.why.path == f"models[{0 if key.name == 'llama-70b' else 1}]"
    declared = {key_of(one.manifest): one.manifest for one in objects_of(with_kept(stack_parts(plan, stack=STACK), (kept,)))}
    expected = {key_of(one.manifest): one.manifest for one in objects_of(stack_parts(plan, stack=STACK))}
    assert declared == {**expected, key: before}


def test_a_workload_that_runs_as_planned_keeps_nothing() -> None:
    assert keep(PLAN, live_object(planned(PLAN, LLAMA)), live_object(planned(PLAN, QWEN))) == ()
    assert keep(GROUPS, live_object(planned(GROUPS, GROUP))) == ()


def test_a_workload_that_is_not_there_keeps_nothing() -> None:
    assert keep(PLAN) == ()


def main(manifest: Manifest) -> dict[str, Any]:
    return pod_templates(manifest)[0]["spec"]["containers"][0]


def _spec(**fields: Any) -> Change:
    return lambda manifest: pod_templates(manifest)[0]["spec"].update(fields)


def _main(**fields: Any) -> Change:
    return lambda manifest: main(manifest).update(fields)


def _other_argument(manifest: Manifest) -> None:
    main(manifest)["args"] = ["8192" if word == "4096" else word for word in main(manifest)["args"]]


def _one_environment_variable_less(manifest: Manifest) -> None:
    main(manifest)["env"] = main(manifest)["env"][:-1]


def _another_order_of_variables(manifest: Manifest) -> None:
    main(manifest)["env"] = main(manifest)["env"][::-1]


def _another_label(manifest: Manifest) -> None:
    template = pod_templates(manifest)[0]
    template["metadata"] = {**template["metadata"], "labels": {**template["metadata"]["labels"], "team": "a"}}


def _more_annotations(manifest: Manifest) -> None:
    with_checksum(manifest)
    pod_templates(manifest)[0]["metadata"]["annotations"]["prometheus.io/scrape"] = "true"


REAL = [
    pytest.param(_main(image="docker.io/vllm/vllm-openai:v0.32.0"), id="image"),
    pytest.param(_main(resources={"limits": {"cpu": "16"}, "requests": {"cpu": "16"}}), id="resources"),
    pytest.param(_other_argument, id="an argument"),
    pytest.param(_one_environment_variable_less, id="a variable that is new"),
    pytest.param(_another_order_of_variables, id="the order of variables"),
    pytest.param(_spec(nodeSelector={"numawise.dev/pool": "h100", "zone": "a"}), id="a node selector that is gone"),
    pytest.param(_spec(tolerations=[]), id="a toleration that is new"),
    pytest.param(_spec(hostIPC=True), id="a field that is gone"),
    pytest.param(_another_label, id="a label"),
    pytest.param(_more_annotations, id="an annotation of ours that is gone"),
]


@pytest.mark.parametrize("change", REAL)
def test_with_any_other_difference_the_plan_is_declared_as_it_is(change: Change) -> None:
    def earlier_and_other(manifest: Manifest) -> None:
        both(manifest)
        change(manifest)

    assert keep(PLAN, live_object(earlier(PLAN, LLAMA, earlier_and_other))) == ()


@pytest.mark.parametrize(("size", "place", "kept"), [("16", 13, True), ("16", 18, True), ("32", 13, False), ("64", 13, False)])
def test_a_block_size_is_kept_in_its_place_where_the_plan_counts_with_it(size: str, place: int, kept: bool) -> None:
    assert PLAN.models[0].memory.estimate.block_size == 16
    before = earlier(PLAN, LLAMA, lambda manifest: with_block_size(manifest, size, place))
    assert [one.manifest for one in keep(PLAN, live_object(before))] == ([before] if kept else [])


def test_a_block_size_that_the_plan_states_is_never_the_earlier_one() -> None:
    stated = changed(PLAN, models=(changed(PLAN.models[0], block_size=32), PLAN.models[1]))
    assert keep(stated, live_object(earlier(PLAN, LLAMA, with_block_size))) == ()
    argument = changed(PLAN, models=(changed(PLAN.models[0], args={"block-size": 64}), PLAN.models[1]))
    assert keep(argument, live_object(earlier(PLAN, LLAMA, with_block_size))) == ()


def test_on_amd_a_stated_block_size_is_a_real_difference() -> None:
    unstated = changed(PLAN, models=(PLAN.models[0], changed(PLAN.models[1], block_size=None)))
    size = str(unstated.models[1].memory.estimate.block_size)
    assert keep(unstated, live_object(earlier(unstated, QWEN, lambda manifest: with_block_size(manifest, size)))) == ()


def test_a_block_size_under_which_no_replica_is_ready_is_not_kept() -> None:
    """It may be why; the checksum cannot be."""
    assert keep(PLAN, live_object(earlier(PLAN, LLAMA, with_block_size), ready=0)) == ()
    assert keep(PLAN, live_object(earlier(PLAN, LLAMA, both), ready=0)) == ()
    assert len(keep(PLAN, live_object(earlier(PLAN, LLAMA, with_checksum), ready=0))) == 1


def _pod_of_others() -> dict[str, Any]:
    annotations = {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
    container = {"name": "vllm", "env": [{"name": "INJECTED", "value": "1"}]}
    injected = {"name": "proxy", "image": "proxy:1"}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container, injected]}}


def test_what_others_set_is_theirs_and_changes_nothing() -> None:
    before = earlier(PLAN, LLAMA, both)
    raw = add_as(live_object(before), "kubectl-rollout", {"spec": {"template": _pod_of_others()}})
    assert len(raw["spec"]["template"]["spec"]["containers"]) == 2
    (kept,) = keep(PLAN, raw)
    assert kept.manifest == before
    assert keep(PLAN, add_as(live_object(planned(PLAN, LLAMA)), "x", {"spec": {"template": _pod_of_others()}})) == ()


def test_a_value_of_ours_that_another_took_over_is_a_real_difference() -> None:
    raw = live_object(earlier(PLAN, LLAMA, both))
    fields = raw["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    del fields['k:{"name":"vllm"}']["f:image"]
    assert keep(PLAN, raw) == ()


def test_another_stacks_workload_is_never_looked_into() -> None:
    raw = live_object(earlier(PLAN, LLAMA, both))
    raw["metadata"]["labels"] = {**raw["metadata"]["labels"], "numawise.dev/stack": "other"}
    assert keep(PLAN, raw) == ()


@pytest.mark.parametrize(("written", "same"), [("32", True), ("32000m", True), ("31", False)])
def test_quantities_are_compared_as_numbers(written: str, same: bool) -> None:
    """The API server writes 0.5 as 500m."""
    raw = live_object(earlier(PLAN, LLAMA, both))
    main(raw)["resources"] = {kind: {**amounts, "cpu": written} for kind, amounts in main(raw)["resources"].items()}
    assert bool(keep(PLAN, raw)) is same


def test_outside_the_pods_everything_may_change() -> None:
    """Another number of replicas restarts no pod."""
    fewer = changed(PLAN, models=(changed(PLAN.models[0], replicas=1), PLAN.models[1]))
    (kept,) = keep(fewer, live_object(earlier(PLAN, LLAMA, both)))
    assert kept.manifest["spec"]["replicas"] == 1
    assert kept.manifest["spec"]["template"] == earlier(PLAN, LLAMA, both)["spec"]["template"]


@pytest.mark.parametrize(
    "change",
    [
        lambda group: group["spec"]["leaderWorkerTemplate"].update(restartPolicy="RecreateGroupOnPodRestart"),
        lambda group: group["spec"]["leaderWorkerTemplate"].update(size=4),
        lambda group: group["spec"].pop("networkConfig"),
        lambda group: group["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"].update(terminationGracePeriodSeconds=30),
    ],
)
def test_whatever_makes_new_groups_is_a_real_difference_of_a_group(change: Change) -> None:
    def earlier_and_other(manifest: Manifest) -> None:
        both(manifest)
        change(manifest)

    assert keep(GROUPS, live_object(earlier(GROUPS, GROUP, earlier_and_other))) == ()


def test_forms_that_leader_and_workers_have_apart_are_kept_apart() -> None:
    def leader_alone(manifest: Manifest) -> None:
        leader = manifest["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
        leader["metadata"] = {**leader["metadata"], "annotations": {CHECKSUM: "8f0af52cb3aac73f"}}

    before = earlier(GROUPS, GROUP, leader_alone)
    assert [kept.manifest for kept in keep(GROUPS, live_object(before))] == [before]


def test_a_model_that_became_a_group_is_a_new_object() -> None:
    assert keep(GROUPS, live_object(earlier(PLAN, LLAMA, both))) == ()


@pytest.mark.parametrize(("now", "kept"), [("5eed", True), ("0ther", False), ("", False)])
def test_new_secrets_are_a_real_change(now: str, kept: bool) -> None:
    def with_credentials(manifest: Manifest) -> None:
        both(manifest)
        pod_templates(manifest)[0]["metadata"]["annotations"][CREDENTIALS_CHECKSUM] = "5eed"

    found = keep(PLAN, live_object(earlier(PLAN, LLAMA, with_credentials)), credentials=now)
    assert [one.manifest for one in found] == ([earlier(PLAN, LLAMA, both)] if kept else [])


@pytest.mark.parametrize("spec", [{}, {"template": {}}, {"template": {"spec": {"containers": []}}}, {"leaderWorkerTemplate": {}}])
def test_a_workload_of_any_shape_keeps_nothing(spec: dict[str, Any]) -> None:
    raw = live_object(planned(PLAN, LLAMA))
    raw["spec"] = spec
    assert keep(PLAN, raw) == ()
