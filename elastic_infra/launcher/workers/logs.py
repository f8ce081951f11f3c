"""The destinations of the workers' output: files by generation, and the console.

Each generation has its own folder, so that a membership change never deletes the output of the generation before (with
torchrun's ``attempt_<restart count>`` it does). ``destinations`` is pure; ``Tail`` copies teed files to a stream from a
thread of the agent.
"""

from __future__ import annotations

import codecs
import dataclasses
import io
import os
import string
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Final

from ..command_line.option_values import Stream
from ..command_line.plan import LogPlan

_INTERVAL_SECONDS: Final = 0.1
_CHUNK_BYTES: Final = 1 << 20
_utf8: Final = codecs.getincrementaldecoder("utf-8")


@dataclasses.dataclass(frozen=True)
class Destination:
    """Output of one worker."""

    local_rank: int
    stdout: str | None
    """A file; None is the launcher's own stream."""
    stderr: str | None
    tee: frozenset[Stream]
    """Streams that are copied from their file to the console."""
    error_file: str
    """Where torch's ``record`` leaves the exception; empty when the user wants no files."""


def make_run_folder(directory: str | None, run_id: str) -> str:
    """A new folder for this run, inside ``directory`` or a temporary one; ``/dev/null`` means no files.

    Raises:
        OSError: the folder cannot be made.
    """
    if directory == os.devnull:
        return os.devnull
    base = directory or tempfile.mkdtemp(prefix="torchelastic_")
    os.makedirs(base, exist_ok=True)
    return tempfile.mkdtemp(prefix=f"{run_id.replace(os.sep, '_')}_", dir=base)


def generation_folder(run_folder: str, generation: int) -> str:
    """The folder of one generation."""
    return os.path.join(run_folder, f"generation_{generation}")


def destinations(logs: LogPlan, run_folder: str, generation: int, workers: int) -> tuple[Destination, ...]:
    """Output of every local worker, by torchrun's rules for redirects, tee and the ranks filter."""
    return tuple(_destination(logs, run_folder, generation, rank) for rank in range(workers))


def make_folders(targets: Sequence[Destination]) -> None:
    """Make the folder of every file.

    Raises:
        OSError: a folder cannot be made.
    """
    for target in targets:
        if target.error_file:
            os.makedirs(os.path.dirname(target.error_file), exist_ok=True)


def prefix(logs: LogPlan, role: str, local_rank: int, rank: int, hostname: str) -> str:
    """The prefix of each console line of a teed stream."""
    if logs.prefix_template is None:
        return f"[{role}{local_rank}]:"
    names = {"role_name": role, "rank": rank, "local_rank": local_rank, "hostname": hostname}
    return string.Template(logs.prefix_template).safe_substitute(names)


def teed(targets: Sequence[Destination], stream: Stream) -> list[tuple[int, str]]:
    """Local rank and file of every worker of which this stream is copied to the console."""
    files = [(target.local_rank, getattr(target, stream)) for target in targets if stream in target.tee]
    return [(rank, path) for rank, path in files if path]


class Appender:
    """Writes to the end of a file that is made with the first write."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, data: bytes) -> None:
        """Append.

        Raises:
            OSError: the file cannot be written.
        """
        with open(self._path, "ab") as file:
            file.write(data)


class Tail(threading.Thread):
    """Copies the lines of files to one stream, each with its worker's prefix, as fast as the reader takes them.

    The caller need not wait for the thread: it ends by itself once ``finish`` was called and all lines are written, or
    when the reader is gone.
    """

    def __init__(
        self,
        sources: Sequence[tuple[str, str]],
        write: Callable[[bytes], object],
        *,
        words: Sequence[str] = (),
        after: Tail | None = None,
        from_end: bool = False,
    ) -> None:
        """Prepare a tail, which reads only after ``start``.

        Args:
            sources: path and prefix of each file.
            write: writes all of its argument, however long that takes.
            words: only lines that contain one of the words are copied; empty copies every line.
            after: the generation before on the same stream, whose lines come first.
            from_end: whether lines that the files have already are left out.
        """
        super().__init__(name="tail", daemon=True)
        self._files = [_Followed(path, prefix, _size(path) if from_end else 0) for path, prefix in sources]
        self._write = write
        self._words = words
        self._after = after
        self._ending = threading.Event()

    def run(self) -> None:
        """Copy until ``finish`` was called, then the remaining lines."""
        if self._after is not None:
            self._after.join()
            self._after = None
        try:
            is_last = False
            while not is_last:
                is_last = self._ending.wait(_INTERVAL_SECONDS)
                while self._copy():
                    pass
            self._copy(final=True)
        except OSError:  # the reader is gone, and waits for nothing
            for followed in self._files:
                followed.is_done = True

    def finish(self) -> None:
        """Have the thread end after the output so far; call once the workers are gone."""
        self._ending.set()

    def left(self) -> list[str]:
        """The files that are not fully copied yet; once the thread has ended, those that could not be read."""
        return [followed.path for followed in self._files if not followed.is_done]

    def _copy(self, *, final: bool = False) -> bool:
        """Copy one chunk of each file; returns whether there was a line to copy."""
        found = False
        for followed in self._files:
            for line in followed.lines(final=final):
                found = True
                if not self._words or any(word in line for word in self._words):
                    self._write((followed.prefix + line + "\n").encode(errors="replace"))
            followed.is_done = final and followed.is_readable
        return found


class _Followed:
    """One file, read in chunks: its reader may be paused while it grows."""

    def __init__(self, path: str, prefix: str, offset: int) -> None:
        self.path = path
        self.prefix = prefix
        self.is_done = False
        self.is_readable = True
        """Whether the last look at the file met no error; a network's file may be away for a moment."""
        self._offset = offset
        self._partial = ""
        self._decoder = io.IncrementalNewlineDecoder(_utf8("replace"), translate=True)

    def lines(self, *, final: bool) -> list[str]:
        """Whole lines of the next chunk; at the end also one without a newline.

        A carriage return ends a line, as in torchrun: progress bars move by it.
        """
        while True:
            data = self._read()
            *whole, rest = (self._partial + self._decoder.decode(data, final=final)).split("\n")
            if rest and (final or len(rest) > _CHUNK_BYTES):
                whole, rest = [*whole, rest], ""
            self._partial = rest
            if whole or not data:
                return whole

    def _read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read(_CHUNK_BYTES)
        except OSError as error:
            self.is_readable = isinstance(error, FileNotFoundError)
            return b""
        self.is_readable = True
        self._offset += len(data)
        return data


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _destination(logs: LogPlan, run_folder: str, generation: int, rank: int) -> Destination:
    if run_folder == os.devnull:
        return Destination(rank, _hidden(logs, rank), _hidden(logs, rank), frozenset(), "")
    folder = os.path.join(generation_folder(run_folder, generation), str(rank))
    tee = logs.tee.get(rank, logs.tee.get(None, frozenset()))
    to_file = tee | logs.redirects.get(rank, logs.redirects.get(None, frozenset()))
    shown = logs.console_ranks is None or rank in logs.console_ranks
    return Destination(
        local_rank=rank,
        stdout=os.path.join(folder, "stdout.log") if "stdout" in to_file else _hidden(logs, rank),
        stderr=os.path.join(folder, "stderr.log") if "stderr" in to_file else _hidden(logs, rank),
        tee=tee if shown else frozenset(),
        error_file=os.path.join(folder, "error.json"),
    )


def _hidden(logs: LogPlan, rank: int) -> str | None:
    """A rank that the filter hides writes its console streams nowhere."""
    return None if logs.console_ranks is None or rank in logs.console_ranks else os.devnull
