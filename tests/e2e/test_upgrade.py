"""A stack of an earlier release, updated by this tree on the real engine and real kubelets.

The tests of this file build on each other in order: one cluster, one stack.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.render.labels import CHECKSUM
from tests.e2e.cluster_fixture import wait_for
from tests.e2e.stack_fixture import RunningStack, assert_verified, stack
from tools.work.steps import CHECKOUT

pytestmark = pytest.mark.e2e

__all__ = ["stack"]

# The last release that put the checksum of the gate's files on pod templates and stated the block size on NVIDIA.
EARLIER = "a3f0b0703aabd8d9d0226cfdf5f10a79529a5ebc"


@pytest.fixture(scope="module")
def earlier_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The earlier release's own engine and program, with this checkout's Python."""
    found = subprocess.run(["git", "cat-file", "-e", f"{EARLIER}^{{commit}}"], cwd=CHECKOUT, capture_output=True)
    if found.returncode != 0:
        pytest.skip(f"this checkout's history does not hold the release {EARLIER[:7]} (a shallow clone, or none by git)")
    tree = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(["git", "archive", EARLIER], cwd=CHECKOUT, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], cwd=tree, input=archive.stdout, check=True)
    (tree / ".venv").symlink_to(CHECKOUT / ".venv")
    return tree


@pytest.fixture(scope="module")
def deployed(stack: RunningStack, earlier_tree: Path) -> Iterator[dict[str, tuple[str, int]]]:
    """The stack as the earlier release made it; its model pods."""
    done = replace(stack, tree=earlier_tree).pulumi("up")
    assert done.status == 0, done.text
    wait_for(lambda: len(serving(stack)) == 3, seconds=120)
    yield serving(stack)


def serving(stack: RunningStack, model: str = "") -> dict[str, tuple[str, int]]:
    """Name of each pod of a model, or of all -> its uid and how often its containers restarted; of those that are to stay."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(status["restartCount"] for status in pod["status"].get("containerStatuses") or ()),
        )
        for pod in stack.pods()
        if pod["metadata"]["name"].startswith(model) and "deletionTimestamp" not in pod["metadata"]
    }


def template_of(stack: RunningStack, model: str) -> dict[str, Any]:
    return stack.client.get(f"/apis/apps/v1/namespaces/inference/deployments/{model}")["spec"]["template"]


def has_earlier_forms(stack: RunningStack, model: str) -> tuple[bool, bool]:
    """The checksum of the gate's files, and a stated block size."""
    template = template_of(stack, model)
    return CHECKSUM in (template["metadata"].get("annotations") or {}), "--block-size" in template["spec"]["containers"][0]["args"]


def test_the_preview_of_an_upgrade_changes_no_pod_template_and_says_what_is_kept(
    stack: RunningStack, deployed: dict[str, tuple[str, int]]
) -> None:
    assert has_earlier_forms(stack, "llama-70b") == (True, True)
    preview = stack.pulumi("preview")
    assert preview.status == 0, preview.text
    assert re.search(rf"models\[0\]: keeps the annotation {CHECKSUM} and --block-size 16 of an earlier release", preview.text), (
        preview.text
    )
    assert re.search(rf"models\[1\]: keeps the annotation {CHECKSUM} of an earlier release", preview.text), preview.text
    assert not re.search(r"^\s*[-+~]\s+template\b", preview.text, re.MULTILINE), preview.text


def test_an_upgrade_restarts_no_pod_of_a_model(stack: RunningStack, deployed: dict[str, tuple[str, int]]) -> None:
    done = stack.pulumi("up")
    assert done.status == 0, done.text
    assert serving(stack) == deployed
    assert "models[0]: keeps" in done.text, done.text
    again = stack.pulumi("up")
    assert set(again.changes) == {"unchanged"}, again.text
    assert serving(stack) == deployed
    assert_verified(stack)


def test_a_real_change_restarts_its_model_alone_and_ends_what_it_kept(
    stack: RunningStack, deployed: dict[str, tuple[str, int]]
) -> None:
    def shorter(cluster: dict[str, Any]) -> None:
        cluster["models"][0]["maxModelLen"] = 2048

    done = stack.pulumi("up", shorter)
    assert done.status == 0, done.text
    assert "models[0]: keeps" not in done.text and "models[1]: keeps" in done.text, done.text
    qwen = {name: pod for name, pod in deployed.items() if name.startswith("qwen-72b-")}
    assert serving(stack, "qwen-72b-") == qwen
    assert len(serving(stack, "llama-70b-")) == 2
    assert not serving(stack, "llama-70b-").keys() & deployed.keys()
    assert has_earlier_forms(stack, "llama-70b") == (False, False)
    again = stack.pulumi("up", shorter)
    assert set(again.changes) == {"unchanged"}, again.text
