"""Which output a line or a document is, and where each begins."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.errors import ConfigError
from infra.outputs.kubelet_log import explain_kubelet_log
from infra.outputs.reading import Report
from infra.outputs.recognise import recognise

LSCPU = ["CPU(s): 2", "Socket(s): 1", "NUMA node(s): 1", "NUMA node0 CPU(s): 0-1"]
TOPO = ["\tGPU0\tGPU1", "GPU0\t X \tSYS", "GPU1\tSYS\t X "]


def read(*lines: str) -> tuple[Report, ...]:
    return recognise(lines, source="it")


def of_json(document: Any, *, indent: int | None = None) -> Report:
    (report,) = read(*json.dumps(document, indent=indent).split("\n"))
    return report


@pytest.mark.parametrize(
    ("line", "host", "command"),
    [
        ("root@gpu-a:~# nvidia-smi topo -m", "gpu-a", "nvidia-smi topo -m"),
        ("[root@gpu-a ~]# lscpu", "gpu-a", "lscpu"),
        ("$ ssh -o X=1 root@gpu-b lscpu", "gpu-b", "ssh -o X=1 root@gpu-b lscpu"),
        ("$ ssh -tt -p 22 gpu-b lscpu", "gpu-b", "ssh -tt -p 22 gpu-b lscpu"),
        ("$ lscpu", None, "lscpu"),
        ("numactl --hardware", None, "numactl --hardware"),
        ("# host: gpu-c", "gpu-c", None),
        ("=== node7 ===", "node7", None),
        ("hostname: gpu-d", "gpu-d", None),
        ("gpu-e | CHANGED | rc=0 >>", "gpu-e", None),
    ],
)
def test_prompts_and_banners_name_host_and_command(line: str, host: str | None, command: str | None) -> None:
    (report,) = read(line, *LSCPU)
    assert (report.kind, report.host, report.command, report.first_line) == ("lscpu", host, command, 2)


@pytest.mark.parametrize(("word", "is_host"), [("node-x", True), ("worker-a", True), ("rack-12", True), ("a-word", False)])
def test_a_banner_is_a_host_by_its_beginning_or_a_number(word: str, is_host: bool) -> None:
    assert read(f"=== {word} ===", *LSCPU)[0].host == (word if is_host else None)


@pytest.mark.parametrize("heading", ["=== topo-m ===", "## nvidia-1 ##", "== words =="])
def test_headings_of_tools_are_no_hosts(heading: str) -> None:
    assert read(heading, *LSCPU)[0].host is None


def test_the_nearest_host_before_an_output_is_its_own() -> None:
    first, second = read("# host: a", *LSCPU, "# host: b", *TOPO)
    assert (first.kind, first.host, second.kind, second.host) == ("lscpu", "a", "nvidia-smi-topo-m", "b")


@pytest.mark.parametrize(("option", "pcie"), [("-mp", True), ("--matrix_pci", True), ("-m", False)])
def test_the_command_tells_that_nvlink_is_not_shown(option: str, pcie: bool) -> None:
    (report,) = read(f"$ nvidia-smi topo {option}", *TOPO)
    assert bool(report.fields.get("pcie_only")) == pcie
    assert [finding.code for finding in report.findings] == ["NvLinkNotShown"] * pcie


def test_mixed_outputs_are_each_read_by_their_reader() -> None:
    found = read(
        *LSCPU,
        "available: 1 nodes (0)",
        "node 0 cpus: 0 1",
        "node 0 size: 5 MB",
        "node distances:",
        "node   0",
        "  0:  10",
        *TOPO,
        "GPU 0: NVIDIA L40S (UUID: GPU-00000000-0000-4000-8000-000000000000)",
        "index, name",
        "0, NVIDIA L40S",
        "x NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    )
    assert [report.kind for report in found] == [
        "lscpu",
        "numactl-H",
        "nvidia-smi-topo-m",
        "nvidia-smi-L",
        "nvidia-smi-query",
        "nccl-log",
    ]
    assert found[1].fields["distances"] == [[10]]
    assert found[5].fields["verdict"] == "good"


def test_one_field_alone_is_no_lscpu() -> None:
    assert read("Model name: Xeon") == ()
    assert read("CPU(s): 2") == ()
    assert read("CPU(s): 2", "Vendor ID: x") == ()
    assert len(read("CPU(s): 2", "Socket(s): 1")) == 1


CPU = {"policyName": "static", "defaultCpuSet": "0-1", "entries": {"p": {"c": "2-3"}}, "checksum": 1}
MEMORY = {
    "policyName": "Static",
    "machineState": {
        "0": {"memoryMap": {"memory": {"total": 9, "allocatable": 8, "free": 7}}, "numberOfAssignments": 0, "cells": [0]}
    },
    "entries": {"p": {"c": [{"numaAffinity": [0], "type": "memory", "size": 5}]}},
    "checksum": 1,
}
DEVICES = {
    "Data": {
        "PodDeviceEntries": [{"PodUID": "p", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": {"0": ["x"]}}],
        "RegisteredDevices": {"r": ["x", "y"]},
    },
    "Checksum": 1,
}


@pytest.mark.parametrize("indent", [None, 2])
def test_state_files_are_known_by_their_keys(indent: int | None) -> None:
    cpu, memory, devices = (of_json(document, indent=indent) for document in (CPU, MEMORY, DEVICES))
    assert cpu.fields == {"policy": "static", "default": "0-1", "assignments": {"p": {"c": "2-3"}}}
    assert memory.fields == {
        "policy": "Static",
        "nodes": {"0": {"memory": {"allocatable_bytes": 8, "free_bytes": 7, "total_bytes": 9}}},
        "assignments": {"p": {"c": [{"numa_nodes": [0], "resource": "memory", "size_bytes": 5}]}},
    }
    assert devices.fields == {"straddling_pods": [], "allocations": {"p": {"c": {"r": {"0": ["x"]}}}}, "registered": {"r": 2}}


@pytest.mark.parametrize("key", ["PodDeviceEntries", "RegisteredDevices"])
def test_one_part_of_a_checkpoint_is_enough(key: str) -> None:
    assert of_json({"Data": {key: DEVICES["Data"][key]}}).kind == "kubelet_internal_checkpoint"


def test_documents_stand_among_other_lines_and_have_their_own() -> None:
    text = json.dumps(CPU, indent=1).split("\n")
    found = read("words", *text, *LSCPU, *json.dumps(MEMORY).split("\n"))
    assert [(report.kind, report.first_line) for report in found] == [
        ("cpu_manager_state", 2),
        ("lscpu", 2 + len(text)),
        ("memory_manager_state", 2 + len(text) + len(LSCPU)),
    ]
    assert read('{"other": 1}') == ()
    assert [report.kind for report in read('{"other": 1}', *LSCPU)] == ["lscpu"]


def test_a_document_that_a_terminal_broke_within_words_is_read() -> None:
    text = json.dumps(CPU)
    assert read(text[:30], text[30:60], text[60:])[0].fields == of_json(CPU).fields


def test_a_cut_document_is_refused_and_of_a_cut_list_what_is_whole_is_read() -> None:
    with pytest.raises(ConfigError, match="the JSON that starts in line 2 is cut or broken; copy the whole output"):
        read("words", json.dumps(CPU)[:-9])
    links = [{"gpu": i, "bdf": "b", "links": [{"gpu": 1 - i, "link_type": "XGMI", "num_hops": 1, "weight": 15}]} for i in (0, 1)]
    (report,) = read(json.dumps(links)[:-20])
    assert report.cut and report.fields["gpus"] == 2
    assert read("{", "words")[0:] == ()


def test_a_kubelet_log_tells_whether_the_kubelet_starts() -> None:
    line = 'E1130 run.go:72] "command failed" err="failed to run Kubelet: an odd reason"'
    (stopped,) = read(line, line)
    assert stopped.fields == {"starts": False}
    assert [finding.code for finding in stopped.findings] == ["KubeletStopped"]
    assert "an odd reason" in stopped.findings[0].message
    assert read("I1130 kubelet started") == ()


def test_a_cause_is_counted_however_often_it_is_logged() -> None:
    line = 'E1130 "Failed to start ContainerManager" err="start cpu manager error: configured policy \\"static\\" differs from state checkpoint policy \\"none\\""'
    once, thrice = explain_kubelet_log([line]), explain_kubelet_log("\n".join([line] * 3))
    assert len(once) == len(thrice) == 1
    assert "times" not in once[0].message
    assert thrice[0].message == f"{once[0].message.removesuffix('.')} (logged 3 times)."
