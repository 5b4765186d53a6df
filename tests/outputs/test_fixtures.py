"""Real machines' outputs, each with what it says."""

import json
from pathlib import Path

import pytest

from infra.outputs.inputs import read_machine
from infra.report.topology import topology_as_json

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())


def test_each_fixture_has_an_expectation():
    assert sorted(EXPECTED) == sorted(path.name for path in FIXTURES.iterdir())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_fixture_reads_as_expected(name):
    found = topology_as_json(read_machine([str(FIXTURES / name)]))
    expected = EXPECTED[name]
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_json_form_has_no_surprises(name):
    """What a machine reads must survive JSON, and every link must be readable in an undamaged file."""
    found = topology_as_json(read_machine([str(FIXTURES / name)]))
    assert json.loads(json.dumps(found)) == found
    assert found.get("unreadable", []) == []


def test_a_report_cut_after_its_gpu_rows_says_so():
    found = topology_as_json(read_machine([str(FIXTURES / "nv06-dgx-h100-12nic-cut.txt")]))
    assert found["truncated"] is True
    assert any("NIC6" in note for note in found["notes"])


def test_the_nearest_nic_is_the_one_behind_the_gpus_own_switch():
    found = topology_as_json(read_machine([str(FIXTURES / "nv47-h100-2gpu2nic-per-switch.txt")]))
    assert found["nearest_nics"][:3] == [["mlx5_0"], ["mlx5_1"], ["mlx5_2"]]
    found = topology_as_json(read_machine([str(FIXTURES / "nv48b-b200-16nic-clean.txt")]))
    assert [names[0] for names in found["nearest_nics"]] == [f"mlx5_{n}" for n in (4, 7, 8, 9, 10, 13, 14, 15)]
    found = topology_as_json(read_machine([str(FIXTURES / "nv25-hgx-a100-4nic-allsys.txt")]))
    assert found["nearest_nics"] == [[]] * 8


def test_a_pcie_only_matrix_does_not_deny_nvlink():
    found = topology_as_json(read_machine([str(FIXTURES / "nv29-topo-mp-hides-nvlink.txt")]))
    assert found["pcie_only"] is True
    assert "NvLinkNotShown" in {finding["code"] for finding in found["findings"]}


def test_fewer_nvlinks_on_one_pair_are_a_finding():
    found = topology_as_json(read_machine([str(FIXTURES / "nv13-4xa100-cloud-bare.txt")]))
    (finding,) = found["findings"]
    assert finding["code"] == "UnevenNvLinks"
    assert "GPUs 2-3 have 10 NVLinks where others have 12" in finding["message"]


def test_gpu_indices_that_do_not_follow_numa_nodes_are_told():
    def codes(name: str) -> set[str]:
        return {finding["code"] for finding in topology_as_json(read_machine([str(FIXTURES / name)]))["findings"]}

    assert "GpuOrderIsNotNumaOrder" in codes("nv07-dgx-a100-nps4-10nic.txt")
    assert "GpuOrderIsNotNumaOrder" in codes("amd09-mi250x-8gcd-showtopo.txt")
    assert "GpuOrderIsNotNumaOrder" not in codes("nv37-dgx2-16xNV6.txt")
    assert "GpuOrderIsNotNumaOrder" not in codes("nv01-2xNV2-numa-na.txt")
