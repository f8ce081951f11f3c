"""Durable snapshots: each appears whole or not at all, and the newest whole snapshot is never deleted.

Every rank writes its part, then a note of its length and checksum; rank 0 waits for the notes and publishes the
manifest. Where a rank cannot write its part it says so, and no part is waited for. A folder without a manifest, or
whose parts do not match their notes, is skipped with a warning and never loaded. ``places`` has the disk and
``object_store`` what is behind a URL; ``host_memory`` defines the content of a part.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import threading
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from .places import FAILED, MANIFEST, Disk, Place, checksum_of

FORMAT: Final = 1
"""Version of the folder's form; a snapshot of a newer version is refused by name."""
WAIT_SECONDS: Final = 600.0
"""How long rank 0 waits for the other ranks' parts: long, so that a slow volume does not cost a snapshot."""
_PAUSES: Final = (0.1, 1.0, 3.0)
"""Seconds before a file that cannot be read is tried again: a busy store or volume answers a moment later."""
_LASTING: Final = (FileNotFoundError, NotADirectoryError, PermissionError)
"""Faults that another try would meet again."""
_STEP: Final = "step-"
_ADVICE: Final = {
    errno.ENOSPC: "Free space there, or enlarge the volume.",
    errno.EDQUOT: "Free space there, or raise the quota.",
    errno.EROFS: "Mount the volume so that it can be written.",
    errno.EACCES: "Give the job's account the right to write there.",
    errno.EPERM: "Give the job's account the right to write there.",
}
"""What to do about the usual faults of a place."""

Warn = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Writer:
    """The writer of a part: its rank, the world size, and the run of the workers."""

    rank: int = 0
    world: int = 1
    run: str = "0"
    """Equal on all ranks and new for each start of the workers, so that a draft of an earlier run is not continued."""


@dataclasses.dataclass(frozen=True)
class Keep:
    """The rule by which whole snapshots stay on disk; the newest one always stays.

    Raises:
        ValueError: a number is less than 1.
    """

    last: int = 2
    """Number of the newest snapshots that stay. 2 by default, so that there is another one should the newest be
    damaged."""
    every: int | None = None
    """Snapshots whose step is a multiple of this number stay as well. None: no others."""

    def __post_init__(self) -> None:
        if self.last < 1 or (self.every is not None and self.every < 1):
            message = f"last ({self.last}) and every ({self.every}) must be 1 or more; every may be None."
            raise ValueError(message)


@dataclasses.dataclass(frozen=True)
class Saving:
    """How far the saving of a snapshot is: between the thread that saves and the training beside it."""

    written: threading.Event = dataclasses.field(default_factory=threading.Event)
    """This rank's part is on disk, so its bytes in memory may change."""
    given_up: threading.Event = dataclasses.field(default_factory=threading.Event)
    """Parts that are still missing are not waited for."""


class NewerFormatError(ValueError):
    """A snapshot was saved by a newer version; the message names the snapshot, and says what to do."""


class Folder:
    """The snapshots of one job."""

    def __init__(self, place: Place, warn: Warn, keep: Keep | None = None) -> None:
        self._place = place
        self._warn = warn
        self._keep = keep or Keep()
        self._written: tuple[int, str] | None = None
        """Step and run of the part that this rank wrote last."""
        self._failure = ""
        """Why the last save failed; empty where it succeeded."""
        self._damaged: set[str] = set()
        """Snapshots of which a rank could not read its part."""

    @property
    def root(self) -> str:
        """The folder as messages name it."""
        return self._place.root

    def save(self, step: int, part: memoryview | bytes, writer: Writer, saving: Saving | None = None) -> bool:
        """Write this rank's part; on rank 0 also publish the snapshot once every part is there.

        A step that this rank has saved in the same run is not saved again: rank 0 may be publishing that part. Nor is
        one that failed on any rank, because parts of it are deleted.

        Args:
            step: number of steps that the snapshot holds.
            part: this rank's part.
            writer: this rank.
            saving: events of this snapshot, for a caller in another thread.

        Returns:
            Whether this rank's share of the work succeeded. A failure is a warning, once until another one comes or a
            save succeeds, and training goes on.
        """
        saving = saving or Saving()
        try:
            if self._written != (step, writer.run):
                self._write_part(step, part, writer)
                saving.written.set()
                if writer.rank == 0:
                    self._publish(step, writer, saving.given_up)
                self._written = (step, writer.run)
        except OSError as error:
            self._tell_failure(f"The snapshot of step {step}", error)
            if not saving.given_up.is_set():  # else a save of the same step by ranks that leave takes the other parts
                self._give_up(step, writer, error)
            return False
        if self._failure:
            self._warn(f"Snapshots in {self.root} are saved again, from step {step} on.")
            self._failure = ""
        return True

    def check(self) -> None:
        """Warn where nothing can be saved, so that this is known before the first snapshot is due."""
        try:
            self._place.check()
        except OSError as error:
            self._tell_failure("Snapshots", error)

    def has_any(self) -> bool:
        """Whether there are snapshots, whole or not.

        Raises:
            OSError: the folder cannot be read.
        """
        return bool(self._names())

    def steps(self) -> tuple[int, ...]:
        """Steps of the whole snapshots, newest first; a warning names each snapshot that is not whole.

        Raises:
            NewerFormatError: a newer version saved one. It is not passed over, since an older one, or none, would be
                trained on from.
            OSError: the folder or a manifest cannot be read. That snapshot may be the newest whole one.
        """
        found = []
        for name in self._names():
            reason = self._fault_of(name)
            if reason:
                self._warn(f"{self.root}/{name} is skipped: {reason}.")
            else:
                found.append(int(name.removeprefix(_STEP)))
        return tuple(found)

    def await_step(self, step: int, seconds: float) -> bool:
        """Wait until the snapshot of a step is whole; False where it is not in time."""
        deadline = time.monotonic() + seconds
        while not (is_whole := self._is_whole(_name_of(step))) and time.monotonic() < deadline:
            time.sleep(self._place.poll_seconds)
        return is_whole

    def world(self, step: int) -> int:
        """Number of ranks that saved a snapshot.

        Raises:
            OSError: the manifest cannot be read.
            ValueError: it is no manifest.
        """
        number: int = self._manifest(_name_of(step))["world"]
        return number

    def part(self, step: int, rank: int) -> Iterator[bytes] | None:
        """A rank's part, one piece after the other; None where the snapshot has no such rank.

        Raises, also with each piece and at the end of all:
            OSError: the part cannot be read.
            ValueError: the part is not what the manifest says.
        """
        folder = _name_of(step)
        parts = self._manifest(folder)["parts"]
        name = next((name for name in parts if name.endswith(_part_name(rank))), None)
        if name is None:
            return None
        return self._checked(folder, name, parts[name]["crc32"])

    def distrust(self, step: int) -> None:
        """Count a snapshot no more among those that are kept, until its step is saved again.

        Every rank calls this where any of them could not read its part, because only rank 0 deletes old snapshots.
        """
        self._damaged.add(_name_of(step))

    def _checked(self, folder: str, name: str, checksum: int) -> Iterator[bytes]:
        found = 0
        for piece in self._pieces(f"{folder}/{name}"):
            found = zlib.crc32(piece, found)
            yield piece
        if found != checksum:
            message = f"{name} has another checksum than the manifest says"
            raise ValueError(message)

    def _tell_failure(self, what: str, error: OSError) -> None:
        reason = _reason_of(error)
        if reason != self._failure:
            said = f"{what} cannot be saved in {self.root}: {reason}."
            self._warn(" ".join([said, *_advice(error), "Training goes on."]))
        self._failure = reason

    def _write_part(self, step: int, part: memoryview | bytes, writer: Writer) -> None:
        draft = self._place.draft(_name_of(step), writer.run)
        note = json.dumps({"bytes": len(part), "crc32": zlib.crc32(part)}).encode()
        mine = f"{draft}/{_part_name(writer.rank)}"
        self._place.write_part(mine, part, note)
        failure = self._failure_of(f"{draft}/{_part_name(0)}") if writer.rank else None
        if failure is not None:
            with contextlib.suppress(OSError):
                self._place.give_up(draft, [mine], WAIT_SECONDS)
            raise failure

    def _give_up(self, step: int, writer: Writer, error: OSError) -> None:
        """Say that this rank's part will not come; on rank 0, which publishes nothing then, delete those of all ranks.

        What says so comes first: a rank whose part is written later finds it and deletes that part.
        """
        draft = self._place.draft(_name_of(step), writer.run)
        parts = [f"{draft}/{_part_name(rank)}" for rank in range(writer.world)]
        if writer.world > 1:
            reason = json.dumps([_number_of(error), _reason_of(error)]).encode()
            with contextlib.suppress(OSError):
                self._place.write_failure(parts[writer.rank], reason)
        if writer.rank == 0:
            with contextlib.suppress(OSError):
                self._place.give_up(draft, parts, WAIT_SECONDS)

    def _failure_of(self, part: str) -> OSError | None:
        """Why a part of a draft will not come; None where nothing says so."""
        try:
            number, reason = json.loads(self._place.read(f"{part}{FAILED}"))
        except OSError:
            return None
        except ValueError:  # there was no room for the reason
            return OSError("a rank could not write its part")
        return OSError(number, reason)

    def _publish(self, step: int, writer: Writer, given_up: threading.Event) -> None:
        name, prefix = _name_of(step), self._place.prefix(writer.run)
        notes = self._await_parts(self._place.draft(name, writer.run), writer.world, given_up)
        parts = {f"{prefix}{part}": note for part, note in notes.items()}
        manifest = json.dumps({"format": FORMAT, "step": step, "world": writer.world, "parts": parts}, indent=1)
        self._place.publish(name, writer.run, manifest.encode(), lambda: self._is_undamaged(name))
        self._damaged.discard(name)
        with contextlib.suppress(OSError):  # the snapshot is there; old ones are deleted with the next
            self._prune(name)

    def _await_parts(self, draft: str, world: int, given_up: threading.Event) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_SECONDS
        while (rank := self._missing_rank(draft, world)) is not None:
            if time.monotonic() > deadline:
                message = f"the part of rank {rank} did not come within {WAIT_SECONDS:g} s"
                raise TimeoutError(message)
            if given_up.wait(self._place.poll_seconds) and self._missing_rank(draft, world) is not None:
                message = f"the part of rank {rank} did not come before its generation ended"
                raise TimeoutError(message)
        names = map(_part_name, range(world))
        return {name: json.loads(self._read(f"{draft}/{name}.json")) for name in names}

    def _missing_rank(self, draft: str, world: int) -> int | None:
        """The first rank whose part is not there yet; None where all are.

        Raises:
            OSError: a part will not come.
        """
        there = self._place.sizes(draft)
        for name in there:
            if name.endswith(FAILED) and (failure := self._failure_of(f"{draft}/{name.removesuffix(FAILED)}")):
                raise failure
        return next((rank for rank in range(world) if f"{_part_name(rank)}.json" not in there), None)

    def _prune(self, newest: str) -> None:
        """Delete what the rule does not keep. Snapshots of later steps stay and do not count.

        Training came past them to an earlier step, so they could not be read or belong to another run.
        """
        names = [name for name in self._names() if name <= newest and name not in self._damaged]
        whole = [name for name in names if self._is_whole(name)]
        for name in whole[self._keep.last :]:
            if not self._keep.every or int(name.removeprefix(_STEP)) % self._keep.every:
                self._place.remove(name)
        if whole:
            self._place.remove_drafts(whole[0], WAIT_SECONDS)

    def _names(self) -> list[str]:
        """The names of all snapshots, whole or not, the newest first."""
        return sorted((name for name in self._place.names() if name.startswith(_STEP)), reverse=True)

    def _is_whole(self, name: str) -> bool:
        """Whether this version can use a snapshot; one of a newer version, or that cannot be read, counts as none."""
        try:
            return not self._fault_of(name)
        except (NewerFormatError, OSError):
            return False

    def _is_undamaged(self, name: str) -> bool:
        """Whether a snapshot is whole with its checksums: for one whose step is saved again, which is rare."""
        if not self._is_whole(name):
            return False
        parts = self._manifest(name)["parts"]
        try:
            return all(
                checksum_of(self._place.pieces(f"{name}/{part}")) == note["crc32"] for part, note in parts.items()
            )
        except OSError:
            return False

    def _fault_of(self, name: str) -> str:
        """Why a snapshot is not whole; empty where it is. Only lengths count; ``part`` compares checksums.

        Raises:
            NewerFormatError: this version cannot know whether it is whole.
            OSError: the manifest may be there, and cannot be read.
        """
        try:
            manifest = self._manifest(name)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return "it has no manifest, so it was not finished"
        version = manifest.get("format")
        if isinstance(version, int) and version > FORMAT:
            message = (
                f"{self.root}/{name} has format {version}, and this version of elastic_infra reads formats up to "
                f"{FORMAT}. Train with the version that saved it or a newer one, or use another folder."
            )
            raise NewerFormatError(message)
        if version != FORMAT:
            return f"its format is {version}, and this version reads {FORMAT}"
        sizes = self._place.sizes(name)
        for part, note in manifest["parts"].items():
            if sizes.get(part) != note["bytes"]:
                return f"{part} is missing or has another length than the manifest says"
        return ""

    def _manifest(self, name: str) -> Mapping[str, Any]:
        manifest: Mapping[str, Any] = json.loads(self._read(f"{name}/{MANIFEST}"))
        return manifest

    def _read(self, name: str) -> bytes:
        """The content of a file, which is tried again after a fault that may pass."""
        for pause in _PAUSES:
            try:
                return self._place.read(name)
            except _LASTING:
                raise
            except OSError:
                time.sleep(pause)
        return self._place.read(name)

    def _pieces(self, name: str) -> Iterator[bytes]:
        """The content of a large file, read on from where a fault that may pass has broken it off."""
        given = 0
        for pause in (*_PAUSES, None):
            position = 0
            try:
                for piece in self._place.pieces(name):
                    rest = piece[max(0, given - position) :]
                    position += len(piece)
                    given = max(given, position)
                    if rest:
                        yield rest
            except OSError as error:
                if pause is None or isinstance(error, _LASTING):
                    raise
                time.sleep(pause)
            else:
                return


def place_of(folder: str | os.PathLike[str]) -> Place:
    """The place of a path or URL.

    Raises:
        MissingPackageError: a package for the URL is not installed.
        ValueError: the URL's scheme is not known.
    """
    scheme, found, path = str(folder).partition("://")
    if not found:
        return Disk(folder)
    if scheme == "file":
        return Disk(urllib.parse.unquote(path))
    from .object_store import ObjectStore

    return ObjectStore(str(folder))


def _advice(error: OSError) -> tuple[str, ...]:
    """What to do about an error, where that is known."""
    number = _number_of(error)
    return (_ADVICE[number],) if number in _ADVICE else ()


def _number_of(error: OSError) -> int | None:
    """The errno; the packages of object stores give none with theirs."""
    return errno.EACCES if isinstance(error, PermissionError) else error.errno


def _reason_of(error: OSError) -> str:
    return error.strerror or str(error)


def _name_of(step: int) -> str:
    return f"{_STEP}{step:012d}"


def _part_name(rank: int) -> str:
    return f"rank-{rank:05d}.bin"
