"""What did not work, and what an output does not say: calls that returned an error, CPUs that are off-line, NUMA nodes that are not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.__main__ import main
from infra.errors import NumawiseError
from infra.outputs.collective_log import read_collective_log
from infra.outputs.inputs import read_machine
from infra.outputs.links import GpuLinks, best_set, judge, nvidia_link
from infra.outputs.shape import shape_of

A, B = "node-a:4000:4100 [0] ", "node-a:4000:4200 [1] "
WARNING = "ibvwrap.c:160 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out"
GOOD = A + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([A + WARNING, A + "NCCL INFO transport/net.cc:687 -> 2"], 'net.cc:687: "Call to ibv_modify_qp'),
        ([A + "init.cc:9 NCCL WARN words that nobody knows", A + "NCCL INFO init.cc:10 -> 3"], 'init.cc:10: "words that nobody knows"'),
        ([A + "init.cc:9 RCCL WARN a word", A + "RCCL INFO init.cc:10 -> 1"], "an unhandled error of CUDA or HIP at init.cc:10"),
        ([A + "NCCL INFO transport.cc:183 -> 6"], "an error of a remote process or of the network at transport.cc:183"),
        ([A + WARNING, GOOD, A + "NCCL INFO transport/net.cc:687 -> 2"], "net.cc:687"),
        ([A + WARNING, B + "NCCL INFO Trees", A + "NCCL INFO transport/net.cc:687 -> 2"], "net.cc:687"),
        ([A + WARNING, A + "NCCL INFO misc/ibvwrap.cc:1 -> 2", A + "NCCL INFO init.cc:2 -> 2", A + "NCCL INFO group.cc:3 -> 2"], "ibvwrap.cc:1"),
        (["2026-01-31T00:00:01Z " + A + WARNING, "2026-01-31T00:00:02Z " + A + "NCCL INFO net.cc:687 -> 2"], 'net.cc:687: "Call to'),
        ([A + "x.cu:1 NCCL WARN a", A + "NCCL INFO enqueue.cu:7 -> 5"], "an invalid use at enqueue.cu:7"),
        ([A + "x.cc:1 NCCL WARN a", A + "NCCL INFO register.h:7 -> 4", A + "x.cc:1 NCCL WARN a", A + "NCCL INFO register.h:7 -> 4"], "(2 times)"),
    ],
)  # fmt: skip
def test_a_call_that_returned_an_error_is_bad_whatever_its_warning_says(lines: list[str], said: str) -> None:
    verdict = read_collective_log([GOOD, *lines])
    failed = [finding for finding in verdict.findings if finding.code == "CallFailed"]
    assert verdict.verdict == "bad" and len(failed) == 1 and said in failed[0].message
    assert not any(finding.code == "LibraryWarning" for finding in verdict.findings)


@pytest.mark.parametrize(
    "lines",
    [
        [A + "NCCL INFO transport/net.cc:687 -> 0"],
        [A + "NCCL INFO transport/net.cc:687 -> 7"],
        [A + "NCCL INFO Trees [0] 1/-1/-1->0->-1"],
        [A + "NCCL INFO Ring 00 : 1 -> 0 -> 1"],
        [A + "init.cc:9 NCCL WARN a word of advice"],
        ["app.cc:10 -> 2"],
        [A + "NCCL INFO NET/Plugin : found a.cc -> 2 devices"],
    ],
)
def test_what_is_no_failed_call_does_not_make_a_log_bad(lines: list[str]) -> None:
    assert read_collective_log([GOOD, *lines]).verdict == "good"


def test_shared_memory_that_cannot_be_attached_is_bad() -> None:
    line = (
        A
        + "misc/shmutils.cc:87 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl- (size 192814336), error: No such file or directory (2)"
    )
    verdict = read_collective_log([GOOD, line])
    assert verdict.verdict == "bad" and "192814336" in verdict.reason


@pytest.mark.parametrize("length", [10_000, 100_000])
def test_a_line_without_an_end_takes_no_time(length: int) -> None:
    read_collective_log(["x" * length + " NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "a.b-" * length + " NCCL WARN x"])


def lscpu(*, cpus: int, online: str, offline: str, threads: int, cores: int, nodes: list[str]) -> str:
    lines = ["Architecture:          x86_64", f"CPU(s):                {cpus}", f"On-line CPU(s) list:   {online}"]
    lines += [f"Off-line CPU(s) list:  {offline}"] if offline else []
    lines += [
        f"Thread(s) per core:    {threads}",
        f"Core(s) per socket:    {cores}",
        f"Socket(s):             {len(nodes)}",
        f"NUMA node(s):          {len(nodes)}",
    ]
    return "\n".join(lines + [f"NUMA node{index} CPU(s):     {listed}" for index, listed in enumerate(nodes)]) + "\n"  # fmt: skip


def shape_problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "node.txt"
    path.write_text(text)
    try:
        shape_of(read_machine([str(path)]))
    except NumawiseError as error:
        return [problem.code for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("cpus", "online", "offline", "threads", "cores", "nodes", "split"),
    [
        (16, "0-14", "15", 1, 8, ["0-14"], True),
        (16, "0-14", "15", 2, 8, ["0-14"], True),
        (16, "0-6,8-15", "7", 2, 8, ["0-6,8-15"], True),
        (16, "0-7", "8-15", 1, 8, ["0-7"], False),
        (16, "0-7", "8-15", 2, 4, ["0-7"], False),
        (16, "0-13", "14,15", 2, 8, ["0-13"], True),
        (16, "0-6,8-14", "7,15", 2, 7, ["0-6,8-14"], False),
        (32, "0-30", "31", 2, 8, ["0-7,16-23", "8-15,24-30"], True),
        (32, "0-15", "16-31", 1, 8, ["0-7", "8-15"], False),
        (16, "0-15", "", 2, 8, ["0-15"], False),
    ],
)  # fmt: skip
def test_cores_of_which_a_thread_is_off_line_are_told(
    tmp_path: Path, cpus: int, online: str, offline: str, threads: int, cores: int, nodes: list[str], split: bool
) -> None:
    text = lscpu(cpus=cpus, online=online, offline=offline, threads=threads, cores=cores, nodes=nodes)
    assert ("OfflineCpus" in shape_problems(tmp_path, text)) == split


def test_no_threads_of_a_core_are_no_number(tmp_path: Path) -> None:
    text = lscpu(cpus=16, online="0-15", offline="", threads=0, cores=8, nodes=["0-15"])
    path = tmp_path / "lscpu.txt"
    path.write_text(text)
    report = read_machine([str(path)]).first("lscpu")
    assert report is not None and report.fields["threads_per_core"] is None
    assert any("Thread(s) per core: 0" in note for note in report.notes)


def linked(numa: dict[int, int | None], label: str = "NV18") -> GpuLinks:
    link = nvidia_link(label)
    assert link is not None
    return GpuLinks(gpus=tuple(numa), links={(a, b): link for a in numa for b in numa if a != b}, numa=numa)


@pytest.mark.parametrize(
    ("numa", "size", "gpus", "nodes"),
    [
        ({0: 0, 1: 0, 2: 1, 3: None}, 4, (0, 1, 2, 3), 2),
        ({0: 0, 1: 0, 2: 1, 3: None}, 2, (0, 1), 1),
        ({0: 0, 1: None, 2: 0, 3: 1}, 2, (0, 2), 1),
        ({0: None, 1: None}, 2, (0, 1), 1),
        ({0: 0, 1: None}, 2, (0, 1), 1),
        ({0: None, 1: 1}, 2, (0, 1), 1),
        ({0: 0, 1: 1, 2: None, 3: None}, 4, (0, 1, 2, 3), 2),
        ({0: 0, 1: 0, 2: 0, 3: None}, 4, (0, 1, 2, 3), 1),
        ({0: None, 1: 0, 2: 0, 3: 1, 4: 1}, 2, (1, 2), 1),
        ({0: 0, 1: 1, 2: 2, 3: None}, 4, (0, 1, 2, 3), 3),
    ],
)
def test_a_numa_node_that_is_not_known_is_not_counted_as_one_more(
    numa: dict[int, int | None], size: int, gpus: tuple[int, ...], nodes: int
) -> None:
    found = best_set(linked(numa), size)
    assert found is not None and (found.gpus, found.numa_nodes) == (gpus, nodes)
    assert judge(linked(numa), gpus).verdict == "good"


@pytest.mark.parametrize("text", ["", " ", ","])
def test_no_gpus_are_no_group(capsys: pytest.CaptureFixture[str], text: str) -> None:
    matrix = Path(__file__).parent / "fixtures" / "nv06b-dgx-h100-12nic-full-ansi.txt"
    assert main(["topology", str(matrix), "--gpus", text]) == 2
    assert "--gpus: names no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("contradicts", [False, True])
def test_two_tools_that_join_the_same_gpus_otherwise_are_told(tmp_path: Path, contradicts: bool) -> None:
    fixtures = Path(__file__).parent / "fixtures"
    one, other = tmp_path / "rocm.txt", tmp_path / "amd.txt"
    text = (fixtures / "amd01-mi308x-8-showtopo.txt").read_text()
    one.write_text(text.replace("XGMI", "PCIE") if contradicts else text)
    other.write_text((fixtures / "amd11-amdsmi-mi300x.txt").read_text())
    if contradicts:
        with pytest.raises(NumawiseError, match=r"rocm-smi-showtopo joins GPUs 0 and 1 by PCIE.* and amd-smi-topology by XGMI"):
            read_machine([str(one), str(other)])
    else:
        assert len(read_machine([str(one), str(other)]).reports) == 2
