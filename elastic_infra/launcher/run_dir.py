"""The launcher's own files while it runs: one private folder, removed at the end.

The folder is in memory where possible (``/dev/shm``), so that workers report even with a full disk. A launcher that is
killed leaves its folder behind. The next launcher deletes the folder if it is unlocked: the kernel drops the lock with
the last process of the killed launcher.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pkgutil
import shutil
import tempfile
from collections.abc import Mapping
from typing import Final

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  the folder in it is private
_PREFIX: Final = "elastic_infra_"
_OWNER: Final = "owner"
"""The file in the folder that is locked while a process of its launcher lives; workers do not inherit the lock."""


@dataclasses.dataclass(frozen=True)
class RunDir:
    """Paths inside the folder, and the folder of the workers' logs."""

    folder: str
    logs: str
    """Folder of this run's log files; ``/dev/null`` means none."""
    interpreter: str
    """The Python that runs scripts."""
    lock: int
    """Descriptor that holds the lock on the folder."""

    @property
    def launch_id(self) -> str:
        """The name of this launch, unique on this machine while the folder exists."""
        return os.path.basename(self.folder)

    @property
    def bootstrap(self) -> str:
        """A copy of the bootstrap's source, so that workers need no package on their path."""
        return os.path.join(self.folder, "elastic_infra_bootstrap.py")

    @property
    def fork_server(self) -> str:
        """A copy of the fork server's source."""
        return os.path.join(self.folder, "elastic_infra_fork_server.py")

    @property
    def modules(self) -> str:
        """Folder in which each worker records the modules that it imports."""
        return os.path.join(self.folder, "modules")

    @property
    def channel(self) -> str:
        """The agent's socket for workers that can be moved."""
        return os.path.join(self.folder, "channel")

    def progress(self, spawn: int) -> str:
        """The progress memory of the workers that were started together."""
        return os.path.join(self.folder, f"progress-{spawn}")

    def remove(self) -> None:
        """Delete the folder; the logs stay."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)


def make(logs: str, environ: Mapping[str, str], executable: str) -> RunDir:
    """Make the folder, delete those that dead launchers left, and copy the sources that run in other processes.

    Raises:
        OSError: neither memory nor disk has space left.
    """
    cleanup(_SHARED_MEMORY)
    folder, lock = _make_folder()
    runtime = RunDir(folder, logs, environ.get("PYTHON_EXEC") or executable, lock)
    os.mkdir(runtime.modules)
    for module, path in (("bootstrap", runtime.bootstrap), ("fork_server", runtime.fork_server)):
        source = pkgutil.get_data(f"{__package__}.workers", f"{module}.py")
        with open(path, "wb") as file:
            file.write(source or b"")
    return runtime


def cleanup(parent: str) -> None:
    """Delete the folders under ``parent`` that no living launcher locks; unreadable folders belong to others."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                _remove_if_dead(entry.path)


def _remove_if_dead(folder: str) -> None:
    with contextlib.suppress(OSError):
        lock = os.open(os.path.join(folder, _OWNER), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _make_folder() -> tuple[str, int]:
    with contextlib.suppress(OSError):
        return make_locked_folder(_SHARED_MEMORY)
    return make_locked_folder(None)


def make_locked_folder(parent: str | None) -> tuple[str, int]:
    """A new folder and the descriptor of its lock; ``parent`` None means the folder for temporary files.

    Raises:
        OSError: the folder cannot be made.
    """
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        owner = os.path.join(folder, _OWNER)
        lock = os.open(owner, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(owner):
            return folder, lock
        os.close(lock)  # another launcher deleted it before it was locked
