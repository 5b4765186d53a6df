"""Decide a stack: parallelism, memory, kubelet configuration and placement, each with its reason. Needs no cluster.

examples:
  python -m infra plan -s local
  python -m infra plan -s local --explain
  python -m infra plan -s prod --format json | jq '.models[].slots'
  python -m infra plan --config cluster.yaml --format markdown > comment.md
  python -m infra plan -s prod --from-hub       # once, where there is a network: for models that the catalog does not know
"""

from __future__ import annotations

import argparse
import sys

from infra.cli.from_hub import add_from_hub, fetch_models_of
from infra.cli.source import add_source_arguments, read_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--explain", action="store_true", help="also every field and the reason of each number (JSON always has them)"
    )
    add_from_hub(parser)
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text")


def run(args: argparse.Namespace) -> int:
    from infra.plan.cluster import plan_stack
    from infra.report.document import json_text
    from infra.report.plan import plan_as_json, plan_as_markdown
    from infra.report.plan_text import plan_as_text

    stack, config = read_source(args)
    if args.from_hub:
        fetch_models_of(config)
    plan = plan_stack(config)
    if args.format == "json":
        print(json_text(plan_as_json(plan, stack=stack)))
    else:
        sys.stdout.write(
            plan_as_markdown(plan, stack=stack)
            if args.format == "markdown"
            else plan_as_text(plan, stack=stack, explain=args.explain)
        )
    return 0
