"""Logs of NCCL and RCCL in the forms of their versions."""

from __future__ import annotations

import pytest

from infra.outputs.collective_log import CollectiveLog, CollectiveVerdict, read_collective_log

P = "node-a:4000:4100 [0] NCCL INFO "


def read(*lines: str) -> CollectiveVerdict:
    return read_collective_log(lines)


def codes(verdict: CollectiveVerdict) -> set[str]:
    return {finding.code for finding in verdict.findings}


@pytest.mark.parametrize(
    ("line", "transport", "verdict"),
    [
        (P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "P2P/CUMEM", "good"),
        (P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM", "good"),
        (P + "Channel 00/0 : 0[1b000] -> 1[43000] via P2P/IPC/read", "P2P/IPC", "good"),
        (P + "Channel 00 : 0[1000] -> 1[24000] via P2P/direct pointer", "P2P/direct", "good"),
        (P + "Ring 00 : 0[0] -> 1[1] via P2P/IPC", "P2P/IPC", "good"),
        (P + "Ring 00 : 0[0] -> 1[1] via direct shared memory", "SHM", "degraded"),
        (P + "Channel 00 : 0[0] -> 1[1] via SHM/direct", "SHM", "degraded"),
        (P + "Channel 00 : 0[0] -> 1[1] via SHM/CE/direct", "SHM", "degraded"),
        (P + "Channel 00/0 : 3[3] -> 4[0] via P2P/MNNVL", "P2P/MNNVL", "good"),
        (P + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0(8)/GDRDMA", "NET/IB", "good"),
        (P + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA(PCI)/Shared", "NET/IB", "good"),
        (P + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0(0)/GDRDMA", "NET/AWS Libfabric", "good"),
        (P + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0", "NET/AWS Libfabric", "degraded"),
        (P + "Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Socket/0", "NET/Socket", "bad"),
        (P + "Channel 00/0 : 0[c1000] -> 1[c6000] via P2P/IPC comm 0x7f10 nRanks 08", "P2P/IPC", "good"),
        (P + "Channel 00 : 0[c1000] -> 8[c1000] [send] via NET/IB/0/GDRDMA comm 0x7f10 nRanks 16", "NET/IB", "good"),
        ("(Worker_TP0 pid=7) [2026-11-29 10:00:00] " + P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "P2P/CUMEM", "good"),
        ("[rank0]:" + P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\r\n", "P2P/CUMEM", "good"),
        ("> " + P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "P2P/CUMEM", "good"),
    ],
)
def test_each_form_of_a_channel_has_its_transport_and_verdict(line, transport, verdict):
    found = read(line)
    assert (found.transports, found.verdict) == ((transport,), verdict)
    assert found.hosts == ("node-a",)


def test_tcp_names_the_switch_that_caused_it():
    found = read(P + "NCCL_IB_DISABLE set by environment to 1.", P + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0")
    assert found.verdict == "bad"
    assert codes(found) == {"SocketTransport", "RdmaSwitchedOff"}
    assert any("NCCL_IB_DISABLE=1 is set" in finding.message for finding in found.findings)


def test_host_memory_names_the_pairs_and_the_switch_that_caused_it():
    found = read(
        P + "NCCL_P2P_DISABLE set by environment to 1.", *[P + f"Channel 0{c} : 0[0] -> 1[1] via SHM/direct" for c in range(4)]
    )
    assert found.reason == "ranks 0-1 through host memory (SHM)."
    assert found.edges[0][1] == 4
    assert {"SharedMemoryTransport", "PeerToPeerSwitchedOff"} <= codes(found)


def test_the_network_between_ranks_of_one_host_is_degraded():
    found = read(
        "node-a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
        "node-a:2:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA",
    )
    assert found.verdict == "degraded"
    assert "NetworkInsideHost" in codes(found)
    found = read(
        "node-a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
        "node-b:2:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA",
    )
    assert found.verdict == "good"


def test_one_rank_without_gpudirect_makes_the_whole_degraded():
    found = read(
        P + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", P + "Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/1"
    )
    assert (found.verdict, found.gdr) == ("degraded", False)
    assert found.pairs_good == ((0, 8),)
    assert found.pairs_degraded == ((1, 9),)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("node-a:1:1 [0] mnnvl.cc:74 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX", "ImexNotWorking"),
        ("node-a:1:1 [0] mnnvl.cc:74 NCCL WARN MNNVL is available but not working on this system. Check the IMEX", "ImexNotWorking"),
        ("node-a:1:1 [0] misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-cjY8K5 (size 10617216), error: No space left on device (28)", "SharedMemoryFull"),
        ("node-a:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-UbzKZ9 to 9637892 bytes", "SharedMemoryFull"),
        ("node-a:1:1 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory", "LockedMemoryLimit"),
        ("node-a:1:1 [0] transport/net_ib.cc:1895 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=12 opcode=0", "RdmaTimeout"),
        ("node-a:1:1 [0] init.cc:700 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000", "DuplicateGpu"),
        ("node-a:1:1 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found", "NoSocketInterface"),
        ("node-a:1:1 [0] init.cc:1 NCCL WARN Mismatched NCCL version detected : rank 1 version 21805 rank 0 version 22005", "VersionMismatch"),
        ("node-a:1:1 [0] enqueue.cc:1 NCCL WARN Cuda failure 'out of memory'", "CudaFailure"),
    ],
)  # fmt: skip
def test_what_stops_the_library_is_bad_whatever_the_channels_say(line, code):
    found = read(P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", line)
    assert found.verdict == "bad"
    assert codes(found) == {code}
    assert found.findings[0].remedy


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (P + "Failed to open libibverbs.so[.1]", "LibibverbsMissing"),
        (P + "NET/IB : No device found.", "NoRdmaDevice"),
        (P + "P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.", "PeerToPeerOff"),
        (P + "Could not enable P2P between dev 0(=c000) and dev 1(=22000)", "PeerToPeerOff"),
        (P + "cuMem host allocations do not appear to be working; falling back to /dev/shm", "HostMemoryFallback"),
        ("node-a:1:1 [0] /long/build/path/hipify/src/init.cc:140 NCCL WARN NUMA auto balancing enabled which can lead", "NumaBalancing"),
        ('node-a:1:1 [0] init.cc:163 NCCL WARN Missing "iommu=pt" from kernel command line which can lead', "IommuNotPassthrough"),
        ('node-a:1:1 [0] init.cc:170 NCCL WARN Missing "HSA_FORCE_FINE_GRAIN_PCIE=1" from environment which can lead', "FineGrainPcie"),
        ("node-a:1:1 [0] some.cc:1 NCCL WARN something new in rank 17 at 0x7f00", "LibraryWarning"),
    ],
)  # fmt: skip
def test_warnings_are_told_and_do_not_change_a_good_verdict(line, code):
    found = read(P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", line, line)
    assert found.verdict == "good"
    assert codes(found) == {code}
    assert "2 times" in found.findings[0].message


def test_nvls_mnnvl_versions_and_ranks_are_read():
    found = read(
        P + "NCCL version 2.27.5+cuda12.9",
        "RCCL version 2.22.3+hip6.4 HEAD:d380693",
        P + "NVLS multicast support is not available on dev 0",
        P + "MNNVL 1 cliqueId 7ffe cliqueSize 8 cliqueRank 0 nvlDomainSize 8",
        P + "comm 0x55 rank 3 nRanks 16 nNodes 2 localRanks 8 localRank 3 MNNVL 1",
        P + "Using network IB",
    )
    assert (found.nvls, found.mnnvl, found.world_size, found.ranks, found.network) == (False, True, 16, (3,), "IB")
    assert found.versions == ("2.22.3+hip6.4", "2.27.5+cuda12.9")
    assert found.library is None
    assert "VersionsDiffer" in codes(found)
    assert found.verdict == "unknown"


def test_several_nodes_over_the_network_socket_are_bad_even_before_a_channel_is_there():
    found = read(P + "comm 0x55 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0", P + "Using network Socket")
    assert found.verdict == "bad"
    assert (
        read(P + "comm 0x55 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0", P + "Using network Socket").verdict
        == "unknown"
    )


def test_the_graph_gives_numa_nodes_and_its_worst_path():
    found = read(
        P + "=== System : maxBw 48.0 totalBw 480.0 ===",
        P + "CPU/0-0 (1/1/2)",
        P + "CPU/0-1 (1/1/2)",
        P + "Pattern 4, crossNic 0, nChannels 2, bw 12.000000/12.000000, type SYS/PIX, sameChannels 1",
    )
    assert found.numa == (0, 1)
    assert found.graph == {"max_bw_gbps": 48.0, "total_bw_gbps": 480.0, "intra_type": "SYS", "inter_type": "PIX"}
    assert codes(found) == {"CrossSocketGraph"}


def test_a_line_that_a_terminal_broke_is_put_together():
    found = read(P + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDR", "DMA")
    assert (found.verdict, found.gdr) == ("good", True)
    found = read(P + "Channel 00/0 : 0[0] -> 8[0] [se", "nd] via NET/IB/0/GDRDMA")
    assert (found.transports, found.gdr) == (("NET/IB",), True)


@pytest.mark.parametrize("word", ["done", "0", "Loading", "DMA", "/x", "42"])
def test_another_programs_word_does_not_become_a_transport(word):
    found = read(P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", word)
    assert found.transports == ("P2P/CUMEM",)
    assert found.edges[0][1] == 1


def test_lines_of_other_programs_with_arrows_are_no_channels():
    found = read("INFO model : a -> b via proxy", "route: 1 -> 2 via gateway", P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    assert (found.verdict, found.transports) == ("good", ("P2P/CUMEM",))


def test_nothing_of_the_library_is_unknown_with_what_to_do():
    found = read("INFO 11-12 hello", "")
    assert (found.verdict, found.collective_lines) == ("unknown", 0)
    assert "NCCL_DEBUG=INFO" in found.reason
    found = read(P + "NCCL version 2.27.5+cuda12.9")
    assert found.verdict == "unknown"
    assert "NCCL_DEBUG_SUBSYS" in found.reason


def test_endless_distinct_edges_do_not_fill_the_memory():
    log = CollectiveLog(most_edges=2000)
    log.read(P + f"Channel 00/0 : {i}[0] -> {i + 1}[0] via P2P/CUMEM" for i in range(2500))
    found = log.verdict()
    assert len(found.edges) == 2000
    assert any(finding.code == "EdgesNotCounted" and "500" in finding.message for finding in found.findings)


def test_feeding_line_by_line_gives_the_same_as_reading():
    lines = [
        P + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDR",
        "DMA",
        P + "Channel 01 : 0[0] -> 1[1] via SHM/direct",
        P + "NVLS multicast support is available on dev 0",
    ]
    log = CollectiveLog()
    for line in lines:
        log.feed(line)
    assert log.verdict() == read(*lines)
