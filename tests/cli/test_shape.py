"""python -m infra shape."""

import json
from pathlib import Path

import yaml

from infra.__main__ import main
from infra.catalog.topology import shape_from_topology

FIXTURES = Path(__file__).parents[1] / "outputs" / "fixtures"
DGX = [
    str(FIXTURES / name)
    for name in ("nv06b-dgx-h100-12nic-full-ansi.txt", "lscpu-xeon8480c.txt", "numactl-dgxh100-2node.txt", "nv54-query-h100.csv")
]


def test_the_yaml_can_be_pasted(capsys):
    assert main(["shape", *DGX]) == 0
    shape = shape_from_topology(yaml.safe_load(capsys.readouterr().out)["topology"])
    assert (shape.accelerator, shape.gpus, shape.gpus_per_numa_node) == ("h100-sxm5-80gb", 8, (4, 4))


def test_json_holds_the_same(capsys):
    assert main(["shape", *DGX]) == 0
    text = yaml.safe_load(capsys.readouterr().out)["topology"]
    assert main(["shape", *DGX, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["topology"] == text


def test_what_is_missing_is_status_2_with_the_output_to_add(capsys):
    assert main(["shape", DGX[0], "--format", "json"]) == 2
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert {error["code"] for error in errors} == {"MissingOutput"}
    assert any("numactl -H" in error["message"] for error in errors)


def test_the_accelerator_may_be_given(capsys):
    assert main(["shape", *DGX[:3], "--sku", "H100 80GB HBM3"]) == 0
    assert "sku: h100-sxm5-80gb" in capsys.readouterr().out
    assert main(["shape", *DGX, "--sku", "l40s"]) == 2
    assert "leave one out" in capsys.readouterr().err


def test_outputs_of_two_machines_are_refused(capsys):
    assert main(["shape", DGX[0], str(FIXTURES / "nv03-a100-8xNV12-space.txt")]) == 2
    assert "outputs of 2 machines" in capsys.readouterr().err
