"""Every catalog file against its schema: unknown keys, wrong types, sources, and facts that contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from infra.catalog import pinned_image
from infra.catalog.entries import DATA, Entries, as_it_is, document_of
from infra.catalog.load import accelerators, catalog_problems, engine_facts, models, pins, shapes
from infra.catalog.platforms import PlatformEntry
from infra.catalog.reading import parse_yaml
from infra.catalog.shapes import ShapeEntry, resolve_shape
from infra.catalog.types import Accelerator, Model, Pin, Vendor
from infra.catalog.vendors import VendorFacts, vendors
from infra.errors import ConfigError

FILES: dict[str, tuple[str, Any, Callable[..., Any]]] = {
    "accelerators.yaml": ("accelerators", Accelerator, as_it_is),
    "shapes.yaml": ("shapes", ShapeEntry, resolve_shape),
    "models.yaml": ("models", Model, as_it_is),
    "pins.yaml": ("pins", Pin, as_it_is),
    "vendors.yaml": ("vendors", VendorFacts, as_it_is),
    "platforms.yaml": ("platforms", PlatformEntry, as_it_is),
}


def changed(tmp_path: Path, name: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> ConfigError:
    """What is said of the file with its first entry changed."""
    key, model, resolve = FILES[name]
    document = parse_yaml((DATA / name).read_bytes(), name)
    document[key] = document[key][:2]
    change(document, document[key][0])
    path = tmp_path / name
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper))
    with pytest.raises(ConfigError) as error:
        problems = Entries(path, key, model, resolve).problems()
        assert problems, "the change is accepted"
        raise ConfigError(problems)
    return error.value


def test_the_catalog_as_it_is_has_no_problem() -> None:
    assert list(catalog_problems()) == []


@pytest.mark.parametrize("name", FILES)
def test_an_unknown_key_is_refused_with_its_path(name: str, tmp_path: Path) -> None:
    def change(_: dict[str, Any], entry: dict[str, Any]) -> None:
        entry["confidense"] = "high"

    error = changed(tmp_path, name, change)
    [problem] = error.problems
    assert problem.code == "UnknownField"
    assert problem.path == f"{name}.{FILES[name][0]}[0].confidense"
    assert "'confidence'" in problem.message


@pytest.mark.parametrize("name", FILES)
def test_a_source_that_the_file_does_not_explain_is_refused(name: str, tmp_path: Path) -> None:
    def change(_: dict[str, Any], entry: dict[str, Any]) -> None:
        entry["sources"] = ["hearsay"]

    assert "'hearsay' is not among the file's sources" in str(changed(tmp_path, name, change))


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_type_and_a_missing_field_are_found_in_one_pass(name: str, tmp_path: Path) -> None:
    def change(_: dict[str, Any], entry: dict[str, Any]) -> None:
        entry["sources"] = "fix"
        entry["confidence"] = "certain"
        del entry["id"]

    paths = {problem.path.rpartition(".")[2] for problem in changed(tmp_path, name, change).problems}
    assert {"sources", "confidence", "id"} <= paths


@pytest.mark.parametrize("name", FILES)
def test_a_double_id_is_refused(name: str, tmp_path: Path) -> None:
    def change(document: dict[str, Any], entry: dict[str, Any]) -> None:
        document[FILES[name][0]][1]["id"] = entry["id"]

    assert "stands there twice" in str(changed(tmp_path, name, change))


@pytest.mark.parametrize("name", FILES)
def test_another_schema_version_is_refused(name: str, tmp_path: Path) -> None:
    def change(document: dict[str, Any], _: dict[str, Any]) -> None:
        document["schemaVersion"] = 2

    assert "is 2; this program reads 1" in str(changed(tmp_path, name, change))


@pytest.mark.parametrize("name", FILES)
def test_every_source_of_a_file_is_used(name: str) -> None:
    document = parse_yaml((DATA / name).read_bytes(), name)
    used = {source for entry in document[FILES[name][0]] for source in entry.get("sources", ())}
    used |= {entry["publishedParameters"]["source"] for entry in document[FILES[name][0]] if "publishedParameters" in entry}
    assert used == set(document["sources"])


def test_yaml_that_is_none_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"file.yaml: .*line 2"):
        parse_yaml("a: 1\n b: [", "file.yaml")


def test_a_file_that_is_no_map_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text("- 1\n")
    with pytest.raises(ConfigError, match="a map of fields is expected"):
        document_of(path)


def test_the_accelerators_that_the_product_promises_are_there() -> None:
    wanted = (
        "a100-sxm4-40gb a100-sxm4-80gb h100-sxm5-80gb h200-sxm-141gb b200-sxm b300-sxm6 gb200 gb300 l4 l40s a10g rtx-pro-6000-blackwell-server "
        "mi210 mi250x-gcd mi300x mi308x mi325x mi350x mi355x"
    )
    assert set(wanted.split()) <= set(accelerators())


@pytest.mark.parametrize("name", accelerators())
def test_an_accelerator_does_not_contradict_itself(name: str) -> None:
    accelerator = accelerators()[name]
    memory = accelerator.memory
    assert (accelerator.compute_capability is not None) == (accelerator.vendor == "nvidia")
    assert accelerator.resource_name == ("nvidia.com/gpu" if accelerator.vendor == "nvidia" else "amd.com/gpu")
    if memory.torch_gib is not None and memory.marketing_gb is not None:
        # AMD's marketing sizes are binary, NVIDIA's are not exactly either; torch never sees more than that in GiB
        assert 0.85 * memory.marketing_gb < memory.torch_gib * 1.0737 < 1.08 * memory.marketing_gb
    if memory.torch_gib is not None and memory.smi_mib is not None:
        assert memory.torch_gib * 1024 < memory.smi_mib
    if memory.torch_gib is not None and memory.torch_range_gib is not None:
        assert memory.torch_range_gib[0] <= memory.torch_gib <= memory.torch_range_gib[1]
    if accelerator.fabric.kind == "pcie":
        assert accelerator.fabric.links is None and not accelerator.fabric.is_fast
    for mode in accelerator.partition_modes:
        assert mode.memory_gib is not None and memory.torch_gib is not None
        assert abs(mode.memory_gib * mode.devices - memory.torch_gib) < 0.1


@pytest.mark.parametrize("name", shapes())
def test_a_shape_does_not_contradict_itself(name: str) -> None:
    shape = shapes()[name]
    accelerator = accelerators()[shape.accelerator]
    if shape.numa_nodes and all(node.gpus is not None for node in shape.numa_nodes):
        assert sorted(gpu for node in shape.numa_nodes for gpu in node.gpus or ()) == list(range(shape.gpus))
    if shape.cpu_count is not None and shape.numa_nodes and all(node.cpus is not None for node in shape.numa_nodes):
        assert sum(len(node.cpus or ()) for node in shape.numa_nodes) == shape.cpu_count
    if shape.memory_bytes is not None and shape.numa_nodes:
        # the kernel reports less than the maker states
        assert sum(node.memory_bytes or 0 for node in shape.numa_nodes) <= shape.memory_bytes
    for node in shape.numa_nodes:
        if node.cpus is not None and shape.threads_per_core is not None:
            assert node.cores is not None and sorted(cpu for core in node.cores for cpu in core) == list(node.cpus)
    if shape.link_domains:
        assert accelerator.fabric.is_fast or shape.accelerator in ("a100-pcie-80gb", "gh200")
    if accelerator.fabric.kind in ("nvlink-switch", "xgmi-mesh") and shape.gpus > 1 and shape.partition is None:
        assert shape.link_domains == (tuple(range(shape.gpus)),)


def test_the_dgx_h100_is_as_its_own_outputs_show_it() -> None:
    shape = shapes()["dgx-h100"]
    assert shape.missing == ()
    assert [len(node.cpus or ()) for node in shape.numa_nodes] == [112, 112]
    assert shape.numa_nodes[0].cpus is not None and shape.numa_nodes[0].cpus[55:57] == (55, 112)
    assert shape.gpu_numa_nodes == (0, 0, 0, 0, 1, 1, 1, 1)
    assert [node.memory_bytes for node in shape.numa_nodes] == [1006 << 30, 1007 << 30]


def test_what_is_not_known_is_said_and_not_guessed() -> None:
    assert shapes()["aws-p5en.48xlarge"].missing == ("numaNodes",)
    assert shapes()["aws-p5.48xlarge"].missing == ("numaNodes[0].cpus", "numaNodes[1].cpus")
    assert accelerators()["gb300"].memory.total_bytes is None


def test_pins_carry_digests_or_say_that_none_is_known() -> None:
    for pin in pins().values():
        if pin.kind == "image":
            assert pin.digest or "digest not known" in pin.note, pin.id
    assert pinned_image("nvidia-device-plugin") == (
        "nvcr.io/nvidia/k8s-device-plugin:v0.20.0@sha256:a61ba9fd8efb82f3a79f877f7580e02c1e8e7593f62473644bc9c79e315c3312"
    )


def test_the_program_knows_the_vendors_of_the_table() -> None:
    assert set(vendors()) == set(get_args(Vendor))
    for vendor in vendors().values():
        assert pins()[vendor.device_plugin_pin].kind == pins()[vendor.engine_pin].kind == "image"


def test_a_digest_must_be_one(tmp_path: Path) -> None:
    def change(_: dict[str, Any], entry: dict[str, Any]) -> None:
        entry["digest"] = "sha256:abc"

    assert "64 hexadecimal digits" in str(changed(tmp_path, "pins.yaml", change))


def test_the_catalog_has_at_least_25_models_and_the_pinned_engine() -> None:
    assert len(models()) >= 25
    assert engine_facts().version == "0.33.0"
    assert "WhisperForConditionalGeneration" in engine_facts().classes_without_pipeline_parallel
    assert "LlamaForCausalLM" not in engine_facts().classes_without_pipeline_parallel
