"""The options that name the cluster document that a command reads: -s STACK or --config FILE."""

from __future__ import annotations

import argparse
from pathlib import Path

from infra.config.cluster import StackConfig
from infra.config.load import load_stack_file, names_a_stack, stack_file
from infra.errors import ConfigError


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds -s/--stack and --config, of which one is needed."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("-s", "--stack", metavar="STACK", help="read stacks/Pulumi.STACK.yaml")
    source.add_argument("--config", metavar="FILE", type=Path, help="read any stack file, or a bare cluster document")


def read_source(args: argparse.Namespace) -> tuple[str, StackConfig]:
    """The stack's name and its validated document; ConfigError with all problems."""
    if args.stack is not None:
        if not names_a_stack(args.stack):
            raise ConfigError.one(
                "NoStackName", "--stack", f"{args.stack!r} names no stack; use the STACK of a stacks/Pulumi.STACK.yaml"
            )
        return args.stack.rpartition("/")[2], load_stack_file(stack_file(args.stack))
    name = args.config.name.removeprefix("Pulumi.").removesuffix(".yaml").removesuffix(".yml")
    return name or "stack", load_stack_file(args.config)
