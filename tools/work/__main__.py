"""The make targets: python -m tools.work TARGET [-s STACK]."""

from __future__ import annotations

import argparse
import sys

from infra.errors import NumawiseError
from tools.work import bench, check, record, stack, suites
from tools.work.steps import StepFailed

ON_STACK = {"up": stack.up, "preview": stack.preview, "destroy": stack.destroy, "shell": stack.shell}
ALONE = {
    "down": stack.down,
    "check": check.check,
    "test": suites.test,
    "soak": suites.soak,
    "bench": bench.bench,
    "record": record.record,
}


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a step failed, 2 wrong input, 3 something is missing, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tools.work", description=__doc__)
    parser.add_argument("target", choices=sorted([*ON_STACK, *ALONE, "recover"]))
    parser.add_argument("-s", "--stack", default="local", help="the stack (default: local, on the embedded cluster)")
    args = parser.parse_args(argv)
    try:
        if args.target == "recover":
            return stack.up(args.stack, target="recover")
        if args.target in ON_STACK:
            return ON_STACK[args.target](args.stack)
        return ALONE[args.target]()
    except StepFailed as failed:
        remedy = f"; {failed.remedy}" if failed.remedy else ""
        print(f"error: make {args.target}: {failed.title} {failed.ending}{remedy}.", file=sys.stderr)
        return failed.status if failed.status in (1, 2, 3) else 1
    except NumawiseError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"make {args.target}: stopped; run it again to go on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
