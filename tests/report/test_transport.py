"""The verdict on a collective log, as text and as JSON."""

from __future__ import annotations

from dataclasses import replace

from infra.diagnosis import Diagnosis
from infra.outputs.collective_verdict import CollectiveVerdict, Edge
from infra.report.transport import transport_as_json, transport_as_text

FULL = CollectiveVerdict(
    verdict="degraded",
    reason="ranks 0-1 through host memory (SHM).",
    library="NCCL",
    versions=("2.27.3", "2.28.1"),
    hosts=("a", "b", "c", "d"),
    ranks=(0, 1, 2),
    world_size=8,
    transports=("NET/IB", "SHM"),
    edges=(
        (Edge(0, 1, "SHM"), 2),
        (Edge(1, 0, "SHM"), 3),
        (Edge(2, 0, "NET/IB", gdr=True), 1),
        (Edge(3, 0, "NET/IB", gdr=True), 1),
        (Edge(4, 0, "NET/IB", gdr=True), 1),
        (Edge(5, 0, "NET/IB", gdr=True), 1),
        (Edge(6, 0, "NET/IB", gdr=True), 1),
    ),
    nvls=False,
    mnnvl=True,
    gdr=True,
    numa=(0, 1),
    network="IB",
    graph={},
    pairs_good=((0, 2),),
    pairs_degraded=((0, 1),),
    findings=(Diagnosis.warning("log", "SharedMemoryTransport", "ranks 0-1 talk through host memory.", remedy="Unset it."),),
    lines=10,
    collective_lines=9,
)
EMPTY = replace(
    FULL,
    verdict="unknown",
    library=None,
    versions=(),
    hosts=(),
    ranks=(),
    world_size=None,
    transports=(),
    edges=(),
    nvls=None,
    mnnvl=None,
    gdr=None,
    numa=None,
    network=None,
    findings=(),
)


def test_text_has_the_verdict_facts_transports_and_findings() -> None:
    assert transport_as_text(FULL).split("\n") == [
        "DEGRADED: ranks 0-1 through host memory (SHM).",
        "",
        "  library         NCCL 2.27.3, 2.28.1",
        "  hosts           a, b, c, d",
        "  ranks           3 seen of 8",
        "  network         IB",
        "  NVLS            not available",
        "  MNNVL           in use",
        "  GPUDirect RDMA  yes",
        "  CPU NUMA nodes  0, 1",
        "",
        "  transport               pairs  channels  e.g. ranks",
        "  NET/IB/GDRDMA               5         5  0-2, 0-3, 0-4, 0-5",
        "  SHM                         1         5  0-1",
        "",
        "warning: ranks 0-1 talk through host memory. Unset it.",
    ]


def test_what_the_log_does_not_show_is_left_out() -> None:
    assert transport_as_text(EMPTY) == "UNKNOWN: ranks 0-1 through host memory (SHM).\n"


def test_other_values_of_the_facts() -> None:
    text = transport_as_text(replace(FULL, hosts=tuple("abcde"), world_size=None, nvls=True, mnnvl=False, gdr=False))
    for line in (
        "hosts           a, b, c, d and 1 more",
        "ranks           3 seen\n",
        "NVLS            available",
        "MNNVL           off",
    ):
        assert line in text
    assert "GPUDirect RDMA  no" in text


def test_a_transport_is_direct_only_where_all_its_edges_are() -> None:
    mixed = replace(FULL, transports=("NET/IB",), edges=((Edge(0, 1, "NET/IB", gdr=True), 1), (Edge(0, 2, "NET/IB"), 1)))
    assert "  NET/IB                      2         2  0-1, 0-2" in transport_as_text(mixed).split("\n")


def test_the_document_has_all_facts_and_at_most_two_thousand_edges() -> None:
    document = transport_as_json(FULL)
    assert list(document) == [
        "kind",
        "verdict",
        "reason",
        "transports",
        "nvls",
        "mnnvl",
        "gdr",
        "numa",
        "library",
        "versions",
        "hosts",
        "ranks",
        "world_size",
        "network",
        "graph",
        "pairs_good",
        "pairs_degraded",
        "edges",
        "findings",
    ]
    assert (document["kind"], document["numa"], document["pairs_good"], document["pairs_degraded"]) == (
        "nccl-log",
        [0, 1],
        [[0, 2]],
        [[0, 1]],
    )
    assert document["edges"][2] == {"from": 2, "to": 0, "transport": "NET/IB", "gdr": True, "channels": 1}
    assert document["findings"] == [FULL.findings[0].as_finding()]
    assert transport_as_json(EMPTY)["numa"] is None
    many = transport_as_json(
        replace(FULL, edges=FULL.edges[:1] * 2001, pairs_good=((0, 1),) * 2001, pairs_degraded=((0, 1),) * 2001)
    )
    assert {len(many[key]) for key in ("edges", "pairs_good", "pairs_degraded")} == {2000}
