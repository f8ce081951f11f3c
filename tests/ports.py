"""Ports for tests that run side by side: below those that the kernel gives to outgoing connections."""

from __future__ import annotations

import functools
import itertools
import os
import socket
from collections.abc import Iterator
from typing import Final

FIRST: Final = 12_000
SHARES: Final = 8
"""Workers of pytest-xdist that never choose the same port."""
PORTS: Final = 2_000
"""Ports of one worker; all end below 28000, and the first port for outgoing connections is 32768."""


def free_port() -> int:
    """A port that nothing listens on, and that no other test of this session gets.

    A port that the kernel chose may be taken again, by any connection on this machine, before the test's own server
    binds it.
    """
    return next(port for port in _candidates() if _is_free(port))


@functools.cache
def _candidates() -> Iterator[int]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    first = FIRST + int(worker) % SHARES * PORTS
    begin = os.getpid() % PORTS  # another session on this machine most likely begins elsewhere
    return itertools.cycle([*range(first + begin, first + PORTS), *range(first, first + begin)])


def _is_free(port: int) -> bool:
    with socket.socket() as end:
        try:
            end.bind(("", port))
        except OSError:
            return False
    return True
