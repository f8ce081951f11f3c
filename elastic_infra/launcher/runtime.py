"""The launcher's own files while it runs: one private folder, removed at the end.

It lives in memory where it can (``/dev/shm``), so that a full disk stops no worker from reporting.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pkgutil
import shutil
import tempfile
from collections.abc import Mapping
from typing import Final

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  the folder in it is private


@dataclasses.dataclass(frozen=True)
class Runtime:
    """Paths inside the folder, and the folder of the workers' logs."""

    folder: str
    logs: str
    """Folder of this run's log files; ``/dev/null`` means none."""
    interpreter: str
    """The Python that runs scripts."""

    @property
    def shim(self) -> str:
        """A copy of the shim's source, so that workers need nothing on their path."""
        return os.path.join(self.folder, "elastic_infra_shim.py")

    @property
    def warm(self) -> str:
        """A copy of the warm parent's source."""
        return os.path.join(self.folder, "elastic_infra_warm.py")

    @property
    def modules(self) -> str:
        """Names of the modules that local rank 0 of the first generation imported."""
        return os.path.join(self.folder, "modules")

    def progress(self, generation: int) -> str:
        """The progress memory of one generation."""
        return os.path.join(self.folder, f"progress-{generation}")

    def remove(self) -> None:
        """Delete the folder; the logs stay."""
        shutil.rmtree(self.folder, ignore_errors=True)


def make(logs: str, environ: Mapping[str, str], executable: str) -> Runtime:
    """Make the folder and copy the sources that run in other processes.

    Raises:
        OSError: neither memory nor disk has room.
    """
    folder = _make_folder()
    runtime = Runtime(folder, logs, environ.get("PYTHON_EXEC") or executable)
    for module, path in (("shim", runtime.shim), ("warm", runtime.warm)):
        source = pkgutil.get_data(__package__, f"{module}.py")
        with open(path, "wb") as file:
            file.write(source or b"")
    return runtime


def _make_folder() -> str:
    with contextlib.suppress(OSError):
        return tempfile.mkdtemp(prefix="elastic_infra_", dir=_SHARED_MEMORY)
    return tempfile.mkdtemp(prefix="elastic_infra_")
