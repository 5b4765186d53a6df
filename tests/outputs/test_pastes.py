"""Outputs as people hand them on say the same as the tool did."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.errors import ConfigError
from infra.outputs.inputs import one_machine, reports_in
from infra.report.topology import topology_as_json

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())


def each_line(change: Callable[[str], str]) -> Callable[[str], bytes]:
    return lambda text: "\n".join(map(change, text.split("\n"))).encode()


def wrapped(width: int, text: str) -> bytes:
    return "\n".join(line[i : i + width] for line in text.split("\n") for i in range(0, max(len(line), 1), width)).encode()


def as_markdown_table(line: str) -> str:
    return "| " + " | ".join(cell.strip() for cell in line.split("\t")) + " |" if "\t" in line else line


FORMS: dict[str, Callable[[str], bytes]] = {
    "carriage returns and line feeds": lambda text: text.replace("\n", "\r\n").encode(),
    "carriage returns only": lambda text: text.replace("\n", "\r").encode(),
    "UTF-8 with BOM": lambda text: text.encode("utf-8-sig"),
    "UTF-16 with BOM": lambda text: text.encode("utf-16"),
    "UTF-16 little endian without BOM": lambda text: text.encode("utf-16-le"),
    "UTF-16 big endian without BOM": lambda text: text.encode("utf-16-be"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "quoted in a mail": each_line(lambda line: "> " + line),
    "quoted twice": each_line(lambda line: "> > " + line),
    "fenced in an issue": lambda text: f"Here it is:\n\n```bash\n{text}\n```\nthanks\n".encode(),
    "indented": each_line(lambda line: "    " + line),
    "coloured": each_line(lambda line: f"\x1b[1;32m{line}\x1b[0m"),
    "colours as cat -v shows them": each_line(lambda line: f"^[[4m{line}^[[0m"),
    "colours without their escape": each_line(lambda line: f"[4m{line}[0m"),
    "between prompts": lambda text: f"root@node-a:~# tool\n{text}\nroot@node-a:~# ".encode(),
    "tabs as blanks": lambda text: text.expandtabs(8).encode(),
    "a terminal of 80 columns": lambda text: wrapped(80, text.expandtabs(8)),
    "a terminal of 120 columns": lambda text: wrapped(120, text.expandtabs(8)),
    "broken after 90 characters": lambda text: wrapped(90, text),
    "cat -A": each_line(lambda line: line.replace("\t", "^I") + "$"),
    "blanks that do not break": lambda text: text.replace(" ", "\u00a0").encode(),
    "long dashes": lambda text: re.sub(r"(?<=\d)-(?=\d)", "\u2013", text).encode(),
    "HTML entities": lambda text: text.replace(">", "&gt;").replace("<", "&lt;").encode(),
    "lines stripped": each_line(str.strip),
    "kubectl logs --timestamps": each_line(lambda line: "2026-11-29T10:00:00.123456789Z " + line),
    "kubectl logs --prefix": each_line(lambda line: "[pod/vllm-0/vllm] " + line),
    "pdsh": each_line(lambda line: "node-a: " + line),
    "docker compose logs": each_line(lambda line: "vllm-1  | " + line),
    "a diff": each_line(lambda line: "+" + line),
    "line numbers": lambda text: "\n".join(f"{i:6}\t{line}" for i, line in enumerate(text.split("\n"), 1)).encode(),
    "no last line break": lambda text: text.rstrip("\n").encode(),
    "markdown table": each_line(as_markdown_table),
    "escaped in a string": lambda text: text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").encode(),
    "twice": lambda text: f"{text}\n{text}".encode(),
}
# Without tabs and with a blank cell, nobody can say whether a number is a CPU or a NUMA node.
SQUEEZED: dict[str, Callable[[str], bytes]] = {
    "single blanks": lambda text: re.sub(r"[ \t]+", " ", text).encode(),
    "two blanks": lambda text: text.replace("\t", "  ").encode(),
}


def read(raw: bytes) -> dict:
    return topology_as_json(one_machine(reports_in(raw, path="it"), source="it"))


@pytest.mark.parametrize("form", FORMS)
def test_a_paste_reads_as_the_output_itself(form):
    for name, expected in EXPECTED.items():
        found = read(FORMS[form]((HERE / "fixtures" / name).read_text()))
        assert {key: found.get(key) for key in expected} == expected, name


@pytest.mark.parametrize("form", SQUEEZED)
def test_lost_tabs_cost_at_most_the_affinity_of_a_blank_cell(form):
    for name, expected in EXPECTED.items():
        found = read(SQUEEZED[form]((HERE / "fixtures" / name).read_text()))
        if name.startswith("nv16"):
            assert found["links"] == expected["links"]
            assert found["numa_affinity"] == [0, None, None, None]
            assert any("affinity of GPU1, GPU2, GPU3 cannot be placed" in note for note in found["notes"])
        else:
            assert {key: found.get(key) for key in expected} == expected, name


def test_glued_cells_are_told_apart_where_only_one_reading_is_possible():
    text = (HERE / "fixtures" / "nv48b-b200-16nic-clean.txt").read_text()
    glued = text.replace("PXB\tNODE", "PXBNODE").replace("SYS\tSYS", "SYSSYS").replace("GPU0\tGPU1\tGPU2", "GPU0GPU1GPU2", 1)
    assert glued != text
    expected = EXPECTED["nv48b-b200-16nic-clean.txt"]
    found = read(glued.encode())
    assert {key: found[key] for key in expected} == expected


def test_a_link_glued_to_a_cpu_list_is_left_unread():
    text = (HERE / "fixtures" / "nv14-2x3090-NV4.txt").read_text()
    assert "NV4\t X \t0-23" in text
    found = read(text.replace(" X \tNV4\t0-23", " X \tNV40-23").encode())
    assert found["links"][0][1] is None
    assert found["links"][1] == ["NV4", "X"]
    assert found["notes"]


def test_cells_that_contradict_their_mirror_image_are_both_dropped():
    text = (HERE / "fixtures" / "nv13-4xa100-cloud-bare.txt").read_text()
    found = read(text.replace("GPU1\tNV12", "GPU1\tNV2").encode())
    assert found["links"][0][1] is None
    assert found["links"][1][0] is None
    assert found["unreadable"] == [[0, 1]]
    assert any("GPU0-GPU1 is NV12 in one row and NV2 in the other" in note for note in found["notes"])
    assert found["verdict"]["tp2"]["gpus"] == [2, 3]


def test_a_cell_cut_to_a_shorter_number_is_not_read():
    text = (HERE / "fixtures" / "nv13-4xa100-cloud-bare.txt").read_text()
    cut = text[: text.index("NV10") + 3]
    assert cut.endswith("NV1")
    found = read(cut.encode())
    assert found["links"][2] == ["NODE", "NODE", "X", None]
    assert found["truncated"] is True


def test_a_row_that_lost_a_cell_keeps_only_what_is_certain():
    text = (HERE / "fixtures" / "nv23-5gpu-mixed.txt").read_text()
    found = read(text.replace("GPU1\tSYS\t X \tPHB\tNODE\tNODE", "GPU1\tSYS\t X \tNODE\tNODE").encode())
    assert found["links"][1] == ["SYS", "X", None, None, None]


def test_two_rows_of_one_gpu_that_differ_are_both_dropped():
    text = (HERE / "fixtures" / "nv17-3xa6000.txt").read_text()
    row = next(line for line in text.split("\n") if line.startswith("GPU0"))
    found = read(text.replace(row, row + "\n" + row.replace("NV4", "SYS")).encode())
    assert found["links"][0] == [None, None, None]
    assert any("row GPU0 stands there twice" in note for note in found["notes"])


LSCPU_IN_OTHER_LANGUAGES = {
    "German": """Architektur:                     x86_64
CPU(s):                          224
Liste der Online-CPU(s):         0-223
Thread(s) pro Kern:              2
Kern(e) pro Sockel:              56
Sockel:                          2
NUMA-Knoten:                     2
Modellname:                      Intel(R) Xeon(R) Platinum 8480C
NUMA-Knoten0 CPU(s):             0-55,112-167
NUMA-Knoten1 CPU(s):             56-111,168-223
""",
    "French": """Architecture\u00a0:                          x86_64
Processeur(s)\u00a0:                         224
Liste de processeur(s) en ligne\u00a0:       0-223
Thread(s) par cœur\u00a0:                    2
Cœur(s) par socket\u00a0:                    56
Socket(s)\u00a0:                             2
Nœud(s) NUMA\u00a0:                          2
Nom de modèle\u00a0:                         Intel(R) Xeon(R) Platinum 8480C
Nœud NUMA\u00a00 de processeur(s)\u00a0:          0-55,112-167
Nœud NUMA\u00a01 de processeur(s)\u00a0:          56-111,168-223
""",
    "Chinese": """架构：                           x86_64
CPU:                             224
在线 CPU 列表：                  0-223
每个核的线程数：                 2
每个座的核数：                   56
座：                             2
NUMA 节点：                      2
型号名称：                       Intel(R) Xeon(R) Platinum 8480C
NUMA 节点0 CPU：                 0-55,112-167
NUMA 节点1 CPU：                 56-111,168-223
""",
    "Japanese": """アーキテクチャ:                  x86_64
CPU:                             224
オンラインになっている CPU のリスト: 0-223
コアあたりのスレッド数:          2
ソケットあたりのコア数:          56
ソケット数:                      2
NUMA ノード数:                   2
モデル名:                        Intel(R) Xeon(R) Platinum 8480C
NUMA ノード 0 CPU:               0-55,112-167
NUMA ノード 1 CPU:               56-111,168-223
""",
    "Spanish": """Arquitectura:                        x86_64
CPU(s):                              224
Lista de la(s) CPU(s) en línea:      0-223
Hilo(s) de procesamiento por núcleo: 2
Núcleo(s) por «socket»:              56
«Socket(s)»:                         2
Modo(s) NUMA:                        2
Nombre del modelo:                   Intel(R) Xeon(R) Platinum 8480C
CPU(s) del nodo NUMA 0:              0-55,112-167
CPU(s) del nodo NUMA 1:              56-111,168-223
""",
    "Russian": """Архитектура:                     x86_64
CPU(s):                          224
On-line CPU(s) list:             0-223
Потоков на ядро:                 2
Ядер на сокет:                   56
Сокетов:                         2
NUMA node(s):                    2
Имя модели:                      Intel(R) Xeon(R) Platinum 8480C
NUMA node0 CPU(s):               0-55,112-167
NUMA node1 CPU(s):               56-111,168-223
""",
    "Polish": """Architektura:                    x86_64
CPU:                             224
Lista aktywnych CPU:             0-223
Wątków na rdzeń:                 2
Rdzeni na gniazdo:               56
Gniazd:                          2
Węzłów NUMA:                     2
Nazwa modelu:                    Intel(R) Xeon(R) Platinum 8480C
Procesory węzła NUMA 0:          0-55,112-167
Procesory węzła NUMA 1:          56-111,168-223
""",
}


@pytest.mark.parametrize("language", LSCPU_IN_OTHER_LANGUAGES)
def test_lscpu_says_the_same_in_each_language(language):
    english = read((HERE / "fixtures" / "lscpu-xeon8480c.txt").read_bytes())
    found = read(LSCPU_IN_OTHER_LANGUAGES[language].encode())
    assert found == english


def test_lscpu_as_json_says_the_same_as_text():
    text = (HERE / "fixtures" / "lscpu-epyc7742-nps4.txt").read_text()
    entries = [{"field": line.split(":")[0] + ":", "data": line.split(":")[1].strip()} for line in text.strip().split("\n")]
    nested = [entries[0], {"field": "NUMA:", "data": None, "children": entries[1:]}]
    assert read(json.dumps({"lscpu": nested}, indent=3).encode()) == read(text.encode())


def test_rocm_smi_as_json_gives_the_same_links_as_text():
    text = read((HERE / "fixtures" / "amd09-mi250x-8gcd-showtopo.txt").read_bytes())
    system = {}
    for i in range(8):
        for j in range(i + 1, 8):
            system[f"(Topology) Weight between DRM devices {i} and {j}"] = str(text["weight"][i][j])
            system[f"(Topology) Hops between DRM devices {i} and {j}"] = str(text["hops"][i][j])
            system[f"(Topology) Link type between DRM devices {i} and {j}"] = text["link_type"][i][j]
    cards = {
        f"card{i}": {"(Topology) Numa Node": str(node), "(Topology) Numa Affinity": str(node)}
        for i, node in enumerate(text["numa"])
    }
    found = read(json.dumps({**cards, "system": system}).encode())
    assert {key: found[key] for key in ("gpus", "weight", "hops", "link_type", "numa", "verdict")} == {
        key: text[key] for key in ("gpus", "weight", "hops", "link_type", "numa", "verdict")
    }


def test_the_report_of_collect_env_is_read_in_its_parts():
    text = """PyTorch version: 2.8.0
GPU models and configuration:
GPU 0: NVIDIA H100 80GB HBM3
GPU 1: NVIDIA H100 80GB HBM3

Nvidia driver version: 580.1
CPU:
Architecture:                    x86_64
CPU(s):                          104
Thread(s) per core:              1
NUMA node(s):                    2
NUMA node0 CPU(s):               0-51
NUMA node1 CPU(s):               52-103

GPU Topology:
\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\t0-51\t0\t\tN/A
GPU1\tNV18\t X \t0-51\t0\t\tN/A
"""
    found = read(text.encode())
    assert found["outputs"] == ["nvidia-smi-L", "lscpu", "nvidia-smi-topo-m"]
    assert (found["links"][0][1], found["cpus"], found["name"]) == ("NV18", 104, "NVIDIA H100 80GB HBM3")
    assert found["notes"] == []


def test_a_matrix_of_an_old_driver_names_nics_in_its_columns_and_sockets_soc():
    found = read(
        b"\tGPU0\tGPU1\tGPU2\tmlx5_0\tCPU Affinity\n"
        b"GPU0\t X \tPIX\tSOC\tPHB\t0-13,28-41\n"
        b"GPU1\tPIX\t X \tSOC\tPHB\t0-13,28-41\n"
        b"GPU2\tSOC\tSOC\t X \tSOC\t14-27,42-55\n"
        b"mlx5_0\tPHB\tPHB\tSOC\t X \t\n"
    )
    assert found["nics"] == ["mlx5_0"]
    assert found["gpu_nic"] == [["PHB"], ["PHB"], ["SOC"]]
    assert found["numa_affinity"] is None
    assert found["verdict"]["tp2"] == {"gpus": [0, 1], "class": "pcie-switch(PIX)", "worst_link": "PIX", "numa_nodes": 1, "ties": 1}
    assert found["links"][0] == ["X", "PIX", "SOC"]


def test_sixty_four_partitions_are_read_and_judged():
    names = [f"GPU{i}" for i in range(64)]

    def table(title: str, cell: Callable[[int, int], str]) -> str:
        rows = [f"=== {title} between two GPUs ===", "       " + "  ".join(names)]
        return "\n".join(
            [*rows, *(f"{n}  " + "  ".join("0" if i == j else cell(i, j) for j in range(64)) for i, n in enumerate(names))]
        )

    text = table("Weight", lambda i, j: "15") + "\n" + table("Link Type", lambda i, j: "XXXX" if i // 8 == j // 8 else "XGMI")
    found = read(text.encode())
    assert (found["gpus"], found["unreadable"]) == (64, [])
    assert found["verdict"]["tp8"]["gpus"] == list(range(8))
    assert found["verdict"]["tp8"]["ties"] == 8


def joined(*names: str) -> bytes:
    return "\n".join(f"$ tool\n{(HERE / 'fixtures' / name).read_text()}" for name in names).encode()


def test_several_outputs_of_one_machine_are_put_together():
    found = read(
        joined("lscpu-xeon8480c.txt", "nv06b-dgx-h100-12nic-full-ansi.txt", "numactl-dgxh100-2node.txt", "nv54-query-h100.csv")
    )
    assert found["kind"] == "nvidia-smi-topo-m"
    assert found["outputs"] == ["lscpu", "nvidia-smi-topo-m", "numactl-H", "nvidia-smi-query"]
    assert (found["gpus"], found["cpus"], found["nodes"], found["sockets"], found["mib"]) == (8, 224, 2, 2, 81559)
    assert found["size_mib"] == {"0": 1031000, "1": 1032000}
    assert [report["kind"] for report in found["reports"]] == found["outputs"]
    assert found["reports"][1]["links"] == found["links"]
    assert found["verdict"] == EXPECTED["nv06b-dgx-h100-12nic-full-ansi.txt"]["verdict"]


def test_headings_that_name_tools_are_no_hosts():
    parts = (
        ("topo-m", "nv06b-dgx-h100-12nic-full-ansi.txt"),
        ("lscpu-1", "lscpu-xeon8480c.txt"),
        ("numactl-h", "numactl-dgxh100-2node.txt"),
    )
    found = read("\n".join(f"## {title}\n{(HERE / 'fixtures' / name).read_text()}" for title, name in parts).encode())
    assert len(found["outputs"]) == 3
    assert "host" not in found


def test_numa_nodes_of_rocm_smi_complete_the_links_of_amd_smi():
    found = read(joined("amd11-amdsmi-mi300x.txt", "amd07-showtoponuma-tabs.txt"))
    assert found["kind"] == "amd-smi-topology"
    assert found["numa"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (found["verdict"]["tp4"]["gpus"], found["verdict"]["tp4"]["ties"]) == ([0, 1, 2, 3], 2)
    assert found["verdict"]["tp8"]["numa_nodes"] == 2


def test_state_files_of_one_node_stay_apart():
    found = read(joined("kubelet-cpu-static-32.json", "kubelet-memory-static.json", "kubelet-devices-v120.json"))
    assert [report.get("policy") for report in found["reports"]] == ["static", "Static", None]
    assert found["straddling_pods"] == ["00000000-0000-4000-8000-000000000007"]


def test_topo_mp_beside_topo_m_is_the_same_machine():
    pcie = (HERE / "fixtures" / "nv29-topo-mp-hides-nvlink.txt").read_text()
    lines = []
    for line in pcie.replace("topo -mp", "topo -m").split("\n"):
        cells = line.split("\t")
        if line.startswith("GPU"):
            cells[1:9] = ["NV18" if cell in ("NODE", "SYS") else cell for cell in cells[1:9]]
        lines.append("\t".join(cells))
    found = read("\n".join([*lines, pcie]).encode())
    assert found["outputs"] == ["nvidia-smi-topo-m", "nvidia-smi-topo-m"]
    assert found["links"][0][1] == "NV18"
    assert found["verdict"]["tp8"]["worst_link"] == "NV18"


@pytest.mark.parametrize(
    "raw",
    [
        joined("nv03-a100-8xNV12-space.txt", "nv04-h100-8xNV18-space.txt"),
        joined("lscpu-xeon8480c.txt", "lscpu-gh200-9node.txt"),
        joined("numactl-dgxh100-2node.txt", "numactl-mi300a-4node.txt"),
        b"root@node-a:~# nvidia-smi topo -m\n"
        + (HERE / "fixtures" / "nv14-2x3090-NV4.txt").read_bytes()
        + b"root@node-b:~# lscpu\n"
        + (HERE / "fixtures" / "lscpu-xeon8480c.txt").read_bytes(),
        "\n".join(
            f"node-{host}: {line}"
            for host, name in (("a", "nv14-2x3090-NV4.txt"), ("b", "nv01-2xNV2-numa-na.txt"))
            for line in (HERE / "fixtures" / name).read_text().split("\n")
        ).encode(),
    ],
    ids=["two matrices", "two lscpu", "two numactl", "two prompts", "pdsh"],
)
def test_outputs_of_several_machines_are_refused_with_what_each_is(raw):
    with pytest.raises(ConfigError) as caught:
        read(raw)
    (problem,) = caught.value.problems
    assert problem.code == "SeveralMachines"
    assert "outputs of 2 machines" in problem.message


def test_the_names_of_several_machines_are_told():
    raw = "\n".join(
        f"node-{host}: {line}"
        for host, name in (("a", "nv14-2x3090-NV4.txt"), ("b", "nv03-a100-8xNV12-space.txt"))
        for line in (HERE / "fixtures" / name).read_text().split("\n")
    ).encode()
    with pytest.raises(ConfigError, match="node-a: nvidia-smi-topo-m 2 GPUs; node-b: nvidia-smi-topo-m 8 GPUs"):
        read(raw)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("nv14-2x3090-NV4.txt", "nv54-query-h100.csv"), "shows 2 GPUs and nvidia-smi-query 8"),
        (("lscpu-xeon8480c.txt", "numactl-mi300a-4node.txt"), "lscpu shows 2 NUMA nodes and numactl 4"),
        (("lscpu-xeon8480c.txt", "nv07-dgx-a100-nps4-10nic.txt"), "NUMA node 7"),
    ],
)
def test_outputs_that_contradict_each_other_are_refused_with_both_numbers(names, sentence):
    with pytest.raises(ConfigError) as caught:
        read(joined(*names))
    (problem,) = caught.value.problems
    assert problem.code == "Contradiction"
    assert sentence in problem.message


@pytest.mark.parametrize(
    ("raw", "code", "sentence"),
    [
        (b"", "EmptyInput", "empty"),
        (b" \n\t\n", "EmptyInput", "blanks only"),
        (b"\x7fELF" + bytes(range(256)) * 8, "BinaryInput", "binary file"),
        (b"\x1f\x8b\x08rest", "BinaryInput", "compressed"),
        (b"hello world\n", "UnknownOutput", "hello world"),
        (b"bash: nvidia-smi: command not found\n", "UnknownOutput", "not installed"),
        (b"Failed to initialize NVML: Driver/library version mismatch\n", "UnknownOutput", "NVML"),
        (b"No devices were found\n", "UnknownOutput", "no GPU"),
        (b"| NVIDIA-SMI 580.1   Driver Version: 580.1   CUDA Version: 13.0 |\n", "UnknownOutput", "nvidia-smi topo -m"),
        (b"GPU0\t X \tNV18\nGPU1\tNV18\t X \n", "UnknownOutput", "not its header"),
        (b"Legend:\n\n  X    = Self\n", "UnknownOutput", "only the legend"),
        (b"\tGPU0\tGPU1\tCPU Affinity\n", "NoLinks", "no row for GPU0, GPU1"),
        (b'{"policyName":"static","defaultCpuSet":"0-', "UnreadableInput", "cut"),
        (b'{"kind":"Node","metadata":{"labels":{"nvidia.com', "UnreadableInput", "cut"),
        (b"<html><body>404</body></html>", "UnknownOutput", "no known output"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_that_says_what_it_is(raw, code, sentence):
    with pytest.raises(ConfigError) as caught:
        read(raw)
    (problem,) = caught.value.problems
    assert problem.code == code
    assert problem.path == "it"
    assert sentence in problem.message
    assert "\n" not in problem.message
