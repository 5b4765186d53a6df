"""Tell what is installed, found and missing, each with the remedy; with a stack, also whether its cluster answers.

examples:
  python -m infra doctor
  python -m infra doctor -s local
  python -m infra doctor --format json | jq '.checks[] | select(.ok | not)'
"""

from __future__ import annotations

import argparse

from infra.installation import missing, requirements
from infra.report.doctor import requirements_as_json, requirements_as_text
from infra.report.document import json_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--stack", metavar="STACK", help="also look at this stack's file and cluster")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    found = requirements(args.stack or None)
    if args.format == "json":
        print(json_text(requirements_as_json(found)))
    else:
        print(requirements_as_text(found))
    return 3 if missing(found) else 0
