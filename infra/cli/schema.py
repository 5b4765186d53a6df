"""Print the JSON schema of the stack file; stacks/schema.json is its copy.

examples:
  python -m infra schema > stacks/schema.json
"""

from __future__ import annotations

import argparse
import sys

from infra.config.schema import schema_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("json",), default="json", help="the schema is JSON")


def run(args: argparse.Namespace) -> int:
    sys.stdout.write(schema_text())
    return 0
