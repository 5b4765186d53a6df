"""make bench: how long the things that people wait for take; JSON and a table."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tools.work.preview_cost import measure_preview
from tools.work.steps import CHECKOUT

MOST_RATIO = 1.10  # of a preview to one of a bare program


@dataclass(frozen=True, kw_only=True)
class Result:
    """Wall-clock times of one command in seconds."""

    name: str
    command: str
    runs: int
    median_seconds: float
    slowest_seconds: float


COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("toolchain, everything there", ("-m", "tools.toolchain", "--path")),
    ("setup, everything there", ("-m", "tools.work.setup")),
    ("plan of stack local", ("-m", "infra", "plan", "-s", "local")),
    ("schema", ("-m", "infra", "schema")),
    ("plan of 100 models on 50 pools", ("-m", "tests.plan.large_cluster", "50", "100", "1000")),
    ("plan of 1,000 models on 500 pools", ("-m", "tests.plan.large_cluster", "500", "1000", "10000")),
)


def bench(*, runs: int = 5) -> int:
    """Writes .state/bench.json and prints a table; the first failing command ends it."""
    results: list[Result] = []
    for name, words in COMMANDS:
        result = measure(name, [sys.executable, *words], runs=runs)
        if result is None:
            print(f"error: make bench: {name}: `python {' '.join(words)}` failed.", file=sys.stderr)
            return 1
        results.append(result)
    try:
        preview = measure_preview(runs=runs)
    except RuntimeError as error:
        print(f"error: make bench: preview: {error}", file=sys.stderr)
        return 1
    file = CHECKOUT / ".state" / "bench.json"
    file.parent.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    file.write_text(
        json.dumps(
            {
                "machine": machine,
                "results": [asdict(result) for result in results],
                "preview": None if preview is None else {**asdict(preview), "ratio": round(preview.ratio, 3)},
            },
            indent=2,
        )
        + "\n",
        encoding="utf-8",
    )
    width = max(len(result.name) for result in results)
    print(f"{'':<{width}}  median s  slowest s  runs")
    for result in results:
        print(f"{result.name:<{width}}  {result.median_seconds:8.2f}  {result.slowest_seconds:9.2f}  {result.runs:4d}")
    if preview is None:
        print("preview against a bare program: not measured, the embedded cluster is not up; run `make up` first")
    else:
        print(
            f"preview of stack local {preview.ours_seconds:.2f} s, of a bare program with the same objects {preview.bare_seconds:.2f} s: "
            f"{preview.ratio:.2f} times (medians of {preview.runs} alternating runs; wanted: at most {MOST_RATIO:.2f})"
        )
    print(f"written to {file.relative_to(CHECKOUT)}")
    return 0


def measure(name: str, command: Sequence[str], *, runs: int) -> Result | None:
    """Runs a command once to warm up and `runs` times for the clock; None where it fails."""
    seconds: list[float] = []
    for run in range(runs + 1):
        began = time.perf_counter()
        done = subprocess.run(list(command), cwd=CHECKOUT, capture_output=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.stderr.buffer.write(done.stderr)
            return None
        if run:
            seconds.append(time.perf_counter() - began)
    shown = " ".join(["python", *command[1:]])
    return Result(
        name=name,
        command=shown,
        runs=runs,
        median_seconds=round(statistics.median(seconds), 3),
        slowest_seconds=round(max(seconds), 3),
    )
