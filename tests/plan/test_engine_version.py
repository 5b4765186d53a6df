"""Which vLLM an image runs, from the stack file, the tag or the pin."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config.models import Model
from infra.errors import PlanError
from infra.plan.engine_version import served_engine, split_image, version_of_tag

DIGEST = "sha256:" + "0" * 64


def model(**changes: Any) -> Model:
    return Model.model_validate({"name": "m", "nodePool": "p", "model": "org/m", "storage": {"existingClaim": "c"}} | changes)


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("v0.11.0", "0.11.0"),
        ("0.11.0", "0.11.0"),
        ("v0.10.1.1", "0.10.1.1"),
        ("v0.8.5.post1", "0.8.5"),
        ("v0.14.0rc1", "0.14.0"),
        ("v0.33.0-cu129", "0.33.0"),
        ("v0.33.0-x86_64", "0.33.0"),
        ("0.9.2-gpu-py312-cu128-ubuntu22.04-ec2", "0.9.2"),
        ("0.11-gpu-py312", "0.11"),
        ("rocm6.4.1_vllm_0.9.1_20250702", "0.9.1"),
        ("rocm6.3.1_instinct_vllm0.8.3_20250410", "0.8.3"),
        ("rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4", "0.6.4"),
        ("rocm7.0.0_vllm_0.11.2_20251210", "0.11.2"),
        ("rocm6.3.1_vllm_0.8.5.post1", "0.8.5"),
        ("latest", None),
        ("nightly-0a1b2c3", None),
        ("25.09-py3", None),
        ("main", None),
        (None, None),
        ("v1", None),
        ("rocm6.4.1", None),
    ],
)
def test_tags(tag: str | None, version: str | None) -> None:
    assert version_of_tag(tag) == version


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("vllm/vllm-openai:v0.11.0", ("vllm/vllm-openai", "v0.11.0", None)),
        ("registry.example:5000/vllm", ("registry.example:5000/vllm", None, None)),
        (f"registry.example:5000/vllm:1@{DIGEST}", ("registry.example:5000/vllm", "1", DIGEST)),
        (f"a/vllm@{DIGEST}", ("a/vllm", None, DIGEST)),
    ],
)
def test_parts_of_an_image(image: str, parts: tuple[str, str | None, str | None]) -> None:
    assert split_image(image) == parts


@pytest.mark.parametrize(
    ("changes", "version", "own", "warned"),
    [
        ({}, "0.33.0", False, False),
        ({"vllmVersion": "v0.33.0"}, "0.33.0", False, False),
        ({"image": "vllm/vllm-openai:v0.11.0"}, "0.11.0", False, False),
        ({"image": f"vllm/vllm-openai:v0.11.0@{DIGEST}"}, "0.11.0", False, False),
        ({"image": f"vllm/vllm-openai@{DIGEST}", "vllmVersion": "0.11.0"}, "0.11.0", False, False),
        ({"image": "mirror.example/x/vllm/vllm-openai:v0.8.5.post1", "vllmVersion": "0.8.5"}, "0.8.5", False, False),
        ({"image": "rocm/vllm:rocm6.4.1_vllm_0.9.1_20250702"}, "0.9.1", False, False),
        ({"image": "registry.example/vllm-patched:0.12.0"}, "0.12.0", True, False),
        ({"image": "registry.example/server:0.12.0"}, "0.12.0", True, True),
        ({"image": "registry.example/server:2.12.0"}, "0.33.0", True, True),
        ({"image": "registry.example/server:2.12.0", "vllmVersion": "0.20.0"}, "0.20.0", True, False),
        ({"image": "vllm/vllm-openai:latest"}, "0.33.0", False, True),
        ({"image": "vllm/vllm-openai:nightly", "vllmVersion": "0.32.0"}, "0.32.0", False, False),
        ({"image": "vllm/vllm-openai:v0.99.0", "vllmVersion": "0.33.0"}, "0.33.0", False, True),
    ],
)
def test_the_version_of_a_model(changes: dict[str, Any], version: str, own: bool, warned: bool) -> None:
    engine = served_engine(model(**changes), "models[0]", "nvidia")
    assert (engine.version, engine.own) == (version, own)
    assert [(warning.code, warning.path) for warning in engine.warnings] == (
        [("VersionNotCertain", "models[0].image")] if warned else []
    )


@pytest.mark.parametrize(
    ("changes", "path", "code", "message"),
    [
        ({"image": f"vllm/vllm-openai@{DIGEST}"}, "vllmVersion", "MissingVersion", "is needed beside an image by digest"),
        ({"image": f"vllm/vllm-openai:latest@{DIGEST}"}, "vllmVersion", "MissingVersion", "for example 0.33.0"),
        ({"image": "vllm/vllm-openai:v0.34.0"}, "image", "UnknownVersion", "0.6.0-0.6.6, 0.7.0-0.7.3, "),
        ({"vllmVersion": "0.5.4"}, "vllmVersion", "UnknownVersion", "Write vllmVersion: 0.6.0"),
        ({"vllmVersion": "1.0"}, "vllmVersion", "UnknownVersion", "Write vllmVersion: 0.33.0"),
        ({"vllmVersion": "newest"}, "vllmVersion", "InvalidValue", "'newest' is no vLLM version; write it like 0.33.0."),
        ({"vllmVersion": "9" * 5000}, "vllmVersion", "InvalidValue", "(5,000 characters)"),
        (
            {"image": "vllm/vllm-openai:v0.11.0", "vllmVersion": "0.33.0"},
            "vllmVersion",
            "VersionContradictsImage",
            "is 0.33.0, but vllm/vllm-openai:v0.11.0 is vLLM 0.11.0",
        ),
    ],
)
def test_versions_that_cannot_be_planned(changes: dict[str, Any], path: str, code: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        served_engine(model(**changes), "models[0]", "nvidia")
    (problem,) = error.value.problems
    assert (problem.path, problem.code) == (f"models[0].{path}", code)
    assert message in problem.message


def test_a_version_without_an_image_is_that_tag_of_vllms_own() -> None:
    assert served_engine(model(vllmVersion="v0.11.0"), "m", "nvidia").image == "docker.io/vllm/vllm-openai:v0.11.0"
    assert served_engine(model(vllmVersion="0.8.5.post1"), "m", "nvidia").image == "docker.io/vllm/vllm-openai:v0.8.5.post1"
    assert served_engine(model(vllmVersion="0.33.0"), "m", "nvidia") == served_engine(model(), "m", "nvidia")


def test_a_pinned_image_of_amd_is_that_of_rocm() -> None:
    assert served_engine(model(), "m", "amd").image.startswith("docker.io/vllm/vllm-openai-rocm:v0.33.0")
