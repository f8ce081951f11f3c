"""A node's link to the store: a separate thread, so that neither a name lookup nor a dead peer blocks the agent.

The agent gives orders and takes notifications; both are queues. A link connects again by itself until it is closed,
tells at most one line about it in ten seconds, and beats once a second. The agent's machine decides what it carries.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..protocol import events
from . import client, wire
from .client import Acknowledged, Order

RETRY_SECONDS: Final = (0.05, 0.1, 0.2, 0.4)
"""Waits between attempts to connect; the last one repeats."""
SPREAD: Final = (0.5, 1.5)
"""The share of the wait that a node takes, at random: nodes that lost one store must not reconnect in step."""
FRESH_MARGIN: Final = 0.5


@dataclass(frozen=True)
class Holding:
    """A connection became the node's current one, which the supervisor, outliving the agent, is to hold too."""

    descriptor: int
    """A duplicate, which the receiver closes."""
    address: str
    """This node's own address, as the connection to the store shows it."""


@dataclass(frozen=True)
class Unreachable:
    """The store cannot be reached, and why."""

    reason: str


@dataclass(frozen=True)
class Rejected:
    """The store answers and refuses this node (a wrong token), so that trying again cannot help."""

    reason: str


Notification = events.Event | Acknowledged | Holding | Unreachable | Rejected


class Link:
    """Queues in both directions around a thread that keeps one connection to the store."""

    def __init__(self, target: client.Target, clock: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._clock = clock
        self._former: socket.socket | None = None
        """The former connection, kept open until the next one stands: its end would mark this node as disconnected."""
        self._orders: collections.deque[Order] = collections.deque()
        self._notifications: collections.deque[Notification] = collections.deque()
        self._notified_read, self._notified_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)

    def start(self) -> None:
        """Start the thread, which connects."""
        self._thread.start()

    def fileno(self) -> int:
        """Readable when there is a notification."""
        return self._notified_read

    def order(self, order: Order) -> None:
        """Send an order on the current connection; without one the order is dropped, as the machine expects."""
        self._orders.append(order)
        _poke(self._wake_write)

    def take(self) -> list[Notification]:
        """The notifications so far, oldest first."""
        if not self._closing:
            _drain(self._notified_read)
        taken = []
        while self._notifications:
            taken.append(self._notifications.popleft())
        return taken

    def close(self) -> None:
        """End the thread; earlier orders are still sent."""
        if self._closing:
            return
        self._closing = True
        _poke(self._wake_write)
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self._dispose()

    def _tell(self, *notifications: Notification) -> None:
        self._notifications.extend(notifications)
        _poke(self._notified_write)

    def _take_orders(self) -> list[Order]:
        _drain(self._wake_read)
        taken = []
        while self._orders:
            taken.append(self._orders.popleft())
        return taken

    def _dispose(self) -> None:
        """Close the descriptors that the link opened."""
        for descriptor in (self._notified_read, self._notified_write, self._wake_read, self._wake_write):
            os.close(descriptor)
        if self._former is not None:
            self._former.close()

    def _run(self) -> None:
        """The thread: connect, serve the connection until it is lost, begin again."""
        attempt = 0
        while not self._closing:
            try:
                session = self._connect()
            except (OSError, wire.WireError, UnicodeError, client.RefusalError) as error:
                if isinstance(error, client.RefusalError) and self._former is None:
                    self._tell(Rejected(str(error)))
                    return  # a node that was accepted knows the token: a refusal then comes from another store, or ends
                self._tell(Unreachable(client.why(error)))
                wait = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)] * random.uniform(*SPREAD)  # noqa: S311
                select.select([self._wake_read], [], [], wait)
                self._take_orders()
                attempt += 1
                continue
            attempt = 0
            self._serve(session)

    def _connect(self) -> client.Session:
        session, first = client.connect(self._target, self._clock)
        if self._former is not None:
            self._former.close()
        self._former = session.socket
        self._take_orders()  # drop orders for a connection that is gone
        self._tell(Holding(os.dup(session.socket.fileno()), session.socket.getsockname()[0]), *first)
        return session

    def _serve(self, session: client.Session) -> None:
        try:
            while not self._closing:
                wait = session.wait()
                readable, _, _ = select.select([session.socket.fileno(), self._wake_read], [], [], wait)
                for order in self._take_orders():
                    session.carry_out(order)
                if session.socket.fileno() in readable:
                    self._tell(*session.receive())
                session.beat()
            for order in self._take_orders():
                session.carry_out(order)
        except client.LostError as lost:
            age = self._clock() - session.acknowledged_at
            fresh = lost.by_peer and age < wire.SILENCE_SECONDS - FRESH_MARGIN
            self._tell(events.StoreLost(fresh), Unreachable(str(lost)))


def _poke(descriptor: int) -> None:
    """Wake the reader of this pipe; a closed pipe has none."""
    with contextlib.suppress(OSError):  # full means awake already, closed means that the thread has ended
        os.write(descriptor, b"x")


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass
