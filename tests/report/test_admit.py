"""What becomes of cases, as text and as lines of JSON."""

from __future__ import annotations

import json
from typing import Any

from infra.report.admit import admissions_as_json, admissions_as_text

CONTAINER = {
    "name": "c",
    "cpus": "2-5",
    "memory_numa": [0, 1],
    "devices": {"nvidia.com/gpu": ["g0", "g1"], "x/y": []},
    "topology": [0, 1],
    "preferred": True,
}
ADMITTED = {"name": "a", "admitted": True, "qos": "Guaranteed", "containers": [CONTAINER]}


def case(*pods: dict[str, Any], **more: Any) -> dict[str, Any]:
    node = {"allocatable": {"cpu": "7", "memory": "1Gi", "hugepages-1Gi": "0"}, "reserved_cpus": "0"}
    return {"id": "two", "config_errors": [], "pods": list(pods), "node": node, **more}


def test_an_admitted_pod_has_a_line_and_its_containers_below() -> None:
    shared = {
        **CONTAINER,
        "name": "s",
        "cpus": "",
        "memory_numa": [],
        "devices": {},
        "topology": None,
        "preferred": False,
        "start_error": "no device",
    }
    unlucky = {**CONTAINER, "name": "u", "topology": [0], "preferred": False}
    pod = {**ADMITTED, "preempted": ["x", "y"], "containers": [CONTAINER, shared, unlucky]}
    assert admissions_as_text([case(pod)]).split("\n") == [
        "two",
        "  the kubelet starts; allocatable: cpu 7, memory 1Gi",
        "  reserved CPUs: 0",
        "  a: admitted (Guaranteed, evicting x, y)",
        "    c: CPUs 2-5; memory on NUMA node 0, 1; nvidia.com/gpu g0, g1; aligned to NUMA node 0, 1",
        "    s: CPUs of the shared pool; no alignment",
        "      does not start: no device",
        "    u: CPUs 2-5; memory on NUMA node 0, 1; nvidia.com/gpu g0, g1; aligned to NUMA node 0 (not preferred)",
    ]


def test_refused_and_removed_pods_have_one_line() -> None:
    refused = {"name": "b", "admitted": False, "reason": "TopologyAffinityError", "message": "no nodes"}
    gone, absent = {"name": "c", "removed": True}, {"name": "d", "removed": False}
    result = case(refused, gone, absent)
    result["node"]["reserved_cpus"] = ""
    assert admissions_as_text([result]).split("\n")[2:] == [
        "  b: refused, TopologyAffinityError: no nodes",
        "  c: ends",
        "  d: is not there",
    ]


def test_a_kubelet_that_does_not_start_and_a_case_that_cannot_be_read_have_their_reason() -> None:
    stopped = case(config_errors=["bad policy", "worse"], config_stage="memorymanager")
    unread = {"id": "", "error": "machine.numa is missing", "config_errors": []}
    assert admissions_as_text([stopped, unread]).split("\n") == [
        "two",
        "  the kubelet does not start (memorymanager):",
        "    bad policy",
        "    worse",
        "",
        "(no id)",
        "  no answer: machine.numa is missing",
    ]


def test_the_array_has_one_result_a_line() -> None:
    lines = list(admissions_as_json([{"id": "a"}, {"id": "b"}]))
    assert lines == ["[", '{"id": "a"},', '{"id": "b"}', "]"]
    assert json.loads("\n".join(admissions_as_json([]))) == []
