"""What a collective log's edges and lines add up to: a verdict with its reason, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.diagnosis import Diagnosis
from infra.outputs.collective_warnings import WarningRule

Verdict = Literal["good", "degraded", "bad", "unknown"]


@dataclass(frozen=True, order=True)
class Edge:
    """One direction between two ranks. `transport` is P2P/<kind>, SHM, NET/<plug-in> or COLLNET; `gdr`: with GPUDirect RDMA."""

    source: int
    target: int
    transport: str
    gdr: bool = False
    detail: str = ""

    @property
    def pair(self) -> tuple[int, int]:
        """The two ranks, whichever sends."""
        return min(self.source, self.target), max(self.source, self.target)


@dataclass(frozen=True, kw_only=True)
class CollectiveVerdict:
    """`verdict` with its `reason`; `nvls` and `gdr` are None where the log does not show it."""

    verdict: Verdict
    reason: str
    library: str | None
    versions: tuple[str, ...]
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    world_size: int | None
    transports: tuple[str, ...]
    edges: tuple[tuple[Edge, int], ...]
    nvls: bool | None
    mnnvl: bool | None
    gdr: bool | None
    numa: tuple[int, ...] | None
    network: str | None
    graph: dict[str, Any]
    pairs_good: tuple[tuple[int, int], ...]
    pairs_degraded: tuple[tuple[int, int], ...]
    findings: tuple[Diagnosis, ...]
    lines: int
    collective_lines: int

    def fields(self) -> dict[str, Any]:
        """Everything but the findings, as a report's fields; of pairs and edges the first 2000."""
        most = 2000
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "transports": list(self.transports),
            "nvls": self.nvls,
            "mnnvl": self.mnnvl,
            "gdr": self.gdr,
            "numa": list(self.numa) if self.numa is not None else None,
            "library": self.library,
            "versions": list(self.versions),
            "hosts": list(self.hosts),
            "ranks": list(self.ranks),
            "world_size": self.world_size,
            "network": self.network,
            "graph": self.graph,
            "pairs_good": [list(pair) for pair in self.pairs_good[:most]],
            "pairs_degraded": [list(pair) for pair in self.pairs_degraded[:most]],
            "edges": [
                {"from": e.source, "to": e.target, "transport": e.transport, "gdr": e.gdr, "channels": count}
                for e, count in self.edges[:most]
            ],
        }


@dataclass(kw_only=True)
class CollectiveFacts:
    """The facts of a log so far, beside its edges. `hosts` is by line prefix; `numa` holds None where the library saw no node."""

    source: str = ""
    lines: int = 0
    collective_lines: int = 0
    dropped_edges: int = 0
    hosts: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    world: int | None = None
    nodes: int | None = None
    nvls: set[bool] = field(default_factory=set)
    mnnvl: set[bool] = field(default_factory=set)
    networks: Counter[str] = field(default_factory=Counter)
    numa: set[int | None] = field(default_factory=set)
    graph: dict[str, Any] = field(default_factory=dict)
    gdr_lines: Counter[str] = field(default_factory=Counter)
    environment: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, tuple[WarningRule, str, int]] = field(default_factory=dict)
    generic: dict[str, tuple[str, int]] = field(default_factory=dict)
    failures: dict[str, tuple[str, str, int, int]] = field(default_factory=dict)  # by form: warning, place, status, times


def judge(facts: CollectiveFacts, edges: Counter[Edge], host_of: dict[int, str], unread: int) -> CollectiveVerdict:
    findings: list[Diagnosis] = []
    p2p = {e for e in edges if e.transport.startswith("P2P")}
    shm = {e for e in edges if e.transport == "SHM"}
    net = {e for e in edges if e.transport.startswith(("NET/", "COLLNET/"))}
    socket = {e for e in net if e.transport.endswith("/Socket")}
    rdma = net - socket
    no_gdr = {e for e in rdma if not e.gdr}
    same_host_net = {
        e for e in net if e.source in host_of and host_of.get(e.source) == host_of.get(e.target) and e.source != e.target
    }
    environment = facts.environment

    def because(name: str, values: tuple[str, ...] = ("1",)) -> str:
        return f" {name}={environment[name]} is set." if environment.get(name) in values else ""

    if shm:
        findings.append(
            Diagnosis.warning(
                path="",
                code="SharedMemoryTransport",
                message=f"{_pairs_text(shm)} talk through host memory (SHM), not GPU to GPU.{because('NCCL_P2P_DISABLE')}",
                remedy="Unset NCCL_P2P_DISABLE; look at `nvidia-smi topo -p2p r` (or `amd-smi topology`), ACS and IOMMU "
                "(iommu=pt); "
                "keep a tensor-parallel group inside one link domain.",
            )
        )
    if socket:
        findings.append(
            Diagnosis(
                path="",
                code="SocketTransport",
                message=f"{_pairs_text(socket)} talk over TCP (NET/Socket).{because('NCCL_IB_DISABLE')}",
                remedy="Give the pods RDMA devices and IPC_LOCK, and libibverbs in the image; NCCL_IB_HCA names the cards. "
                "Without RDMA use pipeline parallel between nodes.",
            )
        )
    if no_gdr:
        findings.append(
            Diagnosis.warning(
                path="",
                code="NoGpuDirectRdma",
                message=f"{_pairs_text(no_gdr)} use the network without GPUDirect RDMA: data goes through host memory.",
                remedy="Load nvidia-peermem (or use a kernel with DMA-BUF), keep NIC and GPU under one PCIe switch; "
                "NCCL_NET_GDR_LEVEL tells how far apart they may be.",
            )
        )
    if same_host_net:
        findings.append(
            Diagnosis.warning(
                path="",
                code="NetworkInsideHost",
                message=f"{_pairs_text(same_host_net)} are on one host and talk over the network.",
                remedy="Put a tensor-parallel group into one pod: ranks in different pods cannot reach each other's GPUs.",
            )
        )
    if facts.dropped_edges:
        findings.append(
            Diagnosis.info(
                path="",
                code="EdgesNotCounted",
                message=f"{facts.dropped_edges} channel lines of further edges were not counted.",
            )
        )
    if unread:
        findings.append(Diagnosis.info(path="", code="EdgesUnread", message=f"{unread} channel lines could not be read."))
    if None in facts.numa:
        findings.append(
            Diagnosis.warning(
                path="",
                code="NumaUnknown",
                message="the library saw no NUMA node for the CPU (CPU/FFFFFFFFFFFFFFFF): a virtual machine without NUMA.",
                remedy="NCCL_TOPO_FILE gives it the host's topology where the cloud ships one.",
            )
        )
    if facts.graph.get("intra_type") == "SYS":
        findings.append(
            Diagnosis.warning(
                path="",
                code="CrossSocketGraph",
                message="the library's best path between GPUs of the node crosses sockets (type SYS).",
                remedy="Choose GPUs of one NUMA node (`python -m infra topology` names the best sets).",
            )
        )
    if len(facts.versions) > 1:
        findings.append(
            Diagnosis.info(
                path="",
                code="VersionsDiffer",
                message=f"several versions are in the log: {', '.join(sorted(facts.versions))}.",
            )
        )
    for rule, message, count in facts.warnings.values():
        findings.append(
            Diagnosis(
                path="",
                code=rule.code,
                severity=rule.severity,
                message=message if count == 1 else f"{message.removesuffix('.')} (logged {count} times).",
                remedy=rule.remedy,
            )
        )
    findings += _failures(facts)
    failed = {warning for warning, *_ in facts.failures.values()}
    for text, count in facts.generic.values():
        if text in failed:
            continue
        findings.append(
            Diagnosis.info(
                path="",
                code="LibraryWarning",
                message=f'the library warns: "{text}"{f" ({count} times)" if count > 1 else ""}.',
            )
        )

    bad_edges = shm | socket | no_gdr | same_host_net
    degraded_pairs = {e.pair for e in bad_edges}
    good_pairs = {e.pair for e in edges} - degraded_pairs
    verdict, reason = _verdict(facts, edges, p2p, shm, socket, no_gdr, same_host_net, findings)
    gdr = None
    if rdma:
        gdr = not no_gdr
    elif not edges and facts.gdr_lines:
        gdr = "Disabled" not in facts.gdr_lines
    ranks = sorted(facts.ranks | {rank for e in edges for rank in (e.source, e.target)})
    numa = None if not facts.numa or None in facts.numa else tuple(sorted(n for n in facts.numa if n is not None))
    libraries = set(facts.versions.values())
    return CollectiveVerdict(
        verdict=verdict,
        reason=reason,
        library=libraries.pop() if len(libraries) == 1 else None,
        versions=tuple(sorted(facts.versions)),
        hosts=tuple(sorted({host for host in facts.hosts.values() if host})),
        ranks=tuple(ranks),
        world_size=facts.world,
        transports=tuple(sorted({e.transport for e in edges})),
        edges=tuple(sorted(edges.items())),
        nvls=True if True in facts.nvls else False if facts.nvls else None,
        mnnvl=True if True in facts.mnnvl else False if facts.mnnvl else None,
        gdr=gdr,
        numa=numa,
        network=facts.networks.most_common(1)[0][0] if facts.networks else None,
        graph=facts.graph,
        pairs_good=tuple(sorted(good_pairs)),
        pairs_degraded=tuple(sorted(degraded_pairs)),
        findings=tuple(finding.at(facts.source) for finding in findings),
        lines=facts.lines,
        collective_lines=facts.collective_lines,
    )


_STATUS = {
    1: "an unhandled error of CUDA or HIP",
    2: "an unhandled error of the system",
    3: "an internal error",
    4: "an invalid argument",
    5: "an invalid use",
    6: "an error of a remote process or of the network",
}


def _failures(facts: CollectiveFacts) -> Iterator[Diagnosis]:
    """Calls of the library that returned an error, whatever the warning before says."""
    for warning, where, status, count in facts.failures.values():
        said = f': "{warning}"' if warning else ""
        times = f" ({count} times)" if count > 1 else ""
        yield Diagnosis(
            path="",
            code="CallFailed",
            message=f"a call of the library failed with {_STATUS.get(status, f'status {status}')} at {where}{times}{said}.",
            remedy="Look at the lines before it, and at the other ranks' logs around that time.",
        )


def _verdict(
    facts: CollectiveFacts,
    edges: Counter[Edge],
    p2p: set[Edge],
    shm: set[Edge],
    socket: set[Edge],
    no_gdr: set[Edge],
    same_host_net: set[Edge],
    findings: list[Diagnosis],
) -> tuple[Verdict, str]:
    errors = [finding for finding in findings if finding.severity == "error" and finding.code != "SocketTransport"]
    if errors:
        return "bad", errors[0].message
    if socket:
        return "bad", f"{_pairs_text(socket)} talk over TCP."
    if not edges and (facts.nodes or 1) > 1 and facts.networks and set(facts.networks) == {"Socket"}:
        return "bad", f"the library chose TCP (network Socket) between {facts.nodes} nodes."
    if not edges:
        if not facts.collective_lines:
            return "unknown", "no line of NCCL or RCCL is in the file; run with NCCL_DEBUG=INFO."
        return "unknown", (
            "no line names the transport of a channel; run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH,P2P,NET, "
            "and keep the whole log."
        )
    known = {e for e in edges if e.transport.startswith(("P2P/", "NET/", "COLLNET/")) or e.transport in ("SHM", "NVLS", "P2P")}
    problems = [
        text
        for group, text in (
            (shm, "through host memory (SHM)"),
            (no_gdr, "over the network without GPUDirect RDMA"),
            (same_host_net, "over the network inside one host"),
        )
        if group
        for text in [f"{_pairs_text(group)} {text}"]
    ]
    if problems:
        return "degraded", "; ".join(problems) + "."
    pairs = {e.pair for e in known}
    names = ", ".join(sorted({e.transport for e in known}))
    return "good", f"{len(pairs)} pair{'s' if len(pairs) != 1 else ''} of ranks, all over {names}."


def _pairs_text(edges: set[Edge]) -> str:
    pairs = sorted({e.pair for e in edges})
    named = ", ".join(f"{a}-{b}" for a, b in pairs[:4])
    return f"ranks {named}" + (f" and {len(pairs) - 4} more pairs" if len(pairs) > 4 else "")
