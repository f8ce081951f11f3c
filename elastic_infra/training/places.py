"""Where durable snapshots are kept: a folder of a file system, with names below a root and slashes between them.

A place knows how parts become a snapshot at once: ``Disk`` writes them beside it and renames the folder.
``object_store`` has the place behind a URL, where nothing can be renamed. ``snapshots`` decides what is kept.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

MANIFEST: Final = "manifest.json"
FAILED: Final = ".failed"
"""What the name of a part ends with in a file that says why the part will not come."""
_CHUNK: Final = 1 << 24


class Place(Protocol):
    """A folder in which snapshots appear whole. Every method may raise OSError."""

    root: str
    """The folder as messages name it."""
    poll_seconds: float
    """Seconds between two looks for the other ranks' parts."""

    def check(self) -> None:
        """Raise an OSError where it is known that nothing can be written."""

    def prefix(self, run: str) -> str:
        """The text before a part's name in a published snapshot."""

    def draft(self, snapshot: str, run: str) -> str:
        """The name of the folder in which the parts of a snapshot are gathered."""

    def write_part(self, name: str, data: memoryview | bytes, note: bytes) -> None:
        """Write a part, and then its note, which appears whole as ``<name>.json``."""

    def write_failure(self, name: str, reason: bytes) -> None:
        """Say why a part will not come, in ``<name>.failed``, which is empty where there is no room for the reason."""

    def give_up(self, draft: str, parts: Iterable[str], seconds: float) -> None:
        """Give their room back: parts of a draft that is given up, and the drafts that are so much older than it."""

    def publish(self, snapshot: str, run: str, manifest: bytes, is_whole: Callable[[], bool]) -> None:
        """Make a snapshot of the parts in the draft; ``is_whole`` says whether there is a whole one already."""

    def names(self) -> list[str]:
        """The names directly below the root."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Bytes of each file directly below a folder, or in its folders, by the name in it; empty without a folder."""

    def read(self, name: str) -> bytes:
        """The content of a file."""

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of a large file, one piece after the other, so that it is not in memory twice."""

    def remove(self, folder: str) -> None:
        """Delete a folder with its content; a folder that is deleted in part goes the next time."""

    def remove_drafts(self, newest: str, seconds: float) -> None:
        """Delete the drafts that are so much older than the newest snapshot: no process writes to them any more."""


class Files:
    """The file operations that bring a snapshot to the disk; tests inject faults into them."""

    def write(self, path: Path, data: memoryview | bytes) -> None:
        """Write a file and sync it to the disk."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view[:_CHUNK]) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or folder, and sync the new name to the disk."""
        source.rename(target)
        self.sync(target.parent)

    def sync(self, folder: Path) -> None:
        """Sync the names in a folder to the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        """Delete a file, if it is there and can be deleted."""
        with contextlib.suppress(OSError):
            path.unlink()

    def remove(self, folder: Path) -> None:
        """Delete a folder with its content; a folder that is deleted in part goes the next time."""
        shutil.rmtree(folder, ignore_errors=True)


class Readable(Protocol):
    """An open file, or what is read like one."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""


def pieces_of(file: Readable) -> Iterator[bytes]:
    """The rest of a file."""
    while piece := file.read(_CHUNK):
        yield piece


def checksum_of(pieces: Iterable[bytes]) -> int:
    """CRC-32 of the content of a file."""
    value = 0
    for piece in pieces:
        value = zlib.crc32(piece, value)
    return value


class Disk:
    """A folder on a disk or a shared volume: a snapshot is written to a draft folder, which then gets its name."""

    poll_seconds = 0.02

    def __init__(self, root: str | os.PathLike[str], files: Files | None = None) -> None:
        self.root = str(root)
        self._root = Path(root)
        self._files = files or Files()

    def check(self) -> None:
        """Make a folder and delete it; what permissions say is not true for root, nor on every volume."""
        self._root.mkdir(parents=True, exist_ok=True)
        Path(tempfile.mkdtemp(prefix=".draft-", dir=self._root)).rmdir()

    def prefix(self, run: str) -> str:
        """No text: the draft folder becomes the snapshot."""
        del run
        return ""

    def draft(self, snapshot: str, run: str) -> str:
        """A hidden folder beside the snapshots."""
        return f".draft-{snapshot}-{run}"

    def write_part(self, name: str, data: memoryview | bytes, note: bytes) -> None:
        """Write both files and sync them; what does not fit on the disk takes no room there."""
        path = self._root / name
        draft, final = (path.with_name(f"{path.name}.{end}") for end in ("draft", "json"))
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._files.write(path, data)
            self._files.write(draft, note)
        except OSError:
            self._files.unlink(draft)
            self._files.unlink(path)
            raise
        self._files.rename(draft, final)

    def write_failure(self, name: str, reason: bytes) -> None:
        """Write the file, which is there before its content."""
        self._files.write(self._root / f"{name}{FAILED}", reason)

    def give_up(self, draft: str, parts: Iterable[str], seconds: float) -> None:
        """Delete these parts, and the drafts that nobody continues."""
        for part in parts:
            self._files.unlink(self._root / f"{part}.json")
            self._files.unlink(self._root / part)
        self.remove_drafts(draft, seconds)

    def publish(self, snapshot: str, run: str, manifest: bytes, is_whole: Callable[[], bool]) -> None:
        """Write the manifest and rename the draft; a whole snapshot of another writer stays, a damaged one goes."""
        draft, target = self._root / self.draft(snapshot, run), self._root / snapshot
        self._files.write(draft / MANIFEST, manifest)
        self._files.sync(draft)
        if target.exists():
            if is_whole():
                self._files.remove(draft)
                return
            self._files.rename(target, self._root / f".draft-damaged-{snapshot}-{run}")
        try:
            self._files.rename(draft, target)
        except OSError:  # another writer was faster
            if not is_whole():
                raise
            self._files.remove(draft)

    def names(self) -> list[str]:
        """The names directly below the root; none where it does not exist."""
        return [path.name for path in self._root.iterdir()] if self._root.is_dir() else []

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Bytes of each file in the folder."""
        try:
            with os.scandir(self._root / folder) as entries:
                return {entry.name: entry.stat().st_size for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return (self._root / name).read_bytes()

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of a file, piece by piece."""
        with (self._root / name).open("rb") as file:
            yield from pieces_of(file)

    def remove(self, folder: str) -> None:
        """Delete a folder with its content."""
        self._files.remove(self._root / folder)

    def remove_drafts(self, newest: str, seconds: float) -> None:
        """Delete drafts, and damaged snapshots that gave way, by the age of their folders."""
        published = (self._root / newest).stat().st_mtime
        for draft in self._root.glob(".draft-*"):
            with contextlib.suppress(OSError):
                if draft.stat().st_mtime < published - seconds:
                    self._files.remove(draft)
