"""A TCP proxy on loopback that ends connections as middleboxes do."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Literal

End = Literal["FIN", "RST"]


class Proxy:
    """Passes every connection on to a port, until told to end those that stand."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._target = port
        self._cut: End | None = None
        self._is_closing = False
        self.cuts = 0
        """Connections ended so far."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def cut(self, end: End) -> None:
        """End every connection that stands, on both sides; new ones are served."""
        self._cut = end

    def close(self) -> None:
        """Close every connection and the listener."""
        self._is_closing = True
        self._thread.join()

    def _run(self) -> None:
        pairs: dict[socket.socket, socket.socket] = {}
        with self._listener, selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._is_closing:
                for key, _ in selector.select(0.02):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    if end is self._listener:
                        near, _ = self._listener.accept()
                        far = socket.create_connection(("127.0.0.1", self._target))
                        pairs |= {near: far, far: near}
                        selector.register(near, selectors.EVENT_READ)
                        selector.register(far, selectors.EVENT_READ)
                    elif end in pairs and not _passes_on(end, pairs[end]):
                        self._end(pairs, selector, end, None)
                if self._cut:
                    for end in list(pairs):
                        self._end(pairs, selector, end, self._cut)
                        self.cuts += 1
                    self._cut = None
            for end in list(pairs):
                self._end(pairs, selector, end, None)

    def _end(
        self,
        pairs: dict[socket.socket, socket.socket],
        selector: selectors.BaseSelector,
        end: socket.socket,
        how: End | None,
    ) -> None:
        for each in (end, pairs.pop(end, end)):
            if each.fileno() >= 0:
                pairs.pop(each, None)
                selector.unregister(each)
                if how == "RST":
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.close()


def _passes_on(end: socket.socket, other: socket.socket) -> bool:
    try:
        data = end.recv(1 << 16)
        other.sendall(data)
    except OSError:
        return False
    return bool(data)


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """A proxy for the length of a block."""
    serving = Proxy(port)
    try:
        yield serving
    finally:
        serving.close()
