"""What a collective library's log shows, as text and as JSON."""

from __future__ import annotations

from typing import Any

from infra.outputs.collective_verdict import CollectiveVerdict

_MOST_NAMED = 4


def transport_as_json(verdict: CollectiveVerdict) -> dict[str, Any]:
    """The document of `transport --format json`."""
    return {"kind": "nccl-log", **verdict.fields(), "findings": [finding.as_finding() for finding in verdict.findings]}


def transport_as_text(verdict: CollectiveVerdict) -> str:
    """The verdict for a person: one sentence, a table of transports, what to do."""
    lines = [f"{verdict.verdict.upper()}: {verdict.reason}", ""]
    lines += [f"  {name:<15} {value}" for name, value in _facts(verdict) if value]
    if verdict.edges:
        lines += ["", f"  {'transport':<22} {'pairs':>6} {'channels':>9}  e.g. ranks"]
        lines += [_transport_row(verdict, transport) for transport in verdict.transports]
    if verdict.findings:
        lines.append("")
        lines += [f"{finding.severity}: {finding.sentence}" for finding in verdict.findings]
    return "\n".join(lines)


def _facts(verdict: CollectiveVerdict) -> list[tuple[str, str]]:
    hosts, ranks = verdict.hosts, len(verdict.ranks)
    more = f" and {len(hosts) - _MOST_NAMED} more" if len(hosts) > _MOST_NAMED else ""
    return [
        ("library", " ".join(filter(None, (verdict.library, ", ".join(verdict.versions))))),
        ("hosts", ", ".join(hosts[:_MOST_NAMED]) + more),
        ("ranks", f"{ranks} seen{f' of {verdict.world_size}' if verdict.world_size else ''}" if ranks else ""),
        ("network", verdict.network or ""),
        ("NVLS", {True: "available", False: "not available", None: ""}[verdict.nvls]),
        ("MNNVL", {True: "in use", False: "off", None: ""}[verdict.mnnvl]),
        ("GPUDirect RDMA", {True: "yes", False: "no", None: ""}[verdict.gdr]),
        ("CPU NUMA nodes", ", ".join(map(str, verdict.numa)) if verdict.numa else ""),
    ]


def _transport_row(verdict: CollectiveVerdict, transport: str) -> str:
    edges = [(edge, count) for edge, count in verdict.edges if edge.transport == transport]
    pairs = sorted({edge.pair for edge, _ in edges})
    shown = transport + ("/GDRDMA" if all(edge.gdr for edge, _ in edges) else "")
    example = ", ".join(f"{a}-{b}" for a, b in pairs[:_MOST_NAMED])
    return f"  {shown:<22} {len(pairs):>6} {sum(count for _, count in edges):>9}  {example}"
