"""What every resource of every component has to keep to, over a plan with both vendors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.plan.model import ClusterPlan
from infra.render.labels import DECLARED, owner
from tests.support.builders import changed, cluster_plan, model_plan, pool_plan
from tests.support.declare import declare_plan
from tests.support.monitor import Recorded, Run

SENTINEL = "sentinel-of-a-secret"
TOKENS = {
    "numawise:cluster:Namespaces": {"namespaces"},
    "numawise:cluster:RefusalGuard": {"guard"},
    "numawise:gpu:NodePool": {"h100", "mi300x"},
    "numawise:gpu:DevicePlugin": {"h100", "mi300x"},
    "numawise:serving:VllmDeployment": {"llama-70b", "qwen-72b"},
}
WORKLOADS = ("kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:DaemonSet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    secrets = {"api-key": SENTINEL, "hub-token": SENTINEL}
    return declare_plan(cluster_plan(create=True), tmp_path_factory.mktemp("run"), secrets=secrets)


def components_of(run: Run) -> Iterator[Recorded]:
    return (resource for resource in run.resources if not resource.custom)


def objects_of(run: Run) -> Iterator[Recorded]:
    return (resource for resource in run.resources if resource.type.startswith("kubernetes:"))


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


def test_the_program_declares_exactly_these_components(run: Run) -> None:
    found: dict[str, set[str]] = {}
    for component in components_of(run):
        found.setdefault(component.type, set()).add(component.name)
    assert found == TOKENS


def test_no_two_resources_share_a_urn(run: Run) -> None:
    assert run.duplicates == ()
    assert len({resource.urn for resource in run.resources}) == len(run.resources)


def test_components_hang_from_the_stack_and_objects_from_their_component(run: Run) -> None:
    names = {resource.urn: resource for resource in run.resources}
    for component in components_of(run):
        assert component.parent.split("::")[2] == "pulumi:pulumi:Stack"
    for resource in objects_of(run):
        parent = names[resource.parent]
        assert not parent.custom, resource.urn
        if resource.type.endswith(":NodePatch"):
            assert resource.name == f"node/{resource.inputs['metadata']['name']}", "a node's labels do not move with a pool's name"
            assert resource.aliases == (f"{parent.name}-{resource.name}",)
        else:
            assert resource.name.startswith(f"{parent.name}-"), f"{resource.urn} would not follow a rename of {parent.name}"


def test_every_object_goes_through_the_one_explicit_provider(run: Run) -> None:
    provider = run.one("providers:kubernetes", "kubernetes")
    for resource in objects_of(run):
        assert resource.provider.startswith(f"{provider.urn}::"), resource.urn


def test_every_component_registers_its_outputs_and_shows_at_most_ten_facts(run: Run) -> None:
    for component in components_of(run):
        assert component.outputs, component.urn
        assert 1 <= len(component.inputs) <= 10, component.urn


def test_every_object_but_a_nodes_labels_says_whose_it_is(run: Run) -> None:
    for resource in objects_of(run):
        labels = resource.inputs["metadata"]["labels"]
        if resource.type.endswith(":NodePatch"):
            assert not owner("local").items() & labels.items()
        else:
            assert owner("local").items() <= labels.items(), resource.urn


def test_every_name_is_a_plain_string_and_given(run: Run) -> None:
    """Names that the provider makes up, or that come from another resource, would replace what they name."""
    for resource in objects_of(run):
        assert isinstance(resource.inputs["metadata"]["name"], str), resource.urn
        assert "generateName" not in resource.inputs["metadata"]


def test_namespaced_objects_stand_in_the_plans_namespaces(run: Run) -> None:
    for resource in objects_of(run):
        if not resource.type.endswith((":Namespace", ":NodePatch", ":ClusterRole", ":ClusterRoleBinding")):
            assert resource.inputs["metadata"]["namespace"] in ("inference", "numawise-system"), resource.urn


def test_names_without_a_namespace_carry_the_stack(run: Run) -> None:
    for resource in objects_of(run):
        if "namespace" not in resource.inputs["metadata"] and not resource.type.endswith((":Namespace", ":NodePatch")):
            assert resource.inputs["metadata"]["name"].endswith("-local"), resource.urn


def test_no_object_waits_for_its_namespace_by_chance(run: Run) -> None:
    namespaces = {resource.inputs["metadata"]["name"]: resource.urn for resource in run.of_type(":Namespace")}
    for resource in objects_of(run):
        namespace = resource.inputs["metadata"].get("namespace")
        if namespace in namespaces:
            assert namespaces[namespace] in resource.dependencies, resource.urn


def test_workloads_have_timeouts_and_those_that_the_provider_waits_for_an_error_hook(run: Run) -> None:
    assert run.hooks == ("numawise-explain",)
    for resource in objects_of(run):
        by_program = "VllmDeployment" in resource.parent
        if resource.type in WORKLOADS:
            assert resource.create_timeout and resource.update_timeout, resource.urn
            assert resource.error_hooks == (() if by_program else ("numawise-explain",)), resource.urn
        else:
            assert resource.error_hooks == (), resource.urn


def test_the_provider_leaves_the_wait_for_models_and_their_services_to_the_program_and_no_other(run: Run) -> None:
    left = {r.name for r in objects_of(run) if "pulumi.com/waitFor" in r.inputs["metadata"].get("annotations", {})}
    assert left == {"llama-70b-deployment", "llama-70b-service", "qwen-72b-deployment", "qwen-72b-service"}
    assert {r.name for r in objects_of(run) if DECLARED in r.inputs["metadata"].get("annotations", {})} == left
    for deployment in models_of(run):
        assert DECLARED not in json.dumps(deployment.inputs["spec"])
        assert "pulumi.com/waitFor" not in json.dumps(deployment.inputs["spec"]), (
            "a pod template never changes for the engine's sake"
        )


def test_the_engine_waits_longer_for_a_model_than_kubernetes_does(run: Run) -> None:
    deployment = run.one("apps/v1:Deployment", "llama-70b-deployment")
    create, update = (int(timeout.removesuffix("s")) for timeout in (deployment.create_timeout, deployment.update_timeout))
    # New replicas start all at once; an update ends old pods first, one after the other.
    assert deployment.inputs["spec"]["progressDeadlineSeconds"] < create < update
    service = run.one("core/v1:Service", "llama-70b-service")
    assert deployment.urn in service.dependencies


def test_nothing_skips_the_wait(run: Run) -> None:
    for resource in objects_of(run):
        annotations = resource.inputs["metadata"].get("annotations", {})
        assert not {"pulumi.com/skipAwait", "pulumi.com/patchForce"} & set(annotations), resource.urn


def test_a_model_waits_for_its_own_pools_labels_and_plugin(run: Run) -> None:
    deployment = run.one("apps/v1:Deployment", "llama-70b-deployment")
    wanted = {r.urn for r in run.resources if r.custom and r.parent.endswith("::h100")}
    assert len(wanted) == 5
    assert wanted <= deployment.dependencies
    assert not {r.urn for r in run.resources if r.parent.endswith("::mi300x")} & deployment.dependencies


def test_namespaces_that_we_make_outlive_the_stack(run: Run) -> None:
    namespaces = run.of_type(":Namespace")
    assert {resource.inputs["metadata"]["name"] for resource in namespaces} == {"inference", "numawise-system"}
    assert all(resource.retain_on_delete for resource in namespaces)
    assert not any(resource.retain_on_delete for resource in objects_of(run) if resource not in namespaces)


def test_the_provider_keeps_to_the_house_rules(run: Run) -> None:
    inputs = run.one("providers:kubernetes", "kubernetes").inputs
    assert inputs["clusterIdentifier"] == "local"
    assert inputs["enableConfigMapMutable"] == inputs["enableSecretMutable"] == inputs["enableServerSideApply"] == "true"
    assert "deleteUnreachable" not in inputs


def test_a_secret_stands_in_secrets_alone_and_marked(run: Run) -> None:
    for resource in run.resources:
        if resource.type.endswith(":Secret"):
            assert resource.inputs["stringData"] == {"api-key": SENTINEL, "hub-token": SENTINEL}
            assert "stringData" in resource.secret_inputs
        else:
            assert SENTINEL not in json.dumps(resource.inputs), resource.urn
    assert len(run.of_type(":Secret")) == 2
    assert SENTINEL not in json.dumps(run.stack_outputs)
    assert SENTINEL not in json.dumps([resource.outputs for resource in run.resources])


def test_a_new_secret_restarts_the_pods_that_read_it(tmp_path: Path) -> None:
    plan = cluster_plan()
    annotations = [
        declare_plan(plan, tmp_path, secrets=secrets)
        .one("Deployment", "llama-70b-deployment")
        .inputs["spec"]["template"]["metadata"]
        .get("annotations", {})
        for secrets in ({}, {"api-key": "first"}, {"api-key": "second"})
    ]
    key = "numawise.dev/credentials-checksum"
    assert key not in annotations[0]
    assert annotations[1][key] != annotations[2][key]


def test_a_replica_over_several_nodes_is_waited_for_and_restarts_with_its_secret(tmp_path: Path) -> None:
    plan = cluster_plan()
    model = changed(plan.models[0], pods_per_replica=2, pipeline_parallel_size=2)
    run = declare_plan(changed(plan, models=(model,)), tmp_path, secrets={"api-key": "first"})
    group = run.one("leaderworkerset.x-k8s.io/v1:LeaderWorkerSet", "llama-70b-leaderworkerset")
    annotations = group.inputs["metadata"]["annotations"]
    declared = annotations[DECLARED]
    assert annotations == {
        DECLARED: declared,
        "pulumi.com/waitFor": f"jsonpath={{.metadata.annotations['{DECLARED}']}}={declared}",
    }
    template = group.inputs["spec"]["leaderWorkerTemplate"]
    for name in ("leaderTemplate", "workerTemplate"):
        assert "numawise.dev/credentials-checksum" in template[name]["metadata"]["annotations"]
    assert group.urn in run.one("core/v1:Service", "llama-70b-service").dependencies


def test_no_string_holds_an_output_that_was_formatted(run: Run) -> None:
    for resource in run.resources:
        for text in strings_in(resource.inputs):
            assert "Calling __str__ on an Output" not in text and "pulumi.output.Output object" not in text, resource.urn


def models_of(run: Run) -> Iterator[Recorded]:
    return (resource for resource in run.of_type("apps/v1:Deployment") if "VllmDeployment" in resource.parent)


def test_every_container_of_a_model_has_requests_equal_to_limits(run: Run) -> None:
    for deployment in models_of(run):
        for container in deployment.inputs["spec"]["template"]["spec"]["containers"]:
            assert container["resources"]["requests"] == container["resources"]["limits"]
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])
        assert "resources" not in deployment.inputs["spec"]["template"]["spec"], "pod-level resources are not pinned"


def test_nobody_sees_all_devices_by_environment(run: Run) -> None:
    for workload in (resource for resource in run.resources if resource.type in WORKLOADS):
        for container in workload.inputs["spec"]["template"]["spec"]["containers"]:
            assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} not in container.get("env", [])


def test_every_name_that_an_object_refers_to_is_declared_too(run: Run) -> None:
    declared = {
        (r.inputs.get("kind"), r.inputs["metadata"].get("namespace"), r.inputs["metadata"]["name"]) for r in objects_of(run)
    }
    for workload in (resource for resource in run.resources if resource.type in WORKLOADS):
        namespace, spec = workload.inputs["metadata"]["namespace"], workload.inputs["spec"]["template"]["spec"]
        assert ("ServiceAccount", namespace, spec["serviceAccountName"]) in declared
        for volume in spec["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", namespace, volume["configMap"]["name"]) in declared
        for container in spec["containers"]:
            for entry in container.get("env", []):
                if "secretKeyRef" in entry.get("valueFrom", {}):
                    assert ("Secret", namespace, entry["valueFrom"]["secretKeyRef"]["name"]) in declared


def test_a_preview_declares_the_same_as_an_update(tmp_path: Path, run: Run) -> None:
    secrets = {"api-key": SENTINEL, "hub-token": SENTINEL}
    preview = declare_plan(cluster_plan(create=True), tmp_path, secrets=secrets, preview=True)
    assert {resource.urn for resource in preview.resources} == {resource.urn for resource in run.resources}


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(cluster_plan(models=()), id="no models"),
        pytest.param(
            cluster_plan(
                node_pools=(pool_plan("a", nodes=("b-c",)), pool_plan("a-b", nodes=("c",))),
                models=(model_plan("m", pool_plan("a")), changed(model_plan("m", pool_plan("a-b")), namespace="other")),
            ),
            id="names that look alike when joined",
        ),
        pytest.param(
            cluster_plan(node_pools=(pool_plan("m"),), models=(model_plan("m", pool_plan("m")),)), id="pool and model of one name"
        ),
    ],
)
def test_other_plans_share_no_urn_either(plan: ClusterPlan, tmp_path: Path) -> None:
    run = declare_plan(plan, tmp_path)
    assert run.duplicates == ()
    assert len(run.of_type("VllmDeployment")) == len(plan.models)
    assert len(run.stack_outputs["endpoints"]) == len(plan.models)


def test_adopted_objects_and_no_others_take_their_fields_from_whoever_set_them(tmp_path: Path) -> None:
    adopt = ("Namespace/numawise-system", "Deployment/inference/llama-70b", "ConfigMap/inference/llama-70b-gate")
    force = "pulumi.com/patchForce"
    run = declare_plan(cluster_plan(), tmp_path, adopt=adopt)
    forced = {
        "/".join(filter(None, (resource.type.rsplit(":", 1)[1], metadata.get("namespace"), metadata["name"])))
        for resource in objects_of(run)
        if (metadata := resource.inputs["metadata"]).get("annotations", {}).get(force) == "true"
    }
    assert forced == set(adopt)
    assert not any(force in json.dumps(resource.inputs) for resource in declare_plan(cluster_plan(), tmp_path).resources)


def test_labels_are_applied_only_where_the_node_is_there_and_models_start_once_there_is_room(run: Run) -> None:
    for resource in objects_of(run):
        if resource.type == "kubernetes:apps/v1:Deployment" and "VllmDeployment" in resource.parent:
            expected = ("numawise-room",) * 2
        else:
            expected = ("numawise-node-exists",) * 2 if resource.type.endswith(":NodePatch") else ()
        assert resource.before_hooks == expected, resource.urn
