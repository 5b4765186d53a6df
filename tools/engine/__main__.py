"""Runs the pinned Pulumi engine on a stack of this checkout; no tracked file is ever changed.

examples:
  python -m tools.engine preview -s local           what an update would do, with --diff
  python -m tools.engine up -s local -- --refresh   options after -- go to pulumi as they are
  python -m tools.engine recover -s local           after a killed update
  python -m tools.engine shell                      a shell with PATH, backend, passphrase and home
"""

from __future__ import annotations

import argparse
import sys

from infra.errors import NumawiseError
from tools.engine.engine import Engine
from tools.engine.workspace import LOCAL_STACK, Workspace

COMMANDS = ("preview", "up", "destroy", "refresh", "recover", "shell")


def main(argv: list[str] | None = None) -> int:
    """Exit status: pulumi's own, or 3 where something is missing (a tool, the stack's file, an update that runs)."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("-s", "--stack", default=LOCAL_STACK, help="the stack (default: local)")
    parser.add_argument("extra", nargs="*", help="options for pulumi, after --")
    args = parser.parse_args(argv)
    try:
        engine = Engine(Workspace.of(stack=args.stack))
        if args.command == "recover":
            return engine.recover()
        if args.command == "shell":
            return engine.shell()
        return getattr(engine, args.command)(args.extra)
    except NumawiseError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
