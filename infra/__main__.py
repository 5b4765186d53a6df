"""python -m infra: plan, prove, read and check without touching a cluster (only `verify` and `doctor` look at one)."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Sequence

from infra.diagnosis import Diagnosis, did_you_mean, shown
from infra.errors import NumawiseError
from infra.report.document import json_text

# One module of infra/cli a command. Only the module of the command that was called is imported, so that a command pays
# for nothing that it does not use.
COMMANDS = {
    "plan": "decide parallelism, memory, kubelet configuration and placement of a stack, with the reason of each number",
    "render": "write the Kubernetes objects of a stack as YAML files",
    "admit": "answer what the kubelet would for machines, configurations and pods",
    "fit": "tell whether a model fits a GPU and how much context it leaves room for",
    "shape": "turn a node's own outputs (lscpu, numactl -H, nvidia-smi, rocm-smi) into a node shape",
    "topology": "read nvidia-smi topo, rocm-smi, amd-smi, lscpu and numactl outputs, and name the best GPU sets",
    "transport": "read an NCCL or RCCL log and judge the transports",
    "verify": "compare the running cluster with the plan",
    "schema": "print the JSON schema of the stack file",
    "doctor": "tell what is installed, found and missing, each with the remedy",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit status: 0 done, 1 does not hold, 2 wrong input, 3 something is missing."""
    arguments = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding does not have is written with escapes, and stops no answer.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print("usage: python -m infra COMMAND [options]\n\ncommands:")
        for name, summary in COMMANDS.items():
            print(f"  {name:<{width}}  {summary}")
        print("\nexample:\n  python -m infra plan -s local\n\n`python -m infra COMMAND --help` tells a command's options.")
        return 0 if arguments else 2
    name = arguments[0]
    if name not in COMMANDS:
        print(
            f"python -m infra: {shown(name)} is no command.{did_you_mean(name, COMMANDS)} Commands: {', '.join(COMMANDS)}.",
            file=sys.stderr,
        )
        return 2
    try:
        command = importlib.import_module(f"infra.cli.{name}")
    except ModuleNotFoundError as missing:
        print(f"python -m infra: {missing.name} is not installed; run `pip install -r requirements.txt`.", file=sys.stderr)
        return 3
    parser = argparse.ArgumentParser(
        prog=f"python -m infra {name}", description=command.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_arguments(parser)
    args = parser.parse_args(arguments[1:])
    try:
        return command.run(args)
    except NumawiseError as error:
        _print_problems(error.problems, args)
        return error.exit_status
    except BrokenPipeError:
        # The reader went away (`| head`); its end is no fault of ours, and Python must not complain again at exit.
        sys.stderr.close()
        return 0
    except OSError as error:
        # A name that is too long, a disk that is full, a folder that is read-only: the system's own words, and the place.
        _print_problems(
            [Diagnosis(str(error.filename or name), "FileUnusable", f"{error.strerror or error}; use another place.")], args
        )
        return 2


def _print_problems(problems: Sequence[Diagnosis], args: argparse.Namespace) -> None:
    """The problems in the form that the command was asked for."""
    if getattr(args, "format", "text") == "json":
        print(json_text({"errors": [problem.as_json() for problem in problems]}))
    else:
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
