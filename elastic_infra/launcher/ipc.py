"""The channel between supervisor and agent: one AF_UNIX stream socketpair, one JSON object a line, both ways.

The supervisor forks the agent (no exec) and keeps one end; the agent gets the other. Each message is one of the
dataclasses below; its ``type`` on the wire is the class's name. A message may carry one file descriptor
(``SCM_RIGHTS``) where its docstring says so. A closed channel means that the other side is dead: the agent then exits
at once (its parent-death signal does the same), the supervisor applies its watchdog rule. Both ends run in one
container and trust each other. This module holds only the messages and their wire form.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from . import codec

AgentPhase = Literal["rendezvous", "starting", "monitoring", "stopping", "finishing"]
"""The agent's phase, for the watchdog: each phase has its own budget of silence."""


# ------------------------------------------------------ agent -> supervisor


@dataclass(frozen=True)
class WorkerSpec:
    """One worker to start, complete: the supervisor adds only process attributes."""

    local_rank: int
    argv: tuple[str, ...]
    env: dict[str, str]
    """The worker's whole environment."""
    stdout: str | None = None
    """Path of the log file, or None for the launcher's own stream."""
    stderr: str | None = None


@dataclass(frozen=True)
class Spawn:
    """Start workers; each answers with ``WorkerStarted`` or ``WorkerEnded``.

    ``spawn`` is, here and below, the agent's count of the times that all workers of this node were started: workers
    that live on in a later generation keep the number, and workers that replace ended ones get it. A generation's
    number would not do, since an answer about ended workers could be taken for one about their successors.
    """

    spawn: int
    workers: tuple[WorkerSpec, ...]
    warm: bool
    """Whether to fork from the fork server where it is ready or comes first, else exec."""


LOAD_SECONDS: Final = 120.0
"""How long nodes and workers wait for the fork server: an import that hangs must not keep them out."""


@dataclass(frozen=True)
class WarmUp:
    """Start the fork server now unless it was started; answered by ``ForkServerState``."""


@dataclass(frozen=True)
class Stop:
    """End the workers of a spawn: ``first`` to each worker alone, SIGKILL to all their groups after the grace.

    The supervisor owns the deadline, so that it holds while the agent is frozen. Answered by ``GroupGone`` once no
    process of these groups is left and none holds an accelerator, also when nothing ran. A repeated order only moves
    the deadline earlier.
    """

    spawn: int
    grace_seconds: float
    first: Literal["SIGTERM", "stacks", "SIGKILL", "none"]
    reason: str


@dataclass(frozen=True)
class Kill:
    """End these workers and their children at once, also before they run; the others live on.

    Answered by ``WorkerEnded`` for each.
    """

    spawn: int
    local_ranks: tuple[int, ...]


@dataclass(frozen=True)
class DumpStacks:
    """Make the workers write every thread's stack to their stderr, without ending them."""

    spawn: int


@dataclass(frozen=True)
class HoldStore:
    """The store connection's file descriptor, sent by SCM_RIGHTS.

    The supervisor keeps the descriptor open, closes the former one, and uses it once: when agent and workers are gone,
    the supervisor says farewell on it, from which the store learns that this node is dead.
    """


@dataclass(frozen=True)
class BeatAcked:
    """The store answered a beat that was sent at this CLOCK_MONOTONIC time: re-arms the dead-man timer.

    Once the timer is due it no longer re-arms: ``Suspended`` comes first.
    """

    sent_at: float
    orphan_timeout_seconds: float


@dataclass(frozen=True)
class Resume:
    """The generation of suspended workers stands: they go on, unless they have been killed already."""

    spawn: int


@dataclass(frozen=True)
class AgentBeat:
    """The agent's loop went round; sent at least every second."""

    phase: AgentPhase


@dataclass(frozen=True)
class HostStore:
    """Run a store server as a child of the supervisor on this address; answered by ``StoreHosted``."""

    host: str
    port: int


@dataclass(frozen=True)
class Note:
    """The root cause so far, for the termination message if the supervisor has to end without the agent."""

    report: dict[str, object]


@dataclass(frozen=True)
class Leave:
    """The agent exits next. The supervisor ends the remaining processes and exits with this code."""

    code: int
    reason: str
    keep_store_seconds: float = 0.0
    """How long a hosted store may go on serving peers that have yet to read the end of the job."""
    delivery_seconds: float = 0.0
    """How long the agent may stay to deliver output to a slow reader."""


# ------------------------------------------------------ supervisor -> agent


@dataclass(frozen=True)
class WorkerStarted:
    """A worker of this node was started."""

    spawn: int
    local_rank: int
    pid: int
    warm: bool


@dataclass(frozen=True)
class WorkerEnded:
    """A worker was reaped, or never ran (``pid`` 0): it was killed before, or not started (``error`` says why)."""

    spawn: int
    local_rank: int
    pid: int
    exit_code: int
    """Negative for a signal, as in ``subprocess``."""
    at: float
    """CLOCK_MONOTONIC."""
    error: str = ""


@dataclass(frozen=True)
class Suspended:
    """The dead-man timer stopped these workers (SIGSTOP): the store has not answered for ``orphan_timeout``.

    Answered by ``Resume`` if the store says in time that their generation stands. Otherwise they are killed, and
    ``GroupGone`` says ``orphaned``; a ``WorkerEnded`` in between is no failure of the worker.
    """

    spawn: int


@dataclass(frozen=True)
class GroupGone:
    """No process of this spawn is left on this node."""

    spawn: int
    killed: tuple[int, ...] = field(default=())
    """Local ranks that had to be killed at the deadline."""
    orphaned: bool = False
    """Whether the dead-man timer killed the workers."""


@dataclass(frozen=True)
class SignalCaught:
    """The supervisor got a signal that asks it to end."""

    signal: int


@dataclass(frozen=True)
class ForkServerState:
    """The fork server's state changed."""

    ready: bool
    message: str = ""
    left_out: tuple[str, ...] = ()
    """Modules, each with the reason, that the fork server leaves to the workers and has not reported before."""


@dataclass(frozen=True)
class StoreHosted:
    """The hosted store listens on ``port``; or the store could not start, or ended (``error``)."""

    port: int
    error: str = ""


Message = (
    Spawn
    | WarmUp
    | Stop
    | Kill
    | DumpStacks
    | HoldStore
    | BeatAcked
    | Resume
    | AgentBeat
    | HostStore
    | Note
    | Leave
    | WorkerStarted
    | WorkerEnded
    | Suspended
    | GroupGone
    | SignalCaught
    | ForkServerState
    | StoreHosted
)

_TYPES: Final[Mapping[str, type[Message]]] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """The message as one line of JSON."""
    return json.dumps({"type": type(message).__name__, **codec.to_json(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line.

    Raises:
        ValueError, TypeError, KeyError: the line is no message of these types.
    """
    fields = json.loads(line)
    return codec.from_json(_TYPES[fields.pop("type")], fields)


class Channel:
    """One end of the channel: sends and receives whole messages, with descriptors."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = bytearray()
        self.descriptors: list[int] = []
        """Descriptors received and not yet taken, oldest first."""

    def fileno(self) -> int:
        """The descriptor by which a selector watches this end."""
        return self._socket.fileno()

    def send(self, message: Message, descriptor: int | None = None) -> None:
        """Write one message; blocks while the other side does not read.

        Raises:
            OSError: the other side is gone.
        """
        line = encode(message)
        sent = 0
        if descriptor is not None:
            sent = socket.send_fds(self._socket, [line], [descriptor])
        self._socket.sendall(line[sent:])

    def receive(self) -> Iterator[Message]:
        """Read once; returns the messages completed by the bytes.

        Raises:
            EOFError: the other side closed the channel.
            BlockingIOError: a non-blocking socket has no bytes to read.
        """
        data, descriptors, _, _ = socket.recv_fds(self._socket, 1 << 16, 8)
        self.descriptors.extend(descriptors)
        if not data:
            message = "The other side of the channel is gone."
            raise EOFError(message)
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            yield decode(line)

    def close(self) -> None:
        """Close this end; the other end reads the end of the stream."""
        self._socket.close()
