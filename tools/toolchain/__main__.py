"""Brings the pinned programs that the embedded cluster and the engine need, and tells where they are.

examples:
  python -m tools.toolchain                      bring all; the second run only looks
  python -m tools.toolchain --list               what is there, from where, without making anything
  python -m tools.toolchain --only etcd --path   print the file of one program
"""

from __future__ import annotations

import argparse
import sys
import time

from tools.toolchain.cache import cache_root
from tools.toolchain.ensure import toolchain
from tools.toolchain.errors import ToolchainError


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all there, 2 wrong arguments, 3 something cannot be had."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.toolchain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="this program only; may be given again")
    parser.add_argument("--list", action="store_true", help="tell what is there and what is missing; make nothing")
    parser.add_argument("--path", action="store_true", help="print the programs' files, one a line")
    args = parser.parse_args(argv)
    started = time.monotonic()
    try:
        chain = toolchain()
        if args.list:
            for name in args.only or chain.parts:
                found, remark = chain.look(name)
                state = f"{found.version:<9} {found.source}" if found else f"{chain.parts[name].version:<9} missing"
                print(f"{name:<28} {state}{f' ({remark})' if remark else ''}")
            return 0
        found_all = chain.ensure(args.only)
    except ToolchainError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("toolchain: stopped; what was finished is kept", file=sys.stderr)
        return 130
    if args.path:
        for found in found_all.values():
            print(found.file)
    else:
        count = f"{len(found_all)} program{'s' * (len(found_all) != 1)}"
        print(f"toolchain: {count} ready after {time.monotonic() - started:.1f} s in {cache_root()}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
