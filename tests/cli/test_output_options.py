"""Exit statuses and forms of the commands that read outputs: one call of `main` each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.__main__ import main
from tests.support.documents import small_document

FIXTURES = Path(__file__).parents[1] / "outputs" / "fixtures"
DGX = str(FIXTURES / "nv06b-dgx-h100-12nic-full-ansi.txt")
SPLIT = str(FIXTURES / "nv13-4xa100-cloud-bare.txt")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((DGX,), 0),
        ((DGX, "--expect", "dgx-h100"), 0),
        ((DGX, "--expect", "dgx-a100-640gb"), 1),
        ((DGX, "--gpus", "0-3"), 0),
        ((SPLIT, "--gpus", "1,2"), 1),
        ((DGX, "--expect", "dgx-h100", "--gpus", "0-3"), 0),
        ((DGX, "--expect", "dgx-a100-640gb", "--gpus", "0-3"), 1),
        ((SPLIT, "--expect", "dgx-h100", "--gpus", "0,1"), 1),
    ],
)
def test_topology_has_status_1_where_what_was_asked_for_does_not_hold(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int
) -> None:
    assert main(["topology", *arguments]) == status
    text = capsys.readouterr().out
    assert main(["topology", *arguments, "--format", "json"]) == status
    document = json.loads(capsys.readouterr().out)
    assert (("expect" in document), ("judgement" in document)) == ("--expect" in arguments, "--gpus" in arguments)
    assert text.startswith("GPUs ") == ("--gpus" in arguments and "--expect" not in arguments)


@pytest.mark.parametrize("file", [SPLIT, str(FIXTURES / "lscpu-xeon8480c.txt")])
def test_gpus_cannot_be_judged_where_no_output_shows_them(capsys: pytest.CaptureFixture[str], file: str) -> None:
    assert main(["topology", file, "--gpus", "7", "--format", "json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["path"] == "--gpus"


@pytest.mark.parametrize(
    ("lines", "status", "sentence"),
    [
        ("x NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n", 0, "GOOD: "),
        ("x NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct\n", 1, "DEGRADED: "),
        ("x NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\n", 1, "BAD: "),
        ("x NCCL INFO comm 0x1 rank 0 nranks 2\n", 0, "UNKNOWN: "),
        ("libibverbs: Warning\nx Failed to open libibverbs.so\n", 0, "UNKNOWN: "),
    ],
)
def test_transport_has_status_1_where_it_is_degraded_or_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, status: int, sentence: str
) -> None:
    file = tmp_path / "it.log"
    file.write_text(lines)
    assert main(["transport", str(file)]) == status
    assert capsys.readouterr().out.startswith(sentence)


def test_shape_prints_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    files = [DGX, *(str(FIXTURES / name) for name in ("lscpu-xeon8480c.txt", "numactl-dgxh100-2node.txt", "nv54-query-h100.csv"))]
    assert main(["shape", *files]) == 0
    assert "topology:\n  sku: h100-sxm5-80gb\n" in capsys.readouterr().out
    assert main(["shape", *files, "--format", "json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["topology", "remarks"]


def rendered(tmp_path: Path, capsys: pytest.CaptureFixture[str], document: Any, *options: str) -> tuple[int, str]:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text(json.dumps(document))
    status = main(["render", "--config", str(file), "--out", str(tmp_path / "out"), *options])
    return status, capsys.readouterr().out


def test_render_counts_what_it_changed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = small_document()
    status, text = rendered(tmp_path, capsys, document)
    first = text.split("\n")[0]
    count = int(first.split()[1])
    assert status == 0 and count > 5 and first == f"{tmp_path / 'out'}: {count} files, {count} changed"
    assert rendered(tmp_path, capsys, document)[1].split("\n")[0].endswith(f"{count} files, 0 changed")
    document["models"] = []
    fewer = rendered(tmp_path, capsys, document)[1].split("\n")[0]
    assert fewer.endswith(f", {count - int(fewer.split()[1])} stale removed")


def test_render_refers_to_the_secrets_that_the_stack_file_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def secrets(config: Any) -> set[str]:
        rendered(tmp_path, capsys, {"config": config} if config is not None else small_document())
        texts = "".join(path.read_text() for path in (tmp_path / "out").glob("*.yaml"))
        return {key for key in ("api-key", "hub-token") if f"key: {key}" in texts}

    cluster = small_document()
    both = {"numawise:cluster": cluster, "numawise:apiKey": {"secure": "x"}, "numawise:hubToken": {"secure": "y"}}
    assert secrets(both) == {"api-key", "hub-token"}
    assert secrets({"numawise:cluster": cluster, "numawise:apiKey": {"secure": "x"}}) == {"api-key"}
    assert secrets(None) == set()


def test_an_empty_folder_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("", " "):
        with pytest.raises(SystemExit) as ended:
            main(["render", "-s", "local", "--out", name])
        assert ended.value.code == 2
        assert "is empty; name a folder" in capsys.readouterr().err
