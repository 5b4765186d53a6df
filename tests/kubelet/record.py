"""Record what the kubelet's own code answers, as fixtures.

  python -m tests.kubelet.record --oracle PATH [--repeat 20]

PATH is a program that reads a JSON array of cases (-in FILE) and writes the results (-out FILE) in the form of `python -m infra admit`,
runs each case -repeat times, and lists outcomes that differ from the first as `variants`: the kubelet's managers and admission
handlers of k8s.io/kubernetes v1.37.2 behind a command line. Only this command needs it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.kubelet.agreement import ANSWERS, BEHAVIOURS, CORNERS, RECORDED, digest, outcome, read, write
from tests.kubelet.generate import generate


def ask(oracle: str, cases: list[dict[str, Any]], repeat: int) -> list[list[list[Any]]]:
    """Per case all outcomes that were seen; an empty list where there was no answer."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "cases.json"), Path(folder, "results.json")
        asked.write_text(json.dumps(cases))
        subprocess.run([oracle, "-in", str(asked), "-out", str(answered), "-repeat", str(repeat), "-workers", "1"], check=True)
        results = json.loads(answered.read_text())
    found = []
    for case, result in zip(cases, results, strict=True):
        outcomes = []
        for variant in (result, *({**result, "pods": pods} for pods in result.get("variants") or ())):
            seen = outcome(case, variant)
            if seen is not None and seen not in outcomes:
                outcomes.append(seen)
        found.append(outcomes)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", required=True, metavar="PATH", help="the program that runs the kubelet's own code")
    parser.add_argument("--repeat", type=int, default=20, help="how often each case runs, to see where the kubelet itself varies")
    args = parser.parse_args()
    for path in (BEHAVIOURS, CORNERS):
        cases = [entry["case"] for entry in read(path)]
        answers = ask(args.oracle, cases, args.repeat)
        write(path, [{"case": case, "answers": seen} for case, seen in zip(cases, answers, strict=True)])
    recorded: dict[str, list[Any]] = {}
    for kind, count in RECORDED.items():
        generated = [generate(kind, seed) for seed in range(count)]
        # The first pass finds the cases that may vary: those in which a container may reuse devices.
        once = ask(args.oracle, generated, 2)
        vary = [i for i, case in enumerate(generated) if _may_vary(case)]
        for index, seen in zip(vary, ask(args.oracle, [generated[i] for i in vary], args.repeat), strict=True):
            once[index] = seen
        recorded[kind] = [
            [seed, digest(case), seen]
            for seed, (case, seen) in enumerate(zip(generated, once, strict=True))
            if seen and not _gates_in_another_case(case)
        ]
        print(
            f"{kind}: {len(recorded[kind])} of {count} cases answered, {sum(len(a[2]) > 1 for a in recorded[kind])} vary",
            flush=True,
        )
    write(ANSWERS, recorded)


def _gates_in_another_case(case: dict[str, Any]) -> bool:
    """Whether featureGates is misspelt in a way that the kubelet ignores and the program, which sets gates before it asks, does not."""
    return any(name.lower() == "featuregates" and name != "featureGates" for name in case["kubelet"])


def _may_vary(case: dict[str, Any]) -> bool:
    """Whether a container may take fewer devices of a resource than an init container before it leaves."""
    for pod in case["pods"]:
        left: dict[str, int] = {}
        for container in [*pod.get("initContainers", ()), *pod.get("containers", ())]:
            wanted = {name: int(amount) for name, amount in container.get("limits", {}).items() if "/" in name}
            if any(0 < amount < left.get(name, 0) for name, amount in wanted.items()):
                return True
            if container in pod.get("initContainers", ()) and container.get("restartPolicy") != "Always":
                left = {name: max(left.get(name, 0), wanted.get(name, 0)) for name in {*left, *wanted}}
    return False


if __name__ == "__main__":
    main()
