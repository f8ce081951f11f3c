"""Threads that wait in gloo for what never comes.

Where a connection ends, gloo wakes the threads that wait for it, but for a sender whose bytes were to be written just
then and a receiver in the middle of a message: these sleep on until the timeout of their group, half an hour by
default. Once gloo has closed all connections of the group, it wakes nobody any more, so a thread that still sleeps in
one of gloo's waits is such a one. They are told from other waits by their timeout: torch's threads for collectives
have none while they have nothing to do.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import threading
from pathlib import Path
from typing import Final

Waits = tuple[tuple[int, int], ...]
"""Threads, and how often each has slept: the same in two looks where none has moved in between."""

COLLECTIVES: Final = "pt_gloo_runloop"
"""Torch's name for the threads that run gloo's collectives. Older torch names none of them, and none is recognised."""
TORCHS: Final = "torch.distributed"
"""Beginning of the names of torch's modules in which a thread waits for a message that it sends or receives."""
FUTEX: Final = {"x86_64": "202", "aarch64": "98"}.get(platform.machine())
"""The number of the system call in which threads wait for each other."""
_TIMEOUT: Final = 4
"""Place of the timeout in a line of ``/proc/self/task/*/syscall``."""


def threads() -> frozenset[int]:
    """The threads of this process, as the kernel numbers them."""
    return frozenset(int(entry.name) for entry in Path("/proc/self/task").iterdir())


def in_gloo(older: frozenset[int]) -> Waits:
    """The main thread and those of gloo's that sleep in a wait; empty where the main thread does not wait for gloo.

    Args:
        older: threads that belong to other groups.
    """
    main = os.getpid()
    waiting = _sleep(main)
    if waiting is None:
        return ()
    if waiting[1] and _waits_for_message():
        return ((main, waiting[0]),)
    found = []
    for thread in sorted(threads() - older):
        sleep = _sleep(thread) if _name(thread) == COLLECTIVES else None
        if sleep is not None and sleep[1]:
            found.append((thread, sleep[0]))
    return ((main, waiting[0]), *found) if found else ()


def _sleep(thread: int) -> tuple[int, bool] | None:
    """How often a thread has slept, and whether it sleeps with a timeout; None where it does not wait for another."""
    with contextlib.suppress(OSError):
        call = _read(thread, "syscall").split()
        if call and call[0] == FUTEX:
            status = dict(line.split(":", 1) for line in _read(thread, "status").splitlines())
            return int(status["voluntary_ctxt_switches"]), int(call[_TIMEOUT], 16) != 0
    return None


def _waits_for_message() -> bool:
    """Whether the main thread is in a function of torch's that sends or receives, or in one of this package's."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  Python has no other way
    name = frame.f_globals.get("__name__", "") if frame is not None else ""
    return name.startswith(TORCHS) or name == f"{__package__}.exchange"


def _name(thread: int) -> str:
    with contextlib.suppress(OSError):
        return _read(thread, "comm").strip()
    return ""


def _read(thread: int, name: str) -> str:
    return Path(f"/proc/self/task/{thread}/{name}").read_text()
