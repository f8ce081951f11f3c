"""Why a job failed: the first failing worker, the usual meaning of its exit, and the termination message.

Pure, except that a worker's error file is read and the report written. Torch's ``record`` and the bootstrap leave the
exception in ``TORCHELASTIC_ERROR_FILE``, in torch's form (``errors/error_handler.py``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
from collections.abc import Iterable, Mapping
from typing import Final

MESSAGE_BYTES: Final = 4096
"""The most bytes of a termination message that the kubelet keeps."""

ERROR_CHARACTERS: Final = 2000
"""The most of an exception's text: some list each key of a model or each rank's traceback, and the text goes into the
job's record, which every node reads."""

TRACE_CHARACTERS: Final = 20_000
"""The most of a traceback."""

MOST_EARLY: Final = 8
"""The most ranks that are named as ended early: one leads to the cause, and a job may have thousands."""

HINTS: Final[Mapping[int, str]] = {
    -signal.SIGKILL: "Killed from outside: out of memory (raise resources.memory or use less).",
    -signal.SIGABRT: "Aborted by a library, which says why on stderr. If the backend is NCCL, a collective may have "
    "timed out: look then for the rank that hung.",
    -signal.SIGSEGV: "Crashed in native code: a CUDA or extension library, or one built for another torch.",
    -signal.SIGBUS: "Bus error: most likely /dev/shm is full. Raise shared_memory or use fewer loader workers.",
    -signal.SIGILL: "Illegal instruction: the image was built for another CPU.",
    -signal.SIGFPE: "Arithmetic trap in native code.",
    -signal.SIGTERM: "Ended by SIGTERM that the launcher did not send.",
    127: "The program was not found in the image.",
    126: "The program is not executable.",
    137: "A child was killed: most likely out of memory. Raise resources.memory or use less.",
}
"""The usual meaning of an exit code, and what to do about it."""

_PEER_ENDED: Final = "A peer ended first: look for the rank that failed before this one."
_PEER_IS_LATE: Final = "A peer did not answer in time: look for the rank that hung or never started."

ERROR_HINTS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(r"OutOfMemoryError|CUDA out of memory|HIP out of memory"),
        "The accelerator's memory is full: use a smaller batch, activation checkpointing or more sharding.",
    ),
    (
        re.compile(r"DataLoader worker .*(Bus error|Killed|killed by signal)|unable to (mmap|open shared memory)"),
        "Loader workers ran out of memory: raise shared_memory and resources.memory, or use fewer of them.",
    ),
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        "A disk or /dev/shm is full.",
    ),
    (
        re.compile(r"ModuleNotFoundError|ImportError"),
        "The image lacks the module, or it is not on PYTHONPATH.",
    ),
    (
        re.compile(
            r"Connection (closed|reset) by peer|Connection refused|Broken pipe|remote process exited|NCCL error.*remote"
        ),
        _PEER_ENDED,
    ),
    (
        re.compile(r"[Tt]imed out|[Tt]imeout"),
        _PEER_IS_LATE,
    ),
)
"""The usual meaning of an exception's text, and what to do about it; the first pattern that fits counts."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """The failure of one worker."""

    rank: int
    local_rank: int
    generation: int
    attempt: int
    host: str
    pid: int
    exit_code: int
    """Negative for a signal."""
    at: float
    """Seconds since the epoch."""
    error: str = ""
    """The exception's text; empty where the worker left none."""
    traceback: str = ""
    ended_early: tuple[int, ...] = ()
    """The lowest ranks known to have exited 0 before: the early end of a rank makes its peers' collectives fail."""
    on_purpose: bool = False
    """Whether a runner that strikes jobs with faults killed the worker."""

    @property
    def message(self) -> str:
        """The failure in one line, with a hint where its kind has a usual reason."""
        ended = f"Rank {self.rank} {describe(self.exit_code)}"
        error = self.error.rstrip(".")
        parts = [f"{ended}: {error}." if error else f"{ended}."]
        if self.on_purpose:
            parts.append("The runner did this on purpose, as a fault.")
        elif self.ended_early and may_be_a_peers(self.exit_code, self.error):
            ranks = ", ".join(map(str, self.ended_early))
            parts.append(f"Rank {ranks} had exited with code 0 before: every rank must make the same collectives.")
        else:
            parts.append(hint(self.exit_code, self.error))
        return " ".join(part for part in parts if part)

    def report(self) -> dict[str, object]:
        """The fields that say something, for events and the termination message: without those at their defaults."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {**{name: value for name, value in fields.items() if value != defaults[name]}, "message": self.message}


def hint(exit_code: int, error: str) -> str:
    """The usual meaning of the exception, or else of the exit code; empty where neither is known."""
    by_error = next((text for pattern, text in ERROR_HINTS if pattern.search(error)), "")
    return by_error or HINTS.get(exit_code, "")


def may_be_a_peers(exit_code: int, error: str) -> bool:
    """Whether a peer's end can explain the failure: exception and exit code have no meaning of their own."""
    return hint(exit_code, error) in {"", HINTS[-signal.SIGABRT], _PEER_ENDED, _PEER_IS_LATE}


def describe(exit_code: int) -> str:
    """``was killed by SIGKILL`` or ``exited with code 1``."""
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def is_on_purpose(record: str, pid: int) -> bool:
    """Whether a runner's record of faults names the process; a record that cannot be read names none.

    Args:
        record: path of the file, with a process id on each line; empty where no runner keeps one.
    """
    with contextlib.suppress(OSError), open(record, encoding="utf-8", errors="replace") as file:
        return str(pid) in file.read().split()
    return False


def read_error_file(path: str) -> tuple[str, str, float | None]:
    """Exception, traceback and time from a worker's error file; empty where the file is missing or broken.

    Both texts are excerpts. The time is the file's modification time: the time in its text has whole seconds, too
    coarse to find the first failure.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            message = json.load(file)["message"]
            at = os.fstat(file.fileno()).st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return "", "", None
    if isinstance(message, str):
        return excerpt(message, ERROR_CHARACTERS), "", at
    if not isinstance(message, dict):
        return "", "", None
    extra = message.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    error = excerpt(str(message.get("message", "")), ERROR_CHARACTERS)
    return error, excerpt(str(extra.get("py_callstack", "")), TRACE_CHARACTERS), at


def excerpt(text: str, most: int) -> str:
    """A text's begin and end, of at most so many characters (20 or more), all of which can be written.

    Half a character (a lone surrogate) is shown as ``?``.
    """
    whole = text.encode(errors="replace").decode()
    return whole if len(whole) <= most else f"{whole[: most // 2]} ... {whole[5 - most // 2 :]}"


def exception_name(error: str) -> str:
    """``AssertionError`` of ``AssertionError: text``; empty where the worker left no exception."""
    return error.partition(":")[0].strip()[:100]


def root_cause(failures: Iterable[Failure]) -> Failure | None:
    """The first failure: peers of a dead rank fail too, but later; workers that SIGTERM ended come last."""
    return min(failures, key=lambda failure: (failure.exit_code == -signal.SIGTERM, failure.at), default=None)


def termination_message(code: int, reason: str, report: Mapping[str, object]) -> str:
    """JSON of at most ``MESSAGE_BYTES``: always code and reason, then as much of the root cause as fits.

    A traceback loses its first lines first, because the last lines say what failed.
    """
    message: dict[str, object] = {"exit_code": code, "reason": reason[:512], **report}
    trace = str(message.pop("traceback", ""))
    text = _json(message)
    while len(text.encode()) > MESSAGE_BYTES:
        longest = max(report, key=lambda name: len(str(message.get(name, ""))))
        message[longest] = str(message[longest])[: len(str(message[longest])) // 2]
        text = _json(message)
    while trace:
        candidate = _json({**message, "traceback": trace})
        if len(candidate.encode()) <= MESSAGE_BYTES:
            return candidate
        trace = trace[len(trace) // 4 + 1 :]
    return text


def leave_behind(
    code: int, reason: str, report: Mapping[str, object], termination_log: str, environ: Mapping[str, str]
) -> None:
    """Write the root cause for the kubelet, and into the error file that a caller named as for torchrun.

    A disk that is full must not change the exit code, by which the pod is made again or the job ends.
    """
    with contextlib.suppress(OSError):
        write_termination_message(termination_log, termination_message(code, reason, report))
    error_file = environ.get("TORCHELASTIC_ERROR_FILE")
    if error_file and report:
        with contextlib.suppress(OSError):
            write_error_file(error_file, report)


def write_termination_message(path: str, message: str) -> None:
    """Write the message where the kubelet reads it; a machine without that file is no error.

    Raises:
        OSError: the file is there and cannot be written.
    """
    if os.path.exists(path) and os.access(path, os.W_OK):
        with open(path, "w", encoding="utf-8") as file:
            file.write(message)


def write_error_file(path: str, failure: Mapping[str, object]) -> None:
    """Torchrun's own contract: the launcher's ``TORCHELASTIC_ERROR_FILE`` gets the root cause.

    Raises:
        OSError: the file cannot be written.
    """
    extra = {
        "py_callstack": str(failure.get("traceback", "")),
        "timestamp": str(int(float(str(failure.get("at", 0))))),
    }
    text = str(failure.get("error") or failure.get("message", ""))
    body = {"message": {"message": text, "errorCode": failure.get("exit_code", 1), "extraInfo": extra}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(body, file)


def _json(message: Mapping[str, object]) -> str:
    return json.dumps(message, ensure_ascii=False).encode(errors="replace").decode()
