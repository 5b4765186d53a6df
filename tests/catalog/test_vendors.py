"""What differs between vendors stands in one table, and a plan takes it from there."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.__main__ import main
from infra.catalog import pinned_image
from infra.catalog.load import accelerators
from infra.catalog.machine import devices_of
from infra.catalog.topology import shape_from_topology
from infra.catalog.vendors import vendors
from infra.config.load import parse_cluster_document
from infra.errors import NumawiseError
from infra.plan.cluster import plan_stack
from infra.plan.parallelism.tensor_group import tensor_group
from tests.support.documents import small_document, with_change

SKU = {"nvidia": "h100-sxm5-80gb", "amd": "mi300x"}


def topology(vendor: str, **changes: object) -> dict[str, object]:
    nodes = [
        {"cpus": "0-55,112-167", "memory": "1Ti", "gpus": [0, 1, 2, 3]},
        {"cpus": "56-111,168-223", "memory": "1Ti", "gpus": [4, 5, 6, 7]},
    ]
    return {"sku": SKU[vendor], "threadsPerCore": 2, "numaNodes": nodes, **changes}


def test_each_vendor_of_the_table_is_tried_here() -> None:
    assert set(SKU) == set(vendors()) == {accelerator.vendor for accelerator in accelerators().values()}


@pytest.mark.parametrize("name", vendors())
def test_a_stack_has_the_names_and_defaults_of_its_vendor(name: str, tmp_path: Path) -> None:
    row = vendors()[name]
    assert (accelerators()[SKU[name]].label_key, accelerators()[SKU[name]].resource_name) == (row.product_label, row.resource_name)
    document = small_document()
    del document["nodePools"][0]["nodeShape"], document["models"][0]["gpuMemoryUtilization"]
    document["nodePools"][0]["topology"] = topology(name)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(document))
    assert main(["render", "--config", str(tmp_path / "cluster.yaml"), "--out", str(tmp_path / "out")]) == 0
    objects = [yaml.safe_load(path.read_text()) for path in sorted((tmp_path / "out").rglob("*.yaml"))]
    [serving] = [item for item in objects if item["kind"] == "Deployment" and item["metadata"]["name"] == "llama-70b"]
    container = next(c for c in serving["spec"]["template"]["spec"]["containers"] if row.resource_name in c["resources"]["limits"])
    assert container["image"] == pinned_image(row.engine_pin)
    arguments = " ".join(container.get("command", []) + container["args"])
    assert f"--gpu-memory-utilization {row.gpu_memory_utilization}" in arguments.replace("=", " ")
    plugins = [
        c["image"] for item in objects if item["kind"] == "DaemonSet" for c in item["spec"]["template"]["spec"]["containers"]
    ]
    assert pinned_image(row.device_plugin_pin) in plugins


@pytest.mark.parametrize("variable", [variable for row in vendors().values() for variable in row.visibility_variables])
def test_no_model_may_hide_devices(variable: str) -> None:
    with pytest.raises(NumawiseError, match=r"models\[0\]\.env\." + variable + ": fights the device plugin"):
        plan_stack(parse_cluster_document(with_change("models[0].env", {variable: "0"})))


def test_other_variables_are_the_users() -> None:
    plan_stack(parse_cluster_document({**small_document(), **with_change("models[0].env", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})}))


@pytest.mark.parametrize(("name", "reported"), [("nvidia", []), ("amd", [-1])])
def test_a_hidden_numa_node_is_reported_as_the_vendors_plugin_does(name: str, reported: list[int]) -> None:
    flat = shape_from_topology(topology(name, virtualMachine=True, numaInGuest=False))
    devices = devices_of(flat, vendors()[name].resource_name)[vendors()[name].resource_name]
    assert [device["numa"] for device in devices] == [reported] * 8
    assert devices_of(flat, "example.com/npu")["example.com/npu"][0]["numa"] == []


@pytest.mark.parametrize(("name", "fabric"), [("nvidia", "NVLink"), ("amd", "xGMI")])
def test_links_are_called_as_the_vendor_does(name: str, fabric: str) -> None:
    shape, accelerator = shape_from_topology(topology(name)), accelerators()[SKU[name]]
    assert tensor_group(shape, accelerator, 8, 8).explain(shape, accelerator).endswith(f"inside one {fabric} domain")
