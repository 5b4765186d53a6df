"""The cluster against the plan, as text and as JSON."""

from __future__ import annotations

from dataclasses import replace

from infra.diagnosis import Diagnosis
from infra.report.verify import verification_as_json, verification_as_text
from infra.verify.cluster import NodeCheck, Verification
from infra.verify.placement import PlacedPod

GOOD = PlacedPod(
    pod="llama-0",
    model="llama-70b",
    node="gpu-a",
    numa_nodes=(0, 1),
    gpus=("g0", "g1"),
    gpus_per_numa_node={1: 1, 0: 1},
    cpus=(1, 2, 3),
    memory_numa=(0,),
    qos_class="Guaranteed",
    slot=0,
    ok=True,
)
BARE = replace(GOOD, pod="b", numa_nodes=(), gpus=(), gpus_per_numa_node={}, cpus=(), qos_class="Burstable", slot=None, ok=False)
WRONG = replace(GOOD, pod="c", slot=1, ok=False)
CHECKED = NodeCheck(node="gpu-a", pool="h100", checks={"kubelet": True, "labels": False, "devices": True, "topology": None})
WARNING = Diagnosis.warning("nodes.gpu-a", "Odd", "it is odd.")
ERROR = Diagnosis("pods.b", "NoSlot", "b fills no slot.", remedy="Delete it.")


def test_a_verified_cluster_is_two_tables_and_one_sentence() -> None:
    result = Verification(nodes=(CHECKED,), pods=(GOOD,), findings=())
    assert verification_as_text(result).split("\n") == [
        "node   pool  kubelet  labels   devices  topology",
        "gpu-a  h100  ok       DIFFERS  ok       unread",
        "",
        "pod      node   NUMA  GPUs                      CPUs  QoS         slot",
        "llama-0  gpu-a  0-1   1 on NUMA 0, 1 on NUMA 1  1-3   Guaranteed  0",
        "",
        "All 1 pods stand in their planned slots, on 1 nodes.",
    ]


def test_findings_stand_below_the_tables_and_errors_are_counted() -> None:
    result = Verification(nodes=(CHECKED,), pods=(BARE, WRONG), findings=(WARNING, ERROR))
    assert not result.ok
    assert verification_as_text(result).split("\n")[4:] == [
        "b    gpu-a  -     -                         shared  Burstable   NONE",
        "c    gpu-a  0-1   1 on NUMA 0, 1 on NUMA 1  1-3     Guaranteed  1, WRONG",
        "",
        "Odd: it is odd.",
        "NoSlot: b fills no slot. Delete it.",
        "",
        "1 finding(s): the cluster is not as planned.",
    ]


def test_a_warning_alone_leaves_the_cluster_as_planned() -> None:
    result = Verification(nodes=(), pods=(), findings=(WARNING,))
    assert result.ok
    assert verification_as_text(result).endswith("Odd: it is odd.\n\nAll 0 pods stand in their planned slots, on 0 nodes.")


def test_the_document_is_the_contracts() -> None:
    assert verification_as_json(Verification(nodes=(CHECKED,), pods=(GOOD,), findings=(ERROR,))) == {
        "ok": False,
        "nodes": [
            {"node": "gpu-a", "pool": "h100", "checks": {"kubelet": True, "labels": False, "devices": True, "topology": None}}
        ],
        "pods": [
            {
                "pod": "llama-0",
                "model": "llama-70b",
                "node": "gpu-a",
                "numaNodes": [0, 1],
                "gpus": ["g0", "g1"],
                "gpusPerNumaNode": {"0": 1, "1": 1},
                "cpus": "1-3",
                "memoryNuma": [0],
                "qosClass": "Guaranteed",
                "slot": 0,
                "ok": True,
            }
        ],
        "findings": [{"code": "NoSlot", "path": "pods.b", "severity": "error", "message": "b fills no slot. Delete it."}],
    }
