"""The connections that gloo made for a process group: how a thread frees another one from a collective.

Gloo has no way to abort a collective: a rank whose peer is gone or stopped waits in it until the peer's connections
close or its timeout passes. Shutting this process's own connections down ends the wait at once, with an error. The
connection to the group's store must stay: torch waits for a minute where that one ends.

While a group is made one of two peers waits for the other one to connect, and has no connection yet. A peer that is
lost just then never does, so this process connects to itself in its place.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from . import waits
from .waits import Waits

ANSWER_SECONDS: Final = 1.0
"""For a connection of this process to itself, which the kernel makes at once."""


class Connections:
    """The connections that appeared while a group was made."""

    garbles = False
    has_failed = False
    """Gloo remembers no error: a collective that fails raises it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: dict[int, str] | None = None
        """While a group is being made: the sockets that do not belong to it."""
        self._made: dict[int, str] = {}
        self._answered: set[str] = set()
        """The listening sockets to which this process has connected itself."""
        self._size = 0
        """Number of members of the group."""
        self._older: frozenset[int] = frozenset()
        """Threads that do not belong to the group."""

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the connections made inside the block, which makes a group; that to its store must exist before."""
        with self._lock:
            self._before = open_sockets()
        try:
            yield
        finally:
            with self._lock:
                new = _new(self._before)
                self._made |= {descriptor: new[descriptor] for descriptor in new if not _listens(descriptor)}
                self._before = None

    settling = noted
    """Gloo connects to some peers with the first messages, and a script may make groups within the group."""

    @contextlib.contextmanager
    def making(self, size: int) -> Iterator[None]:
        """Surrounds the making of a group of so many members."""
        self._size, self._older = size, waits.threads()
        with self.noted():
            yield

    def confirm(self) -> None:
        """Nothing: a collective that has returned is done."""

    def forget(self) -> None:
        """Forget the connections of a group that is gone."""
        with self._lock:
            self._made, self._answered = {}, set()

    def cut(self) -> int:
        """Shut all noted connections down, from any thread; returns their number.

        While a group is being made, peers that have not connected are answered for.
        """
        with self._lock:
            new = _new(self._before) if self._before is not None else {}
            for descriptor, identity in new.items():
                if identity not in self._answered and _listens(descriptor):
                    self._answered.add(identity)
                    _answer(descriptor, self._size)
            now = open_sockets()
            mine = {**self._made, **new}
            return sum(now.get(descriptor) == identity and _shut_down(descriptor)
                       for descriptor, identity in mine.items())  # fmt: skip

    def left_waiting(self) -> Waits:
        """The waits of the group that nothing ends any more before its timeout, and the main thread's among them."""
        with self._lock:
            now = open_sockets()
            is_closed = self._before is None and not any(now.get(each) == self._made[each] for each in self._made)
            return waits.in_gloo(self._older) if is_closed else ()


def open_sockets() -> dict[int, str]:
    """Every TCP socket of this process by its descriptor, as the kernel names it: a descriptor may be used again."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            identity = str(entry.readlink())
            if not identity.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as end:
                if end.family in {socket.AF_INET, socket.AF_INET6} and end.type == socket.SOCK_STREAM:
                    found[int(entry.name)] = identity
    return found


def _new(before: dict[int, str]) -> dict[int, str]:
    return {
        descriptor: identity for descriptor, identity in open_sockets().items() if before.get(descriptor) != identity
    }


def _listens(descriptor: int) -> bool:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as end:
        return bool(end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False


def _answer(descriptor: int, size: int) -> None:
    """Connect to a socket of gloo in place of all peers: each says the number that gloo has given to its pair.

    Gloo numbers the pairs of a group from 0 in the order of ranks, and keeps a number that nobody waits for yet.
    """
    with socket.socket(fileno=os.dup(descriptor)) as listener:
        address = listener.getsockname()
    for number in range(size):
        with contextlib.suppress(OSError), socket.create_connection(address[:2], ANSWER_SECONDS) as end:
            end.sendall(number.to_bytes(8, sys.byteorder))


def _shut_down(descriptor: int) -> bool:
    if _listens(descriptor):
        return False
    try:
        with socket.socket(fileno=os.dup(descriptor)) as end:
            end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    return True
