"""Write the Kubernetes objects of a stack as YAML files, byte-identical from run to run. Needs no cluster and holds no secret's value.

Apply order is the order of the file names. Beside the objects: node-labels.txt (kubectl label commands for nodes that are not ours) and
kubelet/ (each pool's KubeletConfiguration drop-in). Files of an earlier run that are no longer rendered are removed; others are never touched.

examples:
  python -m infra render -s local --out rendered
  python -m infra render --config cluster.yaml --out rendered && kubectl diff -f rendered
"""

from __future__ import annotations

import argparse
from pathlib import Path

from infra.cli.source import add_source_arguments, read_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument(
        "--out", metavar="DIR", type=_folder, required=True, help="the folder to write to; made where it is missing"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty; name a folder")
    return Path(text)


def run(args: argparse.Namespace) -> int:
    from infra.config.load import stack_file
    from infra.plan.cluster import plan_stack
    from infra.render.files import rendered_files, write_files
    from infra.report.document import json_text

    stack, config = read_source(args)
    plan = plan_stack(config)
    files = rendered_files(plan, stack=stack, secrets=_declared_secrets(stack_file(args.stack) if args.stack else args.config))
    outcome = write_files(files, args.out)
    if args.format == "json":
        print(json_text({"out": str(args.out), "files": sorted(files), "removed": list(outcome.removed)}))
    else:
        removed = f", {len(outcome.removed)} stale removed" if outcome.removed else ""
        print(f"{args.out}: {len(files)} files, {outcome.changed} changed{removed}")
        for warning in plan.warnings:
            print(f"warning: {warning}")
    return 0


def _declared_secrets(path: Path) -> tuple[str, ...]:
    """Which secrets the stack file sets; their values are neither read nor needed."""
    from infra.config.load import read_yaml
    from infra.render.names import SECRETS

    document = read_yaml(path)
    keys = document.get("config") if isinstance(document, dict) else None
    return tuple(key for name, key in SECRETS.items() if isinstance(keys, dict) and f"numawise:{name}" in keys)
