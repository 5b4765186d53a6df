"""Every image of a stack goes through one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.config.load import parse_cluster_document
from infra.plan.cluster import plan_stack
from infra.plan.images import mirrored
from infra.render.parts import manifests_of, stack_parts
from infra.render.serving.model import pod_templates
from infra.verify.node_files import reader_pod
from tests.support.documents import small_document

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("image", "pulled"),
    [
        ("docker.io/vllm/vllm-openai:v0.33.0", "reg.example/m/vllm/vllm-openai:v0.33.0"),
        ("vllm/vllm-openai:v0.33.0", "reg.example/m/vllm/vllm-openai:v0.33.0"),
        ("python:3.14-slim", "reg.example/m/library/python:3.14-slim"),
        ("nvcr.io/nvidia/k8s-device-plugin@sha256:" + "0" * 64, "reg.example/m/nvidia/k8s-device-plugin@sha256:" + "0" * 64),
        ("localhost/a:1", "reg.example/m/a:1"),
        ("host:5000/a/b:1", "reg.example/m/a/b:1"),
        ("reg.example/team/vllm:1", "reg.example/team/vllm:1"),
        ("reg.example/m/vllm/vllm-openai:v0.33.0", "reg.example/m/vllm/vllm-openai:v0.33.0"),
    ],
)
def test_an_image_is_pulled_from_the_mirror_under_its_own_repository(image: str, pulled: str) -> None:
    assert mirrored(image, "reg.example/m") == pulled
    assert mirrored(image, "reg.example/m/") == pulled
    assert mirrored(image, None) == image


def pods_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    plan = plan_stack(parse_cluster_document(document))
    specs = [template["spec"] for manifest in manifests_of(stack_parts(plan, stack="test")) for template in pod_templates(manifest)]
    return [*specs, reader_pod("n", plan.system_namespace, images=plan.images, labels={})["spec"]]


def test_with_a_mirror_and_pull_secrets_every_pod_of_the_stack_uses_them() -> None:
    document = small_document()
    document["images"] = {"mirror": "reg.example/m", "pullSecrets": ["pull"]}
    document["models"][0]["sidecars"] = [
        {"name": "s", "image": "busybox:1.37", "resources": {"limits": {"cpu": "1", "memory": "64Mi"}}}
    ]
    pods = pods_of(document)
    assert len(pods) == 4, "device plugin, guard, model, reader of node files"
    for pod in pods:
        assert pod["imagePullSecrets"] == [{"name": "pull"}]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert container["image"].startswith("reg.example/m/"), container["name"]


def test_without_them_no_pod_names_a_pull_secret() -> None:
    assert not any("imagePullSecrets" in pod for pod in pods_of(small_document()))


def test_pins_are_read_by_this_one_place_alone() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for folder in ("infra", "components")
        for path in (ROOT / folder).rglob("*.py")
        if "pinned_reference" in path.read_text() and "catalog" not in path.parts
    }
    assert readers == {"infra/plan/images.py"}
