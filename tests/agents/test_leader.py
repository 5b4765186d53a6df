"""A worker waits for its leader's end, and never longer than it may."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.agents import leader


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait(answers: Iterator[bool], seconds: float) -> tuple[bool, float]:
    clock = _Clock()
    gone = leader.wait_until_gone("a", 1, seconds, answers=lambda *_: next(answers), sleep=clock.sleep, clock=lambda: clock.now)
    return gone, clock.now


def repeated(*answers: bool) -> Iterator[bool]:
    yield from answers
    while True:
        yield answers[-1]


@pytest.mark.parametrize(
    ("answers", "gone", "until"),
    [
        ((False,), True, 2.0),
        ((True, True, False), True, 4.0),
        ((True, False, True, False, False, True), False, 20.0),
        ((True,), False, 20.0),
    ],
    ids=["gone already", "ends", "answers again and again", "never ends"],
)
def test_it_ends_once_the_leader_stays_away_and_at_the_latest_in_time(answers: tuple[bool, ...], gone: bool, until: float) -> None:
    assert wait(repeated(*answers), 20.0) == (gone, until)


def test_as_a_program_it_ends_with_the_leaders_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        words = [sys.executable, str(Path(leader.__file__)), "127.0.0.1", str(port), "60"]
        program = subprocess.Popen(words)
        time.sleep(1.0)
        assert program.poll() is None
    assert program.wait(timeout=30) == 0


def test_a_name_that_does_not_resolve_any_more_is_an_end() -> None:
    assert not leader.answers("leader.invalid", 29501)


def test_without_its_three_words_it_says_what_it_wants() -> None:
    done = subprocess.run([sys.executable, str(Path(leader.__file__))], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Usage: python3 leader.py ADDRESS PORT SECONDS" in done.stderr
