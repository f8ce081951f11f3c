"""Snapshots on disk: each appears whole or not at all, and the newest whole snapshot is never deleted.

A snapshot is written to a draft folder: every rank's part, then a note of its length and checksum; rank 0 waits for the
notes, writes the manifest and renames the folder. A folder without a manifest, or whose parts do not match their notes,
is skipped with a warning and never loaded. Only the standard library; ``host_memory`` defines the content of a part.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

FORMAT: Final = 1
"""Version of the folder's form; a snapshot of a newer version is refused by name."""
MANIFEST: Final = "manifest.json"
WAIT_SECONDS: Final = 600.0
"""How long rank 0 waits for the other ranks' parts: long, so that a slow volume does not cost a snapshot."""
_POLL_SECONDS: Final = 0.02
_CHUNK: Final = 1 << 24

Warn = Callable[[str], None]


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

    def remove(self, folder: Path) -> None:
        """Delete a folder with its content; a folder that is deleted in part goes the next time."""
        shutil.rmtree(folder, ignore_errors=True)


@dataclasses.dataclass(frozen=True)
class Writer:
    """The writer of a part: its rank, the world size, and the run of the workers."""

    rank: int = 0
    world: int = 1
    run: str = "0"
    """Equal on all ranks and new for each start of the workers, so that a draft of an earlier run is not continued."""


@dataclasses.dataclass(frozen=True)
class Keep:
    """The rule by which whole snapshots stay on disk."""

    last: int = 2
    """Number of the newest snapshots that stay. 2 by default, so that there is another one should the newest be
    damaged."""
    every: int | None = None
    """Snapshots whose step is a multiple of this number stay as well. None: no others."""


@dataclasses.dataclass(frozen=True)
class Saving:
    """How far the saving of a snapshot is: between the thread that saves and the training beside it."""

    written: threading.Event = dataclasses.field(default_factory=threading.Event)
    """This rank's part is on disk, so its bytes in memory may change."""
    given_up: threading.Event = dataclasses.field(default_factory=threading.Event)
    """Parts that are still missing are not waited for."""


class Folder:
    """The snapshots of one job."""

    def __init__(
        self, root: str | os.PathLike[str], warn: Warn, keep: Keep | None = None, files: Files | None = None
    ) -> None:
        self.root = Path(root)
        self._warn = warn
        self._keep = keep or Keep()
        self._files = files or Files()

    def save(self, step: int, part: memoryview | bytes, writer: Writer, saving: Saving | None = None) -> bool:
        """Write this rank's part; on rank 0 also publish the snapshot once every part is there.

        Args:
            step: number of steps that the snapshot holds.
            part: this rank's part.
            writer: this rank.
            saving: events of this snapshot, for a caller in another thread.

        Returns:
            Whether this rank's share of the work succeeded; a failure is a warning, and training goes on.
        """
        saving = saving or Saving()
        try:
            self._write_part(step, part, writer)
            saving.written.set()
            if writer.rank == 0:
                self._publish(step, writer, saving.given_up)
        except (OSError, TimeoutError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._warn(f"The snapshot of step {step} cannot be saved in {self.root}: {reason}. Training goes on.")
            return False
        return True

    def steps(self) -> tuple[int, ...]:
        """Steps of the whole snapshots, newest first; a warning names each snapshot that is not whole."""
        found = []
        for folder in sorted(self.root.glob("step-*"), reverse=True):
            reason = self._fault_of(folder)
            if reason:
                self._warn(f"{folder} is skipped: {reason}.")
            else:
                found.append(int(folder.name.removeprefix("step-")))
        return tuple(found)

    def path(self, step: int, rank: int) -> Path | None:
        """The file of a rank's part; None where the snapshot has no such rank."""
        path = self._folder(step) / _part_name(rank)
        return path if path.exists() else None

    def checksum(self, step: int, rank: int) -> int:
        """The CRC-32 that the part must have."""
        return int(_manifest(self._folder(step))["parts"][_part_name(rank)]["crc32"])

    def _write_part(self, step: int, part: memoryview | bytes, writer: Writer) -> None:
        draft = self._draft(step, writer)
        draft.mkdir(parents=True, exist_ok=True)
        name = _part_name(writer.rank)
        self._files.write(draft / name, part)
        note = json.dumps({"bytes": len(part), "crc32": zlib.crc32(part)}).encode()
        self._files.write(draft / f"{name}.draft", note)
        self._files.rename(draft / f"{name}.draft", draft / f"{name}.json")

    def _publish(self, step: int, writer: Writer, given_up: threading.Event) -> None:
        draft, target = self._draft(step, writer), self._folder(step)
        parts = self._await_parts(draft, writer.world, given_up)
        manifest = {"format": FORMAT, "step": step, "world": writer.world, "parts": parts}
        self._files.write(draft / MANIFEST, json.dumps(manifest, indent=1).encode())
        if target.exists() and self._fault_of(target):
            self._files.rename(target, self.root / f".damaged-{step}-{writer.run}")
        try:
            self._files.rename(draft, target)
        except OSError:
            if not target.exists() or self._fault_of(target):
                raise
            self._files.remove(draft)  # another rank, or a run before the restart, has saved this step
            return
        self._prune()

    def _await_parts(self, draft: Path, world: int, given_up: threading.Event) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_SECONDS
        parts: dict[str, Any] = {}
        for rank in range(world):
            note = draft / f"{_part_name(rank)}.json"
            while not note.exists():
                if time.monotonic() > deadline:
                    message = f"the part of rank {rank} did not come within {WAIT_SECONDS:g} s"
                    raise TimeoutError(message)
                if given_up.wait(_POLL_SECONDS) and not note.exists():
                    message = f"the part of rank {rank} did not come before its generation ended"
                    raise TimeoutError(message)
            parts[_part_name(rank)] = json.loads(note.read_bytes())
        return parts

    def _prune(self) -> None:
        whole = [folder for folder in sorted(self.root.glob("step-*"), reverse=True) if not self._fault_of(folder)]
        for folder in whole[self._keep.last :]:
            if not self._keep.every or int(folder.name.removeprefix("step-")) % self._keep.every:
                self._files.remove(folder)
        newest = whole[0].stat().st_mtime if whole else 0.0
        for draft in self.root.glob(".draft-*"):
            with contextlib.suppress(OSError):
                if draft.stat().st_mtime < newest - WAIT_SECONDS:
                    self._files.remove(draft)

    def _fault_of(self, folder: Path) -> str:
        """Why a snapshot is not whole; empty where it is. Only lengths count; ``ElasticState`` compares checksums."""
        try:
            manifest = _manifest(folder)
        except (OSError, ValueError):
            return "it has no manifest, so it was not finished"
        if manifest.get("format") != FORMAT:
            return f"its format is {manifest.get('format')}, and this version reads {FORMAT}"
        for name, note in manifest["parts"].items():
            with contextlib.suppress(OSError):
                if (folder / name).stat().st_size == note["bytes"]:
                    continue
            return f"{name} is missing or has another length than the manifest says"
        return ""

    def _folder(self, step: int) -> Path:
        return self.root / f"step-{step:012d}"

    def _draft(self, step: int, writer: Writer) -> Path:
        return self.root / f".draft-{step}-{writer.run}"


def _part_name(rank: int) -> str:
    return f"rank-{rank:05d}.bin"


def _manifest(folder: Path) -> Mapping[str, Any]:
    manifest: Mapping[str, Any] = json.loads((folder / MANIFEST).read_bytes())
    return manifest
