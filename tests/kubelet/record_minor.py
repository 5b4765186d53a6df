"""Asks the kubelet's code of an older minor what was asked that of the newest, and records where its answers differ; `make record` runs this.

  python -m tests.kubelet.record_minor --program PATH --minor 1.36 [--repeat 20]

PATH is tools/go/kube/kubeletanswers, built with tools/go/kube/minors/1.36.mod. Record the newest minor first (tests.kubelet.record).
"""

from __future__ import annotations

import argparse

from tests.kubelet.agreement import Answers, compared_groups, differences_of, fingerprint, write
from tests.kubelet.record import ask, steady


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, metavar="PATH", help="the program that runs the kubelet's own code")
    parser.add_argument("--minor", required=True, help="its Kubernetes minor, such as 1.36")
    parser.add_argument("--repeat", type=int, default=20, help="how often a case runs whose answer differs from the newest minor's")
    args = parser.parse_args()
    recorded = {}
    for group, entries in compared_groups():
        once = ask(args.program, [case for case, _ in entries], 1)
        others = [
            (case, newest)
            for (case, newest), seen in zip(entries, once, strict=True)
            if not steady(case, newest) & steady(case, seen)
        ]
        often = ask(args.program, [case for case, _ in others], args.repeat)
        differing: dict[str, Answers] = {
            case["id"]: seen
            for (case, newest), seen in zip(others, often, strict=True)
            if not steady(case, newest) & steady(case, seen)
        }
        recorded[group] = {"compared_with": fingerprint(entries), "answers": differing}
        unanswered = sum(not seen for seen in differing.values())
        print(
            f"{args.minor}, {group}: {len(differing)} of {len(entries)} cases differ, {unanswered} of them without an answer",
            flush=True,
        )
    path = differences_of(args.minor)
    path.parent.mkdir(exist_ok=True)
    write(path, recorded)


if __name__ == "__main__":
    main()
