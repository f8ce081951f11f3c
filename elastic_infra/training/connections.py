"""The connections that gloo made for a process group: how a thread frees another one from a collective.

Gloo has no way to abort a collective: a rank whose peer is gone or stopped waits in it until the peer's connections
close or its timeout passes. Shutting this process's own connections down ends the wait at once, with an error. The
connection to the group's store must stay: torch waits for a minute where that one ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

Ends = tuple[object, object]
"""Both addresses of a connection, because a descriptor may have been reused for another file."""


class Connections:
    """The connections that appeared while a group was made."""

    garbles = False
    has_failed = False
    """Gloo remembers no error: a collective that fails raises it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: dict[int, Ends] | None = None
        """While a group is being made: the connections that do not belong to it."""
        self._made: dict[int, Ends] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the connections made inside the block, which makes a group; that to its store must exist before."""
        with self._lock:
            self._before = open_connections()
        try:
            yield
        finally:
            with self._lock:
                self._made |= _new(self._before)
                self._before = None

    making = settling = noted
    """Gloo connects as the group is made, and to some peers with the first messages."""

    def confirm(self) -> None:
        """Nothing: a collective that has returned is done."""

    def forget(self) -> None:
        """Forget the connections of a group that is gone."""
        with self._lock:
            self._made = {}

    def cut(self) -> int:
        """Shut all noted connections down, from any thread; returns their number."""
        with self._lock:
            mine = {**self._made, **(_new(self._before) if self._before is not None else {})}
            now = open_connections()
            return sum(_shut_down(descriptor) for descriptor, ends in mine.items() if now.get(descriptor) == ends)


def open_connections() -> dict[int, Ends]:
    """Every connected TCP socket of this process by its descriptor."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as end:
                if end.family in {socket.AF_INET, socket.AF_INET6}:
                    found[int(entry.name)] = (end.getsockname(), end.getpeername())
    return found


def _new(before: dict[int, Ends]) -> dict[int, Ends]:
    return {descriptor: ends for descriptor, ends in open_connections().items() if before.get(descriptor) != ends}


def _shut_down(descriptor: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as end:
            end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    return True
