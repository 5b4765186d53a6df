"""The simulated machines' own Go tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.toolchain import toolchain

pytestmark = pytest.mark.e2e

MODULE = Path(__file__).resolve().parents[2] / "tools" / "go" / "kube"


def test_the_go_tests_of_the_simulated_machines_pass() -> None:
    go = toolchain().builder().go()
    # The flags of the build, so that the packages that it compiled serve here too.
    done = subprocess.run(
        [go, "test", "-trimpath", "-buildvcs=false", "-count=1", "./simnode/..."],
        cwd=MODULE,
        env=os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  \t") == 3
