"""Events as JSON lines for programs (``ELASTIC_INFRA_EVENTS``).

One object a line: ``time`` (UTC), ``monotonic``, ``event``, ``node``, ``generation``, ``attempt``, then the event's own
fields. A line is written in one call, so supervisor and agent may share a file. Writing never fails the launch.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args

from . import console, log

Name = Literal[
    "launcher_started",
    "rendezvous_started",
    "rendezvous_completed",
    "workers_preparing",
    "workers_prepared",
    "workers_started",
    "worker_started",
    "worker_exited",
    "state_restored",
    "progress",
    "restart",
    "membership_change",
    "node_lost",
    "hang_detected",
    "hang_suspected",
    "fork_server",
    "watchdog_fired",
    "agent_replaced",
    "stopping",
    "preempted",
    "succeeded",
    "failed",
]
NAMES: Final[frozenset[str]] = frozenset(get_args(Name))

Value = str | int | float | bool | None


class EventLog:
    """Appends events to a file, to stderr, or nowhere."""

    def __init__(
        self,
        target: str,
        node: str,
        lines: console.Console | None = None,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a log, which opens its file at the first event.

        Args:
            target: a path, ``-`` for stderr, or empty for nothing.
            node: name or uuid of this node.
            lines: takes the lines for stderr; None writes each line at once and waits for the reader.
            wall: the wall clock.
            monotonic: CLOCK_MONOTONIC.
        """
        self._target = target
        self._node = node
        self._write_line = lines.write if lines else functools.partial(console.write_all, 2)
        self._say = lines.say if lines else log.say
        self._wall = wall
        self._monotonic = monotonic
        self._has_failed = False

    def write(self, event: Name, *, generation: int, attempt: int, fields: Mapping[str, object]) -> None:
        """Write one line; only the first failure to write is reported."""
        if not self._target:
            return
        head: dict[str, object] = {
            "time": utc(self._wall()),
            "monotonic": round(self._monotonic(), 6),
            "event": event,
            "node": self._node,
            "generation": generation,
            "attempt": attempt,
        }
        text = json.dumps({**head, **fields}, ensure_ascii=False) + "\n"
        try:
            self._append(text.encode(errors="replace"))
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                self._say(f"events cannot be written: {error.strerror}.")

    def _append(self, data: bytes) -> None:
        if self._target == "-":
            self._write_line(data)
            return
        descriptor = os.open(self._target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


def utc(wall: float) -> str:
    """A moment in the form of the field ``time``."""
    moment = dt.datetime.fromtimestamp(wall, tz=dt.timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
