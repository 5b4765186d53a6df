"""python -m infra transport."""

import json
import subprocess
import sys
from pathlib import Path
from time import process_time

import pytest

from infra.__main__ import main
from infra.outputs.collective_log import CollectiveLog
from infra.outputs.log_file import log_lines

FIXTURES = Path(__file__).parents[1] / "outputs" / "fixtures"
EXPECTED = {n: e for n, e in json.loads((FIXTURES.parent / "expected.json").read_text()).items() if e["kind"] == "nccl-log"}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_log_has_its_verdict_and_its_exit_status(capsys, name):
    status = main(["transport", str(FIXTURES / name), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert {key: found.get(key) for key in EXPECTED[name]} == EXPECTED[name]
    assert status == (1 if found["verdict"] in ("degraded", "bad") else 0)
    assert {"verdict", "transports", "nvls", "findings"} <= set(found)


def test_text_says_verdict_reason_transports_and_what_to_do(capsys):
    assert main(["transport", str(FIXTURES / "log13-rccl-shm.log")]) == 1
    out = capsys.readouterr().out
    assert out.startswith("DEGRADED: ranks 0-1 through host memory (SHM).")
    assert "sysctl kernel.numa_balancing=0" in out
    assert "iommu=pt" in out
    assert any(line.split()[:3] == ["SHM", "1", "2"] for line in out.split("\n"))


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "MissingFile"),
        (b"", "EmptyInput"),
        (b"INFO 11-12 Loading model weights took 12 GiB\n", "NoCollectiveLog"),
        (b"\x7fELF" + bytes(range(32)) * 9, "BinaryInput"),
        (b"\x1f\x8b\x08abc", "BinaryInput"),
    ],
)
def test_bad_files_are_one_sentence_and_status_2(tmp_path, capsys, content, code):
    file = tmp_path / "it.log"
    if content is not None:
        file.write_bytes(content)
    assert main(["transport", str(file), "--format", "json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert (error["code"], error["path"]) == (code, str(file))


def test_a_directory_is_wrong_input(tmp_path, capsys):
    assert main(["transport", str(tmp_path)]) == 2
    assert "directory" in capsys.readouterr().err


def test_utf_16_logs_are_read(tmp_path, capsys):
    text = (FIXTURES / "log01-good-nvlink-cumem.log").read_text()
    for encoding in ("utf-16", "utf-16-le", "utf-8-sig"):
        file = tmp_path / encoding
        file.write_bytes(text.replace("\n", "\r\n").encode(encoding))
        assert main(["transport", str(file), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["transports"] == ["P2P/CUMEM"]


def test_standard_input_is_read():
    command = [sys.executable, "-m", "infra", "transport", "-"]
    with (FIXTURES / "log10-mnnvl.log").open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("GOOD: 1 pair of ranks, all over P2P/MNNVL.")


def write_log(path: Path, size: int) -> None:
    block = "".join(
        f"node-{rank // 8}:{4000 + rank}:{4100 + rank} [{rank % 8}] NCCL INFO Channel {channel:02d}/0 : {rank}[{rank % 8}] -> "
        f"{(rank + 1) % 32}[{(rank + 1) % 8}] {'via P2P/CUMEM' if rank % 8 < 7 else f'[send] via NET/IB/{channel % 8}/GDRDMA'}\n"
        f"(VllmWorker rank={rank}) INFO 11-12 11:11:51 [gpu_model_runner.py:225] step {channel}\n"
        for rank in range(32)
        for channel in range(64)
    )
    with path.open("w") as file:
        for _ in range(size // len(block) + 1):
            file.write(block)


@pytest.mark.parametrize("size_mb", [10, pytest.param(100, marks=pytest.mark.soak)])
def test_a_long_log_is_read_as_a_stream(tmp_path, size_mb):
    """100 MB in less than 5 s of processor time; the memory does not grow with the file."""
    import tracemalloc

    file = tmp_path / "long.log"
    write_log(file, size_mb * 2**20)
    start = process_time()
    verdict = CollectiveLog().read(log_lines(str(file))).verdict()
    assert process_time() - start < 5 * size_mb / 100 + 0.3
    assert verdict.verdict == "good"
    assert verdict.transports == ("NET/IB", "P2P/CUMEM")
    assert verdict.ranks == tuple(range(32))
    tracemalloc.start()
    CollectiveLog().read(log_lines(str(file)))
    assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    tracemalloc.stop()
