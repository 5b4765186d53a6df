"""Compare the running cluster with the plan: kubelet configuration, labels, devices, and each pod's slot, read from the
kubelets' own state files (by a short-lived read-only pod on each node).

examples:
  python -m infra verify -s local
  python -m infra verify -s prod --format json | jq '.findings[]'
"""

from __future__ import annotations

import argparse
from pathlib import Path

from infra.cli.source import add_source_arguments, read_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--kubeconfig", type=Path, help="instead of the stack file's connection")
    parser.add_argument("--context", help="instead of the stack file's")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    from infra.observe.connect import connect
    from infra.plan.cluster import plan_stack
    from infra.render.labels import owner
    from infra.report.document import json_text
    from infra.report.verify import verification_as_json, verification_as_text
    from infra.verify.cluster import verify_cluster

    stack, config = read_source(args)
    plan = plan_stack(config)
    client = connect(config.connection, kubeconfig=args.kubeconfig, context=args.context)
    result = verify_cluster(plan, client, owner=owner(stack))
    print(json_text(verification_as_json(result)) if args.format == "json" else verification_as_text(result))
    return 0 if result.ok else 1
