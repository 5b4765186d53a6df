"""The gate's exit statuses, what it does without a NUMA node or a KFD entry, and what it says of a closed /dev/kfd."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from infra.agents import gate


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_refusal_has_the_status_of_a_configuration_error() -> None:
    assert gate.REFUSED == os.EX_CONFIG == 78


def test_a_command_that_cannot_be_started_ends_as_a_shells_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {"mode": "enforce", "vendor": "nvidia", "gpus": 0, "cpus": 0, "exclusiveCpus": False, "slots": [], "rankBinding": None}
    monkeypatch.setenv("NUMAWISE_PLAN", str(write(tmp_path / "plan.json", json.dumps(plan))))
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setattr(sys, "argv", ["gate.py", "no-such-program", "serve"])
    assert gate.main() == 127
    assert capsys.readouterr().err.endswith("numawise gate: no-such-program cannot be started: No such file or directory\n")


@pytest.mark.parametrize("text", [None, "", "x"])
def test_a_gpu_without_a_numa_node_has_minus_one(tmp_path: Path, text: str | None) -> None:
    address = "0000:1b:00.0"
    write(tmp_path / f"proc/driver/nvidia/gpus/{address}/information", "Device Minor: \t 0\n")
    write(tmp_path / "dev/nvidia0")
    if text is not None:
        write(tmp_path / f"sys/bus/pci/devices/{address}/numa_node", text)
    assert gate.nvidia_gpus(tmp_path, {}) == [(address, -1)]


def amd(root: Path, *minors: int, kfd: tuple[int, ...]) -> list[int]:
    """The NUMA nodes of the GPUs in HIP's order; each GPU's NUMA node is its render minor."""
    write(root / "sys/class/kfd/kfd/topology/nodes/0/properties", "drm_render_minor 0\n")
    for number, minor in enumerate(kfd, 1):
        write(root / f"sys/class/kfd/kfd/topology/nodes/{number}/properties", f"drm_render_minor {minor}\na line of four words\n")
    for minor in minors:
        write(root / f"dev/dri/renderD{minor}")
        write(root / f"sys/class/drm/renderD{minor}/device/numa_node", f"{minor}\n")
    return [node for _, node in gate.amd_gpus(root)]


def test_gpus_that_kfd_does_not_know_come_last_by_their_number(tmp_path: Path) -> None:
    assert amd(tmp_path / "a", 128, 129, kfd=(129,)) == [129, 128]
    assert amd(tmp_path / "b", 1000, 128, 129, kfd=(129,)) == [129, 128, 1000]


def test_a_closed_kfd_is_refused_with_owner_mode_and_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.check_access(tmp_path)
    device = write(tmp_path / "dev/kfd")
    gate.check_access(tmp_path)
    device.chmod(0o1640)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(
        gate.GateError, match=rf"belongs to group {device.stat().st_gid} with mode 640, .*devicePlugin.deviceGroups"
    ):
        gate.check_access(tmp_path)
