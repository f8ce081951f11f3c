"""The supervisor's own children beside the workers: the agent, and the store server where this node hosts it.

Only this module reaps children. It does not decide when a child must end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

from .. import ipc, processes
from ..store import wire
from .ownership import Owner

_DUMP_SECONDS: Final = 0.5
_LAST_LINES_SECONDS: Final = 2.0
"""The least time that a leaving agent gets to write its last lines."""
_GONE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.01
_FAREWELL_SECONDS: Final = 0.5
"""A running store reads a farewell in milliseconds; a store that is gone must not keep the launcher from ending."""

AgentMain = Callable[[ipc.Channel], None]
StoreMain = Callable[[str, int, Callable[[int], None]], None]


class Children:
    """The agent at the other end of the channel, the hosted store, and the orphans that the kernel hands over."""

    def __init__(self, agent: AgentMain, store: StoreMain, owner: Owner) -> None:
        self._agent_main = agent
        self._store_main = store
        self._owner = owner
        self._store = 0
        self._store_report: int | None = None
        self._store_port = 0
        self._hosting: ipc.HostStore | None = None
        """The store that this node serves, with the port at which it has listened."""
        self._held: int | None = None
        self.channel, self.agent = _fork_agent(agent)

    def known(self) -> tuple[int, ...]:
        """Pids of the children that belong to no generation."""
        return tuple(pid for pid in (self.agent, self._store) if pid)

    def send(self, message: ipc.Message) -> None:
        """Send the agent a message, which is lost if the agent is gone or its channel full; the watchdog sees that."""
        with contextlib.suppress(OSError):
            self.channel.send(message)

    def reap(self) -> Iterator[tuple[int, int]]:
        """Every child that ended, orphans included, with its wait status."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.agent:
                self.agent = 0
            elif pid == self._store:
                self._store = self._store_port = 0
                self.send(ipc.StoreHosted(0, f"The store server ended with status {status}."))
            yield pid, status

    def hold_store(self) -> None:
        """Keep the newest store connection open, and close the one before."""
        if self._held is not None:
            os.close(self._held)
        self._held = self.channel.descriptors.pop(0)
        os.set_inheritable(self._held, False)  # noqa: FBT003  its only form

    def host_store(self, message: ipc.HostStore) -> None:
        """Start the store server, unless one runs; ``tell_store`` reports the outcome.

        A free port is chosen once: nodes look for the store's successor at the port that they know.
        """
        if self._store:
            return
        self._hosting = message = self._hosting or message
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

        def listening(port: int) -> None:
            os.write(writer, str(port).encode())
            os.close(writer)

        def child() -> None:
            os.close(reader)
            try:
                self._store_main(message.host, message.port, listening)
            except OSError as error:
                os.write(writer, str(error).encode())

        self._store = processes.fork(child)
        os.close(writer)
        self._store_report = reader

    @property
    def is_store_starting(self) -> bool:
        """Whether the store server has yet to say that it listens."""
        return self._store_report is not None

    def tell_store(self) -> None:
        """Tell the agent where the store listens, or why it does not; finding the address may take a while."""
        if self._store_report is None:
            return
        try:
            answer = os.read(self._store_report, 4096).decode()
        except BlockingIOError:
            return
        os.close(self._store_report)
        self._store_report = None
        self._store_port = port = int(answer) if answer.isdecimal() else 0
        if port and self._hosting is not None:
            self._hosting = dataclasses.replace(self._hosting, port=port)
        self.send(ipc.StoreHosted(port, "" if port else answer or "The store server could not start."))

    def dump_agent(self) -> None:
        """Have a stuck agent write its stacks, if its handler still runs."""
        processes.without_core(self.agent)
        processes.send(self.agent, signal.SIGABRT)
        processes.send(self.agent, signal.SIGCONT)
        self._await_end(lambda: self.agent, _DUMP_SECONDS)

    def replace_agent(self) -> None:
        """Start another agent as another node; tell the store that the old node has ended with all its workers."""
        self._kill(self.agent)
        self._release_store_connection(is_clear=True)
        self.channel.close()
        self.channel, self.agent = _fork_agent(self._agent_main)
        if self._store_port:
            self.send(ipc.StoreHosted(self._store_port, ""))
        elif self._hosting is not None:
            self.host_store(self._hosting)

    def end(self, leave: ipc.Leave, interrupted: Callable[[], bool], *, is_clear: bool) -> None:
        """End agent and store; both keep their remaining time as long as no signal comes.

        Args:
            leave: how long agent and store may go on.
            interrupted: whether a signal asks to end now.
            is_clear: whether no worker is left, so that the store may be told.
        """
        self._release_store_connection(is_clear=is_clear)
        now = time.monotonic()
        deliver_until, keep_until = now + leave.delivery_seconds, now + leave.keep_store_seconds
        while not interrupted() and (
            self._is_until(self.agent, deliver_until) or self._is_until(self._store, keep_until)
        ):
            self._drain()
            time.sleep(_POLL_SECONDS)
        self._await_end(lambda: self.agent, _LAST_LINES_SECONDS)
        self._kill(self.agent)
        self._kill(self._store)
        self.channel.close()
        self._kill_orphans()

    def _release_store_connection(self, *, is_clear: bool) -> None:
        """Close the held connection, for which a hosted store waits too; say farewell first where no worker is left."""
        if self._held is None:
            return
        with socket.socket(fileno=self._held) as connection:
            if is_clear:
                _say_farewell(connection)
        self._held = None

    def _is_until(self, pid: int, deadline: float) -> bool:
        return bool(pid) and time.monotonic() < deadline

    def _kill(self, pid: int) -> None:
        if pid:
            processes.send(pid, signal.SIGKILL)
            self._await_end(lambda: pid if pid in self.known() else 0, _GONE_SECONDS)

    def _kill_orphans(self) -> None:
        deadline = time.monotonic() + _GONE_SECONDS
        while time.monotonic() < deadline:
            self._drain()
            orphans = [process for process in processes.scan() if self._owner.owns(process)]
            if not orphans:
                return
            for process in orphans:
                processes.send(process.pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)

    def _await_end(self, pid: Callable[[], int], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while pid() and time.monotonic() < deadline:
            self._drain()
            time.sleep(_POLL_SECONDS)

    def _drain(self) -> None:
        for _ in self.reap():
            pass


def _say_farewell(connection: socket.socket) -> None:
    """Tell the store that this node has ended, and wait until the store has read it.

    A connection that is closed with answers unread is reset, and a reset may overtake the message sent before it.
    """
    deadline = time.monotonic() + _FAREWELL_SECONDS
    try:
        connection.settimeout(_FAREWELL_SECONDS)
        connection.sendall(wire.FAREWELL)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16) and time.monotonic() < deadline:
            pass
    except OSError:
        return  # there is no store to tell


def _fork_agent(agent: AgentMain) -> tuple[ipc.Channel, int]:
    ours, theirs = socket.socketpair()

    def child() -> None:
        ours.close()
        faulthandler.enable()
        agent(ipc.Channel(theirs))

    pid = processes.fork(child)
    theirs.close()
    ours.settimeout(1.0)
    return ipc.Channel(ours), pid
