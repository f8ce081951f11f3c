"""Sends what only one node holds of a snapshot to the next node, which keeps the bytes should the first node be lost.

Both ends are threads of one worker a node, so that training never waits for them. The sender connects for each
snapshot. The receiver says a nonce; the sender answers with the length, the content, and a keyed digest of each with
the nonce; the receiver confirms what it keeps. The group makes the key anew for each generation and exchanges it over
its own connections: workers do not know the store's token. A stranger gets the nonce and nothing else, and a node of an
old generation is a stranger.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

NONCE_BYTES: Final = 32
DIGEST_BYTES: Final = 32
LENGTH_BYTES: Final = 8
MAX_BYTES: Final = 1 << 28
"""Bytes of one snapshot: the generators of a thousand workers are a tenth of it."""
SECONDS: Final = 5.0
"""Time for one snapshot on its way, after which both ends give it up."""
MAX_CONNECTIONS: Final = 16
"""Connections at a time: the neighbour has one, and strangers cannot take all memory."""
FAILURES: Final = 3
"""Attempts in a row that fail before a warning: where a node is lost, its group ends after one or two."""
RETRY_SECONDS: Final = 0.5
SHARE: Final = 0.02
"""Share of one processor's time that sending takes at most, because the interpreter runs one thread at a time. Where
snapshots follow each other within some 0.1 s, not every one is sent."""

_KEPT: Final = b"\x01"
"""The receiver's answer once a snapshot is kept."""

Address = tuple[str, int]


class Receiver:
    """Takes the snapshots of the node before this one.

    Args:
        keep: called with each content that came whole, from the receiver's threads, one call at a time.
    """

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        self._keep = keep
        self._key = b""
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._turn = threading.Lock()
        self._listener: socket.socket | None = None

    def listen(self) -> int:
        """The port at which snapshots arrive; the system chooses it with the first call.

        Raises:
            OSError: no port can be had.
        """
        if self._listener is None:
            self._listener = _listener()
            threading.Thread(target=self._serve, args=(self._listener,), name="neighbour", daemon=True).start()
        return int(self._listener.getsockname()[1])

    def follow(self, key: bytes) -> None:
        """Take the snapshots of a sender with this key alone; no others any more, and none with an empty key."""
        self._key = key

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # a client that left, or no descriptor is free
                time.sleep(0.1)
                continue
            if self._places.acquire(blocking=False):
                threading.Thread(target=self._take, args=(connection,), name="neighbour-in", daemon=True).start()
            else:
                connection.close()

    def _take(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError, EOFError):
                content = _received(connection, self._key)
                with self._turn:
                    self._keep(content)
                connection.sendall(_KEPT)
        finally:
            self._places.release()


class Sender:
    """Sends the newest snapshot to the next node; one that waits while another is on its way gives way to a newer one.

    Args:
        warn: takes a line where snapshots do not arrive.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._changed = threading.Condition()
        self._target: tuple[Address, bytes] | None = None
        self._waiting: Callable[[], bytes | None] | None = None
        self._failures = 0
        self._thread: threading.Thread | None = None

    def follow(self, target: Address | None, key: bytes) -> None:
        """Send to this address from now on; to none where there is no other node."""
        with self._changed:
            self._target = (target, key) if target is not None else None
            self._waiting, self._failures = None, 0
            self._changed.notify()

    def send(self, content: Callable[[], bytes | None]) -> None:
        """Have a snapshot sent; returns at once.

        Args:
            content: gives the bytes, from the sender's thread; None where there is nothing to send.
        """
        with self._changed:
            if self._target is None:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="neighbour-out", daemon=True)
                self._thread.start()
            self._waiting = content
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None)
                content, self._waiting, target = self._waiting, None, self._target
            begin = time.thread_time()
            data = content() if content is not None else None
            if data and target is not None:
                self._deliver(data, target)
            time.sleep((time.thread_time() - begin) / SHARE)

    def _deliver(self, data: bytes, target: tuple[Address, bytes]) -> None:
        """Send a snapshot until it arrives, a newer one waits, or the target does not take it."""

        def is_old() -> bool:
            return self._waiting is not None or self._target != target

        while not self._arrives(data, target):
            with self._changed:
                if self._changed.wait_for(is_old, RETRY_SECONDS) or self._failures >= FAILURES:
                    return

    def _arrives(self, data: bytes, target: tuple[Address, bytes]) -> bool:
        """Send a snapshot once; the neighbour may not have joined the generation yet."""
        try:
            _send(data, *target)
        except (OSError, EOFError) as error:
            self._count_failure(target, error)
            return False
        self._failures = 0
        return True

    def _count_failure(self, target: tuple[Address, bytes], error: OSError | EOFError) -> None:
        with self._changed:
            if self._target != target:
                return
            self._failures += 1
            if self._failures == FAILURES:
                (host, port), _ = target
                reason = getattr(error, "strerror", None) or str(error) or "it ended the connection"
                self._warn(
                    f"Copies of the random number generators do not reach the next node, at {host}:{port}: {reason}. "
                    "Let the job's nodes reach each other at all ports. Training goes on; if this node is lost, the "
                    "generators of its workers begin anew."
                )


def route_to(host: str, port: int) -> str:
    """This machine's address as seen from a host, by the table of routes; nothing is sent.

    Raises:
        OSError: there is no route, or the name is not known.
    """
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def _listener() -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # the kernel knows IPv6, and the network may not
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _received(connection: socket.socket, key: bytes) -> bytes:
    """The content of one connection.

    Raises:
        OSError, EOFError: it did not come whole and in time, or not from a sender with the key.
    """
    deadline = time.monotonic() + SECONDS
    nonce = os.urandom(NONCE_BYTES)
    connection.settimeout(SECONDS)
    connection.sendall(nonce)
    length = _read(connection, LENGTH_BYTES, deadline)
    _require(key, nonce + length, _read(connection, DIGEST_BYTES, deadline))
    size = int.from_bytes(length, "little")
    if size > MAX_BYTES:
        raise EOFError
    content = _read(connection, size, deadline)
    _require(key, nonce + content, _read(connection, DIGEST_BYTES, deadline))
    return content


def _send(content: bytes, address: Address, key: bytes) -> None:
    with socket.create_connection(address, SECONDS) as connection:
        nonce = _read(connection, NONCE_BYTES, time.monotonic() + SECONDS)
        length = len(content).to_bytes(LENGTH_BYTES, "little")
        connection.sendall(length + _digest(key, nonce + length) + content + _digest(key, nonce + content))
        _read(connection, len(_KEPT), time.monotonic() + SECONDS)


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(min(1 << 20, size - len(data)))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _require(key: bytes, content: bytes, digest: bytes) -> None:
    if not key or not hmac.compare_digest(_digest(key, content), digest):
        raise EOFError


def _digest(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")
