"""The launcher's own lines on a stream that other processes share and whose reader may be paused or gone.

A thread writes the lines, so that the process never waits for the reader. The stream keeps its mode, because
``O_NONBLOCK`` belongs to the open file, which the workers and the user's shell share.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable
from typing import Final

from . import log

LINES: Final = 10_000
"""The most lines that wait for the reader: a paused reader must not cost unbounded memory."""


class Console:
    """Lines that wait for their reader; those beyond ``LINES`` are dropped and counted."""

    def __init__(self, write: Callable[[bytes], None], lines: int = LINES) -> None:
        """Prepare a console, which writes only after ``start``.

        Args:
            write: writes all of its argument, however long that takes.
            lines: how many lines may wait.
        """
        self._write = write
        self._lines: queue.Queue[bytes] = queue.Queue(lines)
        self._dropped = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)

    @classmethod
    def start(cls, descriptor: int) -> Console:
        """A console for a descriptor, with its thread running."""
        console = cls(lambda data: write_all(descriptor, data))
        console.run()
        return console

    def run(self) -> None:
        """Write the queued lines until the console is closed or its reader is gone."""
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queue a line, without waiting for the reader."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def say(self, text: str) -> None:
        """Queue one of the launcher's own lines, with the launcher's name in front."""
        self.write(_own(text))

    def close(self, seconds: float) -> bool:
        """Wait at most so many seconds until all lines are written; returns whether they are."""
        self._closed.set()
        self.write(b"")  # wakes the thread; where the queue is full the thread is awake
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not (self._closed.is_set() and self._lines.empty()):
                self._write(self._lines.get())
                self._tell_dropped()
        except OSError:
            return  # the reader is gone

    def _tell_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped:
            self._write(_own(f"{dropped} lines of the launcher were dropped: they were not read in time."))


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the text, however long its reader takes.

    Raises:
        OSError: the stream's reader is gone.
    """
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # another process made the shared stream non-blocking
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


def say_if_ready(descriptor: int, text: str) -> None:
    """Write a short line if its reader takes it now, else drop it; for a process without a writing thread."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    if poll.poll(0):
        try:
            os.write(descriptor, _own(text))
        except OSError:
            return


def _own(text: str) -> bytes:
    return f"{log.PROGRAM}: {text}\n".encode(errors="replace")
