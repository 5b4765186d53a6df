"""Asks the kubelet's own code and records its answers as fixtures; `make record` builds the program and runs this.

  python -m tests.kubelet.record --program PATH [--repeat 20]

PATH is tools/go/kube/kubeletanswers, built. Says of each fixture what changed against the last recording.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.kubelet.quantity import parse_json_quantity
from tests.kubelet.agreement import (
    ANSWERS,
    BEHAVIOURS,
    CATALOGUE,
    CORNERS,
    MERGES,
    RECORDED,
    case_of,
    digest,
    outcome,
    read,
    with_vague_shortages,
    without_placement,
    write,
)
from tests.kubelet.merges import SCENARIOS

Answers = list[list[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, metavar="PATH", help="the program that runs the kubelet's own code")
    parser.add_argument("--repeat", type=int, default=20, help="how often a case runs in which the kubelet itself may vary")
    args = parser.parse_args()
    _record_catalogue(args.program)
    _record_merges(args.program)
    for path in (BEHAVIOURS, CORNERS):
        _record_cases(path, args.program, args.repeat)
    _record_generated(args.program, args.repeat)


def _record_catalogue(program: str) -> None:
    found = run(program, "fields", None)
    _tell("fields", _changes(_flat(_last(CATALOGUE) or {}), _flat(found)))
    write(CATALOGUE, found)


def _flat(catalogue: Mapping[str, Any]) -> dict[str, Any]:
    flags = {f"--{flag['name']}": flag for flag in catalogue.get("flags", ())}
    defaults = {f"default of {name}": value for name, value in catalogue.get("defaults", {}).items()}
    return {**catalogue.get("types", {}), **defaults, **flags}


def _record_merges(program: str) -> None:
    answers = dict(zip(SCENARIOS, run(program, "merge", list(SCENARIOS.values())), strict=True))
    _tell("merges", _changes(_last(MERGES) or {}, answers))
    write(MERGES, answers)


def _record_cases(path: Path, program: str, repeat: int) -> None:
    entries = read(path)
    answers = ask(program, [entry["case"] for entry in entries], repeat)
    compared = [(e["case"], e["answers"], a) for e, a in zip(entries, answers, strict=True)]
    _tell(path.name.split(".")[0], _differences(compared))
    write(path, [{"case": case, "answers": _settled(case, before, seen)} for case, before, seen in compared])


def _record_generated(program: str, repeat: int) -> None:
    recorded: dict[str, list[Any]] = {}
    last = _last(ANSWERS) or {}
    for kind, seeds in RECORDED.items():
        generated = [case_of(kind, seed) for seed in seeds]
        # Once for all; often only for cases in which a container may reuse devices of its choice.
        answers = ask(program, generated, 2)
        vary = [index for index, case in enumerate(generated) if _may_vary(case)]
        for index, seen in zip(vary, ask(program, [generated[index] for index in vary], repeat), strict=True):
            answers[index] = seen
        recorded[kind] = [
            [seed, digest(case), seen]
            for seed, case, seen in zip(seeds, generated, answers, strict=True)
            if seen and not _gates_in_another_case(case)
        ]
        cases = dict(zip(seeds, generated, strict=True))
        before = {seed: (fingerprint, seen) for seed, fingerprint, seen in last.get(kind, ())}
        known = [
            (cases[seed], before[seed][1], seen)
            for seed, fingerprint, seen in recorded[kind]
            if seed in before and before[seed][0] == fingerprint
        ]
        fresh = len(recorded[kind]) - len(known)
        settled = {case["id"]: _settled(case, seen_before, seen) for case, seen_before, seen in known}
        recorded[kind] = [[seed, mark, settled.get(f"{kind}/{seed}", seen)] for seed, mark, seen in recorded[kind]]
        _tell(f"{kind}: {len(recorded[kind])} of {len(seeds)} cases answered, {fresh} for the first time", _differences(known))
    write(ANSWERS, recorded)


def ask(program: str, cases: list[dict[str, Any]], repeat: int) -> list[Answers]:
    """Per case all outcomes that were seen, in a fixed order; an empty list where there was no answer."""
    found = []
    for case, result in zip(cases, run(program, "admit", cases, f"-repeat={repeat}"), strict=True):
        outcomes: dict[str, list[Any]] = {}
        for variant in (result, *({**result, "pods": pods} for pods in result.get("variants") or ())):
            seen = outcome(case, variant)
            if seen is not None:
                outcomes[json.dumps(seen)] = seen
        found.append([outcomes[text] for text in sorted(outcomes)])
    return found


def run(program: str, question: str, document: Any, *options: str) -> Any:
    """The program's answer to a question; CalledProcessError where it fails."""
    text = json.dumps(document)
    done = subprocess.run([program, question, *options], input=text, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _last(path: Path) -> Any:
    return read(path) if path.exists() else None


def _tell(title: str, changes: Sequence[str]) -> None:
    print(
        f"{title}: {len(changes)} changed"
        + (f" ({', '.join(changes[:12])}{', ...' if len(changes) > 12 else ''})" if changes else ""),
        flush=True,
    )


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _differences(answered: Sequence[tuple[dict[str, Any], Answers, Answers]]) -> list[str]:
    """Ids of cases whose answers changed, but for what the kubelet itself picks at random."""
    return [case["id"] for case, before, after in answered if not steady(case, before) & steady(case, after)]


def _settled(case: dict[str, Any], before: Answers, after: Answers) -> Answers:
    """The last recording where only random choices differ, so that the same kubelet gives the same file."""
    return before if steady(case, before) & steady(case, after) else after


def steady(case: dict[str, Any], answers: Answers) -> set[str]:
    """The answers without what the kubelet picks at random."""
    return {json.dumps(with_vague_shortages(case, without_placement(answer))) for answer in answers}


def _gates_in_another_case(case: dict[str, Any]) -> bool:
    """Whether featureGates is misspelt in a way that the kubelet ignores and the program, which sets gates before it asks, does not."""
    return any(name.lower() == "featuregates" and name != "featureGates" for name in case["kubelet"])


def _may_vary(case: dict[str, Any]) -> bool:
    """Whether a container may take fewer devices of a resource than an init container before it leaves."""
    for pod in case["pods"]:
        left: dict[str, int] = {}
        for container in [*pod.get("initContainers", ()), *pod.get("containers", ())]:
            wanted = {n: parse_json_quantity(amount).value for n, amount in container.get("limits", {}).items() if "/" in n}
            if any(0 < amount < left.get(name, 0) for name, amount in wanted.items()):
                return True
            if container in pod.get("initContainers", ()) and container.get("restartPolicy") != "Always":
                left = {name: max(left.get(name, 0), wanted.get(name, 0)) for name in {*left, *wanted}}
    return False


if __name__ == "__main__":
    main()
