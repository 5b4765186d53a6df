"""What the catalog knows, but not for certain, is told where a plan rests on it, with the command that verifies it."""

from __future__ import annotations

from typing import Any

import pytest

from infra.catalog.confidence import accelerator_warnings, hardware_warnings, model_warnings, shape_warnings
from infra.catalog.load import accelerators, models, shapes
from infra.catalog.names import accelerator_of, with_memory
from infra.catalog.topology import shape_from_topology
from infra.catalog.types import Accelerator, AcceleratorMemory, Fabric, Model
from infra.config.load import parse_cluster_document
from infra.plan.cluster import plan_stack
from tests.support.documents import small_document, with_change


def accelerator(*unverified: str, confidence: Any = "high") -> Accelerator:
    return Accelerator(
        id="x1",
        vendor="nvidia",
        driver_name="NVIDIA X1",
        architecture="sm_90",
        fabric=Fabric(kind="nvlink-switch"),
        confidence=confidence,
        unverified=unverified,
    )


@pytest.mark.parametrize(
    ("unverified", "told"),
    [
        ((), None),
        (("memory.smiMib",), None),
        (("pciIds", "driverName"), None),
        (("labelValue",), None),
        (("partitionModes",), None),
        (("memory.torchVfGib",), None),
        (
            ("memory.torchGib",),
            "memory.torchGib of x1 is not verified in the catalog (confidence high): `python3 -c 'import torch;",
        ),
        (("memory",), "memory of x1 is not verified"),
        (("memory.torchRangeGib", "memory.smiMib"), "memory.torchRangeGib of x1 is not verified"),
        (
            ("fabric",),
            "fabric of x1 is not verified in the catalog (confidence high): `python -m infra topology FILE` shows the links",
        ),
        (("fabric.links", "memory.torchGib"), "fabric.links, memory.torchGib of x1 are not verified"),
    ],
)
def test_of_an_accelerator_only_what_sizes_a_model_is_told(unverified: tuple[str, ...], told: str | None) -> None:
    warnings = accelerator_warnings(accelerator(*unverified), "--gpu")
    assert [(one.path, one.code, one.severity) for one in warnings] == ([("--gpu", "UnverifiedFacts", "warning")] if told else [])
    assert all(told is not None and one.message.startswith(told) for one in warnings)


def test_each_unverified_fact_has_its_own_command_and_the_same_one_stands_once() -> None:
    [warning] = accelerator_warnings(accelerator("memory.torchGib", "memory.torchRangeGib"), "--gpu")
    assert warning.message.count("total_memory") == 1 and "topology" not in warning.message
    [warning] = accelerator_warnings(accelerator("memory.torchGib", "fabric.links"), "--gpu")
    assert "total_memory" in warning.message and "`python -m infra topology FILE`" in warning.message


def test_an_accelerator_of_low_confidence_is_told_as_a_whole_and_one_of_medium_is_not() -> None:
    [warning] = accelerator_warnings(accelerator(confidence="low"), "--gpu")
    assert warning.message.startswith("all facts of x1 are not verified in the catalog (confidence low): ")
    assert "total_memory" in warning.message and "topology FILE" in warning.message
    assert accelerator_warnings(accelerator(confidence="medium"), "--gpu") == ()


def test_partitions_labels_and_virtual_functions_count_where_the_machine_uses_them() -> None:
    card = accelerators()["mi300x"]
    assert card.unverified == ("partitionModes",)
    divided, whole = shapes()["mi300x-8-cpx-nps4"], shapes()["intel-2s56c-mi300x"]
    [warning] = accelerator_warnings(card, "p", shape=divided)
    assert warning.message.startswith("partitionModes of mi300x is not verified")
    assert accelerator_warnings(card, "p", shape=whole) == ()
    labelled, virtual = accelerator("labelValue"), accelerator("memory.torchVfGib")
    [warning] = accelerator_warnings(labelled, "p", shape=whole)
    assert "`kubectl get nodes -L nvidia.com/gpu.product`" in warning.message
    assert accelerator_warnings(virtual, "p", shape=whole) == ()
    assert len(accelerator_warnings(virtual, "p", shape=shapes()["azure-nd96isr_mi300x_v5"])) == 1


def test_memory_that_is_given_rests_on_nothing_of_the_catalog() -> None:
    given = with_memory(accelerator("memory.torchGib", "fabric"), AcceleratorMemory(torch_gib=40.0))
    assert given.memory.torch_gib == 40.0 and given.unverified == ("fabric",)


def test_a_pool_tells_of_its_machines_and_of_their_accelerator() -> None:
    shape = shapes()["dgx-h200"]
    weak = accelerator("fabric")
    assert [warning.path for warning in hardware_warnings(shape, weak, "nodePools[2]")] == ["nodePools[2].nodeShape"] * 2
    assert "--expect dgx-h200" in hardware_warnings(shape, weak, "nodePools[2]")[1].message
    inline = shape_from_topology(
        {"sku": "h100-pcie-80gb", "threadsPerCore": 1, "numaNodes": [{"cpus": "0-3", "memory": "8Gi", "gpus": [0]}]}
    )
    [warning] = hardware_warnings(inline, accelerator_of(inline), "nodePools[0]")
    assert warning.path == "nodePools[0].topology.sku"
    assert warning.message.startswith("memory.torchGib of h100-pcie-80gb is not verified") and "--expect" not in warning.message


def test_a_shape_tells_only_what_places_pods() -> None:
    assert shapes()["intel-2s56c-mi300x"].unverified == ("network.kind",)
    assert shape_warnings(shapes()["intel-2s56c-mi300x"]) == ()


def test_a_model_tells_what_its_size_rests_on() -> None:
    def model(*unverified: str, confidence: Any = "high") -> Model:
        return Model(id="o/m", config={}, confidence=confidence, unverified=unverified)

    assert model_warnings(model(), "models[0].model") == ()
    assert model_warnings(model("publishedParameters.count"), "models[0].model") == ()
    [warning] = model_warnings(model("config.text_config.head_dim"), "models[0].model")
    assert (warning.path, warning.code) == ("models[0].model", "UnverifiedFacts")
    assert warning.message.startswith(
        "config.text_config.head_dim of o/m is not verified in the catalog (confidence high): compare"
    )
    assert "`python -m infra fit --config config.json`" in warning.message
    assert len(model_warnings(model("visionParameters"), "m")) == len(model_warnings(model(confidence="low"), "m")) == 1


def test_a_plan_warns_of_the_facts_that_it_rests_on() -> None:
    document = with_change("models[0].model", "MiniMaxAI/MiniMax-M2")
    document["nodePools"][0]["nodeShape"] = "dgx-h200"
    for key in ("tensorParallelSize", "pipelineParallelSize", "resources", "sharedMemory"):
        document["models"][0].pop(key, None)
    found = {warning.path: warning.message for warning in plan_stack(parse_cluster_document(document)).warnings}
    assert found["models[0].model"].startswith("config of MiniMaxAI/MiniMax-M2 is not verified")
    assert found["nodePools[0].nodeShape"].startswith("numaNodes of dgx-h200 is not verified")
    assert not any("UnverifiedFacts" in w.code for w in plan_stack(parse_cluster_document(small_document())).warnings)


def test_facts_that_are_not_verified_exist() -> None:
    assert [model.id for model in models().values() if model.unverified] and [a.id for a in accelerators().values() if a.unverified]
