"""A model over several nodes needs a controller that Kubernetes does not bring."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.diagnosis import Diagnosis
from infra.observe.client import ApiError
from infra.observe.leader_worker_sets import check_group_controller, observe_group_controller
from infra.observe.model import ClusterObservation, ObservedGroupController
from tests.observe.stub_client import StubClient
from tests.support.builders import changed, cluster_plan, model_plan, pool_plan

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/leaderworkersets.leaderworkerset.x-k8s.io"
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/lws-mutating-webhook-configuration"
POLICIES = ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None")
GROUP = changed(model_plan("m", pool_plan("h100")), pods_per_replica=2, pipeline_parallel_size=2)


def definition(*policies: str, name: str = "v1", served: bool = True) -> dict[str, Any]:
    template = {"properties": {"restartPolicy": {"type": "string", "enum": list(policies)}}}
    schema = {"properties": {"spec": {"properties": {"leaderWorkerTemplate": template}}}}
    return {"spec": {"versions": [{"name": name, "served": served, "schema": {"openAPIV3Schema": schema}}]}}


def seen(objects: dict[str, Any]) -> ObservedGroupController | None:
    return observe_group_controller(StubClient(objects))


def found(controller: ObservedGroupController | None, *, models: tuple[Any, ...] = (GROUP,)) -> list[Diagnosis]:
    plan = cluster_plan(models=models)
    return list(check_group_controller(plan, ClusterObservation(server_version="", nodes=(), pods=(), group_controller=controller)))


def test_a_cluster_with_the_controller_has_nothing_to_say() -> None:
    controller = seen({DEFINITION: definition(*POLICIES), WEBHOOK: {}})
    assert controller == ObservedGroupController(defined=True, restart_policies=POLICIES, runs=True)
    assert found(controller) == []


@pytest.mark.parametrize(
    "objects",
    [{}, {DEFINITION: definition(*POLICIES, name="v1alpha1")}, {DEFINITION: definition(*POLICIES, served=False)}],
    ids=["not defined", "another version", "not served"],
)
def test_a_cluster_that_does_not_know_the_kind_is_an_error_of_that_model_with_the_way_out(objects: dict[str, Any]) -> None:
    (problem,) = found(seen(objects), models=(model_plan("single", pool_plan("h100")), GROUP))
    assert (problem.path, problem.code, problem.severity) == ("models[1]", "NoLeaderWorkerSet", "error")
    assert "spans 2 nodes" in problem.message
    assert "releases/download/v0.9.0/manifests.yaml" in problem.message


def test_a_controller_before_the_restart_policy_is_an_error_that_names_both() -> None:
    (problem,) = found(seen({DEFINITION: definition("RecreateGroupOnPodRestart", "None"), WEBHOOK: {}}))
    assert problem.code == "LeaderWorkerSetTooOld"
    assert "RecreateGroupAfterStart" in problem.message
    assert "knows RecreateGroupOnPodRestart, None" in problem.message


def test_a_definition_without_a_controller_is_a_warning() -> None:
    (problem,) = found(seen({DEFINITION: definition(*POLICIES)}))
    assert (problem.code, problem.severity) == ("NoLeaderWorkerSetController", "warning")


def test_what_may_not_be_read_is_no_problem() -> None:
    class Forbidden(StubClient):
        def find(self, path: str, **_: Any) -> Any:
            raise ApiError(403, "customresourcedefinitions is forbidden")

    assert observe_group_controller(Forbidden({})) is None
    assert found(None) == []


def test_models_of_one_pod_need_no_controller() -> None:
    missing = replace(ObservedGroupController(defined=True, restart_policies=(), runs=True), defined=False)
    assert found(missing, models=(model_plan("m", pool_plan("h100")),)) == []
