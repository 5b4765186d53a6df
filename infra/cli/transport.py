"""Read an NCCL or RCCL log (NCCL_DEBUG=INFO) and judge the transport that each pair of ranks got.

good: GPUs reach each other directly (NVLink, xGMI, PCIe peer-to-peer), other nodes by RDMA with GPUDirect; degraded: through host
memory, or the network without GPUDirect; bad: over TCP, or the library failed; unknown: the log does not tell. Status 1 where it is
degraded or bad. The file is read as a stream: size does not matter.

examples:
  kubectl logs vllm-0 | python -m infra transport -
  python -m infra transport nccl.log --format json
"""

from __future__ import annotations

import argparse
import json

from infra.outputs.collective_log import CollectiveLog, CollectiveVerdict
from infra.outputs.log_file import log_lines
from infra.outputs.paste import unreadable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the log of one or more ranks; - reads standard input")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    verdict = CollectiveLog().read(log_lines(args.file)).verdict()
    if not verdict.collective_lines and not verdict.findings:
        raise unreadable(
            args.file,
            f"no line of NCCL or RCCL is among its {verdict.lines} lines; run vLLM with NCCL_DEBUG=INFO and take the log "
            f"of its start.",
            code="NoCollectiveLog",
        )
    print(json.dumps({"kind": "nccl-log", **verdict.as_json()}, indent=2) if args.format == "json" else verdict_text(verdict))
    return 1 if verdict.verdict in ("degraded", "bad") else 0


def verdict_text(verdict: CollectiveVerdict) -> str:
    """The verdict for a person: one sentence, a table of transports, what to do."""
    lines = [f"{verdict.verdict.upper()}: {verdict.reason}", ""]
    facts = [
        ("library", " ".join(filter(None, (verdict.library, ", ".join(verdict.versions))))),
        ("hosts", ", ".join(verdict.hosts[:4]) + (f" and {len(verdict.hosts) - 4} more" if len(verdict.hosts) > 4 else "")),
        ("ranks", f"{len(verdict.ranks)} seen{f' of {verdict.world_size}' if verdict.world_size else ''}" if verdict.ranks else ""),
        ("network", verdict.network or ""),
        ("NVLS", {True: "available", False: "not available", None: ""}[verdict.nvls]),
        ("MNNVL", {True: "in use", False: "off", None: ""}[verdict.mnnvl]),
        ("GPUDirect RDMA", {True: "yes", False: "no", None: ""}[verdict.gdr]),
        ("CPU NUMA nodes", ", ".join(map(str, verdict.numa)) if verdict.numa else ""),
    ]
    lines += [f"  {name:<15} {value}" for name, value in facts if value]
    if verdict.edges:
        lines += ["", f"  {'transport':<22} {'pairs':>6} {'channels':>9}  e.g. ranks"]
        for transport in verdict.transports:
            edges = [(edge, count) for edge, count in verdict.edges if edge.transport == transport]
            pairs = sorted({(min(e.source, e.target), max(e.source, e.target)) for e, _ in edges})
            shown = transport + ("/GDRDMA" if all(edge.gdr for edge, _ in edges) else "")
            example = ", ".join(f"{a}-{b}" for a, b in pairs[:4])
            lines.append(f"  {shown:<22} {len(pairs):>6} {sum(count for _, count in edges):>9}  {example}")
    if verdict.findings:
        lines.append("")
        lines += [f"{finding.severity}: {finding.sentence}" for finding in verdict.findings]
    return "\n".join(lines)
