"""NCCL and RCCL logs at INFO: which transport each pair of ranks got, what stood in the way, and whether that is good.

Line forms of NCCL 2.4 to 2.30 and RCCL 2.18 to 2.27 (src/transport/*.cc, src/init.cc, src/graph/*.cc). A log is read line by line;
ranks, communicators and versions may be mixed. Most lines repeat the same edge for another channel: each edge is parsed once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from infra.outputs.collective_verdict import CollectiveFacts, CollectiveVerdict, Edge, judge
from infra.outputs.collective_warnings import WARNINGS

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
# A warning and the return of the call behind it (NCCLCHECK): `net.cc:687 -> 2`; 0 is success, 7 a call that goes on.
_THREAD = re.compile(r"\S+:\d+:\d+ \[[^\]]*\]")
_RETURNED = re.compile(r"(?:NCCL|RCCL) INFO (?P<where>\S+\.(?:cc|cu|c|cpp|h|hpp):\d+)(?: \([^)]*\))? -> (?P<status>[1-68])\s*$")
_LONGEST_PREFIX = 400  # what stands before the message: time, pod, host, process, thread and device
_MOST_THREADS, _MOST_FAILURES = 4096, 20
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled)")

# Beginnings of lines that come once for each channel and rank and hold no fact that is judged here.
_DULL = ("Channel ", "Trees ", "Tree ", "Ring ", "Connected all", "threadThresholds", "P2P Chunksize")


class CollectiveLog:
    """Reads a log as it comes: `feed` each line, then `verdict()`. Memory grows with distinct edges, not with lines."""

    def __init__(self, *, source: str = "", most_edges: int = MOST_EDGES) -> None:
        self._most_edges = most_edges
        self._facts = CollectiveFacts(source=source)
        self._edges: dict[str, dict[str, int]] = {}
        self._distinct_edges = 0
        self._last: tuple[dict[str, int], str] | None = None
        self._begun: str | None = None
        self._warned: dict[str, str] = {}  # by thread the last warning; empty where its failure is told already

    @property
    def collective_lines(self) -> int:
        return self._facts.collective_lines

    def read(self, lines: Iterable[str]) -> CollectiveLog:
        """Takes lines, with or without their line breaks; may be called again with more."""
        # Nine of ten lines name an edge that was seen before: for them nothing but a few searches and two look-ups is done.
        edges, hosts = self._edges, self._facts.hosts
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
        self._facts.lines += count
        self._facts.collective_lines += collective
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
        if self._distinct_edges < self._most_edges:
            self._distinct_edges += 1
            seen[text] = 1
        else:
            self._facts.dropped_edges += 1

    def _host(self, prefix: str) -> str:
        matches = _HOST.findall(prefix[-_LONGEST_PREFIX:])
        host = matches[-1] if matches else ""
        if len(self._facts.hosts) < 50_000:
            self._facts.hosts[prefix] = host
        return host

    def _collective_line(self, line: str) -> None:
        info = line.find(" INFO ")
        if info < 0 and "WARN" not in line and "version" not in line:
            return
        self._facts.collective_lines += 1
        self._begun = None
        if info >= 0 and "->" in line and (match := _RETURNED.search(line)):
            self._failed(line, match["where"], int(match["status"]))
            return
        if info >= 0 and line.startswith(_DULL, info + 6):
            if "->" in line and line.startswith("Channel ", info + 6) and " : " in line:
                self._begun = line.rstrip("\r\n")
            return
        if "version" in line and (match := _VERSION.search(line)):
            self._facts.versions[match["version"]] = match["name"] if "hip" not in match["version"] else "RCCL"
        if "anks" in line and (match := _RANKS.search(line)):
            self._facts.ranks.add(int(match[1]))
            self._facts.world = max(self._facts.world or 0, int(match[2]))
            if match[3]:
                self._facts.nodes = max(self._facts.nodes or 0, int(match[3]))
        if "NVLS multicast support is" in line:
            self._facts.nvls.add("is not available" not in line)
        if "MNNVL" in line and (match := _MNNVL.search(line)):
            self._facts.mnnvl.add(match[1] == "1")
        if "Using network" in line and (match := _NETWORK.search(line)):
            self._facts.networks[match[1]] += 1
        if "CPU/" in line and (match := _GRAPH_CPU.search(line)):
            self._facts.numa.add(None if set(match[1].upper()) == {"F"} else int(match[1], 16))
        if "=== System" in line and (match := _GRAPH_BW.search(line)):
            self._facts.graph["max_bw_gbps"] = float(match[1])
            if match[2]:
                self._facts.graph["total_bw_gbps"] = float(match[2])
        if "Pattern " in line and (match := _PATTERN.search(line)):
            self._facts.graph.setdefault("intra_type", match[3])
            self._facts.graph.setdefault("inter_type", match[4])
        if "GPU Direct RDMA" in line and (match := _GDR.search(line)):
            self._facts.gdr_lines[match[1]] += 1
        if "set by environment" in line and (match := _ENVIRONMENT.search(line)) and len(self._facts.environment) < 500:
            self._facts.environment[match[1]] = match[2]
        self._warn(line)

    def _failed(self, line: str, where: str, status: int) -> None:
        """A call returned an error: the warning before it in its thread says which; the callers' returns that follow are the same failure."""
        warning = self._warned.get(_thread(line))
        if warning == "":
            return
        self._remember(line, "")
        form = re.sub(r"0x[0-9a-fA-F]+|\d+", "#", warning or where)
        if form in self._facts.failures or len(self._facts.failures) < _MOST_FAILURES:
            first = self._facts.failures.get(form, (warning or "", where, status, 0))
            self._facts.failures[form] = (*first[:3], first[3] + 1)

    def _remember(self, line: str, warning: str) -> None:
        if len(self._warned) < _MOST_THREADS:
            self._warned[_thread(line)] = warning

    def _warn(self, line: str) -> None:
        warning = _GENERIC_WARN.search(line) if " WARN " in line else None
        if warning is not None:
            self._remember(line, warning[1][:200])
        for rule in WARNINGS:
            if rule.marker in line and (match := rule.pattern.search(line)):
                if rule.severity == "error":
                    self._remember(line, "")
                groups = {name: value or "?" for name, value in match.groupdict().items()}
                known = self._facts.warnings.get(rule.code)
                message = rule.message.format(**groups)
                self._facts.warnings[rule.code] = (rule, known[1] if known else message, (known[2] if known else 0) + 1)
                return
        if warning is not None:
            text = warning[1][:200]
            form = re.sub(r"0x[0-9a-fA-F]+|\d+", "#", text)
            if form in self._facts.generic or len(self._facts.generic) < 20:
                first, count = self._facts.generic.get(form, (text, 0))
                self._facts.generic[form] = (first, count + 1)

    def verdict(self) -> CollectiveVerdict:
        """The verdict on the lines so far."""
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
        return judge(self._facts, edges, host_of, unread)


def _thread(line: str) -> str:
    """`host:pid:tid [device]`, which begins each line of a thread; empty where the log has lost it."""
    match = _THREAD.search(line[:_LONGEST_PREFIX])
    return match[0] if match else ""


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


def read_collective_log(lines: Iterable[str], *, source: str = "") -> CollectiveVerdict:
    """The verdict on a log given by its lines."""
    return CollectiveLog(source=source).read(lines).verdict()
