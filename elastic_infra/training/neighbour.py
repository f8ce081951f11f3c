"""Sends what only one node holds of a snapshot to the next node, which keeps the bytes should the first node be lost.

Both ends are threads of workers, so that training goes on meanwhile. The sender connects for each snapshot. The
receiver says a nonce; the sender answers with the length and the place for which it is. Once the receiver has room it
says so, and the sender sends the content. A keyed digest of each with the nonce follows it, and the receiver confirms
what it keeps. The group makes the key anew for each generation and exchanges it over its own connections: workers do
not know the store's token. A stranger gets the nonce and nothing else, and a node of an old generation is a stranger.
What did not come whole is not kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import hmac
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

NONCE_BYTES: Final = 32
DIGEST_BYTES: Final = 32
HEADER_BYTES: Final = 16
"""The length of the content, and the number of the place for which it is."""
SECONDS: Final = 5.0
"""Time for all that comes before the content, and for each part of it; then both ends give the snapshot up."""
ROOM_SECONDS: Final = 60.0
"""Time for the receiver to make room, which takes seconds for tens of gigabytes of memory."""
PART_BYTES: Final = 1 << 20
MAX_CONNECTIONS: Final = 16
"""Connections at a time: the neighbour has one, and strangers cannot take all memory."""
FAILURES: Final = 3
"""Attempts in a row that fail before a warning: where a node is lost, its group ends after one or two."""
RETRY_SECONDS: Final = 0.5
SHARE: Final = 0.02
"""Share of one processor's time that sending takes at most, because training needs the processor too."""

_READY: Final = b"\x02"
"""The receiver's answer once it has room."""
_KEPT: Final = b"\x01"
"""The receiver's answer once a snapshot is kept."""

Address = tuple[str, int]
Content = Callable[[], "bytes | memoryview | None"]


@dataclasses.dataclass(frozen=True)
class Invitation:
    """What a receiver says to the other ranks when a group begins."""

    address: Address
    """Where it takes snapshots."""
    key: bytes = dataclasses.field(repr=False)
    """Proposed for the whole group, which takes the first one's."""


@dataclasses.dataclass(frozen=True)
class Room:
    """Where the content of a snapshot goes."""

    target: memoryview
    keep: Callable[[], None]
    """Called once the content is there, whole."""


class Receiver:
    """Takes the snapshots of the node before this one.

    Args:
        room: gives room for a snapshot, by its place and its length; None where there is none. Called from the
            receiver's threads. Snapshots for one place come one at a time.
    """

    def __init__(self, room: Callable[[int, int], Room | None]) -> None:
        self._room = room
        self._key = b""
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._turns: dict[int, threading.Lock] = defaultdict(threading.Lock)
        """By place: held while a snapshot comes."""
        self._coming: set[socket.socket] = set()
        """Connections whose sender has shown the key."""
        self._changed = threading.Condition()
        self._listener: socket.socket | None = None

    def invitation(self, environ: Mapping[str, str] = os.environ) -> Invitation:
        """Where snapshots arrive, as other nodes reach it.

        Raises:
            OSError: no port or thread can be had, or there is no route to the others.
        """
        host = route_to(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]))
        return Invitation((host, self.listen()), os.urandom(32))

    def listen(self) -> int:
        """The port at which snapshots arrive; the system chooses it with the first call.

        Raises:
            OSError: no port or thread can be had.
        """
        if self._listener is None:
            listener = _listener()
            try:
                _start("neighbour", self._serve, listener)
            except OSError:
                listener.close()
                raise
            self._listener = listener
        return int(self._listener.getsockname()[1])

    def follow(self, key: bytes) -> None:
        """Take the snapshots of a sender with this key alone, and none with an empty key.

        One of another key that has not come whole is given up. Once this method returns its room is not written to.
        """
        with self._changed:
            if key == self._key:
                return
            self._key = key
            for connection in self._coming:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._coming)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # a client that left, or no descriptor is free
                time.sleep(0.1)
                continue
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            try:
                _start("neighbour-in", self._take, connection)
            except OSError:
                self._free.release()
                connection.close()

    def _take(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError, EOFError):
                self._receive(connection, self._key)
        finally:
            self._free.release()

    def _receive(self, connection: socket.socket, key: bytes) -> None:
        """Keep the content of one connection.

        Raises:
            OSError, EOFError: it did not come whole and in time, or not from a sender with the key, or has no room.
        """
        nonce = os.urandom(NONCE_BYTES)
        connection.settimeout(SECONDS)
        connection.sendall(nonce)
        deadline = time.monotonic() + SECONDS
        header = _read(connection, HEADER_BYTES, deadline)
        _require(key, nonce + header, _read(connection, DIGEST_BYTES, deadline))
        size, place = (int.from_bytes(part, "little") for part in (header[:8], header[8:]))
        with self._turns[place], self._counted(connection, key):
            room = self._room(place, size)
            if room is None:
                raise EOFError
            connection.sendall(_READY)
            total = _read_into(room.target, connection)
            _require(key, nonce + total, _read(connection, DIGEST_BYTES, time.monotonic() + SECONDS))
            room.keep()
        connection.sendall(_KEPT)

    @contextlib.contextmanager
    def _counted(self, connection: socket.socket, key: bytes) -> Iterator[None]:
        """While this lasts, ``follow`` ends the connection and waits for the end."""
        with self._changed:
            if key != self._key:
                raise EOFError
            self._coming.add(connection)
        try:
            yield
        finally:
            with self._changed:
                self._coming.remove(connection)
                self._changed.notify_all()


class Sender:
    """Sends the newest snapshot to the next node; one that waits while another is on its way gives way to a newer one.

    Args:
        warn: takes a line where snapshots do not arrive.
        what: of what they are copies, as the line has it.
        loss: what the loss of this node then means, as the line has it.
        share: share of one processor's time that sending takes at most: the thread rests after each snapshot. None, the
            default: who sends sees to it.
    """

    def __init__(self, warn: Callable[[str], None], what: str, loss: str, share: float | None = None) -> None:
        self._warn = warn
        self._what = what
        self._loss = loss
        self._share = share
        self._changed = threading.Condition()
        self._target: tuple[Address, bytes, int] | None = None
        self._waiting: Content | None = None
        self._going: Content | None = None
        self._connection: socket.socket | None = None
        self._has_arrived = True
        self._failures = 0
        self._thread: threading.Thread | None = None
        self.seconds = 0.0
        """Processor time for the last snapshot that was sent; 0 before the first."""

    def follow(self, target: Address | None, key: bytes, place: int = 0) -> None:
        """Send to this address from now on, for this place there; to none where there is no other node.

        A snapshot that is on its way to another address is given up.
        """
        with self._changed:
            self._target = (target, key, place) if target is not None else None
            self._waiting = self._going = None
            self._has_arrived, self._failures = True, 0
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
            self._changed.notify_all()

    def send(self, content: Content) -> None:
        """Have a snapshot sent; returns at once.

        Args:
            content: gives the bytes, from the sender's thread; None where there is nothing to send.
        """
        with self._changed:
            if self._target is None:
                return
            if self._thread is None:
                try:
                    self._thread = _start("neighbour-out", self._run)
                except OSError as error:
                    self._has_arrived = False
                    self._count_failure(self._target, error)
                    return
            self._waiting = content
            self._changed.notify_all()

    def await_arrival(self) -> bool:
        """Wait until no snapshot is on its way; whether the last one has arrived.

        True where none was sent since ``follow``, which ends the wait.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is None and self._going is None)
            return self._has_arrived

    def _run(self) -> None:
        while True:
            spent = self._send_next()
            if self._share is not None:
                time.sleep(spent / self._share)

    def _send_next(self) -> float:
        """Send the next snapshot; returns the processor time for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None)
            content, self._waiting, target = self._waiting, None, self._target
            self._going = content
        begin = time.thread_time()
        try:
            data = content() if content is not None else None
            has_arrived = data is not None and target is not None and self._deliver(data, target)
        except Exception as error:  # noqa: BLE001  without this thread whoever waits for an arrival waits for ever
            has_arrived = False
            self._count_failure(target, error)
        spent = time.thread_time() - begin
        with self._changed:
            if self._going is content:
                self._going, self._has_arrived, self.seconds = None, has_arrived, spent
                self._changed.notify_all()
        return spent

    def _deliver(self, data: bytes | memoryview, target: tuple[Address, bytes, int]) -> bool:
        """Send a snapshot until it arrives, a newer one waits, or the target does not take it."""

        def is_old() -> bool:
            return self._waiting is not None or self._target is not target

        while not self._arrives(data, target):
            with self._changed:
                if self._changed.wait_for(is_old, RETRY_SECONDS) or self._failures >= FAILURES:
                    return False
        return True

    def _arrives(self, data: bytes | memoryview, target: tuple[Address, bytes, int]) -> bool:
        """Send a snapshot once; the neighbour may not have joined the generation yet."""
        address, key, place = target
        try:
            with socket.create_connection(address, SECONDS) as connection:
                with self._changed:
                    if self._target is not target:
                        return False
                    self._connection = connection
                try:
                    _send(data, connection, key, place)
                finally:
                    with self._changed:
                        self._connection = None
        except (OSError, EOFError) as error:
            self._count_failure(target, error)
            return False
        self._failures = 0
        return True

    def _count_failure(self, target: tuple[Address, bytes, int] | None, error: Exception) -> None:
        with self._changed:
            if target is None or self._target is not target:
                return
            self._failures += 1
            if self._failures == FAILURES:
                (host, port), _, _ = target
                reason = getattr(error, "strerror", None) or str(error)
                if not isinstance(error, OSError | EOFError):
                    reason = f"{type(error).__name__}: {error}"
                self._warn(
                    f"Copies of {self._what} do not reach the next node, at {host}:{port}: "
                    f"{reason or 'it ended the connection'}. Let the job's nodes reach each other at all ports, and "
                    f"see that node's log. Training goes on; if this node is lost, {self._loss}."
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


def _start(name: str, target: Callable[..., None], *given: socket.socket) -> threading.Thread:
    """Begin a thread that ends with the process.

    Raises:
        OSError: the system allows no more threads.
    """
    thread = threading.Thread(target=target, args=given, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    return thread


def _listener() -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # the kernel knows IPv6, and the network may not
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _send(content: bytes | memoryview, connection: socket.socket, key: bytes, place: int) -> None:
    nonce = _read(connection, NONCE_BYTES, time.monotonic() + SECONDS)
    header = len(content).to_bytes(8, "little") + place.to_bytes(8, "little")
    connection.settimeout(SECONDS)
    connection.sendall(header + _digest(key, nonce + header))
    _read(connection, len(_READY), time.monotonic() + ROOM_SECONDS)
    connection.settimeout(SECONDS)
    view, total = memoryview(content), hashlib.sha256()
    for begin in range(0, len(view), PART_BYTES):  # the time is that of one part, and the interpreter runs others
        part = view[begin : begin + PART_BYTES]
        connection.sendall(part)
        total.update(part)
    connection.sendall(_digest(key, nonce + total.digest()))
    _read(connection, len(_KEPT), time.monotonic() + SECONDS)


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        view = view[_received(view, connection) :]
    return bytes(data)


def _read_into(view: memoryview, connection: socket.socket) -> bytes:
    """Fill the view, and return the sum of what came."""
    connection.settimeout(SECONDS)
    total = hashlib.sha256()
    while view:
        count = _received(view[:PART_BYTES], connection)
        total.update(view[:count])
        view = view[count:]
    return total.digest()


def _received(view: memoryview, connection: socket.socket) -> int:
    count = connection.recv_into(view)
    if not count:
        raise EOFError
    return count


def _require(key: bytes, content: bytes, digest: bytes) -> None:
    if not key or not hmac.compare_digest(_digest(key, content), digest):
        raise EOFError


def _digest(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")
