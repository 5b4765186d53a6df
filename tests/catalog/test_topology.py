"""Inline topology, physical cores, and the machine that the kubelet simulator gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.confidence import shape_warnings
from infra.catalog.load import shapes
from infra.catalog.machine import devices_of, machine_of, missing_facts
from infra.catalog.shapes import group_into_cores
from infra.catalog.topology import shape_from_topology
from infra.errors import ConfigError


def topology(**changes: Any) -> dict[str, Any]:
    return {
        "sku": "h100-sxm5-80gb",
        "threadsPerCore": 2,
        "numaNodes": [
            {
                "cpus": "0-55,112-167",
                "memory": "1007Gi",
                "gpus": [0, 1, 2, 3],
                "nics": ["mlx5_0"],
                "distances": [10, 21],
                "hugepages": {"1Gi": 4},
            },
            {"cpus": "56-111,168-223", "memory": "1007Gi", "gpus": [4, 5, 6, 7], "nics": ["mlx5_4"], "distances": [21, 10]},
        ],
        **changes,
    }


def test_an_inline_topology_is_the_same_machine_as_the_catalog_entry() -> None:
    inline, catalog = shape_from_topology(topology()), shapes()["dgx-h100"]
    assert inline.id == "inline" and inline.missing == ()
    assert [node.cores for node in inline.numa_nodes] == [node.cores for node in catalog.numa_nodes]
    assert inline.link_domains == catalog.link_domains == ((0, 1, 2, 3, 4, 5, 6, 7),)
    assert inline.gpu_numa_nodes == catalog.gpu_numa_nodes
    assert inline.cpu_count == 224


def test_the_machine_has_the_form_of_an_admission_case() -> None:
    machine = machine_of(shape_from_topology(topology()))
    first = machine["numa"][0]
    assert first["cpus"][:2] == [[0, 112], [1, 113]] and len(first["cpus"]) == 56
    assert first["memory_bytes"] == 1007 << 30
    assert first["distances"] == [10, 21] and first["hugepages"] == {"1Gi": 4}
    assert first["socket"] == 0
    assert machine_of(shapes()["dgx-h100"])["numa"][1]["socket"] == 1


def test_every_shape_is_a_machine_or_says_what_it_lacks() -> None:
    for shape in shapes().values():
        problems = missing_facts(shape, "nodeShape")
        if shape.missing:
            assert "nothing is guessed" in problems[0].message
        else:
            assert problems == []
            numa = machine_of(shape)["numa"]
            assert len(numa) == len(shape.numa_nodes)
            assert sum(len(core) for node in numa for core in node["cpus"]) == shape.cpu_count


def test_devices_carry_their_numa_node() -> None:
    devices = devices_of(shapes()["dgx-a100"], "nvidia.com/gpu")["nvidia.com/gpu"]
    assert [device["numa"] for device in devices] == [[3], [3], [1], [1], [7], [7], [5], [5]]
    flat = shape_from_topology(topology(virtualMachine=True, numaInGuest=False))
    assert flat.hides_numa and flat.gpus_per_numa_node is None
    assert all(device["numa"] == [] for device in devices_of(flat, "nvidia.com/gpu")["nvidia.com/gpu"])
    # AMD's plugin passes on the kernel's -1, which no NUMA node of the machine matches.
    assert all(device["numa"] == [-1] for device in devices_of(flat, "amd.com/gpu")["amd.com/gpu"])


def test_all_problems_of_a_topology_come_at_once_with_their_paths() -> None:
    raw = topology(sku="H100", threadsPerCore="2")
    raw["numaNodes"][0] |= {"cpu": 1, "cpus": 5}
    raw["numaNodes"][1] |= {"memory": "5GiB", "gpus": [3, 4]}
    with pytest.raises(ConfigError) as error:
        shape_from_topology(raw, "nodePools[0].topology")
    text = str(error.value)
    for expected in (
        "nodePools[0].topology.sku: 'H100' may be any of",
        "nodePools[0].topology.threadsPerCore: is a text ('2')",
        "nodePools[0].topology.numaNodes[0].cpu: is no field here. Did you mean 'cpus'?",
        "nodePools[0].topology.numaNodes[0].cpus: 5 is no CPU list",
        "nodePools[0].topology.numaNodes[1].memory: '5GiB' is no quantity; write 5Gi",
        "nodePools[0].topology.numaNodes[1].gpus: 3 is on NUMA node 0 too",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"numaNodes": None}, "numaNodes: is missing"),
        ({"numaNodes": [{"cpus": "0-3", "memory": "8Gi", "gpus": [1]}]}, "lists the GPUs [1]; the indices 0 to 0 are expected"),
        ({"numaNodes": [{"cpus": "0-3", "memory": "8Gi"}]}, "lists no gpus"),
        ({"numaNodes": [{"cpus": "0-2", "memory": "8Gi", "gpus": [0]}]}, "lists 3 CPUs; with threadsPerCore 2 a multiple of 2"),
        ({"numaNodes": [{"memory": "8Gi", "gpus": [0]}]}, "numaNodes[0].cpus: is missing"),
        ({"numaNodes": [{"cpus": "0-3", "gpus": [0]}]}, "numaNodes[0].memory: is missing"),
        (
            {"numaNodes": [{"cpus": "0-3", "memory": "8Gi", "gpus": [0], "distances": [10, 20]}]},
            "has 2 values; one for each of the 1 NUMA nodes",
        ),
        ({"numaNodes": [{"cpus": "0-3", "memory": "-1Gi", "gpus": [0]}]}, "is negative"),
        ({"numaNodes": [{"cpus": "0-3", "memory": "8Gi", "gpus": [0], "hugepages": {"3Gi": 1}}]}, "no huge page size"),
        ({"linkDomains": [[0, 1], [1, 2]]}, "linkDomains[1]: names GPU 1 a second time"),
        ({"linkDomains": [[0, 9]]}, "linkDomains[0]: names GPU 9; an index from 0 to 7"),
        ({"partition": "CPX_NPS4"}, "h100-sxm5-80gb has no partition modes"),
        ({"sku": "mi300x", "partition": "CPX_NPS8"}, "mi300x knows SPX_NPS1"),
        ({"threadsPerCore": None}, "threadsPerCore: is missing; write what lscpu prints"),
        ({"threadsPerCore": 0}, "threadsPerCore: is 0; at least 1"),
    ],
)
def test_a_wrong_topology_says_both_numbers(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        shape_from_topology(topology(**change), "topology")
    assert message in str(error.value)


def test_a_topology_that_is_no_map_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="topology: is a list; a map of fields is expected"):
        shape_from_topology([1], "topology")  # type: ignore[arg-type]


def test_links_follow_the_accelerator_where_nobody_says_them() -> None:
    pairs = [{"cpus": "0-31", "memory": "500Gi", "gpus": [0, 1]}, {"cpus": "32-63", "memory": "500Gi", "gpus": [2, 3]}]
    assert shape_from_topology({"sku": "l40s", "threadsPerCore": 1, "numaNodes": pairs}).link_domains == ()
    assert shape_from_topology({"sku": "mi300x", "threadsPerCore": 1, "numaNodes": pairs}).link_domains == ((0, 1, 2, 3),)
    assert shape_from_topology({"sku": "mi250x-gcd", "threadsPerCore": 1, "numaNodes": pairs}).link_domains is None
    bridged = {"sku": "a100-pcie-80gb", "threadsPerCore": 1, "numaNodes": pairs, "linkDomains": [[0, 1], [2, 3]]}
    assert shape_from_topology(bridged).largest_link_domain == 2


@pytest.mark.parametrize(
    ("cpus", "threads", "first"),
    [
        (tuple(range(0, 4)) + tuple(range(8, 12)), 2, (0, 8)),
        (tuple(range(0, 8)), 2, (0, 1)),
        (tuple(range(0, 128, 4)) + tuple(range(128, 256, 4)), 2, (0, 128)),
        (tuple(range(4)), 1, (0,)),
    ],
)
def test_threads_of_a_core_follow_the_kernels_numbering(cpus: tuple[int, ...], threads: int, first: tuple[int, ...]) -> None:
    assert group_into_cores(cpus, threads)[0] == first


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 7))
def test_cores_always_partition_the_cpus(core_count: int, threads: int, gap: int) -> None:
    cpus = tuple(core + thread * (core_count + gap) for thread in range(threads) for core in range(core_count))
    cores = group_into_cores(tuple(sorted(cpus)), threads)
    assert len(cores) == core_count and all(len(core) == threads for core in cores)
    assert sorted(cpu for core in cores for cpu in core) == sorted(cpus)


def test_facts_that_are_not_verified_are_told_with_the_command_that_verifies_them() -> None:
    assert shape_warnings(shapes()["dgx-h100"]) == ()
    [warning] = shape_warnings(shapes()["dgx-h200"], "nodePools[0].nodeShape")
    assert warning.path == "nodePools[0].nodeShape"
    assert warning.message.startswith("numaNodes of dgx-h200 is not verified in the catalog (confidence medium): compare")
    assert "--expect gcp-a3-highgpu-8g" in shape_warnings(shapes()["gcp-a3-highgpu-8g"])[0].message
    assert shape_from_topology(topology()).confidence == "high"
