"""Reads event files and folders of event files; no other module of the package reads the disk.

The reader accepts the files of a killed job: a last line that is half written waits for its end, lines of another kind
between events (a console log) are skipped and counted, and an empty file is a node without events so far.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elastic_infra.timeline.clocks import Clocks
from elastic_infra.timeline.records import NoEventError, Record, parse

STDIN: Final = Path("-")


class EventFileError(ValueError):
    """A path cannot be used; the message names the path, and the line where the fault is in one."""


@dataclass
class _File:
    """One file, and how far it is read."""

    path: Path
    offset: int = 0
    lines: int = 0
    events: int = 0
    refused: str = ""
    """The first line that was no event, and why."""
    skipped: int = 0


class Reader:
    """Reads files repeatedly, each time the records since the last call.

    Args:
        paths: files, ``-`` for standard input, or folders: their ``*.jsonl``, or those of the folder ``events`` below.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._files: dict[Path, _File] = {}
        self._clocks = Clocks()

    def read(self, *, whole: bool = False) -> tuple[Record, ...]:
        """The records since the last call, in order of time.

        Args:
            whole: whether the files are complete: then a last line without its end is taken if it can be read.

        Raises:
            EventFileError: a path cannot be read.
        """
        for path in self._find():
            self._files.setdefault(path, _File(path))
        records = [record for file in self._files.values() for record in self._read(file, whole=whole)]
        return tuple(sorted(records, key=lambda record: record.at))

    def notices(self) -> tuple[str, ...]:
        """The lines that were left out, as one line a file."""
        told = (file for file in self._files.values() if file.skipped)
        return tuple(f"{file.refused}; {file.skipped} such lines are left out." for file in told)

    def check(self) -> None:
        """Refuse files that are no event logs.

        Raises:
            EventFileError: a file has lines, and none of them is an event; or there is no event at all.
        """
        names = ", ".join(map(str, self._paths))
        if not self._files:
            message = f"{names}: the folder holds no *.jsonl. Give event files, or a run's folder."
            raise EventFileError(message)
        for file in self._files.values():
            if file.refused and not file.events:
                message = f"{file.refused}. Give files that ELASTIC_INFRA_EVENTS named, or their folder."
                raise EventFileError(message)
        if not any(file.events for file in self._files.values()):
            message = f"{names}: no events yet. Run the job with ELASTIC_INFRA_EVENTS set."
            raise EventFileError(message)

    def _find(self) -> list[Path]:
        found = [file for path in self._paths for file in _files_of(path)]
        return list(dict.fromkeys(path if path == STDIN else path.resolve() for path in found))

    def _read(self, file: _File, *, whole: bool) -> Iterable[Record]:
        lines = _new_bytes(file).split(b"\n")
        rest = lines.pop()
        for line in (*lines, *([rest] if whole and rest.strip() else ())):
            file.lines += 1
            file.offset += len(line) + 1
            if line.strip():
                yield from self._take(file, line, is_cut=whole and line is rest)

    def _take(self, file: _File, line: bytes, *, is_cut: bool) -> Sequence[Record]:
        try:
            found = parse(line.decode(errors="replace"))
        except NoEventError as error:
            if not is_cut or not file.events:
                file.skipped += 1
                file.refused = file.refused or f"{file.path}:{file.lines}: this is no event: {error}"
            return ()
        file.events += 1
        return (found.placed(self._clocks.place(found.wall, found.monotonic)),)


def read(paths: Sequence[Path]) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """All records of complete files in order of time, and the notices about skipped lines.

    Raises:
        EventFileError: a path cannot be read, a file is no event log, or there are no events.
    """
    reader = Reader(paths)
    records = reader.read(whole=True)
    reader.check()
    return records, reader.notices()


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(path.glob("*.jsonl")) or sorted(path.glob("events/*.jsonl"))


def _new_bytes(file: _File) -> bytes:
    try:
        if file.path == STDIN:
            return sys.stdin.buffer.read()
        with file.path.open("rb") as stream:
            stream.seek(file.offset)
            return stream.read()
    except OSError as error:
        message = f"{file.path}: cannot be read: {error.strerror}."
        raise EventFileError(message) from error
