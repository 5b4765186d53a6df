"""make record: the kubelets' own answers anew, as fixtures of tests/kubelet."""

from __future__ import annotations

import sys
from functools import partial

from infra.kubelet.configuration.versions import NEWEST, SUPPORTED
from tools.toolchain import toolchain
from tools.work.steps import Steps


def part_of(minor: str) -> str:
    """The program that runs the kubelet's code of a Kubernetes minor."""
    return "kubeletanswers" if minor == NEWEST else f"kubeletanswers-{minor}"


def record() -> int:
    """Tests and builds the programs that run the kubelets' own code, asks them every case, and says what changed against the last recording."""
    minors = sorted(SUPPORTED, key=lambda minor: minor != NEWEST)
    steps = Steps("record", total=3 * len(minors))
    for minor in minors:
        part = part_of(minor)
        steps.call(f"go test of {part}", partial(_go_test, part), remedy="the failures stand above")
        steps.call(f"toolchain, {minor}", partial(_bring, part))
        program = str(toolchain().ensure([part])[part].file)
        module = ["tests.kubelet.record"] if minor == NEWEST else ["tests.kubelet.record_minor", "--minor", minor]
        command = [sys.executable, "-m", *module, "--program", program]
        steps.run(f"the answers of {minor}", command, remedy="the message stands above")
    steps.done("recorded; run the tests of tests/kubelet, then commit the fixtures")
    return 0


def _go_test(part: str) -> int:
    chain = toolchain()
    build = chain.parts[part].build
    complaint = chain.builder().test(build) if build else ""
    print(complaint, end="", file=sys.stderr)
    return int(bool(complaint))


def _bring(part: str) -> None:
    toolchain().ensure([part])
