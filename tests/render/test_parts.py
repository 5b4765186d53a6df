"""What is declared, rendered to files and looked for in the cluster is one list."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.kinds import ObjectKey, key_of
from infra.observe.look import observe
from infra.plan.model import ClusterPlan
from infra.render.files import rendered_files
from infra.render.guard import guarded_nodes
from infra.render.part import Part, Wait
from infra.render.parts import keys_of, manifests_of, objects_of, stack_parts
from tests.observe.stub_client import StubClient
from tests.support.builders import STACK, changed, cluster_plan, model_plan, pool_plan
from tests.support.declare import declare_plan

SECRETS = ("api-key", "hub-token")
ROOT = Path(__file__).resolve().parents[2]


def over_nodes() -> ClusterPlan:
    plan = cluster_plan()
    return changed(plan, models=(changed(plan.models[0], pods_per_replica=2, pipeline_parallel_size=2), plan.models[1]))


PLANS = {
    "two vendors, own namespace": cluster_plan(create=True),
    "a group over several nodes": over_nodes(),
    "nodes by count alone": cluster_plan(node_pools=(pool_plan("h100", names_given=False),), models=cluster_plan().models[:1]),
    "no models": cluster_plan(models=()),
}


@pytest.fixture(params=PLANS, ids=str)
def plan(request: pytest.FixtureRequest) -> ClusterPlan:
    return PLANS[request.param]


def parts_of(plan: ClusterPlan) -> tuple[Part, ...]:
    return stack_parts(plan, stack=STACK, secrets=SECRETS)


def test_the_program_declares_the_objects_of_the_parts_and_no_others(plan: ClusterPlan, tmp_path: Path) -> None:
    run = declare_plan(plan, tmp_path, secrets=dict.fromkeys(SECRETS, "value"))
    declared = {resource.name for resource in run.resources if resource.type.startswith("kubernetes:")}
    assert declared == {part.resource_name(child) for part in parts_of(plan) for child in part.children}
    components = {(resource.type, resource.name) for resource in run.resources if not resource.custom}
    assert components == {(part.token, part.name) for part in parts_of(plan)}


def test_files_hold_every_object_but_patches_and_secrets_which_are_notes(plan: ClusterPlan) -> None:
    files = rendered_files(plan, stack=STACK, secrets=SECRETS)
    written = {key_of(yaml.safe_load(content)) for name, content in files.items() if name.endswith(".yaml")}
    for child in objects_of(parts_of(plan)):
        key = key_of(child.manifest)
        if child.patch:
            assert f"kubectl label node {key.name} " in files["node-labels.txt"]
        elif child.secret_keys:
            assert f"kubectl create secret generic {key.name} --namespace {key.namespace} " in files["secrets.txt"]
        else:
            assert key in written
            written.remove(key)
    assert not written


def test_every_object_of_ours_is_looked_for_secrets_and_groups_too(plan: ClusterPlan) -> None:
    """An object that is not looked for would be adopted silently where somebody else has one of its name."""
    parts = parts_of(plan)
    existing = {key_of(child.manifest): {"owner": "somebody"} for child in objects_of(parts) if not child.patch}
    client = StubClient({key.path: {"metadata": {"labels": labels}} for key, labels in existing.items()})
    assert observe(plan, client, keys_of(parts)).objects == existing


def test_a_foreign_group_and_a_foreign_secret_are_among_them() -> None:
    keys = keys_of(parts_of(over_nodes()))
    assert ObjectKey(kind="LeaderWorkerSet", namespace="inference", name="llama-70b") in keys
    assert ObjectKey(kind="Secret", namespace="inference", name="llama-70b-credentials") in keys


def test_no_object_stands_in_two_parts_or_twice_in_one(plan: ClusterPlan) -> None:
    keys = [key_of(child.manifest) for child in objects_of(parts_of(plan))]
    assert len(set(keys)) == len(keys)


def test_a_part_comes_after_those_that_it_names_and_shows_at_most_ten_facts(plan: ClusterPlan) -> None:
    seen: set[str] = set()
    for part in parts_of(plan):
        assert set(part.after) <= seen
        assert part.key not in seen
        assert 1 <= len(part.facts) <= 10
        seen.add(part.key)


def test_no_secret_has_a_value_in_a_part() -> None:
    for child in objects_of(parts_of(cluster_plan())):
        if child.manifest["kind"] == "Secret":
            assert child.secret_keys == SECRETS
            assert not {"data", "stringData"} & set(child.manifest)
    assert not [manifest for manifest in manifests_of(parts_of(cluster_plan())) if manifest["kind"] == "Secret"]


def test_every_family_of_render_is_in_the_list() -> None:
    """A function that makes a part and is not called in parts.py would be declared by nobody."""
    made = {
        node.name
        for path in (ROOT / "infra" / "render").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and node.name.endswith("_part")
        and ast.unparse(node.returns or ast.Constant(0)) == "Part"
    }
    listed = ast.parse((ROOT / "infra" / "render" / "parts.py").read_text())
    called = {node.func.id for node in ast.walk(listed) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert made == {name for name in called if name.endswith("_part")}
    assert len(made) >= 5


def test_each_workload_is_waited_for_as_long_as_it_may_take_and_nothing_else_is() -> None:
    plan = over_nodes()
    times: dict[str, Any] = {"create_seconds": 2100, "update_seconds": 3000}  # of the builders' models
    pull = Wait(create_seconds=900, update_seconds=900)
    found = {
        f"{part.name}/{child.name}": child.wait for part in parts_of(plan) for child in part.children if child.wait is not None
    }
    assert found == {
        "guard/deployment": pull,
        "h100/daemonset": pull,
        "mi300x/daemonset": pull,
        "llama-70b/leaderworkerset": Wait(**times, explain=False, program=True),
        "llama-70b/service": Wait(**times, explain=False, program=True),
        "qwen-72b/deployment": Wait(**times, explain=False, program=True),
        "qwen-72b/service": Wait(**times, explain=False, program=True),
    }
    assert all(wait.delete_seconds == 600 for wait in found.values())


def test_only_namespaces_stay_when_the_stack_goes() -> None:
    kept = {key_of(child.manifest).kind for child in objects_of(parts_of(cluster_plan(create=True))) if child.retain}
    assert kept == {"Namespace"}


def test_facts_are_what_an_operator_decides_on() -> None:
    facts = {part.key: part.facts for part in parts_of(cluster_plan(create=True))}
    assert facts["Namespaces:namespaces"] == {"namespaces": ["numawise-system", "inference"]}
    assert facts["RefusalGuard:guard"] == {"nodes": ["gpu-a", "gpu-b", "gpu-c"]}
    assert facts["NodePool:h100"]["gpusPerNode"] == 8
    assert facts["NodePool:h100"]["nodes"] == ["gpu-a", "gpu-b"]
    assert facts["DevicePlugin:h100"]["image"] == "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
    assert facts["VllmDeployment:qwen-72b"]["numaNodes"] == ["0,1"]
    assert facts["VllmDeployment:qwen-72b"]["resources"] == {"cpu": "48", "memory": "256Gi"}


@pytest.mark.parametrize(
    ("changes", "guarded"),
    [
        ({}, {"gpu-a", "gpu-b"}),
        ({"policy": "restricted"}, {"gpu-a", "gpu-b"}),
        ({"policy": "best-effort"}, set()),
        ({"names_given": False}, set()),
    ],
)
def test_the_guard_watches_named_nodes_whose_kubelet_could_refuse_a_model(changes: dict[str, Any], guarded: set[str]) -> None:
    pool = pool_plan("h100", **changes)
    plan = cluster_plan(node_pools=(pool,), models=(model_plan("llama-70b", pool),))
    assert set(guarded_nodes(plan)) == guarded
    part = next(part for part in parts_of(plan) if part.name == "guard")
    assert bool(part.children) == bool(guarded)
    assert guarded_nodes(changed(plan, models=())) == {}


def test_the_guard_may_touch_the_nodes_and_pods_that_it_watches_and_no_others() -> None:
    pool = pool_plan("h100", labels={"team": "a"})
    plan = cluster_plan(node_pools=(pool,), models=(model_plan("a", pool), model_plan("b", pool, namespace="other")))
    part = next(part for part in parts_of(plan) if part.name == "guard")
    objects = {child.name: child.manifest for child in part.children}
    rules = objects["clusterrole"]["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"], "resourceNames": ["gpu-a", "gpu-b"]}]
    assert {name for name in objects if name.startswith("role")} == {
        "role-inference", "role-other", "rolebinding-inference", "rolebinding-other"
    }  # fmt: skip
    expected = json.loads(objects["configmap"]["data"]["plan.json"])
    assert expected["namespaces"] == ["inference", "other"]
    config_hash = pool.kubelet.config_hash
    labels = {"team": "a", "numawise.dev/pool": "h100", "numawise.dev/kubelet-config": config_hash}
    assert expected["nodes"]["gpu-a"] == {"labels": labels, "resource": "nvidia.com/gpu", "devices": 8}
    spec = objects["deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    pod = spec["template"]["spec"]
    assert pod["automountServiceAccountToken"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == 65532
    (elsewhere,) = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert elsewhere["preference"]["matchExpressions"] == [{"key": "numawise.dev/pool", "operator": "DoesNotExist"}]
