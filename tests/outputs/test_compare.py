"""Each comparison of a machine with a shape, by itself: of reports and a shape that are made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.catalog.types import Accelerator, NodeShape
from infra.outputs.expected import Comparison, compare
from infra.outputs.links import GpuLinks, amd_link, nvidia_link
from infra.outputs.machine import Machine
from infra.outputs.reading import Report

MIB = 2**20
NODES = (
    SimpleNamespace(id=0, cpus=(0, 1, 2, 3), memory_bytes=64 * MIB, nics=("mlx5_0",)),
    SimpleNamespace(id=1, cpus=(4, 5, 6, 7), memory_bytes=64 * MIB, nics=("mlx5_1",)),
)


def shape(**changes: Any) -> NodeShape:
    """Four GPUs, two on each of two NUMA nodes, all joined by NVLink."""
    facts = {
        "id": "ours",
        "gpus": 4,
        "link_domains": ((0, 1, 2, 3),),
        "gpu_numa_nodes": (0, 0, 1, 1),
        "virtual_machine": False,
        "numa_in_guest": None,
        "numa_nodes": NODES,
        "numa_node_count": 2,
        "sockets": 2,
        "threads_per_core": 1,
        "network": SimpleNamespace(count=2, kind=None),
        "switch_groups": (),
        "cpu_count": None,
        "lists_cpus": True,
        "memory_bytes": None,
    }
    return cast(NodeShape, SimpleNamespace(**{**facts, **changes}))


def accelerator(*, vendor: str = "nvidia", kind: str = "nvlink", links: int | None = 4, **changes: Any) -> Accelerator:
    facts = {
        "vendor": vendor,
        "fabric": SimpleNamespace(kind=kind, links=links),
        "driver_name": "NVIDIA L40S",
        "memory": SimpleNamespace(smi_mib=None),
        "label_values": ("NVIDIA-L40S", None),
        "pci_ids": ("1002:74A1",),
    }
    return cast(Accelerator, SimpleNamespace(**{**facts, **changes}))


ALL = dict.fromkeys(combinations(range(4), 2), "NV4")
HOMES: Mapping[int, int | None] = {0: 0, 1: 0, 2: 1, 3: 1}


def matrix(
    cells: Mapping[tuple[int, int], str] = ALL,
    homes: Mapping[int, int | None] = HOMES,
    *,
    kind: str = "nvidia-smi-topo-m",
    **fields: Any,
) -> Report:
    gpus = tuple(sorted(homes))
    table = [[None if a == b else cells.get((min(a, b), max(a, b))) for b in gpus] for a in gpus]
    links = {pair: link for pair, cell in cells.items() if (link := nvidia_link(cell) or amd_link(cell, 1, None)) is not None}
    known = {
        "gpus": len(gpus),
        "links": table,
        "numa_affinity": [homes[gpu] for gpu in gpus],
        "nics": ["mlx5_0", "mlx5_1"],
        "gpu_nic": [],
        "cpu_affinity": ["0-3", "0-3", "4-7", "4-7"],
    }
    return Report(kind=kind, first_line=1, fields={**known, **fields}, links=GpuLinks(gpus=gpus, links=links, numa=homes))


def against(*reports: Report, of: NodeShape | None = None, card: Accelerator | None = None) -> Comparison:
    return compare(Machine(host=None, reports=reports), of or shape(), card or accelerator())


def worse(found: Comparison) -> list[tuple[str, bool]]:
    return [(difference.message, difference.worse) for difference in found.differences]


def test_a_machine_of_the_shape_agrees_in_all_that_a_matrix_shows() -> None:
    found = against(matrix())
    assert (found.verdict, found.holds, found.differences, found.not_compared) == ("same", True, (), ())
    assert found.compared == ("the number of GPUs", "the links", "the NUMA node of each GPU", "the NICs")
    assert found.sentence == "This fits ours: the number of GPUs, the links, the NUMA node of each GPU, the NICs agree."


def test_without_a_matrix_the_links_are_not_compared() -> None:
    found = against()
    assert found.not_compared == ("no output shows how the GPUs are linked",)
    assert found.sentence == "This fits ours: nothing that could be compared agree."


@pytest.mark.parametrize(
    ("changes", "verdict", "message"),
    [
        ({(0, 1): "SYS"}, "degraded", "GPUs 0-1 are joined by SYS and should be by NVLink"),
        (
            dict.fromkeys(ALL, "SYS"),
            "different",
            "GPUs 0-1, 0-2, 0-3, 1-2 and 2 more pairs are joined by SYS and should be by NVLink",
        ),
        (dict.fromkeys(list(ALL)[:4], "SYS"), "degraded", "GPUs 0-1, 0-2, 0-3, 1-2 are joined by SYS and should be by NVLink"),
        ({(1, 2): "NV3"}, "degraded", "GPUs 1-2 have 3 NVLinks and 4 are expected"),
        ({(1, 2): "NV5"}, "different", "GPUs 1-2 have 5 NVLinks and 4 are expected"),
        (dict.fromkeys(ALL, "NV3"), "different", "all GPUs have 3 NVLinks and 4 are expected"),
    ],
)
def test_links_that_differ_are_named(changes: dict[tuple[int, int], str], verdict: str, message: str) -> None:
    found = against(matrix({**ALL, **changes}))
    assert (found.verdict, found.differences[0].message) == (verdict, message)
    assert "the links" not in found.compared
    assert not found.holds


def test_links_that_the_shape_does_not_have_are_another_machine() -> None:
    halves = shape(link_domains=((0, 1), (2, 3)))
    found = against(matrix(), of=halves)
    assert worse(found) == [("GPUs 0-2, 0-3, 1-2, 1-3 are joined by NV4, which ours does not have", False)]
    assert against(matrix(), of=halves, card=accelerator(kind="xgmi-partial")).verdict == "same"


def test_links_that_cannot_be_read_are_not_compared() -> None:
    found = against(matrix({pair: cell for pair, cell in ALL.items() if pair != (0, 3)}))
    assert found.not_compared == ("1 links cannot be read",)
    assert "the links that can be read" in found.compared


def test_counts_of_nvlinks_are_compared_where_the_card_and_the_tool_tell_them() -> None:
    fewer = matrix(dict.fromkeys(ALL, "NV3"))
    assert against(fewer, card=accelerator(links=None)).verdict == "same"
    amd = matrix(dict.fromkeys(ALL, "XGMI"), kind="amd-smi-topology")
    assert against(amd, card=accelerator(vendor="amd", kind="xgmi")).verdict == "same"
    lost = matrix({**dict.fromkeys(ALL, "XGMI"), (0, 1): "PCIE"}, kind="amd-smi-topology")
    assert worse(against(lost, card=accelerator(vendor="amd")))[0] == ("GPUs 0-1 are joined by PCIEh1 and should be by xGMI", True)


@pytest.mark.parametrize("count", [3, 5])
def test_another_number_of_gpus_ends_the_comparison_of_links(count: int) -> None:
    found = against(matrix(dict.fromkeys(combinations(range(count), 2), "NV4"), dict.fromkeys(range(count), 0), cpu_affinity=[]))
    assert worse(found)[0] == (f"{count} GPUs are shown and 4 are expected", False)
    assert "the links" not in found.compared


def test_what_the_catalog_does_not_know_is_not_compared() -> None:
    found = against(matrix(), of=shape(link_domains=None, gpu_numa_nodes=(None, 0, 1, 1)))
    assert found.not_compared == (
        "the catalog does not know the link domains of ours",
        "the catalog does not know the NUMA nodes of the GPUs of ours",
    )
    assert against(matrix(dict.fromkeys(ALL, "SYS"), pcie_only=True)).not_compared == (
        "`topo -mp` does not show NVLink; run `nvidia-smi topo -m`",
    )


@pytest.mark.parametrize(
    ("homes", "message"),
    [
        ({0: 0, 1: 0, 2: 1, 3: 0}, "GPU 3 is on NUMA node 0 and should be on 1"),
        ({0: 1, 1: 1, 2: 0, 3: 0}, "GPU 0 is on NUMA node 1 and should be on 0, and 3 more GPUs differ"),
        ({0: 1, 1: None, 2: 0, 3: 1}, "GPU 0 is on NUMA node 1 and should be on 0, and 1 more GPUs differ"),
    ],
)
def test_gpus_on_other_numa_nodes_are_another_machine(homes: dict[int, int | None], message: str) -> None:
    found = against(matrix(homes=homes))
    assert (message, False) in worse(found)
    assert "the NUMA node of each GPU" not in found.compared


def test_numa_nodes_that_no_output_tells_are_not_compared() -> None:
    found = against(matrix(homes=dict.fromkeys(range(4)), kind="amd-smi-topology"), card=accelerator(links=None))
    assert found.not_compared == ("this output does not tell the NUMA nodes of the GPUs",)


@pytest.mark.parametrize(
    ("homes", "why"),
    [(dict.fromkeys(range(4), 0), "all GPUs have one NUMA value"), (dict.fromkeys(range(4)), "no GPU has a NUMA node")],
)
def test_one_numa_value_for_all_is_a_virtual_machines_view(homes: dict[int, int | None], why: str) -> None:
    found = against(matrix(homes=homes))
    assert (found.verdict, found.holds) == ("virtual", True)
    assert found.sentence.startswith(f"As far as it can be seen this is ours; NUMA cannot be compared: {why}, as a virtual")
    hidden = shape(virtual_machine=True, numa_in_guest=False)
    assert against(matrix(homes=homes), of=hidden).verdict == "same"
    assert against(matrix(homes=homes), of=shape(virtual_machine=True, numa_in_guest=True)).verdict == "virtual"
    lost = against(matrix({**ALL, (0, 1): "SYS"}, homes))
    assert lost.verdict == "degraded"
    one_node = shape(gpu_numa_nodes=(0, 0, 0, 0))
    assert against(matrix(homes=dict.fromkeys(range(4), 0), cpu_affinity=["0-3"] * 4), of=one_node).verdict == "same"


@pytest.mark.parametrize(
    ("affinity", "differences", "unseen"),
    [
        (["0-3,4", None, "4-7", "4-7"], ["GPU 0 is near CPUs 4, which are not on its NUMA node 0 (0-3)"], []),
        (["0-2", "0-3", "4-7", "4-7"], [], ["GPU 0 shows CPUs 0-2 of 0-3: CPUs are off-line, or the cpuset is smaller"]),
        ([None, "N/A", "", "5-7"], [], ["GPU 3 shows CPUs 5-7 of 4-7: CPUs are off-line, or the cpuset is smaller"]),
        (None, [], []),
    ],
)
def test_cpu_affinity_is_compared_with_the_nodes_cpus(affinity: Any, differences: list[str], unseen: list[str]) -> None:
    found = against(matrix(cpu_affinity=affinity))
    assert [message for message, _ in worse(found)] == differences
    assert list(found.not_compared) == unseen
    unknown = shape(numa_nodes=tuple(SimpleNamespace(**{**vars(node), "cpus": None}) for node in NODES))
    assert against(matrix(cpu_affinity=affinity), of=unknown).differences == ()


@pytest.mark.parametrize(
    ("nics", "count", "differences", "compared"),
    [
        (["mlx5_0"], 2, [("NICs mlx5_1 are missing", True)], False),
        (["x", "y"], 2, [("NICs mlx5_0, mlx5_1 are missing", True)], False),
        (["mlx5_0", "mlx5_1"], 3, [("2 NICs are shown and 3 are expected", True)], False),
        (["mlx5_0", "mlx5_1", "z"], 2, [], True),
        (["mlx5_0", "mlx5_1"], None, [], True),
        ([], 2, [], False),
    ],
)
def test_nics_that_are_missing_are_worse(nics: list[str], count: int | None, differences: Any, compared: bool) -> None:
    found = against(matrix(nics=nics), of=shape(network=SimpleNamespace(count=count, kind=None)))
    assert worse(found) == differences
    assert ("the NICs" in found.compared) == compared
    assert "the NICs" not in against(matrix(nics=nics, nics_found=40)).compared


def test_a_shape_that_names_no_nics_is_compared_by_their_number_alone() -> None:
    bare = tuple(SimpleNamespace(**{**vars(node), "nics": ()}) for node in NODES)
    unknown = against(matrix(), of=shape(numa_nodes=bare, network=SimpleNamespace(count=None, kind=None)))
    assert "the NICs" not in unknown.compared and unknown.differences == ()
    assert "the NICs" in against(matrix(), of=shape(numa_nodes=bare)).compared


def nodes(kind: str = "numactl-H", **changes: Any) -> Report:
    fields = {
        "nodes": 2,
        "numa_cpus": {"0": "0-3", "1": "4-7"},
        "size_mib": {"0": 64, "1": 64},
        "sockets": 2,
        "threads_per_core": 1,
    }
    return Report(kind=kind, first_line=1, fields={**fields, **changes})


def test_nodes_of_the_shape_agree() -> None:
    assert against(nodes()).compared == ("CPUs and memory",)
    assert against(nodes("lscpu")).compared == ("the CPUs of each NUMA node",)
    assert against(nodes(), of=shape(numa_nodes=())).compared == ()


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"nodes": 4}, ("4 NUMA nodes are shown and 2 are expected", False)),
        ({"numa_cpus": {"0": "0-2", "1": "4-7"}}, ("CPUs 3 of NUMA node 0 are off-line", True)),
        ({"numa_cpus": {"0": "0-4", "1": "4-7"}}, ("NUMA node 0 has CPUs 0-4 and 0-3 are expected", False)),
        ({"numa_cpus": {"0": "4-7"}}, ("NUMA node 0 has CPUs 4-7 and 0-3 are expected", False)),
        ({"size_mib": {"0": 63}}, ("NUMA node 0 has 63 MiB of memory and at least 64Mi are expected", True)),
        ({"sockets": 1}, ("sockets is 1 and 2 is expected", False)),
        ({"threads_per_core": 2}, ("threads per core is 2 and 1 is expected", False)),
    ],
)
def test_nodes_that_differ_are_named_with_both_values(changes: dict[str, Any], difference: tuple[str, bool]) -> None:
    found = against(nodes(**changes))
    assert worse(found) == [difference]
    assert found.compared == ()


def test_what_nodes_or_shape_do_not_tell_is_no_difference() -> None:
    assert against(nodes(nodes=None, numa_cpus={"0": None}, size_mib={}, sockets=None, threads_per_core=None)).differences == ()
    blank = tuple(SimpleNamespace(id=node.id, cpus=None, memory_bytes=None, nics=()) for node in NODES)
    other = nodes(nodes=9, numa_cpus={"0": "9"}, size_mib={"0": 1}, sockets=9, threads_per_core=9)
    assert against(other, of=shape(numa_nodes=blank, numa_node_count=None, sockets=None, threads_per_core=None)).differences == ()


@pytest.mark.parametrize(("least_bytes", "agrees"), [(65 * MIB - 1, True), (65 * MIB, False)])
def test_memory_is_printed_in_whole_mib_and_may_be_almost_one_more(least_bytes: int, agrees: bool) -> None:
    one = SimpleNamespace(id=0, cpus=(0, 1, 2, 3), memory_bytes=least_bytes, nics=())
    assert (against(nodes(), of=shape(numa_nodes=(one,))).differences == ()) == agrees


def listed(*names: str, kind: str = "nvidia-smi-L", gpus: int = 4, **more: Any) -> Report:
    return Report(kind=kind, first_line=1, fields={"names": list(names), "gpus": gpus, **more})


@pytest.mark.parametrize("kind", ["nvidia-smi-L", "nvidia-smi-query"])
@pytest.mark.parametrize("name", ["NVIDIA L40S", "nvidia-l40s", "L40S"])
def test_names_agree_however_they_are_written(name: str, kind: str) -> None:
    assert against(listed(name, "", kind=kind)).compared == ("the GPUs' name",)


def test_other_names_counts_and_slices_are_named() -> None:
    assert worse(against(listed("NVIDIA L4", "NVIDIA A2"))) == [
        ("the GPUs are called NVIDIA A2, NVIDIA L4 and NVIDIA L40S is expected", False)
    ]
    assert worse(against(listed("L40S", gpus=3))) == [("3 GPUs are shown and 4 are expected", False)]
    assert against(listed("L40S", gpus=0)).differences == ()
    assert against(matrix(), listed("L40S", gpus=3)).differences == ()
    sliced = against(listed("L40S", mig=True))
    assert (sliced.verdict, worse(sliced)) == ("degraded", [("MIG is on", True)])
    assert against(listed("")).compared == ()


@pytest.mark.parametrize(("did", "agrees"), [("0x74a1", True), ("0x74A1", True), ("0x74a5", False)])
def test_device_ids_are_compared_without_their_vendor(did: str, agrees: bool) -> None:
    found = against(Report(kind="rocm-smi-concise", first_line=1, fields={"did": did}))
    assert (found.compared, worse(found)) == (
        (("the device id",), []) if agrees else ((), [(f"the device id is {did} and 74a1 is expected", False)])
    )
    nothing = Report(kind="rocm-smi-concise", first_line=1, fields={"did": None})
    assert against(nothing).compared == ()
    assert against(Report(kind="rocm-smi-concise", first_line=1, fields={"did": did}), card=accelerator(pci_ids=())).compared == ()


def test_another_machine_is_told_before_what_is_degraded() -> None:
    found = against(matrix({**ALL, (0, 1): "SYS"}), nodes(sockets=1), listed("L40S", mig=True))
    assert found.verdict == "different"
    assert [difference.worse for difference in found.differences] == [False, True, True]
    assert found.sentence == "This is not ours: sockets is 1 and 2 is expected (and 2 more)."
    assert against(listed("L40S", mig=True)).sentence == "This is a degraded ours: MIG is on."
