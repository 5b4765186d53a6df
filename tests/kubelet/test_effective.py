"""The configuration in force, against what the kubelet's own code makes of the same files and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.kubelet import KubeletRefuses
from infra.kubelet.configuration.decode import load
from infra.kubelet.configuration.fields import FIELDS
from infra.kubelet.configuration.merge import effective_configuration, merge_patch, read_drop_ins
from tests.kubelet.agreement import MERGES, read
from tests.kubelet.merges import SCENARIOS, STATIC

RECORDED: dict[str, dict[str, Any]] = read(MERGES)


def test_every_scenario_is_recorded() -> None:
    assert set(RECORDED) == set(SCENARIOS)
    assert sum("error" in answer for answer in RECORDED.values()) >= 8


@pytest.mark.parametrize("name", SCENARIOS)
def test_merge_is_the_kubelets(name: str) -> None:
    scenario, answer = SCENARIOS[name], RECORDED[name]
    drop_ins = scenario["dropins"]
    if drop_ins == {}:
        with pytest.raises(KubeletRefuses):
            read_drop_ins(Path("/nonexistent/config.d"))
        return
    arguments = {"base": scenario["base"], "drop_ins": drop_ins, "flags": scenario["flags"]}
    if "error" in answer:
        with pytest.raises(KubeletRefuses) as refusal:
            effective_configuration(**arguments)
        assert refusal.value.errors
        return
    ours = load(effective_configuration(**arguments).document, kubernetes_version="1.37").fields
    recorded = {"evictionHard": {}, **answer["configuration"], "mergeDefaultEvictionSettings": False}
    theirs = load(recorded, kubernetes_version="1.37").fields
    # Once more without the defaults that depend on other fields, so that a wrong one cannot be wrong on both sides.
    plainly = {n: FIELDS[n].kind.decode(v, n) for n, v in answer["configuration"].items() if n not in _NOT_COMPARED}
    assert {n: (v, ours[n]) for n, v in plainly.items() if ours[n] != v} == {}
    differing = {n: (theirs[n], ours[n]) for n in theirs if ours[n] != theirs[n] and n not in _NOT_COMPARED}
    assert differing == {}


# The explicit thresholds make the switch void; logging has durations as numbers there.
_NOT_COMPARED = ("mergeDefaultEvictionSettings", "logging", "apiVersion", "kind")


def test_drop_ins_are_read_with_their_folders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "10-x.conf").write_text(STATIC)
    (tmp_path / "20-y.conf").write_text(STATIC)
    found = read_drop_ins(tmp_path)
    assert found == {"sub/10-x.conf": STATIC, "20-y.conf": STATIC}
    effective = effective_configuration(base=STATIC, drop_ins={**found, "notes.txt": "x"})
    assert effective.applied == ("20-y.conf", "sub/10-x.conf")
    assert effective.skipped == ("notes.txt",)


def test_refusals_say_which_file_and_what_to_write() -> None:
    with pytest.raises(KubeletRefuses) as refusal:
        effective_configuration(base=STATIC, drop_ins={"90-mine.conf": "maxPods: 3\n"})
    assert "90-mine.conf" in refusal.value.errors[0]
    assert "kind: KubeletConfiguration" in refusal.value.errors[0]
    with pytest.raises(KubeletRefuses, match="Did you mean 'max-pods'"):
        effective_configuration(base=STATIC, flags=["--max-pod=3"])


def test_merge_patch_leaves_its_arguments_alone() -> None:
    target, patch = {"a": {"b": 1}, "c": [1]}, {"a": {"b": None, "d": 2}, "c": [2]}
    assert merge_patch(target, patch) == {"a": {"d": 2}, "c": [2]}
    assert target == {"a": {"b": 1}, "c": [1]}


def test_only_what_is_no_field_is_unknown() -> None:
    effective = effective_configuration(base=f"{STATIC}reservedCpus: 0-1\n")
    assert effective.unknown == ("reservedCpus",)
    assert "reservedCpus" not in effective.document
