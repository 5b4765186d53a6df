"""python -m infra topology."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.__main__ import main

FIXTURES = Path(__file__).parents[1] / "outputs" / "fixtures"
EXPECTED = json.loads((FIXTURES.parent / "expected.json").read_text())
DGX = str(FIXTURES / "nv06b-dgx-h100-12nic-full-ansi.txt")


def test_json_has_the_form_of_the_contract(capsys):
    assert main(["topology", DGX, "--format", "json"]) == 0
    out = capsys.readouterr()
    found = json.loads(out.out)
    assert out.err == ""
    expected = EXPECTED[Path(DGX).name]
    assert {key: found[key] for key in expected} == expected


def test_text_is_a_sentence_and_tables(capsys):
    assert main(["topology", DGX]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == "8 GPUs; up to 8 are joined by NVLink with each other, up to 4 within one NUMA node."
    assert any(line.split() == ["4", "0-3", "NV18", "nvlink/xgmi", "1", "2"] for line in lines)
    assert any(line.strip().startswith("GPU0") and line.endswith("mlx5_0") for line in lines)


def test_several_files_are_one_machine(capsys):
    files = [DGX, str(FIXTURES / "lscpu-xeon8480c.txt"), str(FIXTURES / "numactl-dgxh100-2node.txt")]
    assert main(["topology", *files, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gpus"], found["cpus"], found["sockets"]) == (8, 224, 2)


@pytest.mark.parametrize(
    ("file", "shape", "status", "verdict"),
    [
        ("nv06b-dgx-h100-12nic-full-ansi.txt", "dgx-h100", 0, "same"),
        ("nv49-6xh100-3plus3.txt", "dgx-h100", 1, "different"),
        ("nv35-b200-container-cpuset.txt", "dgx-b200-class", 0, "virtual"),
        ("lscpu-gh200-9node.txt", "dgx-h100", 1, "different"),
    ],
)
def test_expect_compares_with_a_catalog_shape(capsys, file, shape, status, verdict):
    assert main(["topology", str(FIXTURES / file), "--expect", shape, "--format", "json"]) == status
    found = json.loads(capsys.readouterr().out)["expect"]
    assert (found["shape"], found["verdict"]) == (shape, verdict)
    assert bool(found["differences"]) == (status == 1)


def test_expect_says_its_verdict_first(capsys):
    assert main(["topology", str(FIXTURES / "nv49-6xh100-3plus3.txt"), "--expect", "dgx-h100"]) == 1
    assert capsys.readouterr().out.startswith("This is not dgx-h100: 6 GPUs are shown and 8 are expected")


def test_an_unknown_shape_is_wrong_input(capsys):
    assert main(["topology", DGX, "--expect", "dgx-h10", "--format", "json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["code"] == "UnknownShape"
    assert "dgx-h100" in error["message"]


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "MissingFile"), ("", "EmptyInput"), ("hello\n", "UnknownOutput"), (b"\x7fELF" + bytes(64) * 9, "BinaryInput")],
)
def test_bad_files_are_one_sentence_and_status_2(tmp_path, capsys, content, code):
    file = tmp_path / "it.txt"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["topology", str(file), "--format", "json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert (error["code"], error["path"]) == (code, str(file))
    assert main(["topology", str(file)]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith(f"error: {file}: ")


def test_a_directory_is_wrong_input(tmp_path, capsys):
    assert main(["topology", str(tmp_path)]) == 2
    assert "directory" in capsys.readouterr().err


def test_all_bad_files_are_told_at_once(tmp_path, capsys):
    (tmp_path / "a").write_text("nothing")
    assert main(["topology", str(tmp_path / "a"), str(tmp_path / "b"), "--format", "json"]) == 2
    assert len(json.loads(capsys.readouterr().out)["errors"]) == 2


def test_every_fixture_is_told_in_text(capsys):
    for path in sorted(FIXTURES.iterdir()):
        assert main(["topology", str(path)]) == 0
        out = capsys.readouterr().out
        assert len(out.split("\n")) >= 2, path.name
        assert "None" not in out.replace("policy: None", ""), path.name


def test_standard_input_is_read_and_a_closed_pipe_is_no_traceback():
    command = [sys.executable, "-m", "infra", "topology", "-"]
    with Path(DGX).open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("8 GPUs;")


def test_without_expect_the_catalog_is_not_loaded():
    code = "import sys; from infra.__main__ import main; main(['topology', sys.argv[1]]); print([m for m in sys.modules if m.startswith(('yaml', 'pydantic', 'pulumi'))])"
    done = subprocess.run([sys.executable, "-c", code, DGX], capture_output=True, text=True, timeout=120)
    assert done.stdout.rstrip().endswith("[]")


def test_sixteen_gpus_and_seventy_six_nics_take_less_than_a_second(tmp_path, capsys):
    from random import Random
    from time import process_time

    random = Random(3)
    names = [f"GPU{i}" for i in range(16)] + [f"NIC{i}" for i in range(76)]
    cell = {(a, b): random.choice(("NV18", "NV6", "PIX", "NODE", "SYS")) for i, a in enumerate(names) for b in names[i + 1 :]}
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    for i, a in enumerate(names):
        row = [a, *(" X " if a == b else cell.get((a, b)) or cell[b, a] for b in names)]
        rows.append("\t".join(row + (["0-63", str(i // 8)] if i < 16 else ["", ""])))
    file = tmp_path / "large.txt"
    file.write_text("\n".join(rows) + "\n")
    start = process_time()
    assert main(["topology", str(file), "--format", "json"]) == 0
    assert process_time() - start < 1
    found = json.loads(capsys.readouterr().out)
    assert (found["gpus"], len(found["nics"]), found["unreadable"], found["notes"]) == (16, 76, [], [])


def test_chosen_gpus_are_judged(capsys):
    file = str(FIXTURES / "nv13-4xa100-cloud-bare.txt")
    assert main(["topology", file, "--gpus", "0,1"]) == 0
    assert capsys.readouterr().out.startswith("GPUs 0,1: good;")
    assert main(["topology", file, "--gpus", "1,2", "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["judgement"]["verdict"] == "bad"
    assert main(["topology", file, "--gpus", "1,9"]) == 2
    assert "GPU 9 is not there" in capsys.readouterr().err
    assert main(["topology", file, "--gpus", "x"]) == 2
    assert main(["topology", str(FIXTURES / "lscpu-xeon8480c.txt"), "--gpus", "0"]) == 2
