"""Where the workers' output goes: files by generation, and the console.

A generation has a folder of its own, so that a membership change never deletes the output of the generation before
(torchrun's ``attempt_<restart count>`` does). ``destinations`` is pure; ``Tail`` copies teed files to the console from
one thread of the agent.
"""

from __future__ import annotations

import dataclasses
import os
import string
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, Final

from ..command_line.option_values import Stream
from ..command_line.plan import LogPlan

_INTERVAL_SECONDS: Final = 0.1


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
        OSError: it cannot be made.
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
        OSError: one cannot be made.
    """
    for target in targets:
        if target.error_file:
            os.makedirs(os.path.dirname(target.error_file), exist_ok=True)


def prefix(logs: LogPlan, role: str, local_rank: int, rank: int, hostname: str) -> str:
    """What stands before each console line of a teed stream."""
    if logs.prefix_template is None:
        return f"[{role}{local_rank}]:"
    names = {"role_name": role, "rank": rank, "local_rank": local_rank, "hostname": hostname}
    return string.Template(logs.prefix_template).safe_substitute(names)


class Tail(threading.Thread):
    """Copies the lines of teed files to the console, each with its worker's prefix."""

    def __init__(
        self,
        sources: Sequence[tuple[str, str, IO[str]]],
        filters: Sequence[tuple[Sequence[str], str, IO[str]]] = (),
    ) -> None:
        """Nothing is read before ``start``.

        Args:
            sources: path, prefix and console stream of each teed file.
            filters: words, path of the copy, and the console stream whose lines are filtered into it.
        """
        super().__init__(name="tail", daemon=True)
        self._files = [_Followed(path, prefix, console) for path, prefix, console in sources]
        self._filters = [
            (words, open(path, "a", encoding="utf-8"), console)  # noqa: SIM115  closed by finish
            for words, path, console in filters
            if words
        ]
        self._ending = threading.Event()

    def run(self) -> None:
        """Copy until ``finish``, then what is left."""
        while not self._ending.wait(_INTERVAL_SECONDS):
            self._copy(final=False)
        self._copy(final=True)

    def finish(self) -> None:
        """Copy what the workers have written so far and end; call once they are gone."""
        self._ending.set()
        self.join()
        for _, copy, _ in self._filters:
            copy.close()

    def _copy(self, *, final: bool) -> None:
        for followed in self._files:
            for line in followed.lines(final=final):
                followed.console.write(followed.prefix + line)
                self._copy_filtered(followed, line)
            followed.console.flush()

    def _copy_filtered(self, followed: _Followed, line: str) -> None:
        for words, copy, console in self._filters:
            if console is followed.console and any(word in line for word in words):
                copy.write(followed.prefix + line)
                copy.flush()


class _Followed:
    def __init__(self, path: str, prefix: str, console: IO[str]) -> None:
        self.prefix = prefix
        self.console = console
        self._path = path
        self._offset = 0
        self._partial = b""

    def lines(self, *, final: bool) -> list[str]:
        """Whole lines since the last call; at the end also one without a newline."""
        data = self._partial + self._read()
        *whole, rest = data.split(b"\n")
        if final and rest:
            whole, rest = [*whole, rest], b""
        self._partial = rest
        return [line.decode(errors="replace") + "\n" for line in whole]

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return b""
        self._offset += len(data)
        return data


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
