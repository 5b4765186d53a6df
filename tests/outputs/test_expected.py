"""A machine against the node shape that it should have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.catalog.load import accelerators
from infra.catalog.names import find_shape
from infra.outputs.expected import Comparison, compare
from infra.outputs.inputs import one_machine, reports_in

FIXTURES = Path(__file__).parent / "fixtures"
DGX = "nv06b-dgx-h100-12nic-full-ansi.txt"


def against(shape_name: str, *texts: str) -> Comparison:
    shape = find_shape(shape_name)
    machine = one_machine(reports_in("\n".join(texts).encode(), path="it"), source="it")
    return compare(machine, shape, accelerators()[shape.accelerator])


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def test_a_dgx_h100_is_one_with_all_that_its_outputs_show():
    found = against(
        "dgx-h100",
        fixture(DGX),
        fixture("lscpu-xeon8480c.txt"),
        fixture("numactl-dgxh100-2node.txt"),
        fixture("nv54-query-h100.csv"),
    )
    assert (found.verdict, found.differences) == ("same", ())
    assert found.holds
    assert {"the links", "the NUMA node of each GPU", "CPUs and memory", "the GPUs' name"} <= set(found.compared)


def test_a_cut_report_is_compared_as_far_as_it_goes():
    assert against("dgx-h100", fixture("nv06-dgx-h100-12nic-cut.txt")).verdict == "same"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: re.sub(r"NV18", "NV17", t.replace("GPU3\tNV18", "GPU3\tNV18")), "all GPUs have 17 NVLinks and 18 are expected"),
        (lambda t: swap_pair(t, 2, 5, "NV9"), "GPUs 2-5 have 9 NVLinks and 18 are expected"),
        (lambda t: swap_pair(t, 0, 7, "SYS"), "GPUs 0-7 are joined by SYS and should be by NVLink"),
    ],
)
def test_a_link_that_is_down_is_told_with_its_pair(change, sentence):
    found = against("dgx-h100", change(fixture(DGX)))
    assert not found.holds
    assert any(sentence in difference.message for difference in found.differences)


def swap_pair(text: str, a: int, b: int, cell: str) -> str:
    lines = text.split("\n")
    for i, line in enumerate(lines):
        for one, other in ((a, b), (b, a)):
            if line.startswith(f"GPU{one}\t"):
                cells = line.split("\t")
                cells[other + 1] = cell
                lines[i] = "\t".join(cells)
    return "\n".join(lines)


def test_one_link_down_is_degraded_and_another_accelerator_is_different():
    assert against("dgx-h100", swap_pair(fixture(DGX), 2, 5, "NV9")).verdict == "degraded"
    assert against("dgx-h100", swap_pair(fixture(DGX), 2, 5, "PIX")).verdict == "degraded"
    assert against("dgx-h100", fixture(DGX).replace("NV18", "NV12")).verdict == "different"
    assert against("dgx-h100", fixture(DGX).replace("NV18", "PIX")).verdict == "different"


def test_another_number_of_gpus_is_a_different_machine():
    found = against("dgx-h100", fixture("nv49-6xh100-3plus3.txt"))
    assert found.verdict == "different"
    assert "6 GPUs are shown and 8 are expected" in found.differences[0].message
    assert "is not dgx-h100" in found.sentence


def test_gpus_on_other_numa_nodes_are_different():
    text = fixture("nv07-dgx-a100-nps4-10nic.txt")
    found = against("dgx-h100", text.replace("NV12", "NV18"))
    assert found.verdict == "different"
    assert any("GPU 0 is on NUMA node 3 and should be on 0" in difference.message for difference in found.differences)


def test_a_flat_view_of_a_virtual_machine_is_a_verdict_of_its_own():
    text = re.sub(r"\t(?:PXB|NODE|SYS|PIX)(?=\t)", "\tPHB", re.sub(r"\t(?:PXB|NODE|SYS|PIX)(?=\t)", "\tPHB", fixture(DGX)))
    text = re.sub(r"\t(?:0-55,112-167|56-111,168-223)\t[01]\t", "\t0-223\t0-1\t", text)
    found = against("dgx-h100", text)
    assert found.verdict == "virtual"
    assert found.holds
    assert any("NUMA cannot be compared" in note for note in found.not_compared)
    assert "NUMA nodes 0-1" in found.sentence


def test_a_container_that_shows_one_numa_node_for_all_is_not_called_different():
    assert against("dgx-b200-class", fixture("nv35-b200-container-cpuset.txt")).verdict == "virtual"


def test_a_flat_view_with_a_dead_link_is_degraded_all_the_same():
    text = swap_pair(fixture("nv35-b200-container-cpuset.txt"), 0, 1, "SYS")
    assert against("dgx-b200-class", text).verdict == "degraded"


def test_topo_mp_alone_does_not_call_nvlink_missing():
    found = against("dgx-h100", fixture("nv29-topo-mp-hides-nvlink.txt"))
    assert found.verdict == "same"
    assert any("topo -mp" in note for note in found.not_compared)


def test_less_memory_and_off_line_cpus_are_degraded_with_both_numbers():
    numactl = fixture("numactl-dgxh100-2node.txt").replace("node 1 size: 1032000 MB", "node 1 size: 967000 MB")
    found = against("dgx-h100", fixture(DGX), numactl)
    assert found.verdict == "degraded"
    assert "NUMA node 1 has 967000 MiB of memory and at least 1007Gi are expected" in found.differences[0].message
    lscpu = (
        fixture("lscpu-xeon8480c.txt")
        .replace("56-111,168-223", "56-111,168-222")
        .replace("CPU(s):                          224", "CPU(s):                          223")
    )
    found = against("dgx-h100", lscpu)
    assert found.verdict == "degraded"
    assert "CPUs 223 of NUMA node 1 are off-line" in found.differences[0].message


def test_gpus_of_another_name_are_different():
    found = against("dgx-h200", fixture("nv54-query-h100.csv"))
    assert found.verdict == "different"
    assert "NVIDIA H100 80GB HBM3" in found.differences[0].message
    assert against("dgx-h100", fixture("nv54-query-h100.csv")).verdict == "same"


def test_mig_is_degraded():
    text = fixture("nv53-smi-L-mig.txt")
    assert any(
        "MIG is on" in difference.message
        for difference in against("dgx-a100-80gb" if "dgx-a100-80gb" in known() else "dgx-h100", text).differences
    )


def known() -> list[str]:
    from infra.catalog.load import shapes

    return list(shapes())


def test_amd_links_are_compared_too():
    shape = next(name for name in known() if name.startswith("frontier"))
    assert against(shape, fixture("amd09-mi250x-8gcd-showtopo.txt")).verdict == "same"
    pcie = fixture("amd09-mi250x-8gcd-showtopo.txt").replace("XGMI", "PCIE")
    assert not against(shape, pcie).holds


@pytest.mark.parametrize(
    ("mib", "verdict"), [(81559, "same"), (81559 * 102 // 100, "same"), (81559 * 103 // 100, "different"), (40960, "different")]
)
def test_gpus_of_another_size_are_different(mib: int, verdict: str):
    text = "index, name, memory.total [MiB]\n" + "".join(f"{i}, NVIDIA H100 80GB HBM3, {mib} MiB\n" for i in range(8))
    found = against("dgx-h100", text)
    assert found.verdict == verdict
    assert [d.message for d in found.differences] == (
        [] if verdict == "same" else [f"the GPUs have {mib} MiB and 81559 MiB are expected"]
    )


def test_the_view_without_nvlink_shows_the_switches():
    cells = {(a, b): "X" if a == b else "PXB" if a // 2 == b // 2 else "SYS" for a in range(8) for b in range(8)}
    names = "\t".join(f"GPU{i}" for i in range(8))

    def matrix() -> str:
        rows = "".join(f"GPU{a}\t" + "\t".join(f" {cells[a, b]} " for b in range(8)) + "\n" for a in range(8))
        return f"$ nvidia-smi topo -mp\n\t{names}\n{rows}"

    assert "the PCIe switches" in against("dgx-a100", matrix()).compared
    cells[2, 3] = cells[3, 2] = "NODE"
    found = against("dgx-a100", matrix())
    assert found.verdict == "different"
    assert found.differences[0].message == "GPUs 2-3 are joined by NODE and should be under one PCIe switch"


@pytest.mark.parametrize(("cpus", "verdict"), [(192, "same"), (191, "different"), (193, "different")])
def test_the_cpus_of_a_machine_are_counted_where_its_nodes_are_not_known(cpus: int, verdict: str):
    shape = "aws-p5en.48xlarge"
    found = against(shape, f"CPU(s): {cpus}\nThread(s) per core: 2\nSocket(s): 2\nNUMA node(s): 2\n")
    assert [d.message for d in found.differences] == ([] if verdict == "same" else [f"{cpus} CPUs are shown and 192 are expected"])


@pytest.mark.parametrize(
    ("mib", "verdict"),
    [
        (2048 * 1024 // 2, "same"),
        (2048 * 1024 // 2 + 1, "different"),
        (2048 * 1024 * 43 // 100, "same"),
        (2048 * 1024 * 42 // 100, "degraded"),
    ],
)
def test_the_memory_of_a_machine_lies_below_what_its_maker_states(mib: int, verdict: str):
    text = "available: 2 nodes (0-1)\n" + "".join(
        f"node {n} cpus: {n}\nnode {n} size: {mib} MB\nnode {n} free: 1 MB\n" for n in (0, 1)
    )
    assert against("aws-p5en.48xlarge", text).verdict == verdict
