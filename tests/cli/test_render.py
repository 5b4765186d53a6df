from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from infra.__main__ import main
from tests.support.documents import small_document, with_change


def stack_file(folder: Path, document: object, **secrets: object) -> str:
    path = folder / "Pulumi.demo.yaml"
    path.write_text(
        yaml.safe_dump({"config": {"numawise:cluster": document, **{f"numawise:{key}": value for key, value in secrets.items()}}})
    )
    return str(path)


def test_a_stack_file_becomes_a_folder_of_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["render", "--config", stack_file(tmp_path, small_document()), "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: ")
    deployment = yaml.safe_load(next(out.glob("*deployment-llama-70b.yaml")).read_text())
    assert deployment["metadata"]["labels"]["numawise.dev/stack"] == "demo"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"


def test_a_secret_of_the_stack_is_referred_to_and_its_value_nowhere(tmp_path: Path) -> None:
    out = tmp_path / "out"
    path = stack_file(tmp_path, small_document(), apiKey={"secure": "v1:abc:ciphertext"})
    assert main(["render", "--config", path, "--out", str(out)]) == 0
    text = "".join(file.read_text() for file in out.rglob("*") if file.is_file())
    assert "secretKeyRef" in text
    assert "llama-70b-credentials" in text
    assert "ciphertext" not in text
    assert "kind: Secret" not in text


def test_json_lists_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["render", "--config", stack_file(tmp_path, small_document()), "--out", str(out), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"] == sorted(
        str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and path.name[0] != "."
    )
    assert document["removed"] == []


def test_a_plan_that_cannot_be_made_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    path = stack_file(tmp_path, with_change("models[0].tensorParallelSize", 3))
    assert main(["render", "--config", path, "--out", str(out)]) == 2
    assert "error: models[0].tensorParallelSize" in capsys.readouterr().err
    assert not out.exists()
