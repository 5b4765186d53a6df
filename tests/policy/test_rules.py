from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.plan.model import ClusterPlan
from infra.render.files import rendered_files, write_files
from infra.render.manifest import Manifest
from infra.render.parts import manifests_of, stack_parts
from policy.__main__ import main
from policy.rules import RULES, breaches
from tests.support.builders import STACK, cluster_plan

PLAN = cluster_plan(create=True)


def manifests(plan: ClusterPlan, *, secrets: tuple[str, ...] = ()) -> tuple[Manifest, ...]:
    return manifests_of(stack_parts(plan, stack=STACK, secrets=secrets))


DEPLOYMENT = next(m for m in manifests(PLAN) if m["kind"] == "Deployment" and m["metadata"]["name"] == "llama-70b")
TOKEN = "kubernetes:apps/v1:Deployment"


MALFORMED = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: text}"


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"]["spec"]["containers"][0]


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"]["spec"]


CHANGES: list[tuple[str, str, Callable[[dict[str, Any]], Any]]] = [
    ("pinned-images", "runs vllm/vllm-openai:latest", lambda m: container(m).update(image="vllm/vllm-openai:latest")),
    ("pinned-images", "runs registry:5000/vllm", lambda m: container(m).update(image="registry:5000/vllm")),
    ("guaranteed-gpu-pods", "requests 16 cpu of a limit of 32", lambda m: container(m)["resources"]["requests"].update(cpu="16")),
    ("guaranteed-gpu-pods", "has no memory limit", lambda m: container(m)["resources"]["limits"].pop("memory")),
    ("guaranteed-gpu-pods", "asks for 31500m CPUs", lambda m: [r.update(cpu="31500m") for r in container(m)["resources"].values()]),
    (
        "guaranteed-gpu-pods",
        "container logs of a GPU pod has no cpu limit",
        lambda m: pod(m)["containers"].append(
            {"name": "logs", "image": "fluent-bit:4.0", "resources": {"limits": {"memory": "1Gi"}}}
        ),
    ),
    (
        "no-device-visibility",
        "sets CUDA_VISIBLE_DEVICES",
        lambda m: container(m)["env"].append({"name": "CUDA_VISIBLE_DEVICES", "value": "0"}),
    ),
    (
        "no-device-visibility",
        "NVIDIA_VISIBLE_DEVICES=all",
        lambda m: container(m)["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}),
    ),
    ("shared-memory", "4 GPUs and the default /dev/shm", lambda m: pod(m)["volumes"][1].update(emptyDir={})),
    ("no-privileges", "sets hostIPC", lambda m: pod(m).update(hostIPC=True)),
    ("no-privileges", "is a hostPath", lambda m: pod(m)["volumes"].append({"name": "h", "hostPath": {"path": "/"}})),
    ("no-privileges", "is privileged", lambda m: container(m)["securityContext"].update(privileged=True)),
    ("no-plain-secrets", "has HF_TOKEN in clear", lambda m: container(m)["env"].append({"name": "HF_TOKEN", "value": "hf_x"})),
    ("rollouts-move", "both 0", lambda m: m["spec"]["strategy"]["rollingUpdate"].update(maxUnavailable=0)),
    ("rollouts-move", "surges by a quarter", lambda m: m["spec"].pop("strategy")),
]


@pytest.mark.parametrize(("rule", "sentence", "change"), CHANGES, ids=[f"{rule}: {sentence}" for rule, sentence, _ in CHANGES])
def test_a_breach_is_found_by_its_rule_and_by_no_other(rule: str, sentence: str, change: Any) -> None:
    manifest = copy.deepcopy(DEPLOYMENT)
    change(manifest)
    found = breaches("d", TOKEN, manifest)
    assert [breach.code for breach in found] == [rule]
    assert sentence in found[0].message


def test_every_rule_has_a_breach_that_finds_it() -> None:
    assert {rule.name for rule in RULES} == {rule for rule, _, _ in CHANGES} | {"budgets-let-drain"}


@pytest.mark.parametrize("spec", [{"maxUnavailable": 0}, {"maxUnavailable": "0%"}, {"minAvailable": "100%"}])
def test_a_budget_that_blocks_every_drain_is_found(spec: dict[str, Any]) -> None:
    assert [b.code for b in breaches("b", "kubernetes:policy/v1:PodDisruptionBudget", {"spec": spec})] == ["budgets-let-drain"]


def test_what_this_project_renders_breaks_no_rule() -> None:
    for manifest in manifests(PLAN, secrets=("api-key", "hub-token")):
        assert breaches("o", f"kubernetes:{manifest['apiVersion']}:{manifest['kind']}", manifest) == ()


def test_resources_of_other_providers_are_none_of_its_business() -> None:
    assert breaches("x", "aws:ec2/instance:Instance", {"spec": {"template": {"spec": {"hostIPC": True}}}}) == ()


def test_cron_jobs_and_pods_are_looked_into() -> None:
    spec = {"containers": [{"name": "c", "image": "busybox"}]}
    assert breaches("p", "kubernetes:core/v1:Pod", {"spec": spec})
    assert breaches("c", "kubernetes:batch/v1:CronJob", {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})


def test_a_rendered_folder_is_checked_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(rendered_files(PLAN, stack=STACK), tmp_path)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(" objects, 8 rules, 0 breaches\n")
    broken = copy.deepcopy(DEPLOYMENT)
    container(broken)["image"] = "vllm/vllm-openai:latest"
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(broken))
    assert main([str(tmp_path / "broken.yaml"), "--format", "json"]) == 1
    (breach,) = json.loads(capsys.readouterr().out)["breaches"]
    assert (breach["resource"], breach["rule"]) == ("Deployment/inference/llama-70b", "pinned-images")


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("one.yml", POD),
        ("list.yaml", {"apiVersion": "v1", "kind": "List", "items": [POD]}),
        ("pods.yaml", {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [POD]}),
        ("nested.yml", {"kind": "List", "items": [{"kind": "List", "items": [POD]}]}),
    ],
)
def test_objects_in_yml_files_and_in_lists_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, document: dict[str, Any]
) -> None:
    (tmp_path / "notes.txt").write_text("a: [")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).write_text(yaml.safe_dump(document))
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Pod/p: container c runs busybox; pin it by version or digest")
    assert lines[1:] == ["1 objects, 8 rules, 1 breach"]


def test_an_empty_list_holds_no_objects_and_no_breach(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yml").write_text("{kind: List, items: []}\n---\n# nothing\n")
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "0 objects, 8 rules, 0 breaches\n"


def test_a_folder_without_manifests_is_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--format", "json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["message"] == f"{tmp_path} holds no .yaml or .yml file"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{kind: List, items: [{kind: Pod, metadata: {}}, 3]}", "items[1] is no Kubernetes object"),
        ("{kind: List, metadata: {}, items: text}", "is a List whose items are no list"),
        ("a: [", "is no YAML"),
        ("just text", "is no Kubernetes object"),
        ("kind: 3", "is no Kubernetes"),
        (MALFORMED, "not of the form"),
    ],
)
def test_what_is_no_manifest_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert main([str(tmp_path / "x.yaml")]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_a_missing_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere.yaml")]) == 2
    assert "nowhere.yaml cannot be read: No such file or directory" in capsys.readouterr().err
