"""Compare the running cluster with the plan: kubelet configuration, labels, devices, and each pod's slot, read from the
kubelets' own state files (by a short-lived read-only pod on each node).

examples:
  python -m infra verify -s local
  python -m infra verify -s prod --format json | jq '.findings[]'
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from infra.cli.source import add_source_arguments, read_source
from infra.errors import ConfigError
from infra.observe.client import Client
from infra.plan.cluster import plan_stack
from infra.render.labels import owner
from infra.units import format_cpu_list
from infra.verify.cluster import Verification, verify_cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--kubeconfig", type=Path, help="instead of the stack file's connection (needed where that is another stack's output)"
    )
    parser.add_argument("--context", help="instead of the stack file's")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    stack, config = read_source(args)
    plan = plan_stack(config)
    kubeconfig = args.kubeconfig
    if kubeconfig is None:
        if config.connection is None or not isinstance(config.connection.kubeconfig, str):
            raise ConfigError.one("NoConnection", "connection.kubeconfig", "is no path; give --kubeconfig FILE")
        kubeconfig = Path(config.connection.kubeconfig).expanduser()
    client = Client(kubeconfig, args.context or (config.connection.context if config.connection else None))
    result = verify_cluster(plan, client, owner=owner(stack))
    print(json.dumps(result.as_json(), indent=2) if args.format == "json" else as_text(result))
    return 0 if result.ok else 1


def as_text(result: Verification) -> str:
    """A table of nodes, a table of pods, the findings, and one sentence."""
    rows = [("node", "pool", "kubelet", "labels", "devices", "topology")]
    marks = {True: "ok", False: "DIFFERS", None: "unread"}
    rows += [(n.node, n.pool, *(marks[n.checks[key]] for key in rows[0][2:])) for n in result.nodes]
    pods = [("pod", "node", "NUMA", "GPUs", "CPUs", "QoS", "slot")]
    pods += [
        (
            pod.pod,
            pod.node,
            format_cpu_list(pod.numa_nodes) or "-",
            ", ".join(f"{count} on NUMA {numa}" for numa, count in sorted(pod.gpus_per_numa_node.items())) or "-",
            format_cpu_list(pod.cpus) or "shared",
            pod.qos_class,
            f"{pod.slot}" if pod.ok else "NONE" if pod.slot is None else f"{pod.slot}, WRONG",
        )
        for pod in result.pods
    ]
    errors = [finding for finding in result.findings if finding.severity == "error"]
    lines = [
        *_table(rows),
        "",
        *_table(pods),
        *(["", *(f"{f.code}: {f.sentence}" for f in result.findings)] if result.findings else []),
        "",
    ]
    if result.ok:
        lines.append(f"All {len(result.pods)} pods stand in their planned slots, on {len(result.nodes)} nodes.")
    else:
        lines.append(f"{len(errors)} finding(s): the cluster is not as planned.")
    return "\n".join(lines)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
