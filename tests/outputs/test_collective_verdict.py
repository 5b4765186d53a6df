"""What edges and facts of a collective log add up to, rule by rule."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from infra.outputs.collective_log import CollectiveLog, CollectiveVerdict, read_collective_log
from infra.outputs.collective_verdict import CollectiveFacts, Edge, judge

P = "node-a:4000:4100 [0] NCCL INFO "


def judged(*edges: Edge, host_of: dict[int, str] | None = None, unread: int = 0, **facts: Any) -> CollectiveVerdict:
    return judge(CollectiveFacts(source="log", collective_lines=1, **facts), Counter(edges), host_of or {}, unread)


def codes(found: CollectiveVerdict) -> list[str]:
    return [finding.code for finding in found.findings]


NVLINK, SHM = Edge(0, 1, "P2P/CUMEM"), Edge(1, 2, "SHM")
RDMA, PLAIN, TCP = Edge(0, 8, "NET/IB", gdr=True), Edge(0, 9, "NET/IB"), Edge(0, 10, "NET/Socket")


@pytest.mark.parametrize(
    ("edges", "verdict", "reason", "gdr", "found"),
    [
        ((NVLINK,), "good", "1 pair of ranks, all over P2P/CUMEM.", None, []),
        ((NVLINK, RDMA), "good", "2 pairs of ranks, all over NET/IB, P2P/CUMEM.", True, []),
        ((NVLINK, SHM), "degraded", "ranks 1-2 through host memory (SHM).", None, ["SharedMemoryTransport"]),
        ((PLAIN, RDMA), "degraded", "ranks 0-9 over the network without GPUDirect RDMA.", False, ["NoGpuDirectRdma"]),
        ((TCP, NVLINK), "bad", "ranks 0-10 talk over TCP.", None, ["SocketTransport"]),
        (
            (SHM, PLAIN),
            "degraded",
            "ranks 1-2 through host memory (SHM); ranks 0-9 over the network without GPUDirect RDMA.",
            False,
            ["SharedMemoryTransport", "NoGpuDirectRdma"],
        ),
        ((Edge(0, 1, "COLLNET/SHARP", gdr=True),), "good", "1 pair of ranks, all over COLLNET/SHARP.", True, []),
        ((Edge(0, 1, "NVLS"),), "good", "1 pair of ranks, all over NVLS.", None, []),
    ],
)
def test_the_worst_transport_decides(
    edges: tuple[Edge, ...], verdict: str, reason: str, gdr: bool | None, found: list[str]
) -> None:
    result = judged(*edges)
    assert (result.verdict, result.reason, result.gdr, codes(result)) == (verdict, reason, gdr, found)
    assert all(finding.path == "log" for finding in result.findings)


def test_pairs_are_good_or_degraded_whichever_rank_sends() -> None:
    back = Edge(1, 0, "P2P/CUMEM")
    found = judged(NVLINK, back, SHM, Edge(3, 4, "SHM"), Edge(0, 9, "P2P/IPC"), PLAIN)
    assert (found.pairs_good, found.pairs_degraded) == (((0, 1),), ((0, 9), (1, 2), (3, 4)))
    assert found.ranks == (0, 1, 2, 3, 4, 9)


@pytest.mark.parametrize(
    ("hosts", "inside"), [({0: "a", 8: "a"}, True), ({0: "a", 8: "b"}, False), ({0: "a"}, False), ({8: "a"}, False), ({}, False)]
)
def test_the_network_inside_a_host_needs_both_ranks_there(hosts: dict[int, str], inside: bool) -> None:
    found = judged(RDMA, host_of=hosts)
    assert codes(found) == ["NetworkInsideHost"] * inside
    assert found.verdict == ("degraded" if inside else "good")
    assert codes(judged(Edge(8, 8, "NET/IB", gdr=True), host_of={8: "a"})) == []


def test_up_to_four_pairs_are_named() -> None:
    four = judged(*(Edge(i, i + 1, "SHM") for i in range(0, 8, 2)))
    assert four.reason == "ranks 0-1, 2-3, 4-5, 6-7 through host memory (SHM)."
    assert judged(*(Edge(i, i + 1, "SHM") for i in range(0, 10, 2))).reason == (
        "ranks 0-1, 2-3, 4-5, 6-7 and 1 more pairs through host memory (SHM)."
    )


@pytest.mark.parametrize(
    ("facts", "unread", "code"),
    [
        ({"dropped_edges": 3}, 0, "EdgesNotCounted"),
        ({}, 2, "EdgesUnread"),
        ({"numa": {0, None}}, 0, "NumaUnknown"),
        ({"graph": {"intra_type": "SYS"}}, 0, "CrossSocketGraph"),
        ({"graph": {"intra_type": "NVL"}}, 0, None),
        ({"versions": {"2.1": "NCCL", "2.2": "NCCL"}}, 0, "VersionsDiffer"),
        ({"versions": {"2.1": "NCCL"}}, 0, None),
        ({"generic": {"x": ("x 1", 1)}}, 0, "LibraryWarning"),
        ({"numa": {0, 1}}, 0, None),
    ],
)
def test_what_is_odd_is_a_finding_and_changes_no_verdict(facts: dict[str, Any], unread: int, code: str | None) -> None:
    found = judged(NVLINK, unread=unread, **facts)
    assert codes(found) == ([code] if code else [])
    assert found.verdict == "good"


def test_repeated_warnings_are_counted() -> None:
    once, thrice = ("x 1", 1), ("y 2", 3)
    found = judged(NVLINK, generic={"x": once, "y": thrice})
    assert [finding.message for finding in found.findings] == ['the library warns: "x 1".', 'the library warns: "y 2" (3 times).']
    log = read_collective_log(
        [P + "NCCL_P2P_DISABLE set by environment to 1."] * 2 + [P + "NCCL_IB_DISABLE set by environment to 1."]
    )
    assert [finding.message for finding in log.findings] == [
        "NCCL_P2P_DISABLE=1 is set: NVLink and xGMI are not used (logged 2 times).",
        "NCCL_IB_DISABLE=1 is set: InfiniBand and RoCE are not used.",
    ]


@pytest.mark.parametrize(
    ("facts", "verdict", "reason"),
    [
        ({"nodes": 2, "networks": Counter({"Socket": 2})}, "bad", "the library chose TCP (network Socket) between 2 nodes."),
        ({"nodes": 1, "networks": Counter({"Socket": 2})}, "unknown", "no line names the transport of a channel;"),
        ({"networks": Counter({"Socket": 2})}, "unknown", "no line names the transport of a channel;"),
        ({"nodes": 2, "networks": Counter({"Socket": 1, "IB": 1})}, "unknown", "no line names the transport of a channel;"),
        ({"nodes": 2}, "unknown", "no line names the transport of a channel;"),
    ],
)
def test_without_edges_only_the_chosen_network_decides(facts: dict[str, Any], verdict: str, reason: str) -> None:
    found = judged(**facts)
    assert found.verdict == verdict and found.reason.startswith(reason)
    assert judge(CollectiveFacts(), Counter(), {}, 0).reason == "no line of NCCL or RCCL is in the file; run with NCCL_DEBUG=INFO."


@pytest.mark.parametrize(
    ("facts", "field", "value"),
    [
        ({"gdr_lines": Counter({"Enabled": 2})}, "gdr", True),
        ({"gdr_lines": Counter({"Enabled": 2, "Disabled": 1})}, "gdr", False),
        ({}, "gdr", None),
        ({"nvls": {True, False}}, "nvls", True),
        ({"nvls": {False}}, "nvls", False),
        ({}, "nvls", None),
        ({"mnnvl": {True, False}}, "mnnvl", True),
        ({"mnnvl": {False}}, "mnnvl", False),
        ({}, "mnnvl", None),
        ({"numa": {1, 0}}, "numa", (0, 1)),
        ({"numa": {0, None}}, "numa", None),
        ({}, "numa", None),
        ({"networks": Counter({"IB": 2, "Socket": 1})}, "network", "IB"),
        ({}, "network", None),
        ({"versions": {"2.1": "NCCL", "2.2": "RCCL"}}, "library", None),
        ({"versions": {"2.1": "NCCL"}}, "library", "NCCL"),
        ({"hosts": {"a ": "a", "b ": "", "c ": "a"}}, "hosts", ("a",)),
        ({"ranks": {3, 1}}, "ranks", (1, 3)),
    ],
)
def test_facts_that_a_log_does_not_show_are_none(facts: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(judged(**facts), field) == value


def test_a_log_gives_its_facts() -> None:
    found = read_collective_log(
        [
            P + "NCCL version 2.27.3+cuda12.8",
            P + "comm 0x1 rank 3 nranks 8 cudaDev 3",
            P + "comm 0x1 rank 2 nRanks 16 nNodes 2",
            P + "comm 0x1 rank 2 nranks 4 nNodes 1",
            P + "NVLS multicast support is not available on dev 0",
            P + "MNNVL 1 cliqueId 0 cliqueSize 8",
            P + "Using network IB",
            P + "CPU/0-1 (1/1/2)",
            P + "CPU/A (1/1/2)",
            P + "=== System : maxBw 48.5 totalBw 450.0 ===",
            P + "Pattern 4, crossNic 0, nChannels 16, bw 40.000000/40.000000, type NVL/PIX, sameChannels 1",
            P + "Pattern 1, crossNic 0, nChannels 1, bw 4.000000/4.000000, type SYS/SYS, sameChannels 1",
            P + "GPU Direct RDMA Disabled for HCA 0",
        ],
        source="x",
    )
    assert (found.library, found.versions, found.ranks, found.world_size) == ("NCCL", ("2.27.3+cuda12.8",), (2, 3), 16)
    assert (found.nvls, found.mnnvl, found.network, found.numa, found.gdr) == (False, True, "IB", (1, 10), False)
    assert found.graph == {"max_bw_gbps": 48.5, "total_bw_gbps": 450.0, "intra_type": "NVL", "inter_type": "PIX"}
    assert (found.lines, found.collective_lines) == (13, 13)


def test_the_library_is_rccl_where_its_version_is_hips() -> None:
    assert read_collective_log([P + "NCCL version 2.21.5+hip6.3"]).library == "RCCL"
    assert read_collective_log(["RCCL version : 2.22.3 "]).library == "RCCL"


def test_lines_of_other_programs_are_counted_as_lines_alone() -> None:
    found = read_collective_log(["words", "an arrow -> via it", "x : a -> b via c", P + "comm 0x1 rank 0 nranks 1"])
    assert (found.lines, found.collective_lines) == (4, 2)
    assert codes(found) == ["EdgesUnread"]


def test_warnings_of_the_library_are_kept_by_their_form() -> None:
    form = [P.replace("INFO", "WARN") + f"odd thing {i} at 0x{i:x}" for i in range(3)]
    others = [P.replace("INFO", "WARN") + "word" + "x" * i for i in range(25)]
    found = read_collective_log([*form, *others, form[0]])
    messages = [finding.message for finding in found.findings]
    assert messages[0] == 'the library warns: "odd thing 0 at 0x0" (4 times).'
    assert len(messages) == 20
    long = read_collective_log([P.replace("INFO", "WARN") + "y" * 300])
    assert long.findings[0].message == f'the library warns: "{"y" * 200}".'


def test_edges_beyond_the_limit_are_counted_and_known_ones_go_on() -> None:
    lines = [P + f"Channel 00/0 : {i}[0] -> {i + 1}[1] via P2P/IPC" for i in (0, 2, 4)]
    found = CollectiveLog(most_edges=2).read([*lines, *lines]).verdict()
    assert [count for _, count in found.edges] == [2, 2]
    assert found.findings[0].message == "2 channel lines of further edges were not counted."
