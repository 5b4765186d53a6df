"""Node labels and ListAndWatch responses, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from infra.outputs.node_documents import node_labels, read_list_and_watch, read_node_labels
from infra.outputs.reading import Report


def of(labels: dict[str, str]) -> Report:
    return read_node_labels("gpu-a", labels, 3)


NVIDIA = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.replicas": "1",
}


def test_the_labels_of_whole_gpus_give_kind_count_and_memory() -> None:
    report = of(NVIDIA)
    assert report.fields == {
        "node": "gpu-a",
        "vendor": "nvidia",
        "product": "NVIDIA-H100-80GB-HBM3",
        "gpus": 8,
        "gpu_memory_mib": 81559,
        "device_id": None,
        "shared": False,
        "replicas": 1,
        "mig": False,
    }
    assert (report.kind, report.first_line, report.host, report.notes, report.findings) == ("node-labels", 3, "gpu-a", (), ())
    assert read_node_labels("", NVIDIA, 1).host is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"nvidia.com/gpu.replicas": "4"}, "the GPUs are time-sliced 4-fold: what is allocatable is not the number of cards."),
        ({"nvidia.com/gpu.replicas": "2"}, "the GPUs are time-sliced 2-fold: what is allocatable is not the number of cards."),
        (
            {"nvidia.com/gpu.product": "Tesla-T4-SHARED"},
            "the GPUs are time-sliced: what is allocatable is not the number of cards.",
        ),
    ],
)
def test_shared_gpus_are_a_finding(labels: dict[str, str], message: str) -> None:
    report = of(labels)
    assert report.fields["shared"] is True
    assert [finding.message for finding in report.findings] == [message]


@pytest.mark.parametrize(
    ("strategy", "product", "mig"),
    [
        ("single", "A100-SXM4-40GB-MIG-1g.5gb", True),
        ("single", "A100-SXM4-40GB", False),
        ("none", "A100-SXM4-40GB-MIG-1g.5gb", False),
        ("", "A100-SXM4-40GB-MIG-1g.5gb", False),
        (None, "A100-SXM4-40GB-MIG-1g.5gb", False),
        ("mixed", None, False),
    ],
)
def test_mig_slices_need_a_strategy_and_a_slice_as_product(strategy: str | None, product: str | None, mig: bool) -> None:
    given = {"nvidia.com/mig.strategy": strategy, "nvidia.com/gpu.product": product}
    report = of({key: value for key, value in given.items() if value is not None})
    assert report.fields["mig"] is mig
    assert [finding.code for finding in report.findings] == ["MigSlices"] * mig


@pytest.mark.parametrize(
    ("labels", "vendor", "count"),
    [
        ({"beta.amd.com/gpu.family.AI": "8", "beta.amd.com/gpu.vram.192G": "8"}, "amd", 8),
        ({"beta.amd.com/gpu.family.AI": "8", "beta.amd.com/gpu.vram.192G": "7"}, "amd", None),
        ({"beta.amd.com/gpu.family.AI": "many"}, "amd", None),
        ({"beta.amd.com/gpu.family.AI": "8", "other.com/a.b.c": "9"}, "amd", 8),
        ({"amd.com/gpu.product-name": "MI300X"}, "amd", None),
        ({"amd.com/cpu": "x"}, None, None),
        ({"nvidia.com/gpu.product": "X", "amd.com/gpu.device-id": "74a1"}, "both", None),
        ({"nvidia.com/gpu.count": "2", "beta.amd.com/gpu.family.AI": "8"}, "both", 2),
        ({}, None, None),
    ],
)
def test_vendor_and_count_follow_from_the_keys(labels: dict[str, str], vendor: str | None, count: int | None) -> None:
    fields = of(labels).fields
    assert (fields["vendor"], fields["gpus"]) == (vendor, count)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("9" * 11, int("9" * 11)), ("9" * 12, None), ("١", None), ("-1", None)])
def test_a_label_that_is_no_number_is_a_note(text: str, number: int | None) -> None:
    report = of({"nvidia.com/gpu.memory": text})
    assert report.fields["gpu_memory_mib"] == number
    assert report.notes == (() if number is not None else (f"nvidia.com/gpu.memory: {text!r} is no number",))
    assert of({"nvidia.com/gpu.memory": "x" * 40}).notes == (f"nvidia.com/gpu.memory: {'x' * 30!r} is no number",)


NODE = {"kind": "Node", "metadata": {"name": "a", "labels": {"x": 1}}}


@pytest.mark.parametrize(
    ("document", "names"),
    [
        (NODE, ["a"]),
        ({"metadata": NODE["metadata"]}, ["a"]),
        ({"kind": "NodeList", "items": [NODE, NODE]}, ["a", "a"]),
        ({"kind": "List", "items": [NODE, {"kind": "Pod", "metadata": {"labels": {}}}, 3]}, ["a"]),
        ({"kind": "List", "items": None}, []),
        ({"kind": "Node", "metadata": {"labels": {}}}, [""]),
        ({"kind": "Node", "metadata": {"name": "a"}}, []),
        ({"kind": "Node", "metadata": 3}, []),
        ({"kind": "Pod", "metadata": {"labels": {}}}, []),
        ([NODE], []),
    ],
)
def test_nodes_are_found_in_nodes_and_lists_alone(document: Any, names: list[str]) -> None:
    found = node_labels(document)
    assert [name for name, _ in found] == names
    assert all(labels in ({"x": "1"}, {}) for _, labels in found)


def device(name: str, *nodes: Any, health: str | None = "Healthy") -> dict[str, Any]:
    return {"ID": name, "topology": {"nodes": list(nodes)}, **({} if health is None else {"health": health})}


def listed(*devices: Any) -> Report:
    report = read_list_and_watch({"devices": list(devices)}, 2)
    assert report is not None
    return report


def test_devices_have_their_numa_nodes() -> None:
    report = listed(device("a", {"ID": 0}), device("b", {"ID": "1"}, {"ID": -1}, health=None))
    assert report.fields == {"devices": 2, "numa": {"a": [0], "b": [1, -1]}, "unclear": []}
    assert (report.kind, report.first_line, report.findings) == ("device-plugin-listandwatch", 2, ())


def test_what_is_unclear_missing_or_unhealthy_is_counted() -> None:
    sick = [device(f"s{i}", {"ID": 0}, health="Unhealthy") for i in range(5)]
    report = listed(device("empty", {}), device("flag", {"ID": True}), device("none"), {"ID": "bare", "health": "Healthy"}, *sick)
    assert report.fields["unclear"] == ["empty", "flag"]
    assert {name: report.fields["numa"][name] for name in ("empty", "flag", "none", "bare")} == dict.fromkeys(
        ("empty", "flag", "none", "bare")
    )
    assert [finding.message.split(":")[0] for finding in report.findings] == [
        "2 of 9 devices have an empty NUMA node object",
        "2 of 9 devices have no NUMA node",
        "5 of 9 devices are unhealthy",
    ]
    assert report.findings[2].message.endswith(": s0, s1, s2, s3.")


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        [],
        {"devices": []},
        [{"ID": 3, "health": "Healthy"}],
        [{"ID": "a"}],
        ["a"],
        {"devices": {"ID": "a", "health": "x"}},
    ],
)
def test_other_documents_are_none(document: Any) -> None:
    assert read_list_and_watch(document, 1) is None


@pytest.mark.parametrize("entry", [{"ID": "a", "health": "Healthy"}, {"ID": "a", "topology": None}])
def test_health_or_topology_makes_a_device(entry: dict[str, Any]) -> None:
    report = read_list_and_watch([entry, 3], 1)
    assert report is not None and report.fields["devices"] == 1
