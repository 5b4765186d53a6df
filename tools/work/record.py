"""make record: the kubelet's own answers anew, as fixtures of tests/kubelet."""

from __future__ import annotations

import sys

from tools.toolchain import toolchain
from tools.work.steps import CHECKOUT, Steps

PART = "kubeletanswers"


def record() -> int:
    """Tests and builds the program that runs the kubelet's own code, asks it every case, and says what changed against the last recording."""
    steps = Steps("record", total=3)
    steps.call(f"go test of {PART}", _go_test, remedy="the failures stand above")
    steps.call("toolchain", _bring)
    program = str(toolchain().ensure([PART])[PART].file)
    command = [sys.executable, "-m", "tests.kubelet.record", "--program", program]
    steps.run("the kubelet's answers", command, remedy="the message stands above")
    steps.done("recorded; run the tests of tests/kubelet, then commit the fixtures")
    return 0


def _go_test() -> int:
    complaint = toolchain().builder().test(CHECKOUT / "tools" / "go" / "kube", f"./{PART}")
    print(complaint, end="", file=sys.stderr)
    return int(bool(complaint))


def _bring() -> None:
    toolchain().ensure([PART])
