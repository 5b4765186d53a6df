"""vLLM's own argument parser, for an interpreter in which vLLM is installed: `python vllm_parser.py < argument-lists.json`.

Reads a JSON list of argument lists (what stands after `vllm serve`) and writes {"version", "flags", "negations", "refused": {index: message}}.
Nothing of this project is imported: it runs in an environment of its own.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version


def main() -> int:
    # vLLM logs to standard output while it is imported
    out, sys.stdout = sys.stdout, sys.stderr
    import argparse

    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    subparsers = FlexibleArgumentParser().add_subparsers(dest="subparser")
    parser: argparse.ArgumentParser = ServeSubcommand().subparser_init(subparsers)
    words = {word[2:] for action in parser._actions for word in action.option_strings if word.startswith("--")}
    negations = sorted(word for word in words if word.startswith("no-") and word[3:] in words)
    refused = {}
    for index, arguments in enumerate(json.load(sys.stdin)):
        message = ""

        def fail(text: str) -> None:
            raise ValueError(text)

        parser.error = fail  # type: ignore[method-assign]
        try:
            parser.parse_args(arguments)
        except (ValueError, SystemExit) as error:
            message = str(error)
            refused[index] = message
    flags = sorted(words - set(negations) - {"help"})
    json.dump({"version": version("vllm"), "flags": flags, "negations": negations, "refused": refused}, out, indent=1)
    out.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
