"""The folders of a run: results that stay, the pods' files, and scratch space that is deleted after the run."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder made in it is private
_PREFIX: Final = "elastic-infra-"


class WorkspaceError(OSError):
    """The work folder cannot be used; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Workspace:
    """The folders of a run.

    Attributes:
        folder: the work folder. Below it `claims` outlives a run: the next one in the same folder resumes.
        memory: scratch space in memory, where there is such a thing.
        scratch: scratch space with a short path: sockets live in it, and theirs may have 107 characters.
        lock: descriptor that holds the folder against a second run.
    """

    folder: Path
    memory: Path
    scratch: Path
    lock: int

    @property
    def events(self) -> Path:
        """Event lines, one file a node."""
        return self.folder / "events"

    @property
    def logs(self) -> Path:
        """Output of the pods, one file each."""
        return self.folder / "logs"

    @property
    def claims(self) -> Path:
        """Folder of the PersistentVolumeClaims."""
        return self.folder / "claims"

    def pod(self, name: str) -> Path:
        """A pod's own folder."""
        return self.folder / "pods" / name

    def remove_scratch(self) -> None:
        """Delete the scratch space."""
        for folder in (self.memory, self.scratch, self.folder / "pods"):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(self.lock)


def make(folder: Path) -> Workspace:
    """Make the folders; events and logs of an earlier run in the same place are deleted.

    Raises:
        WorkspaceError: the folder cannot be written, or another run uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for part in ("events", "logs", "pods"):
            shutil.rmtree(folder / part, ignore_errors=True)
        for part in ("events", "logs", "pods", "claims"):
            (folder / part).mkdir(exist_ok=True)
    except BlockingIOError:
        message = f"--workdir: another run uses {folder}. Wait for its end, or choose another folder."
        raise WorkspaceError(message) from None
    except OSError as error:
        message = f"--workdir: {folder} cannot be written: {error.strerror}. Choose another folder."
        raise WorkspaceError(message) from None
    return Workspace(folder, _in_memory(), Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_short())), lock)


def default_folder(name: str, stamp: str) -> Path:
    """A new folder for each run, below the current one; its content is kept out of git.

    Runs of one job and one stamp are numbered from the second on.
    """
    parent = Path(".elastic-infra")
    with contextlib.suppress(OSError):
        parent.mkdir(exist_ok=True)
        (parent / ".gitignore").write_text("*\n", encoding="utf-8")
    first = (parent / f"{name}-{stamp}").absolute()
    others = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    return next(folder for folder in itertools.chain([first], others) if not _is_taken(folder))


def _is_taken(folder: Path) -> bool:
    """Whether another run has made a folder. It is made here if it can be; `make` tells why it cannot."""
    try:
        folder.mkdir()
    except OSError as error:
        return isinstance(error, FileExistsError)
    return False


def _in_memory() -> Path:
    with contextlib.suppress(OSError):
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_SHARED_MEMORY))
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


def _short() -> str | None:
    """`/tmp` where it can be written, because other temporary folders may have long paths."""
    return "/tmp" if os.access("/tmp", os.W_OK) else None  # noqa: S108 - the folder made in it is private
