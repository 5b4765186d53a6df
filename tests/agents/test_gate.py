"""The gate against made-up /proc, /sys and /dev trees of an eight-GPU machine with two NUMA nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.agents import gate
from infra.agents.source import source_of

UUIDS = [f"GPU-{index:08d}" for index in range(8)]
NUMA_CPUS = {0: "0-55,112-167", 1: "56-111,168-223"}


class Machine:
    """A root folder with what the kernel shows inside a container."""

    def __init__(self, root: Path, *, cpus: str, memory: str) -> None:
        self.root = root
        self.write(
            "proc/self/status", f"Name:\tpython3\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{memory}\n"
        )
        for node, node_cpus in NUMA_CPUS.items():
            self.write(f"sys/devices/system/node/node{node}/cpulist", node_cpus + "\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def nvidia(
        self, gpus: range | list[int], *, numa_node: Any = lambda index: index // 4, given: set[int] | None = None
    ) -> Machine:
        for index in gpus:
            address = f"0000:{0x1B + 16 * index:02X}:00.0"
            self.write(
                f"proc/driver/nvidia/gpus/{address}/information",
                f"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t {UUIDS[index]}\nDevice Minor: \t {index}\n",
            )
            self.write(f"sys/bus/pci/devices/{address.lower()}/numa_node", f"{numa_node(index)}\n")
            if given is None or index in given:
                self.write(f"dev/nvidia{index}", "")
        return self

    def amd(self, gpus: range, *, kfd_order: list[int] | None = None) -> Machine:
        for place, index in enumerate(kfd_order or gpus):
            self.write(
                f"sys/class/kfd/kfd/topology/nodes/{2 + place}/properties", f"cpu_cores_count 0\ndrm_render_minor {128 + index}\n"
            )
        for index in gpus:
            self.write(f"dev/dri/renderD{128 + index}", "")
            self.write(f"sys/class/drm/renderD{128 + index}/device/numa_node", f"{index // 4}\n")
        return self


def plan(**changes: Any) -> dict[str, Any]:
    return {
        "mode": "enforce",
        "vendor": "nvidia",
        "gpus": 4,
        "cpus": 32,
        "exclusiveCpus": True,
        "slots": [{"numaNodes": [0], "memoryNuma": [0]}, {"numaNodes": [1], "memoryNuma": [1]}],
        "rankBinding": None,
        **changes,
    }


def whole_node(**changes: Any) -> dict[str, Any]:
    return plan(
        gpus=8,
        cpus=48,
        slots=[{"numaNodes": [0, 1], "memoryNuma": [0, 1]}],
        rankBinding={"numaNodeOfRank": [0, 0, 0, 0, 1, 1, 1, 1]},
        **changes,
    )


def numactl(*, cpus: int = 0, memory: int = 0) -> Any:
    """A stand-in for subprocess.run with numactl's exit statuses; keeps its calls."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        calls.append(command)
        status = cpus if "--cpunodebind" in command[1] else memory
        return SimpleNamespace(returncode=status, stderr="libnuma: Error: sched_setaffinity: Invalid argument")

    run.calls = calls  # type: ignore[attr-defined]
    return run


def prepare(
    machine: Machine, wanted: dict[str, Any], environment: dict[str, str] | None = None, **more: Any
) -> tuple[list[str], list[str]]:
    messages: list[str] = []
    command = gate.prepare(wanted, ["vllm", "serve", "/models/m"], environment or {}, machine.root, messages.append, **more)
    return command, messages


def test_a_pod_in_its_slot_starts_vllm_unchanged(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="1-16,113-128", memory="0").nvidia(range(4))
    command, messages = prepare(machine, plan())
    assert command == ["vllm", "serve", "/models/m"]
    assert messages[0].startswith("CPUs 1-16,113-128, memory nodes 0, GPUs 0000:1b:00.0 on node 0")


def test_cpus_of_the_other_numa_node_are_refused_with_all_three_places(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="57-72,169-184", memory="0").nvidia(range(4))
    with pytest.raises(gate.GateError, match="GPUs lie on NUMA nodes 0, CPUs on 1, memory on 0; planned is 0 or 1"):
        prepare(machine, plan())


def test_memory_of_both_numa_nodes_is_refused_where_one_is_planned(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="1-16,113-128", memory="0-1").nvidia(range(4))
    with pytest.raises(gate.GateError, match="memory on 0-1"):
        prepare(machine, plan())


def test_a_shared_cpu_pool_is_refused_with_both_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="0-223", memory="0").nvidia(range(4))
    with pytest.raises(gate.GateError, match=r"224 CPUs are allowed \(0-223\), 32 exclusive ones are planned"):
        prepare(machine, plan())


def test_a_missing_gpu_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="1-16,113-128", memory="0").nvidia(range(3))
    with pytest.raises(gate.GateError, match="3 GPUs are here, 4 are planned"):
        prepare(machine, plan())


def test_warn_says_it_and_starts(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="57-72,169-184", memory="0").nvidia(range(4))
    command, messages = prepare(machine, plan(), {"NUMAWISE_GATE": "warn"})
    assert command == ["vllm", "serve", "/models/m"]
    assert messages[-1].startswith("warning: GPUs lie on NUMA nodes 0, CPUs on 1")


def test_with_cdi_the_device_files_tell_which_gpus_are_ours(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="57-72,169-184", memory="1").nvidia(range(8), given={4, 5, 6, 7})
    command, _ = prepare(machine, plan(), {"NVIDIA_VISIBLE_DEVICES": "void"})
    assert command == ["vllm", "serve", "/models/m"]


def test_privileged_device_files_do_not_count_beyond_the_uuids(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="57-72,169-184", memory="1").nvidia(range(8))
    assert len(gate.nvidia_gpus(tmp_path, {"NVIDIA_VISIBLE_DEVICES": ",".join(UUIDS[4:])})) == 4
    command, _ = prepare(machine, plan(), {"NVIDIA_VISIBLE_DEVICES": ",".join(UUIDS[4:])})
    assert command == ["vllm", "serve", "/models/m"]


def test_gpus_without_numa_node_cannot_be_judged(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="1-16,113-128", memory="0").nvidia(range(4), numa_node=lambda _: -1)
    with pytest.raises(gate.GateError, match="knows no NUMA node of the GPUs"):
        prepare(machine, plan())


def test_ranks_are_bound_by_the_devices_really_given(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="1-12,57-68,113-124,169-180", memory="0-1").nvidia(range(8), numa_node=lambda i: 1 - i // 4)
    run = numactl()
    command, messages = prepare(machine, whole_node(), run=run, which=lambda _: "/usr/bin/numactl")
    assert command[3:] == ["--numa-bind", "--numa-bind-nodes", "1", "1", "1", "1", "0", "0", "0", "0"]
    assert ["numactl", "--cpunodebind=0", "true"] in run.calls
    assert ["numactl", "--cpunodebind=1", "true"] in run.calls
    assert messages[-1] == "ranks 0-7 are bound to NUMA nodes 1 1 1 1 0 0 0 0"


def test_amd_ranks_follow_the_kfd_order_not_the_render_nodes(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="1-12,57-68,113-124,169-180", memory="0-1").amd(range(8), kfd_order=[4, 5, 6, 7, 0, 1, 2, 3])
    command, _ = prepare(machine, whole_node(vendor="amd"), run=numactl(), which=lambda _: "/usr/bin/numactl")
    assert command[5:] == ["1", "1", "1", "1", "0", "0", "0", "0"]


def test_an_image_without_numactl_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="1-12,57-68,113-124,169-180", memory="0-1").nvidia(range(8))
    with pytest.raises(gate.GateError, match="no numactl in PATH"):
        prepare(machine, whole_node(), run=numactl(), which=lambda _: None)


def test_a_binding_that_fails_is_refused_with_what_numactl_says(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="1-12,57-68,113-124,169-180", memory="0-1").nvidia(range(8))
    with pytest.raises(gate.GateError, match="--cpunodebind=0 true` ends with 1: libnuma"):
        prepare(machine, whole_node(), run=numactl(cpus=1), which=lambda _: "numactl")


def test_refused_memory_binding_is_said_and_cpus_stay_bound(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cpus="1-12,57-68,113-124,169-180", memory="0-1").nvidia(range(8))
    command, messages = prepare(machine, whole_node(), run=numactl(memory=1), which=lambda _: "numactl")
    assert "--numa-bind" in command
    assert any("memory cannot be bound" in line for line in messages)


@pytest.mark.parametrize(
    ("cpus", "memory", "sentence"),
    [("1-24,113-136", "0-1", "none of them there"), ("1-12,57-68,113-124,169-180", "0", "memory is allowed on 0 alone")],
)
def test_a_rank_without_cpus_or_memory_on_its_node_is_refused(tmp_path: Path, cpus: str, memory: str, sentence: str) -> None:
    machine = Machine(tmp_path, cpus=cpus, memory=memory).nvidia(range(8))
    loose = {**whole_node(), "slots": []}
    with pytest.raises(gate.GateError, match=sentence):
        prepare(machine, loose, run=numactl(), which=lambda _: "numactl")


def test_kfd_of_a_foreign_group_is_refused_with_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, cpus="1-12,57-68,113-124,169-180", memory="0-1").amd(range(8))
    machine.write("dev/kfd", "")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(gate.GateError, match=rf"/dev/kfd belongs to group {os.getgid()} .* devicePlugin.deviceGroups"):
        prepare(machine, whole_node(vendor="amd"), run=numactl(), which=lambda _: "numactl")


def test_lists_of_the_kernel_are_read_and_written() -> None:
    assert gate.parse_list("0-3,8\n") == [0, 1, 2, 3, 8]
    assert gate.parse_list("\n") == []
    assert gate.format_list([8, 2, 1, 0, 3]) == "0-3,8"
    assert gate.format_list([]) == "none"


def run_gate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The gate as it is shipped: one file, in an image that has nothing of this program (-I -S leaves no site-packages)."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "gate.py")
        program.write_text(source_of("gate"))
        return subprocess.run(
            [sys.executable, "-I", "-S", str(program), *arguments],
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )


def test_as_a_program_it_becomes_the_command(tmp_path: Path) -> None:
    expected = plan(exclusiveCpus=False, gpus=0, slots=[])
    (tmp_path / "plan.json").write_text(json.dumps(expected))
    done = run_gate("sh", "-c", "echo started; exit 7", NUMAWISE_PLAN=str(tmp_path / "plan.json"))
    assert (done.returncode, done.stdout) == (7, "started\n")
    assert "numawise gate: CPUs" in done.stderr


def test_as_a_program_it_refuses_with_a_status_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan(gpus=4096)))
    done = run_gate("echo", "started", NUMAWISE_PLAN=str(tmp_path / "plan.json"))
    assert done.returncode == gate.REFUSED
    assert done.stdout == ""
    assert "numawise gate: refused:" in done.stderr
    assert "4096 are planned" in done.stderr


@pytest.mark.parametrize("text", [None, "{"])
def test_a_missing_or_broken_plan_is_one_sentence(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    done = run_gate("echo", NUMAWISE_PLAN=str(tmp_path / "plan.json"))
    assert done.returncode == 2
    assert "the plan cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_needs_nothing_but_the_standard_library() -> None:
    """It runs in images of others: -I -S leaves no site-packages."""
    done = run_gate()
    assert done.returncode == 2
    assert "no command given" in done.stderr
