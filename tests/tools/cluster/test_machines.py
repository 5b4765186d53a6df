"""The machine set is checked before anything starts."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.cluster.errors import InputError
from tools.cluster.layout import Layout
from tools.cluster.machines import machine_set, read_machine_set
from tools.cluster.nodes import base_configuration, state_files, with_mem_total, write_node

GIB = 1 << 30
GOOD: dict[str, Any] = {
    "nodes": [
        {
            "name": "gpu-a",
            "machine": {
                "numa": [
                    {"id": 0, "cpus": [[0, 4], [1, 5]], "memory_bytes": 8 * GIB},
                    {"id": 1, "cpus": [[2, 6], [3, 7]], "memory_bytes": 8 * GIB},
                ]
            },
            "devices": {"nvidia.com/gpu": [{"id": "a", "numa": [0]}, {"id": "b", "numa": [1], "healthy": False}]},
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
            "kubelet": {"maxPods": 20},
        }
    ]
}


def test_a_good_set_is_read_with_the_default_content() -> None:
    machines = machine_set(GOOD, "set")
    assert machines.nodes[0].device_counts() == {"nvidia.com/gpu": 1}
    assert machines.namespaces[0]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    assert machines.claims[0]["name"] == "pvc-llama-models"


def without_name(document: dict[str, Any]) -> None:
    del document["nodes"][0]["name"]


def with_typo(document: dict[str, Any]) -> None:
    document["nodes"][0]["lables"] = {}


def twice(document: dict[str, Any]) -> None:
    document["nodes"].append(document["nodes"][0])


def without_memory(document: dict[str, Any]) -> None:
    del document["nodes"][0]["machine"]["numa"][1]["memory_bytes"]


def without_device_id(document: dict[str, Any]) -> None:
    document["nodes"][0]["devices"]["nvidia.com/gpu"][1] = {"numa": [0]}


def claim_in_nowhere(document: dict[str, Any]) -> None:
    document["claims"] = [{"namespace": "elsewhere", "name": "models"}]


def upper_case(document: dict[str, Any]) -> None:
    document["nodes"][0]["name"] = "GPU-A"


def no_nodes(document: dict[str, Any]) -> None:
    document["nodes"] = []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_name, "nodes[0].name: None is not a node name"),
        (upper_case, "'GPU-A' is not a node name"),
        (with_typo, "unknown key 'lables'"),
        (twice, "node gpu-a is given 2 times"),
        (without_memory, "machine.numa[1]: lacks memory_bytes"),
        (without_device_id, "devices[nvidia.com/gpu][1]: lacks id"),
        (claim_in_nowhere, "namespace elsewhere, which is not among ['inference']"),
        (no_nodes, "at least one node"),
    ],
)
def test_a_wrong_set_is_refused_with_the_place(change: Callable[[dict[str, Any]], None], message: str) -> None:
    document = copy.deepcopy(GOOD)
    change(document)
    with pytest.raises(InputError) as refused:
        machine_set(document, "set")
    assert message in str(refused.value)
    assert refused.value.exit_status == 2


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_machine_set(tmp_path / "absent.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        read_machine_set(tmp_path / "broken.json")


def test_the_machine_sets_fields_stand_over_the_base_configuration() -> None:
    node = machine_set(GOOD, "set").nodes[0]
    configuration = base_configuration(node, 4)
    assert configuration["maxPods"] == 20
    assert configuration["address"] == "172.30.1.5"
    assert configuration["registerWithTaints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert configuration["authorization"] == {"mode": "Webhook"}


@pytest.mark.parametrize("difference_kib", [-2049, -1, 0, 1, 7])
def test_a_changed_mem_total_is_spread_over_the_numa_nodes(difference_kib: int) -> None:
    machine = GOOD["nodes"][0]["machine"]
    changed = with_mem_total(machine, 16 * GIB + difference_kib * 1024)
    sizes = [numa["memory_bytes"] for numa in changed["numa"]]
    assert sum(sizes) == 16 * GIB + difference_kib * 1024
    assert abs(sizes[0] - sizes[1]) <= 1024
    assert [numa["memory_bytes"] for numa in machine["numa"]] == [8 * GIB, 8 * GIB]


@pytest.mark.parametrize(("total", "message"), [(0, "positive multiple"), (1000, "multiple of 1024")])
def test_an_impossible_mem_total_is_refused(total: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_mem_total(GOOD["nodes"][0]["machine"], total)


def test_a_rebooted_machine_stays_until_the_set_gives_another(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.pki.mkdir()
    for name in ("ca.crt", "node-gpu-a.crt", "node-gpu-a.key"):
        (layout.pki / name).write_text(name)
    node = machine_set(GOOD, "set").nodes[0]
    kubelet = Path("/programs/kubelet")
    write_node(layout, node, 0, kubelet, [])
    path = layout.node("gpu-a") / "node.json"
    document = json.loads(path.read_text())
    document["machine"] = with_mem_total(document["machine"], 15 * GIB)
    path.write_text(json.dumps(document))
    write_node(layout, node, 0, kubelet, [])
    assert json.loads(path.read_text())["machine"] == document["machine"]
    other = copy.deepcopy(GOOD)
    other["nodes"][0]["machine"]["numa"][0]["memory_bytes"] = 4 * GIB
    write_node(layout, machine_set(other, "set").nodes[0], 0, kubelet, [])
    assert json.loads(path.read_text())["machine"]["numa"][0]["memory_bytes"] == 4 * GIB
    assert (layout.node("gpu-a") / "etc/kubernetes/pki/node.key").stat().st_mode & 0o777 == 0o600


def test_state_files_are_read_where_they_are(tmp_path: Path) -> None:
    folder = Layout(tmp_path).node("gpu-a") / "var/lib/kubelet"
    folder.mkdir(parents=True)
    (folder / "cpu_manager_state").write_text('{"policyName": "static"}')
    found = state_files(Layout(tmp_path), "gpu-a")
    assert found == {
        "cpu_manager_state": {"policyName": "static"},
        "memory_manager_state": None,
        "kubelet_internal_checkpoint": None,
    }
