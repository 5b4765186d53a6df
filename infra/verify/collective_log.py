"""NCCL and RCCL logs at INFO: which transport each pair of ranks got, what stood in the way, and whether that is good.

Line forms of NCCL 2.4 to 2.30 and RCCL 2.18 to 2.27 (src/transport/*.cc, src/init.cc, src/graph/*.cc). A log is read line by line;
ranks, communicators and versions may be mixed. Most lines repeat the same edge for another channel: each edge is parsed once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from infra.verify.collective_warnings import WARNINGS, WarningRule
from infra.verify.finding import Finding

Verdict = Literal["good", "degraded", "bad", "unknown"]

MOST_EDGES = 200_000
_EDGE = re.compile(
    r"(?P<a>\d{1,6})(?:\[(?P<abus>[0-9a-fA-F]+)\])?\s*(?:\[(?P<adir>send|receive)\])?\s*->\s*"
    r"(?P<b>\d{1,6})(?:\[(?P<bbus>[0-9a-fA-F]+)\])?\s*(?:\[(?P<bdir>send|receive)\])?\s+via\s+(?P<via>[A-Za-z][^\r\n]*?)"
    r"(?:\s+comm\s+0x[0-9a-fA-F]+.*)?\s*$"
)
_WHOLE_VIA = re.compile(
    r"P2P/(?:CUMEM|IPC|MNNVL|direct pointer|indirect/\d+\[\w+\])(?:/read)?(?: comm 0x[0-9a-f]+ nRanks \d+)?"
    r"|SHM(?:/CE)?(?:/direct){1,2}(?: comm 0x[0-9a-f]+ nRanks \d+)?"
    r"|(?:NET|COLLNET)/[A-Za-z][\w .-]*/\d+(?:\(\d+\))?(?:/GDRDMA(?:\(\w+\))?)?(?:/Shared)?(?: comm 0x[0-9a-f]+ nRanks \d+)?"
)
_HOST = re.compile(r"([A-Za-z0-9][\w.-]*):\d+:\d+ \[[^\]]*\]")
_VERSION = re.compile(r"(?P<name>NCCL|RCCL) version[ :]+(?P<version>\d+\.\d+(?:\.\d+)?(?:[+.\w-]*)?)")
_RANKS = re.compile(r"comm 0x[0-9a-fA-F]+ rank (\d+) n[rR]anks (\d+)(?: nNodes (\d+))?")
_MNNVL = re.compile(r"MNNVL (\d) cliqueId (\w+) cliqueSize (\d+)")
_NETWORK = re.compile(r"Using network ([\w /.-]+?)\s*$")
_GRAPH_CPU = re.compile(r"\bCPU/(?:[0-9A-Fa-f]+-)?([0-9A-Fa-f]+) \(")
_GRAPH_BW = re.compile(r"=== System : maxBw ([\d.]+)(?: totalBw ([\d.]+))?")
_PATTERN = re.compile(r"Pattern \d+, crossNic \d+, nChannels (\d+), (?:bw|speed) ([\d.]+)/[\d.]+, type ([A-Z0-9]+)/([A-Z0-9]+)")
_ENVIRONMENT = re.compile(r"(NCCL_[A-Z0-9_]+|RCCL_[A-Z0-9_]+) set by environment to (\S+?)\.?\s*$")
_GENERIC_WARN = re.compile(r"(?:NCCL|RCCL) WARN (.+?)\s*$")
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled)")

# Beginnings of lines that come once for each channel and rank and say nothing of what is judged here.
_DULL = ("Channel ", "Trees ", "Tree ", "Ring ", "Connected all", "threadThresholds", "P2P Chunksize")


@dataclass(frozen=True, order=True)
class Edge:
    """One direction between two ranks. `transport` is P2P/<kind>, SHM, NET/<plug-in> or COLLNET; `gdr` tells GPUDirect RDMA."""

    source: int
    target: int
    transport: str
    gdr: bool = False
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class CollectiveVerdict:
    """`verdict` with its `reason`; `nvls` and `gdr` are None where the log does not tell."""

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
    findings: tuple[Finding, ...]
    lines: int
    collective_lines: int

    def as_json(self) -> dict[str, Any]:
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
            "findings": [finding.as_json() for finding in self.findings],
        }


class CollectiveLog:
    """Reads a log as it comes: `feed` each line, then `verdict()`. Memory grows with distinct edges, not with lines."""

    def __init__(self, *, source: str = "") -> None:
        self._source = source
        self._lines = 0
        self._collective_lines = 0
        self._edges: dict[str, dict[str, int]] = {}
        self._distinct_edges = 0
        self._last: tuple[dict[str, int], str] | None = None
        self._begun: str | None = None
        self._dropped_edges = 0
        self._hosts: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._ranks: set[int] = set()
        self._world: int | None = None
        self._nodes: int | None = None
        self._nvls: set[bool] = set()
        self._mnnvl: set[bool] = set()
        self._networks: Counter[str] = Counter()
        self._numa: set[int | None] = set()
        self._graph: dict[str, Any] = {}
        self._gdr_said: Counter[str] = Counter()
        self._environment: dict[str, str] = {}
        self._warnings: dict[str, tuple[WarningRule, str, int]] = {}
        self._generic: dict[str, tuple[str, int]] = {}

    @property
    def collective_lines(self) -> int:
        return self._collective_lines

    def read(self, lines: Iterable[str]) -> CollectiveLog:
        """Takes lines, with or without their line breaks; may be called again with more."""
        # Nine of ten lines name an edge that was seen before: for them nothing but a few searches and two look-ups is done.
        edges, hosts = self._edges, self._hosts
        count = collective = 0
        for line in lines:
            count += 1
            via = line.find(" via ")
            if via >= 0:
                start = line.find(" : ", 0, via)
                if start >= 0 and line.find("->", start, via) >= 0:
                    info = line.find(" NCCL INFO", 0, start)
                    prefix = line[: info if info >= 0 else start]
                    host = hosts.get(prefix)
                    if host is None:
                        host = self._host(prefix)
                    collective += 1
                    seen = edges.get(host)
                    if seen is None:
                        seen = edges[host] = {}
                    text = line[start + 3 :].rstrip()
                    self._last = (seen, text)
                    if text in seen:
                        seen[text] += 1
                    else:
                        self._new_edge(seen, text)
                    continue
            if "CCL" in line:
                self._last = None
                self._collective_line(line)
            elif self._last is not None or self._begun is not None:
                self._continued(line)
            elif "libibverbs" in line or "/dev/shm/nccl-" in line:
                self._warn(line)
        self._lines += count
        self._collective_lines += collective
        return self

    def feed(self, line: str) -> None:
        """Takes one line."""
        self.read((line,))

    def _continued(self, line: str) -> None:
        """A line of no library after a channel's line: the rest of it, where a terminal broke it, or another program's."""
        rest = line.strip()
        last, begun = self._last, self._begun
        self._last = self._begun = None
        if begun is not None:
            if "via " in rest:
                self.read((begun + line.rstrip("\r\n"),))
        elif last is not None and rest and len(rest) < 40 and not any(blank in rest for blank in " \t"):
            seen, text = last
            # Only what makes a known form is put together: another program's word must not become a transport's name.
            if seen.get(text) and (via := text.find(" via ")) >= 0 and _WHOLE_VIA.fullmatch(text[via + 5 :] + rest):
                seen[text] -= 1
                if not seen[text]:
                    del seen[text]
                    self._distinct_edges -= 1
                if text + rest in seen:
                    seen[text + rest] += 1
                else:
                    self._new_edge(seen, text + rest)
        if "libibverbs" in line or "/dev/shm/nccl-" in line:
            self._warn(line)

    def _new_edge(self, seen: dict[str, int], text: str) -> None:
        if self._distinct_edges < MOST_EDGES:
            self._distinct_edges += 1
            seen[text] = 1
        else:
            self._dropped_edges += 1

    def _host(self, prefix: str) -> str:
        matches = _HOST.findall(prefix)
        host = matches[-1] if matches else ""
        if len(self._hosts) < 50_000:
            self._hosts[prefix] = host
        return host

    def _collective_line(self, line: str) -> None:
        info = line.find(" INFO ")
        if info < 0 and "WARN" not in line and "version" not in line:
            return
        self._collective_lines += 1
        self._begun = None
        if info >= 0 and line.startswith(_DULL, info + 6):
            if "->" in line and line.startswith("Channel ", info + 6) and " : " in line:
                self._begun = line.rstrip("\r\n")
            return
        if "version" in line and (match := _VERSION.search(line)):
            self._versions[match["version"]] = match["name"] if "hip" not in match["version"] else "RCCL"
        if "anks" in line and (match := _RANKS.search(line)):
            self._ranks.add(int(match[1]))
            self._world = max(self._world or 0, int(match[2]))
            if match[3]:
                self._nodes = max(self._nodes or 0, int(match[3]))
        if "NVLS multicast support is" in line:
            self._nvls.add("is not available" not in line)
        if "MNNVL" in line and (match := _MNNVL.search(line)):
            self._mnnvl.add(match[1] == "1")
        if "Using network" in line and (match := _NETWORK.search(line)):
            self._networks[match[1]] += 1
        if "CPU/" in line and (match := _GRAPH_CPU.search(line)):
            self._numa.add(None if set(match[1].upper()) == {"F"} else int(match[1], 16))
        if "=== System" in line and (match := _GRAPH_BW.search(line)):
            self._graph["max_bw_gbps"] = float(match[1])
            if match[2]:
                self._graph["total_bw_gbps"] = float(match[2])
        if "Pattern " in line and (match := _PATTERN.search(line)):
            self._graph.setdefault("intra_type", match[3])
            self._graph.setdefault("inter_type", match[4])
        if "GPU Direct RDMA" in line and (match := _GDR.search(line)):
            self._gdr_said[match[1]] += 1
        if "set by environment" in line and (match := _ENVIRONMENT.search(line)) and len(self._environment) < 500:
            self._environment[match[1]] = match[2]
        self._warn(line)

    def _warn(self, line: str) -> None:
        for rule in WARNINGS:
            if rule.marker in line and (match := rule.pattern.search(line)):
                groups = {name: value or "?" for name, value in match.groupdict().items()}
                known = self._warnings.get(rule.code)
                message = rule.message.format(**groups)
                self._warnings[rule.code] = (rule, known[1] if known else message, (known[2] if known else 0) + 1)
                return
        if " WARN " in line and (match := _GENERIC_WARN.search(line)):
            text = match[1][:200]
            form = re.sub(r"0x[0-9a-fA-F]+|\d+", "#", text)
            if form in self._generic or len(self._generic) < 20:
                first, count = self._generic.get(form, (text, 0))
                self._generic[form] = (first, count + 1)

    def verdict(self) -> CollectiveVerdict:
        """What the lines so far say."""
        edges: Counter[Edge] = Counter()
        host_of: dict[int, str] = {}
        unread = 0
        for host, text, count in [(host, text, n) for host, seen in self._edges.items() for text, n in seen.items()]:
            parsed = _parse_edge(text)
            if parsed is None:
                unread += count
                continue
            edge, direction = parsed
            edges[edge] += count
            self_rank = edge.target if direction == "receive" else edge.source
            if host:
                host_of.setdefault(self_rank, host)
        return _judge(self, edges, host_of, unread)


def _parse_edge(text: str) -> tuple[Edge, str] | None:
    match = _EDGE.match(text.strip())
    if match is None:
        return None
    via = match["via"].split("/")
    kind = via[0].strip()
    rest = [part.strip() for part in via[1:]]
    if kind in ("P2P", "NET", "COLLNET") and rest:
        name = rest[0].split(" ")[0] if kind == "P2P" else rest[0]
        transport = f"{kind}/{name}"
    elif kind == "direct shared memory":
        transport = "SHM"
    elif kind in ("SHM", "NVLS", "P2P"):
        transport = kind
    else:
        return None
    gdr = any(part.startswith("GDRDMA") for part in rest)
    direction = match["bdir"] or match["adir"] or ""
    return Edge(int(match["a"]), int(match["b"]), transport, gdr, "/".join(via)[:80]), direction


def _judge(log: CollectiveLog, edges: Counter[Edge], host_of: dict[int, str], unread: int) -> CollectiveVerdict:
    findings: list[Finding] = []
    p2p = {e for e in edges if e.transport.startswith("P2P")}
    shm = {e for e in edges if e.transport == "SHM"}
    net = {e for e in edges if e.transport.startswith(("NET/", "COLLNET/"))}
    socket = {e for e in net if e.transport.endswith("/Socket")}
    rdma = net - socket
    no_gdr = {e for e in rdma if not e.gdr}
    same_host_net = {
        e for e in net if e.source in host_of and host_of.get(e.source) == host_of.get(e.target) and e.source != e.target
    }
    environment = log._environment

    def because(name: str, values: tuple[str, ...] = ("1",)) -> str:
        return f" {name}={environment[name]} is set." if environment.get(name) in values else ""

    if shm:
        findings.append(
            Finding(
                code="SharedMemoryTransport",
                message=f"{_pairs_text(shm)} talk through host memory (SHM), not GPU to GPU.{because('NCCL_P2P_DISABLE')}",
                remedy="Unset NCCL_P2P_DISABLE; look at `nvidia-smi topo -p2p r` (or `amd-smi topology`), ACS and IOMMU "
                "(iommu=pt); "
                "keep a tensor-parallel group inside one link domain.",
            )
        )
    if socket:
        findings.append(
            Finding(
                code="SocketTransport",
                severity="error",
                message=f"{_pairs_text(socket)} talk over TCP (NET/Socket).{because('NCCL_IB_DISABLE')}",
                remedy="Give the pods RDMA devices and IPC_LOCK, and libibverbs in the image; NCCL_IB_HCA names the cards. "
                "Without RDMA use pipeline parallel between nodes.",
            )
        )
    if no_gdr:
        findings.append(
            Finding(
                code="NoGpuDirectRdma",
                message=f"{_pairs_text(no_gdr)} use the network without GPUDirect RDMA: data goes through host memory.",
                remedy="Load nvidia-peermem (or use a kernel with DMA-BUF), keep NIC and GPU under one PCIe switch; "
                "NCCL_NET_GDR_LEVEL tells how far apart they may be.",
            )
        )
    if same_host_net:
        findings.append(
            Finding(
                code="NetworkInsideHost",
                message=f"{_pairs_text(same_host_net)} are on one host and talk over the network.",
                remedy="Put a tensor-parallel group into one pod: ranks in different pods cannot reach each other's GPUs.",
            )
        )
    if log._dropped_edges:
        findings.append(
            Finding(
                code="EdgesNotCounted",
                severity="info",
                message=f"{log._dropped_edges} channel lines of further edges were not counted.",
            )
        )
    if unread:
        findings.append(Finding(code="EdgesUnread", severity="info", message=f"{unread} channel lines could not be read."))
    if None in log._numa:
        findings.append(
            Finding(
                code="NumaUnknown",
                message="the library saw no NUMA node for the CPU (CPU/FFFFFFFFFFFFFFFF): a virtual machine without NUMA.",
                remedy="NCCL_TOPO_FILE gives it the host's topology where the cloud ships one.",
            )
        )
    if log._graph.get("intra_type") == "SYS":
        findings.append(
            Finding(
                code="CrossSocketGraph",
                message="the library's best path between GPUs of the node crosses sockets (type SYS).",
                remedy="Choose GPUs of one NUMA node (`python -m infra topology` names the best sets).",
            )
        )
    if len(log._versions) > 1:
        findings.append(
            Finding(
                code="VersionsDiffer",
                severity="info",
                message=f"several versions are in the log: {', '.join(sorted(log._versions))}.",
            )
        )
    for rule, message, count in log._warnings.values():
        findings.append(
            Finding(
                code=rule.code,
                severity=rule.severity,
                message=message if count == 1 else f"{message.removesuffix('.')} (said {count} times).",
                remedy=rule.remedy,
            )
        )
    for text, count in log._generic.values():
        findings.append(
            Finding(
                code="LibraryWarning",
                severity="info",
                message=f'the library warns: "{text}"{f" ({count} times)" if count > 1 else ""}.',
            )
        )

    bad_edges = shm | socket | no_gdr | same_host_net
    degraded_pairs = {_pair(e) for e in bad_edges}
    good_pairs = {_pair(e) for e in edges} - degraded_pairs
    verdict, reason = _verdict(log, edges, p2p, shm, socket, no_gdr, same_host_net, findings)
    gdr = None
    if rdma:
        gdr = not no_gdr
    elif not edges and log._gdr_said:
        gdr = "Disabled" not in log._gdr_said
    ranks = sorted(log._ranks | {rank for e in edges for rank in (e.source, e.target)})
    numa = None if not log._numa or None in log._numa else tuple(sorted(n for n in log._numa if n is not None))
    libraries = set(log._versions.values())
    return CollectiveVerdict(
        verdict=verdict,
        reason=reason,
        library=libraries.pop() if len(libraries) == 1 else None,
        versions=tuple(sorted(log._versions)),
        hosts=tuple(sorted({host for host in log._hosts.values() if host})),
        ranks=tuple(ranks),
        world_size=log._world,
        transports=tuple(sorted({e.transport for e in edges})),
        edges=tuple(sorted(edges.items())),
        nvls=True if True in log._nvls else False if log._nvls else None,
        mnnvl=True if True in log._mnnvl else False if log._mnnvl else None,
        gdr=gdr,
        numa=numa,
        network=log._networks.most_common(1)[0][0] if log._networks else None,
        graph=log._graph,
        pairs_good=tuple(sorted(good_pairs)),
        pairs_degraded=tuple(sorted(degraded_pairs)),
        findings=tuple(finding.at(log._source) for finding in findings),
        lines=log._lines,
        collective_lines=log._collective_lines,
    )


def _verdict(
    log: CollectiveLog,
    edges: Counter[Edge],
    p2p: set[Edge],
    shm: set[Edge],
    socket: set[Edge],
    no_gdr: set[Edge],
    same_host_net: set[Edge],
    findings: list[Finding],
) -> tuple[Verdict, str]:
    errors = [finding for finding in findings if finding.severity == "error" and finding.code != "SocketTransport"]
    if errors:
        return "bad", errors[0].message
    if socket:
        return "bad", f"{_pairs_text(socket)} talk over TCP."
    if not edges and (log._nodes or 1) > 1 and log._networks and set(log._networks) == {"Socket"}:
        return "bad", f"the library chose TCP (network Socket) between {log._nodes} nodes."
    if not edges:
        if not log._collective_lines:
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
    pairs = {_pair(e) for e in known}
    names = ", ".join(sorted({e.transport for e in known}))
    return "good", f"{len(pairs)} pair{'s' if len(pairs) != 1 else ''} of ranks, all over {names}."


def _pair(edge: Edge) -> tuple[int, int]:
    return min(edge.source, edge.target), max(edge.source, edge.target)


def _pairs_text(edges: set[Edge]) -> str:
    pairs = sorted({_pair(e) for e in edges})
    named = ", ".join(f"{a}-{b}" for a, b in pairs[:4])
    return f"ranks {named}" + (f" and {len(pairs) - 4} more pairs" if len(pairs) > 4 else "")


def read_collective_log(lines: Iterable[str], *, source: str = "") -> CollectiveVerdict:
    """The verdict on a log given by its lines."""
    return CollectiveLog(source=source).read(lines).verdict()
