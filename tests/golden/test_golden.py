"""What the stacks of this checkout render to and which URNs they have, against the golden files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import GOLDEN, STACKS, golden_manifests, golden_urns, read

REMEDY = "if the change is meant, run `python -m tests.golden.update` and commit it"


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_renders_to_its_golden_manifests(stack: str) -> None:
    rendered, golden = golden_manifests(stack), read(GOLDEN / stack / "manifests")
    assert set(rendered) == set(golden), REMEDY
    for name, content in rendered.items():
        assert content == golden[name], f"{name}: {REMEDY}"


@pytest.mark.parametrize("stack", STACKS)
def test_no_urn_of_a_stack_changes_unseen(stack: str, tmp_path: Path) -> None:
    assert golden_urns(stack, tmp_path) == read(GOLDEN / stack / "engine")["urns.txt"], f"a changed URN needs an alias; {REMEDY}"
