"""Which live workloads give room to which planned ones, from the plan and one look at the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from infra.errors import CheckError
from infra.kinds import ObjectKey
from infra.observe.rollouts import Rollouts
from infra.observe.room import ROOM_GIVEN, RoomPlan, plan_room
from infra.plan.model import ClusterPlan, ModelPlan, PoolPlan
from infra.render.serving.model import workloads
from infra.units import GIB
from tests.support.builders import changed, cluster_plan, model_plan, pool_plan

H100, OTHER = pool_plan("h100", nodes=("gpu-a", "gpu-b")), pool_plan("other", nodes=("gpu-c",))
NODES = {"gpu-a": {"numawise.dev/pool": "h100"}, "gpu-b": {"numawise.dev/pool": "h100"}, "gpu-c": {"numawise.dev/pool": "other"}}


def model(name: str, pool: PoolPlan = H100, **changes: Any) -> ModelPlan:
    return changed(
        model_plan(name, pool), **{"replicas": 2, "max_surge": 0, "max_unavailable": 1, "namespace": "inference", **changes}
    )


def live(of: ModelPlan, *, replicas: int | None = None, kind: str = "Deployment", annotated: bool = False) -> dict[str, Any]:  # fmt: skip
    """The workload of a model as an earlier update left it."""
    sizes = {
        of.resources.resource_name: str(of.parallelism.gpus_per_pod),
        "cpu": str(of.resources.cpu),
        "memory": str(of.resources.memory_bytes),
    }
    template = {"spec": {"nodeSelector": {"numawise.dev/pool": of.node_pool}, "containers": [{"resources": {"limits": sizes}}]}}
    spec: dict[str, Any] = {"replicas": of.placement.replicas if replicas is None else replicas}
    if kind == "LeaderWorkerSet":
        spec["leaderWorkerTemplate"] = {"size": 2, "workerTemplate": template}
    else:
        spec |= {"template": template, "selector": {"matchLabels": {"app": of.name}}}
    annotations = {ROOM_GIVEN: "2"} if annotated else {}
    return {
        "kind": kind,
        "metadata": {"name": of.name, "namespace": of.namespace, "uid": of.name, "annotations": annotations},
        "spec": spec,
    }


def look(*found: dict[str, Any], pods: tuple[dict[str, Any], ...] = ()) -> Rollouts:
    keys = (ObjectKey(kind=w["kind"], namespace=w["metadata"]["namespace"], name=w["metadata"]["name"]) for w in found)
    return Rollouts(workloads=dict(zip(keys, found, strict=True)), nodes=NODES, pods=pods)


def decide(seen: Rollouts, *models: ModelPlan) -> RoomPlan:
    plan: ClusterPlan = changed(cluster_plan(), node_pools=(H100, OTHER), models=models)
    return plan_room(plan, workloads(plan), seen)


def giving(room: RoomPlan) -> list[tuple[str, int, int, list[str]]]:
    return [(given.key.name, given.replicas, given.remaining, [taker.name for taker in given.takers]) for given in room.giving]


def test_a_removed_model_gives_room_to_a_new_one_of_its_pool_and_the_preview_says_so() -> None:
    room = decide(look(live(model("old"))), model("new"))
    assert giving(room) == [("old", 2, 0, ["new"])]
    assert [str(warning) for warning in room.warnings] == [
        "Deployment/inference/old: goes from 2 to 0 replicas and gives 8 GPUs of h100 before inference/new starts"
    ]


@pytest.mark.parametrize(
    "seen, planned, expected",
    [
        pytest.param(look(live(model("m"))), [model("m")], [], id="nothing changes"),
        pytest.param(look(live(model("m")), live(model("n"))), [model("m")], [], id="a removed one that nobody needs the room of"),
        pytest.param(look(live(model("old"))), [model("new", OTHER)], [], id="another pool does not wait"),
        pytest.param(look(live(changed(model("m"), namespace="there"))), [model("m")], [("m", 2, 0, ["m"])], id="another namespace"),
        pytest.param(look(live(model("m"), kind="LeaderWorkerSet")), [model("m")], [("m", 2, 0, ["m"])], id="another kind"),
        pytest.param(look(live(model("m"), replicas=3)), [model("m"), model("n", replicas=1)], [("m", 3, 2, ["n"])], id="shrinking beside a new one"),
        pytest.param(look(live(model("m"), replicas=1), live(model("old"))), [model("m")], [("old", 2, 0, ["m"])], id="growing"),
        pytest.param(look(live(model("m")), live(model("old"))), [model("m", max_surge=1)], [("old", 2, 0, ["m"])], id="an update with surge"),
        pytest.param(look(live(model("m")), live(model("old"))), [model("m", memory_bytes=999 * GIB)], [("old", 2, 0, ["m"])], id="larger pods"),
        pytest.param(look(live(model("old"), replicas=0)), [model("new")], [], id="an old one that holds nothing"),
        pytest.param(look(live(model("old"))), [model("new", replicas=0)], [], id="a new one that holds nothing"),
        pytest.param(look(live(model("m"))), [model("m", replicas=0), model("n")], [("m", 2, 0, ["n"])], id="to no replicas"),
        pytest.param(look(live(model("m", OTHER))), [model("m")], [], id="a model that moves rolls by itself"),
        pytest.param(look(live(model("m"), replicas=2)), [model("m", replicas=1, memory_bytes=999 * GIB)], [], id="nobody gives room to itself"),
    ],
)  # fmt: skip
def test_who_gives_room_to_whom(seen: Rollouts, planned: list[ModelPlan], expected: list[Any]) -> None:
    assert giving(decide(seen, *planned)) == expected


def test_pods_count_where_they_are_and_not_where_their_template_points_now() -> None:
    old = live(model("old"))
    old["spec"]["template"]["spec"]["nodeSelector"] = {"numawise.dev/pool": "renamed-away"}
    pod = {
        "metadata": {"name": "p", "namespace": "inference", "labels": {"app": "old"}},
        "spec": {"nodeName": "gpu-b"},
        "status": {},
    }
    assert giving(decide(look(old), model("new"))) == []
    assert giving(decide(look(old, pods=(pod,)), model("new"))) == [("old", 2, 0, ["new"])]


def test_workloads_without_gpus_give_nothing() -> None:
    guard = live(model("guard"))
    guard["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    assert giving(decide(look(guard), model("new"))) == []


def test_what_an_unfinished_update_scaled_down_comes_back_once_the_others_have_given_room() -> None:
    seen = look(live(model("m"), replicas=0, annotated=True), live(model("broken")))
    room = decide(seen, model("m"))
    assert giving(room) == [("broken", 2, 0, ["m"])]
    assert [(one.key.name, one.replicas, one.planned) for one in room.restoring] == [("m", 0, 2)]
    assert "runs 0: an update that did not end had scaled it down" in str(room.warnings[1])
    assert "back to 2, once inference/broken has given room" in str(room.warnings[1])


def test_a_model_that_is_not_declared_this_time_neither_gives_nor_takes() -> None:
    plan: ClusterPlan = changed(cluster_plan(), node_pools=(H100, OTHER), models=(model("m", replicas=1), model("n")))
    held = [key for key in workloads(plan) if key.name == "m"]
    assert giving(plan_room(plan, workloads(plan), look(live(model("m"))), undeclared=held)) == []
    assert plan_room(plan, workloads(plan), look(live(model("n")), live(model("old"))), undeclared=held).taking == {}


def test_replicas_that_a_person_or_an_autoscaler_changed_are_left_alone() -> None:
    assert decide(look(live(model("m"), replicas=1)), model("m")).restoring == ()


def test_a_rolling_update_that_could_never_begin_is_an_error_with_the_two_steps_that_do() -> None:
    whole = look(live(changed(model("m"), gpus_per_pod=8)), pods=tuple(_pod_on(node) for node in ("gpu-a", "gpu-b")))
    with pytest.raises(CheckError) as caught:
        decide(whole, model("m", replicas=4))
    text = str(caught.value)
    assert "models[0].replicas: 2 pods of 8 GPUs become 4 of 4" in text and "no node of h100 has more than 0 GPUs free" in text
    assert "two steps: update with replicas: 0, then with replicas: 4" in text
    decide(whole, model("m", replicas=0))
    decide(look(live(changed(model("m"), gpus_per_pod=8), replicas=0)), model("m", replicas=4))
    decide(whole, model("m", replicas=2))


def _pod_on(node: str) -> dict[str, Any]:
    return {"metadata": {"name": node, "namespace": "inference", "labels": {"app": "m"}}, "spec": {"nodeName": node}, "status": {}}
