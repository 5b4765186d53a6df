"""A node's own outputs become the inline topology that a stack file takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from infra.catalog.load import accelerators
from infra.catalog.names import find_shape
from infra.catalog.topology import shape_from_topology
from infra.config.pools import InlineTopology
from infra.errors import ConfigError
from infra.outputs.inputs import one_machine, reports_in
from infra.outputs.shape import InlineShape, shape_of
from infra.report.shape import shape_as_yaml

FIXTURES = Path(__file__).parent / "fixtures"
DGX = ("nv06b-dgx-h100-12nic-full-ansi.txt", "lscpu-xeon8480c.txt", "numactl-dgxh100-2node.txt", "nv54-query-h100.csv")


def read(*texts: str, sku: str | None = None) -> InlineShape:
    raw = "\n".join(f"$ tool\n{text}" for text in texts).encode()
    return shape_of(one_machine(reports_in(raw, path="node.txt"), source="node.txt"), sku=sku, source="node.txt")


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def numactl(nodes: list[tuple[str, int]], distance: int = 21) -> str:
    from infra.units import parse_cpu_list

    lines = [f"available: {len(nodes)} nodes (0-{len(nodes) - 1})"]
    for i, (cpus, size) in enumerate(nodes):
        lines += [
            f"node {i} cpus: {' '.join(map(str, parse_cpu_list(cpus)))}",
            f"node {i} size: {size} MB",
            f"node {i} free: {size} MB",
        ]
    lines += ["node distances:", "node   " + "   ".join(str(i) for i in range(len(nodes)))]
    lines += [f"  {i}:  " + "  ".join("10" if i == j else str(distance) for j in range(len(nodes))) for i in range(len(nodes))]
    return "\n".join(lines)


def lscpu(nodes: list[str], threads: int = 1) -> str:
    from infra.units import parse_cpu_list

    count = sum(len(parse_cpu_list(cpus)) for cpus in nodes)
    lines = ["Architecture: x86_64", f"CPU(s): {count}", f"Thread(s) per core: {threads}", f"NUMA node(s): {len(nodes)}"]
    return "\n".join([*lines, *(f"NUMA node{i} CPU(s): {cpus}" for i, cpus in enumerate(nodes))])


def node(*nodes: tuple[str, int]) -> str:
    """lscpu and numactl -H of a machine without SMT."""
    return f"{lscpu([cpus for cpus, _ in nodes])}\n$ numactl -H\n{numactl(list(nodes))}"


def test_a_dgx_h100_comes_out_as_its_catalog_entry():
    topology = yaml.safe_load(shape_as_yaml(read(*map(fixture, DGX))))["topology"]
    shape, catalog = shape_from_topology(topology), find_shape("dgx-h100")
    assert (shape.accelerator, shape.gpus, shape.threads_per_core) == (catalog.accelerator, catalog.gpus, catalog.threads_per_core)
    assert shape.gpu_numa_nodes == catalog.gpu_numa_nodes
    assert shape.link_domains == catalog.link_domains
    for node, wanted in zip(shape.numa_nodes, catalog.numa_nodes, strict=True):
        assert (node.cpus, node.cores, node.distances) == (wanted.cpus, wanted.cores, wanted.distances)
        assert node.memory_bytes == wanted.memory_bytes
    assert shape.numa_nodes[0].nics == ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5")


def test_the_block_is_what_a_stack_file_takes():
    text = shape_as_yaml(read(*map(fixture, DGX)))
    assert text.startswith(
        'topology:\n  sku: h100-sxm5-80gb\n  threadsPerCore: 2\n  numaNodes:\n    - {cpus: "0-55,112-167", memory: 1006Gi,'
    )
    parsed = InlineTopology.model_validate(yaml.safe_load(text)["topology"])
    assert parsed.numa_nodes[1].gpus == (4, 5, 6, 7)


def test_gb200_keeps_its_nodes_without_cpus():
    shape = read(
        fixture("nv11-gb200-numa-6nic.txt"),
        fixture("numactl-gb200-34node.txt"),
        fixture("nv55-query-gb200.csv"),
        lscpu(["0-71", "72-143", *[""] * 32]),
    )
    nodes = shape.topology["numaNodes"]
    assert len(nodes) == 34
    assert [nodes[i]["gpus"] for i in (0, 1, 2)] == [[0, 1], [2, 3], []]
    assert (nodes[2]["cpus"], nodes[2]["memory"], nodes[3]["memory"]) == ("", "184Gi", "0Gi")
    InlineTopology.model_validate(yaml.safe_load(shape_as_yaml(shape))["topology"])


def test_an_amd_node_is_read_from_rocm_smi():
    nodes = node(("0-47", 128000), ("48-95", 128000))
    shape = read(fixture("amd01-mi308x-8-showtopo.txt"), fixture("amd14-rocmsmi-concise-mi308x.txt"), nodes)
    assert shape.topology["sku"] == next(a.id for a in accelerators().values() if "74a2" in str(a.pci_ids).lower())
    assert [node["gpus"] for node in shape.topology["numaNodes"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_bridged_pairs_and_switches_become_groups():
    topo = fixture("nv13-4xa100-cloud-bare.txt").replace("NV10", "NV12")
    shape = read(topo, node(("0-15", 64000)), sku="a100-pcie-80gb" if "a100-pcie-80gb" in accelerators() else "l40s")
    assert shape.topology["linkDomains"] == [[0, 1], [2, 3]]
    shape = read(fixture("nv46-rtxpro6000-8x-pairs.txt"), node(("0-47,96-143", 64000), ("48-95,144-191", 64000)), sku="l40s")
    assert shape.topology["switchGroups"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert "linkDomains" not in shape.topology


def test_without_a_numa_column_the_gpus_cpus_tell_the_node():
    topo = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-7\nGPU1\tSYS\t X \t8-15\n"
    shape = read(topo, node(("0-7", 64000), ("8-15", 64000)), sku="l40s")
    assert [node["gpus"] for node in shape.topology["numaNodes"]] == [[0], [1]]


def test_each_missing_fact_is_told_with_the_output_to_add():
    with pytest.raises(ConfigError) as caught:
        read(fixture(DGX[0]))
    messages = [problem.message for problem in caught.value.problems]
    assert len(messages) == 4
    assert any("sku" in message and "nvidia-smi -L" in message for message in messages)
    assert any("threads of a core" in message and "lscpu" in message for message in messages)
    assert any("CPUs of each NUMA node" in message and "lscpu" in message for message in messages)
    assert any("memory of each NUMA node" in message and "numactl -H" in message for message in messages)
    with pytest.raises(ConfigError, match="add `nvidia-smi topo -m`"):
        read(*map(fixture, DGX[1:]))


@pytest.mark.parametrize(
    ("texts", "sku", "sentence"),
    [
        (
            (fixture(DGX[0]), fixture(DGX[1]), fixture(DGX[2]), fixture(DGX[3])),
            "h200-sxm-141gb",
            "is h200-sxm-141gb, and the machine says",
        ),
        (
            (fixture(DGX[0]), node(("0-15", 64000), ("16-31", 64000))),
            "h100-sxm5-80gb",
            "GPU 0 is on NUMA node 0 and near CPUs 0-55,112-167",
        ),
        ((fixture("nv20-2xa100-noleadtab.txt"), node(("0-15", 64000))), "l40s", "NUMA node 5"),
    ],
)
def test_what_contradicts_itself_is_refused(texts, sku, sentence):
    with pytest.raises(ConfigError) as caught:
        read(*texts, sku=sku)
    assert sentence in str(caught.value)


def test_mig_and_mixed_gpus_are_no_shape():
    nodes = node(("0-15", 64000))
    with pytest.raises(ConfigError, match="MIG is on"):
        read(fixture("nv22-1gpu.txt"), nodes, fixture("nv53-smi-L-mig.txt"))
    mixed = "\n".join(
        f"GPU {i}: {name} (UUID: GPU-0000000{i}-0000-4000-8000-000000000000)"
        for i, name in enumerate(("NVIDIA L40S", "NVIDIA H100 80GB HBM3"))
    )
    with pytest.raises(ConfigError, match="different GPUs"):
        read(fixture("nv14-2x3090-NV4.txt"), nodes, mixed)


def test_a_flat_view_gives_no_numa_nodes_away():
    rows = ["\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity", "GPU0\t X \tNV18\tPHB\t0-15\t0-1", "GPU1\tNV18\t X \tPHB\t0-15\t0-1"]
    topo = "\n".join([*rows, "NIC0\tPHB\tPHB\t X \t\t"])
    with pytest.raises(ConfigError, match="NUMA nodes 0-1"):
        read(topo, node(("0-7", 64000), ("8-15", 64000)), sku="h100-sxm5-80gb")


def test_cut_outputs_are_refused():
    lscpu = "\n".join(fixture("lscpu-xeon8480c.txt").split("\n")[:-2])
    with pytest.raises(ConfigError, match="cut"):
        read(fixture(DGX[0]), lscpu, fixture(DGX[2]), fixture(DGX[3]))


def test_every_shape_that_can_be_read_survives_yaml_and_json():
    shape = read(*map(fixture, DGX))
    assert yaml.safe_load(shape_as_yaml(shape))["topology"] == json.loads(json.dumps(shape.topology))


def test_nodes_that_are_not_consecutive_are_refused_with_what_a_shape_lists():
    text = node(("0-7", 64000), ("8-15", 64000)).replace("NUMA node1 CPU", "NUMA node2 CPU").replace("node 1 ", "node 2 ")
    topo = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-7\t0\nGPU1\tSYS\t X \t0-7\t0\n"
    with pytest.raises(ConfigError) as caught:
        read(topo, text, sku="l40s")
    assert "the NUMA nodes are 0, 2; an inline topology lists nodes 0 to 1." in str(caught.value)


def test_a_contradiction_tells_the_cpus_of_the_node():
    with pytest.raises(ConfigError) as caught:
        read(fixture(DGX[0]), node(("0-15", 64000), ("16-31", 64000)), sku="h100-sxm5-80gb")
    assert "and that node's CPUs are 0-15; take all outputs on one node." in str(caught.value)


@pytest.mark.parametrize(
    ("nics", "remark"), [(4, "no GPU is near a0, a1, a2, a3:"), (5, "no GPU is near a0, a1, a2, a3 and 1 more:"), (0, None)]
)
def test_nics_that_no_gpu_is_near_are_named(nics, remark):
    names = [f"a{i}" for i in range(nics)]
    head = "\t".join(["", "GPU0", "GPU1", *names, "CPU Affinity", "NUMA Affinity"])
    rows = [
        "\t".join(["GPU0", " X ", "NODE", *["SYS"] * nics, "0-7", "0"]),
        "\t".join(["GPU1", "NODE", " X ", *["SYS"] * nics, "0-7", "0"]),
    ]
    rows += ["\t".join([name, "SYS", "SYS", *[" X " if name == other else "SYS" for other in names], "", ""]) for name in names]
    shape = read("\n".join([head, *rows]) + "\n", node(("0-7", 64000)), sku="l40s")
    assert [text.startswith(remark or "") for text in shape.remarks] == ([True] if remark else [])


@pytest.mark.parametrize(
    ("mib", "memory"), [(16 * 1024, "16Gi"), (16 * 1024 - 1, "16383Mi"), (17 * 1024 - 1, "16Gi"), (64, "64Mi")]
)
def test_memory_is_whole_gib_from_sixteen_on(mib, memory):
    topo = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-7\t0\nGPU1\tSYS\t X \t0-7\t0\n"
    shape = read(topo, node(("0-7", mib)), sku="l40s")
    assert shape.topology["numaNodes"][0]["memory"] == memory
