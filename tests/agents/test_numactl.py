"""The numactl stand-in, run as a program on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.agents import gate, numactl

PRINT_CPUS = "import os; print(sorted(os.sched_getaffinity(0)))"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", numactl.__file__, *arguments], capture_output=True, text=True, timeout=30, check=False
    )


def test_a_command_runs_on_the_cpus_of_its_node_that_are_allowed() -> None:
    done = run("--cpunodebind=0", sys.executable, "-c", PRINT_CPUS)
    of_node = set(gate.parse_list(Path("/sys/devices/system/node/node0/cpulist").read_text()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(sorted(of_node & os.sched_getaffinity(0)))


def test_single_cpus_are_bound_and_the_commands_status_is_passed_on() -> None:
    cpu = min(os.sched_getaffinity(0))
    done = run(f"--physcpubind={cpu}", sys.executable, "-c", PRINT_CPUS + "; raise SystemExit(7)")
    assert (done.returncode, done.stdout.strip()) == (7, f"[{cpu}]")


def test_memory_is_bound_or_the_kernels_refusal_is_passed_on() -> None:
    done = run("--cpunodebind=0", "--membind=0", sys.executable, "-c", "print(open('/proc/self/numa_maps').readline().split()[1])")
    if done.returncode == 0:
        assert done.stdout.strip() == "bind:0"
    else:
        assert "set_mempolicy" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--cpunodebind=4000", "true"], "node argument 4000 is out of range"),
        (["--cpunodebind=x", "true"], "<x> is invalid"),
        (["--interleave=all", "true"], "is not supported by this stand-in"),
        (["--membind"], "--membind needs a list"),
        (["--cpunodebind=0"], "no command given"),
        (["--membind=99999", "true"], "node argument 99999 is out of range"),
        (["/nowhere/at/all"], "execution of /nowhere/at/all: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_the_command_does_not_run(arguments: list[str], sentence: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("numactl: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_cpus_that_are_not_allowed_are_refused_instead_of_ignored() -> None:
    taken = max(os.sched_getaffinity(0)) + 1
    done = run(f"--physcpubind={taken}", "true")
    assert done.returncode == 1
    assert "none of these CPUs is allowed here" in done.stderr


def test_show_names_the_cpus_that_are_allowed() -> None:
    assert f"physcpubind: {' '.join(map(str, sorted(os.sched_getaffinity(0))))}\n" in run("--show").stdout


def test_short_options_and_lists_beside_them_are_read() -> None:
    assert numactl.parse(["-N", "0,1", "-m", "1", "python", "-c", "x"]) == (
        {"--cpunodebind": "0,1", "--membind": "1"},
        ["python", "-c", "x"],
    )
    assert numactl.parse(["--physcpubind=0-3", "--", "-x"]) == ({"--physcpubind": "0-3"}, ["-x"])


def test_the_gate_finds_it_beside_itself_where_the_image_has_none(tmp_path: Path) -> None:
    """As mounted from the ConfigMap: gate.py, and bin/numactl executable."""
    (tmp_path / "bin").mkdir()
    mounted = tmp_path / "bin" / "numactl"
    mounted.write_text(Path(numactl.__file__).read_text())
    mounted.chmod(0o555)
    path = f"{Path(sys.executable).parent}:{tmp_path / 'bin'}"
    found = subprocess.run(
        ["/usr/bin/env", f"PATH={path}", "numactl", "--show"], capture_output=True, text=True, timeout=30, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("physcpubind: ")
