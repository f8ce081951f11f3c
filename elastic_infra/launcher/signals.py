"""Signal handlers that are live before anything heavy is imported.

As PID 1 a process without handlers ignores SIGTERM; torchrun installs its own only after the first rendezvous
(https://github.com/pytorch/pytorch/issues/63802). The handlers only note the signal and wake the loop, which decides.
This module imports few modules, so that the handlers are live early.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

FIRST = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals handled until the command line is read: torchrun's default list."""


class Signals:
    """The signals that asked this process to end, oldest first, and a descriptor that wakes a selector."""

    def __init__(self) -> None:
        self.caught: list[int] = []
        self.fd, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @classmethod
    def install(cls) -> Signals:
        """Handle torchrun's default signals, and have every SIGCHLD wake the loop."""
        signals = cls()
        signal.set_wakeup_fd(signals._wake, warn_on_full_buffer=False)
        signals.handle(FIRST)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        return signals

    def handle(self, numbers: Iterable[int]) -> None:
        """Note these signals from now on, and give the other signals of the first list their default.

        Raises:
            OSError: a signal cannot be caught (SIGKILL, SIGSTOP).
        """
        wanted = set(numbers)
        for number in wanted:
            signal.signal(number, self._note)
        for number in set(FIRST) - wanted:
            signal.signal(number, signal.SIG_DFL)

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            return

    def _note(self, number: int, _frame: object) -> None:
        self.caught.append(number)


def restore_defaults() -> None:
    """In a child: remove the parent's handlers, and stop ignoring the signals that the interpreter ignores."""
    signal.set_wakeup_fd(-1)
    for number in (*FIRST, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
