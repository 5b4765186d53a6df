"""What a killed run of the tests left running is ended by the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import MissingError
from tools.cluster import processes
from tools.cluster.layout import Layout
from tools.work.suite_clusters import cluster_roots, end_leftovers, suite_folder


def test_clusters_are_found_at_any_depth_and_not_below_one_another(tmp_path: Path) -> None:
    roots = [tmp_path / "gw0" / "stack0" / "cluster", tmp_path / "gw1" / "cluster0"]
    for root in roots:
        Layout(root).records.mkdir(parents=True)
    (Layout(roots[1]).node("gpu-a") / "processes").mkdir(parents=True)
    (tmp_path / "gw1" / "rendered0").mkdir()
    assert cluster_roots(tmp_path) == roots


def test_a_cluster_that_a_killed_run_left_is_ended_before_the_next(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "pytest" / "cluster0")
    left = processes.start(layout, "left", ["sleep", "60"])
    assert left.alive()
    with suite_folder(tmp_path) as folder:
        assert folder == tmp_path / "pytest"
        assert not left.alive()
        assert cluster_roots(tmp_path) == []


def test_clusters_that_a_run_leaves_are_ended_after_it(tmp_path: Path) -> None:
    with suite_folder(tmp_path) as folder:
        layout = Layout(folder / "cluster0")
        left = processes.start(layout, "left", ["sleep", "60"])
    assert not left.alive()
    assert not folder.exists()


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with suite_folder(tmp_path), pytest.raises(MissingError, match="another run of these tests") as refused, suite_folder(tmp_path):
        pass
    assert refused.value.exit_status == 3


def test_leftovers_are_ended_unless_a_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with suite_folder(tmp_path) as folder:
        layout = Layout(folder / "cluster0")
        left = processes.start(layout, "left", ["sleep", "60"])
        assert end_leftovers(tmp_path) == 0
        assert left.alive()
        assert "another run of these tests" in capsys.readouterr().err
    left = processes.start(layout, "left", ["sleep", "60"])
    assert end_leftovers(tmp_path) == 0
    assert not left.alive()
