"""Files to machines: sizes, broken terminals, several machines, and what is told of a text that holds no output."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from infra.errors import ConfigError, NumawiseError
from infra.outputs import inputs
from infra.outputs.inputs import describe, one_machine, read_bytes, read_machine, read_reports, reports_in
from infra.outputs.machine import Machine
from infra.outputs.reading import Report

FIXTURES = Path(__file__).parent / "fixtures"
LSCPU = "Architecture: x86_64\nCPU(s): 2\nSocket(s): 1\nNUMA node(s): 1\nNUMA node0 CPU(s): 0-1\n"


def problem(error: NumawiseError) -> tuple[str, str]:
    (found,) = error.problems
    return found.code, found.message


def refused(text: str) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        reports_in(text.encode(), path="it")
    return problem(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bash: nvidia-smi: command not found", "it holds no output but an error: the tool is not installed there."),
        ("No devices were found", "it holds no output but an error: the tool found no GPU."),
        ("Unable to open /dev/kfd", "it holds no output but an error: /dev/kfd cannot be opened."),
        (
            "| NVIDIA-SMI 550 Driver Version: 550 |",
            "it is the overview that `nvidia-smi` prints without options; `nvidia-smi topo -m` shows the links.",
        ),
        (
            "GPU0 X NV18 SYS and more words here",
            "there are rows of a GPU matrix but not its header (the line `GPU0 GPU1 ...`); copy the whole output.",
        ),
        ("Legend:\n  X = Self", "there is only the legend of `nvidia-smi topo -m`; copy the matrix above it too."),
    ],
)
def test_a_text_without_an_output_is_told_what_it_is(text: str, message: str) -> None:
    assert refused(text) == ("UnknownOutput", message)


def test_an_unknown_text_is_quoted_by_its_first_line() -> None:
    code, message = refused("\n" + "x" * 70 + "\nsecond\n")
    assert code == "UnknownOutput"
    assert message.startswith(f"no known output is among its 2 lines (the first is {'x' * 60!r}). Read are nvidia-smi topo -m,")
    assert not inputs._nothing_found([]).startswith("there")


def test_a_header_alone_is_no_matrix() -> None:
    code, message = refused("\tGPU0\tGPU1\tCPU Affinity\nwords\n")
    assert code == "NoLinks"
    assert message.startswith("it has the header of a matrix of 2 GPUs (line 1), and no link can be read: ")


def test_several_files_are_one_machine_and_all_that_is_wrong_is_told(tmp_path: Path) -> None:
    for name in ("nowhere", "unknown"):
        (tmp_path / "unknown").write_text("words")
        with pytest.raises(NumawiseError) as caught:
            read_machine([str(tmp_path / "nowhere"), str(tmp_path / "unknown")])
        assert str(tmp_path / name) in [found.path for found in caught.value.problems]
    (tmp_path / "lscpu").write_text(LSCPU)
    machine = read_machine([str(tmp_path / "lscpu"), str(FIXTURES / "nv22-1gpu.txt")])
    assert next(report.kind for report in machine.reports) == "lscpu"
    first, *others = [report.first_line for report in machine.reports]
    assert first == 1 and all(line > 10_000_000 for line in others)


def test_outputs_of_several_machines_are_described() -> None:
    def lscpu(host: str, cpus: int) -> Report:
        return Report(kind="lscpu", first_line=1, fields={"nodes": cpus, "cpus": cpus, "numa_cpus": {}}, host=host)

    for count, more in ((6, ""), (7, "; and 1 more")):
        with pytest.raises(ConfigError) as caught:
            one_machine([lscpu(f"h{i}", i) for i in range(count)], source="it")
        listed = "; ".join(f"h{i}: lscpu {i} NUMA nodes" for i in range(6))
        assert problem(caught.value) == (
            "SeveralMachines",
            f"it holds the outputs of {count} machines ({listed}{more}); give one machine's outputs at a time.",
        )


def test_a_machine_is_described_by_its_outputs() -> None:
    reports = (
        Report(kind="a", first_line=1, fields={"gpus": 8, "nodes": 2}),
        Report(kind="b", first_line=1, fields={"nodes": 2}),
        Report(kind="c", first_line=1, fields={"gpus": None}),
    )
    assert describe(Machine(host=None, reports=reports)) == "a 8 GPUs, b 2 NUMA nodes, c"


def test_a_missing_file_is_told_with_what_lies_beside_it(tmp_path: Path) -> None:
    for name in "gfedcba":
        (tmp_path / name).write_text("x")
    (tmp_path / "0folder").mkdir()
    for path, there in ((tmp_path / "x", " In that folder are a, b, c, d, e."), (tmp_path / "no" / "x", "")):
        with pytest.raises(ConfigError) as caught:
            read_bytes(str(path))
        assert problem(caught.value) == ("MissingFile", f"there is no such file.{there}")


def test_bytes_are_read_whole_or_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"abcdef")
    assert (read_bytes(str(tmp_path / "x")), read_bytes(str(tmp_path / "x"), most=4)) == (b"abcdef", b"abcd")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"in")))
    assert read_bytes("-") == b"in"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_bytes(str(tmp_path / ("x" * 300)))


def test_only_collective_logs_may_be_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inputs.MOST_BYTES == 32 * 2**20
    monkeypatch.setattr(inputs, "MOST_BYTES", 400)
    file = tmp_path / "x"
    file.write_text(LSCPU.ljust(400))
    assert read_reports(str(file))[0].kind == "lscpu"
    file.write_text(LSCPU.ljust(401))
    with pytest.raises(ConfigError, match="it is larger than 0 MiB; the output of one tool was expected"):
        read_reports(str(file))
    file.write_text("x NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n" * 8)
    (report,) = read_reports(str(file))
    assert (report.kind, report.fields["verdict"], report.first_line) == ("nccl-log", "good", 1)


def test_values_are_counted_by_how_much_was_read() -> None:
    def known(**fields: object) -> int:
        return inputs._known_values([Report(kind="k", first_line=1, fields=fields)])

    assert known() == 1
    assert known(a=1, b=None, c="", d=[1, None, (2, 3)], e={"x": 0, "y": None}) == 1 + 1 + 3 + 1
