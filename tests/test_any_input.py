"""Whatever stands in a file, a command answers soon: its status, an error with its path, and never a traceback.

A fixed-seed sample; the marker `soak` runs ten thousand inputs.
"""

from __future__ import annotations

import json
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from infra.__main__ import main
from tests.support.any_input import drawn

SAMPLE, ALL, IN_A_TEST = 400, 10_000, 50
SECONDS, MEGABYTES = 2, 500
LONGEST_MESSAGE = 3000  # a finding may list the known names of a catalog
_HANGS = 20


@contextmanager
def _ended_at_last() -> Iterator[None]:
    def ended(signum: int, frame: FrameType | None) -> None:
        raise AssertionError(f"runs for more than {_HANGS} s")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(_HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _answered(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = drawn(seed)
    path = tmp_path / f"input{given.suffix}"
    path.write_bytes(given.content)
    began = time.process_time()
    with _ended_at_last():
        status = main([*given.words, str(path)])
    seconds = time.process_time() - began
    out = capsys.readouterr().out
    assert status in given.statuses, f"status {status}"
    document = json.loads(out)
    for error in document["errors"] if status == 2 else ():
        assert error["path"] and len(error["path"]) < 1000, error
        assert error["message"].strip() and len(error["message"]) < LONGEST_MESSAGE, error
    assert seconds < SECONDS, f"{seconds:.1f} s"


def _all_answered(first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wrong = []
    for seed in range(first, first + IN_A_TEST):
        try:
            _answered(seed, tmp_path, capsys)
        except Exception as error:
            wrong.append(f"{seed}, {' '.join(drawn(seed).words[:1])}: {type(error).__name__}: {str(error)[:200]}")
            capsys.readouterr()
    assert not wrong, "\n".join(wrong)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MEGABYTES


@pytest.mark.parametrize("first", range(0, SAMPLE, IN_A_TEST))
def test_sample_of_inputs_is_answered(first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _all_answered(first, tmp_path, capsys)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SAMPLE, ALL, IN_A_TEST))
def test_every_input_is_answered(first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _all_answered(first, tmp_path, capsys)
