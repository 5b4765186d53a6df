"""Inline topology, physical cores, and the machine that the kubelet simulator gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.confidence import shape_warnings
from infra.catalog.load import shapes
from infra.catalog.machine import devices_of, machine_of, missing_facts
from infra.catalog.names import find_accelerator
from infra.catalog.reading import read
from infra.catalog.shapes import ShapeEntry, group_into_cores, resolve_shape
from infra.catalog.topology import default_link_domains, shape_from_topology
from infra.catalog.types import AcceleratorMemory, NetworkInterfaces, NodeShape, NumaNode
from infra.diagnosis import Diagnosis
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
        (
            {"sku": "mi300x", "partition": "cpx_nps4", "numaNodes": [{"cpus": "0-3", "memory": "8Gi", "gpus": [0, 1, 2, 3]}]},
            "is 'cpx_nps4', which makes 8 devices of a card; 4 GPUs are listed, and a multiple of 8 is expected",
        ),
        ({"sku": ""}, "topology.sku: is missing"),
        ({"linkDomains": [[0, 8]]}, "linkDomains[0]: names GPU 8; an index from 0 to 7 is expected"),
        ({"switchGroups": [[0, 8]]}, "switchGroups[0]: names GPU 8; an index from 0 to 7"),
        ({"linkDomains": [[0, -1]]}, "linkDomains[0][1]: is -1; at least 0"),
        ({"linkDomains": [3]}, "linkDomains[0]: is an integer (3); a list is expected"),
        ({"numaNodes": [{"cpus": "0-3", "memory": "8Gi", "gpus": [0], "nics": ["a", "a"]}]}, "nics: a is on NUMA node 0 too"),
        ({"threads_per_core": 2}, "threads_per_core: is no field here. Did you mean 'threadsPerCore'?"),
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


@pytest.mark.parametrize(
    ("sku", "gpus", "domains"),
    [
        ("h100-sxm5-80gb", 8, ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("h100-sxm5-80gb", 16, (tuple(range(16)),)),
        ("h100-sxm5-80gb", 17, None),
        ("gb200", 72, (tuple(range(72)),)),
        ("gb200", 73, None),
        ("mi308x", 16, (tuple(range(16)),)),
        ("h100-nvl-94gb", 2, None),
        ("mi210", 4, None),
        ("l4", 8, ()),
    ],
)
def test_a_fabric_joins_as_many_as_it_can(sku: str, gpus: int, domains: tuple[tuple[int, ...], ...] | None) -> None:
    assert default_link_domains(find_accelerator(sku), gpus) == domains


@pytest.mark.parametrize(
    ("nodes", "told"), [(1, "numaNodes[0].memory, threadsPerCore of"), (3, "numaNodes[2].memory, threadsPerCore of")]
)
def test_up_to_four_missing_facts_are_named(nodes: int, told: str) -> None:
    shape = NodeShape(id="x", accelerator="l4", gpus=1, numa_nodes=unknown_memory(nodes))
    [problem] = missing_facts(shape, "nodeShape")
    assert told in problem.message and "more" not in problem.message


def test_of_more_missing_facts_four_are_named_and_the_others_counted() -> None:
    [problem] = missing_facts(NodeShape(id="x", accelerator="l4", gpus=1, numa_nodes=unknown_memory(5)), "nodeShape")
    assert "numaNodes[3].memory and 2 more of x" in problem.message and "[4]" not in problem.message


def unknown_memory(nodes: int) -> tuple[NumaNode, ...]:
    return tuple(NumaNode(id=i, cpus=(i,), cores=None, memory_bytes=None, gpus=()) for i in range(nodes))


def entry(**changes: Any) -> ShapeEntry:
    found: list[Diagnosis] = []
    raw = {"id": "x", "gpus": 2, "confidence": "low", **topology(sku="l4"), **changes}
    read_entry = read(ShapeEntry, raw, "x", found)
    assert read_entry is not None and not found
    return read_entry


TWO = [{"cpus": "0-3", "memory": "8Gi", "gpus": [1]}, {"cpus": "4-7", "memory": "8Gi", "gpus": [0]}]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"numaNodeCount": 2}, []),
        ({"numaNodes": [], "numaNodeCount": 3}, []),
        ({"numaNodes": [{}, {}]}, []),
        ({"numaNodes": [{"gpus": [1]}, {}]}, []),
        ({"numaNodeCount": 3}, ["x.numaNodeCount: is 3, but numaNodes lists 2."]),
        ({"gpus": 3}, ["x.numaNodes: lists the GPUs [0, 1]; the indices 0 to 2 are expected, each once."]),
        ({"linkDomains": [[0, 2]]}, ["x.linkDomains[0]: names GPU 2; an index from 0 to 1 is expected."]),
        ({"switchGroups": [[0], [0]]}, ["x.switchGroups[1]: names GPU 0 a second time."]),
        (
            {"numaNodes": [{"cpus": "0-3,8", "distances": [10]}, {"cpus": "3-6", "hugepages": {"4Ki": 1}}]},
            [
                "x.numaNodes[0].cpus: lists 5 CPUs; with threadsPerCore 2 a multiple of 2 is expected.",
                "x.numaNodes[0].distances: has 1 values; one for each of the 2 NUMA nodes is expected.",
                "x.numaNodes[1].hugepages.4Ki: is no huge page size of Linux; 2Mi or 1Gi is expected.",
                "x.numaNodes[1].cpus: 3 is on NUMA node 0 too.",
            ],
        ),
    ],
)
def test_an_entry_that_contradicts_itself_is_told(changes: dict[str, Any], told: list[str]) -> None:
    found: list[Diagnosis] = []
    resolve_shape(entry(**{"numaNodes": TWO, **changes}), "x", found)
    assert [str(problem) for problem in found] == told


def test_an_entry_becomes_the_machine() -> None:
    found: list[Diagnosis] = []
    shape = resolve_shape(
        entry(numaNodes=TWO, linkDomains=[[1, 0]], memory="20Gi", sockets=2, network={"count": 2, "kind": "RoCE"}), "x", found
    )
    assert (shape.cpu_count, shape.numa_node_count, shape.memory_bytes, shape.sockets) == (8, 2, 20 << 30, 2)
    assert shape.link_domains == ((0, 1),) and shape.switch_groups == () and shape.lists_cpus
    assert shape.numa_nodes[1].cores == ((4, 5), (6, 7)) and shape.gpu_numa_nodes == (1, 0)
    assert shape.gpus_per_numa_node == (1, 1)
    assert shape.network == NetworkInterfaces(count=2, kind="RoCE")
    partly = resolve_shape(entry(numaNodes=[TWO[0], {"gpus": [0]}], cpuCount=12), "x", found)
    assert (partly.cpu_count, partly.lists_cpus, partly.memory_bytes, partly.link_domains) == (12, False, None, None)
    assert resolve_shape(entry(numaNodes=[TWO[0], {"gpus": [0]}]), "x", found).cpu_count is None
    empty = resolve_shape(entry(numaNodes=[], numaNodeCount=4), "x", found)
    assert (empty.numa_node_count, empty.cpu_count, empty.lists_cpus, empty.gpus_per_numa_node) == (4, None, False, None)


@pytest.mark.parametrize(
    ("sockets", "given", "expected"),
    [(2, None, [0, 0, 1, 1]), (None, None, [0, 1, 2, 3]), (3, None, [0, 1, 2, 3]), (1, None, [0, 0, 0, 0]), (2, 7, [7, 7, 7, 7])],
)
def test_numa_nodes_lie_on_sockets_in_order(sockets: int | None, given: int | None, expected: list[int]) -> None:
    nodes = tuple(NumaNode(id=i, cpus=(i,), cores=((i,),), memory_bytes=2, gpus=(i,), socket=given) for i in range(4))
    shape = NodeShape(id="x", accelerator="l4", gpus=4, numa_nodes=nodes, sockets=sockets, threads_per_core=1)
    assert [node["socket"] for node in machine_of(shape)["numa"]] == expected


def test_numa_nodes_without_cpus_and_gpus_can_be_left_out_and_memory_scaled() -> None:
    nodes = (
        NumaNode(id=0, cpus=(0,), cores=((0,),), memory_bytes=2, gpus=(0,)),
        NumaNode(id=1, cpus=(), cores=(), memory_bytes=3, gpus=()),
        NumaNode(id=2, cpus=(), cores=(), memory_bytes=5, gpus=(1,)),
        NumaNode(id=3, cpus=(1,), cores=((1,),), memory_bytes=None, gpus=()),
    )
    shape = NodeShape(id="x", accelerator="l4", gpus=2, numa_nodes=nodes, threads_per_core=1)
    machine = machine_of(shape, {0: 10, 1: 100}, without_empty_nodes=True)
    assert [(node["id"], node["memory_bytes"], node["socket"]) for node in machine["numa"]] == [(0, 20, 0), (2, 5, 0), (3, 0, 1)]
    assert machine["memory_capacity_bytes"] == 325 and not {"hugepages", "distances"} & set(machine["numa"][0])
    assert len(machine_of(shape)["numa"]) == 4 and machine_of(shape)["memory_capacity_bytes"] == 10


def test_a_machine_hides_numa_only_as_a_virtual_one() -> None:
    for virtual, seen, hidden in (
        (True, False, True),
        (True, None, False),
        (None, False, False),
        (False, False, False),
        (True, True, False),
    ):
        shape = shape_from_topology(topology(virtualMachine=virtual, numaInGuest=seen))
        assert shape.hides_numa is hidden
        assert (shape.gpu_numa_nodes == (None,) * 8) is hidden and (shape.gpus_per_numa_node is None) is hidden
    assert shape_from_topology(topology()).largest_link_domain == 8
    assert shape_from_topology(topology(linkDomains=[])).largest_link_domain == 1


@pytest.mark.parametrize(
    ("architecture", "capability"),
    [("sm_90", (9, 0)), ("sm_103", (10, 3)), ("gfx942", None), ("sm_", None), ("90", None), ("", None)],
)
def test_a_compute_capability_is_read_from_the_architecture(architecture: str, capability: tuple[int, int] | None) -> None:
    assert find_accelerator("l4").model_copy(update={"architecture": architecture}).compute_capability == capability


def test_sizes_of_an_accelerator_are_not_negative_and_a_range_rises() -> None:
    def problems(**memory: Any) -> dict[str, str]:
        found: list[Diagnosis] = []
        read(AcceleratorMemory, memory, "m", found)
        return {problem.path: problem.message for problem in found}

    assert problems(torchGib=0.5, torchVfGib=0, marketingGb=1, smiMib=1, torchRangeGib=[1, 1]) == {}
    assert problems(torchGib=-0.1, marketingGb=0, smiMib=0) == {
        "m.torchGib": "is -0.1; at least 0 is expected.",
        "m.marketingGb": "is 0; at least 1 is expected.",
        "m.smiMib": "is 0; at least 1 is expected.",
    }
    assert problems(torchRangeGib=[2, 1]) == {"m.torchRangeGib": "low 2 is above high 1."}
    for wrong in ([1], [1, 2, 3], [1, "2"], [True, 2], "1-2"):
        assert "is no pair [low, high] of numbers" in problems(torchRangeGib=wrong)["m.torchRangeGib"]
    assert AcceleratorMemory(torch_gib=1.5).total_bytes == 3 << 29 and AcceleratorMemory().total_bytes is None
