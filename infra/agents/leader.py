"""Before a worker of a group is ended: waits until the leader's engine is gone, so that requests in flight can end.

Usage: python3 leader.py ADDRESS PORT SECONDS    ADDRESS, PORT: where the leader's ranks meet; SECONDS: the longest wait.

The pods of a group are ended together. The leader takes no further requests then and finishes those it has, for which it needs its workers'
ranks. Standard library only.
"""

from __future__ import annotations

import socket
import sys
import time

_TRIES = 3  # one refused connection may be chance
_PAUSE_SECONDS = 1.0
_CONNECT_SECONDS = 2.0


def answers(address, port):
    try:
        with socket.create_connection((address, port), timeout=_CONNECT_SECONDS):
            return True
    except OSError:  # its name is gone too once the pod is
        return False


def wait_until_gone(address, port, seconds, *, answers=answers, sleep=time.sleep, clock=time.monotonic):
    """True once the leader does not answer several times running, False where it still does after `seconds`."""
    end, missed = clock() + seconds, 0
    while clock() < end:
        missed = 0 if answers(address, port) else missed + 1
        if missed == _TRIES:
            return True
        sleep(_PAUSE_SECONDS)
    return False


def main(arguments):
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    address, port, seconds = arguments
    wait_until_gone(address, int(port), float(seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
