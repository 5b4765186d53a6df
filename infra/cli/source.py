"""The options that name the cluster document that a command reads: -s STACK or --config FILE."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from infra.diagnosis import shown
from infra.errors import ConfigError

if TYPE_CHECKING:
    from infra.config.cluster import StackConfig


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds -s/--stack and --config, of which one is needed."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("-s", "--stack", metavar="STACK", help="read stacks/Pulumi.STACK.yaml")
    source.add_argument("--config", metavar="FILE", type=Path, help="read any stack file, or a bare cluster document")


def read_source(args: argparse.Namespace) -> tuple[str, StackConfig]:
    """The stack's name and its validated document; ConfigError with all problems."""
    # The models of the stack file take a third of a second to import, which `--help` does without.
    from infra.config.load import load_stack_file, names_a_stack, stack_file

    if args.stack is not None:
        if not names_a_stack(args.stack):
            raise ConfigError.one(
                "NoStackName", "--stack", f"{shown(args.stack)} names no stack; use the STACK of a stacks/Pulumi.STACK.yaml"
            )
        return args.stack.rpartition("/")[2], load_stack_file(stack_file(args.stack))
    name = args.config.name.removeprefix("Pulumi.").removesuffix(".yaml").removesuffix(".yml")
    return name or "stack", load_stack_file(args.config)
