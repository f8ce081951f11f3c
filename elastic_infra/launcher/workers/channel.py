"""The messages between the agent and a worker that can be moved, and the socket between them.

A worker that keeps its process while nodes come and go is moved: it leaves its process group, parks, and enters the
next generation's group. A worker says that it can be moved by connecting to the socket that ``VARIABLE`` names, and the
agent welcomes it; the others are stopped and started again. Each message is one of the dataclasses below, as one packet
of JSON whose ``type`` is the class's name. The worker's side is ``elastic_infra.training``. This module does not decide
when to move.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from .. import codec

VARIABLE: Final = "ELASTIC_INFRA_CHANNEL"
"""Path of the agent's socket in a worker's environment (wire contract)."""

LONGEST: Final = 1 << 16
"""Bytes of a message: an ``Enter`` has about one kilobyte."""

WELCOME_SECONDS: Final = 30.0
"""An agent answers in milliseconds; one that does not, for example because its node stands still, moves no worker."""

Saves = Literal["nothing", "part", "whole"]

_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred`` of SO_PEERCRED (unix(7)): pid, uid, gid."""


# ---------------------------------------------------------- agent -> worker


@dataclass(frozen=True)
class Welcome:
    """The process that connected is a worker of the launcher."""


@dataclass(frozen=True)
class Break:
    """The generation ends in the middle of a step: leave the step, even from a collective that waits, and park."""

    generation: int


@dataclass(frozen=True)
class Enter:
    """Join the process group of a generation; answered by ``In``, or by ``Failed`` where the group cannot be made."""

    generation: int
    environ: dict[str, str]
    """The current values of torchrun's variables and the launcher's, which the worker sets in its own environment."""
    behind: bool = False
    """Others went on while this worker was parked: it takes the state from them, whatever it holds."""


@dataclass(frozen=True)
class Dismiss:
    """Training goes on without this process: leave the loop and exit."""

    saves: Saves = "nothing"
    """What the worker saves to disk first. ``part``: its part of the state, as all workers of the generation do.
    ``whole``: the whole state without the other ranks, which may be gone."""


# ---------------------------------------------------------- worker -> agent


@dataclass(frozen=True)
class Ready:
    """Model and optimizer are built: this worker, in no generation so far, can enter one."""


@dataclass(frozen=True)
class In:
    """The worker is in the generation's group and trains; sent again when ``obstacle`` changes."""

    generation: int
    obstacle: str = ""
    """Why the worker cannot be moved; empty where it can."""


@dataclass(frozen=True)
class Failed:
    """A collective of the generation failed, most likely because a peer is gone: the worker waits for ``Break``."""

    generation: int
    message: str


@dataclass(frozen=True)
class Parked:
    """The main thread has left the generation's group and trains no more until it enters another one."""

    generation: int
    step: int
    """Number of steps that this worker has completed."""


@dataclass(frozen=True)
class Stuck:
    """Nothing frees the main thread from a collective of the generation that broke: waiting for it is in vain."""

    generation: int


Message = Welcome | Break | Enter | Dismiss | Ready | In | Failed | Parked | Stuck

_TYPES: Final[Mapping[str, type[Message]]] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """The message as one packet."""
    return json.dumps({"type": type(message).__name__, **codec.to_json(message)}).encode()


def decode(packet: bytes) -> Message:
    """The message of one packet.

    Raises:
        ValueError, TypeError, KeyError: the packet is no message of these types.
    """
    fields = json.loads(packet)
    return codec.from_json(_TYPES[fields.pop("type")], fields)


@dataclass
class Connection:
    """One end of the channel."""

    end: socket.socket
    pid: int
    """Pid of the process at the other end at the time when it connected or listened."""

    def fileno(self) -> int:
        """The descriptor by which a selector watches this end."""
        return self.end.fileno()

    def send(self, message: Message) -> bool:
        """Write one message; False where the other side is gone or does not read."""
        try:
            self.end.send(encode(message), socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def receive(self) -> Message | None:
        """Read one message; None where the other side is gone or its packet is no message."""
        try:
            packet = self.end.recv(LONGEST)
            return decode(packet) if packet else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def close(self) -> None:
        """Close this end; the other end reads the end of the stream."""
        self.end.close()


@dataclass
class Server:
    """The agent's socket, to which its node's workers connect."""

    path: str
    end: socket.socket
    _waiting: list[Connection] = field(default_factory=list)
    """Connections from processes that are not known to be workers yet."""

    @classmethod
    def listen(cls, path: str) -> Server:
        """Make the socket, which processes of the same user alone can reach.

        Raises:
            OSError: the socket cannot be made, for example because its path is too long.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # a replaced agent may have left its socket
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            before = os.umask(0o177)  # the umask is the process's, and the agent has only one thread at this time
            try:
                end.bind(path)
            finally:
                os.umask(before)
            end.listen(64)
            end.setblocking(False)  # noqa: FBT003  its only form
        except OSError:
            end.close()
            raise
        return cls(path, end)

    def fileno(self) -> int:
        """The descriptor by which a selector watches for connections."""
        return self.end.fileno()

    def accept(self) -> None:
        """Take one connection; ``claim`` gives it out once its process is known to be a worker."""
        try:
            end, _ = self.end.accept()
        except OSError:
            return
        end.setblocking(False)  # noqa: FBT003  its only form
        self._waiting.append(Connection(end, peer_of(end)))

    def claim(self, pid: int) -> Connection | None:
        """The connection of this worker, which is welcomed; None while there is none. A second one is closed."""
        mine = [connection for connection in self._waiting if connection.pid == pid]
        self._waiting = [connection for connection in self._waiting if connection.pid != pid]
        for extra in mine[1:]:
            extra.close()
        if mine:
            mine[0].send(Welcome())
        return mine[0] if mine else None

    def drop_unclaimed(self) -> None:
        """Close connections of processes that are no workers: children of workers inherit the variable."""
        for connection in self._waiting:
            connection.close()
        self._waiting = []

    def close(self) -> None:
        """Take no more connections."""
        self.drop_unclaimed()
        self.end.close()


def peer_of(end: socket.socket) -> int:
    """Pid of the process at the other end, as the kernel saw it connect."""
    pid: int = _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
    return pid


def connect(environ: Mapping[str, str]) -> Connection | None:
    """The worker's end, whose reads wait; None where no agent listens."""
    path = environ.get(VARIABLE)
    if not path:
        return None
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        end.connect(path)
    except OSError:
        end.close()
        return None
    return Connection(end, peer_of(end))


def is_welcome(connection: Connection) -> bool:
    """Whether the agent takes this process for a worker; waits for the answer, and closes the end without one.

    The launcher may have started a program that has started this process, which inherits the variable.
    """
    connection.end.settimeout(WELCOME_SECONDS)
    if not isinstance(connection.receive(), Welcome):
        connection.close()
        return False
    connection.end.settimeout(None)
    return True
