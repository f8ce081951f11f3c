"""Becomes a pod's first process: joins its limits, dies with the runner, then executes its program.

A separate program, run by its path with one JSON argument, so that the runner, which may have threads, runs no code
between a fork and an exec. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_CLONE_NEWNS: Final = 0x00020000
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_CANNOT_EXECUTE: Final = 127


def main(order: dict[str, Any]) -> None:
    """Carry out the order: ``parent``, ``join`` (cgroup.procs files), ``data_bytes``, ``shm``, ``folder``, ``argv``."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != order["parent"]:
        sys.exit(128 + signal.SIGKILL)
    for path in order["join"]:
        Path(path).write_text(str(os.getpid()), encoding="ascii")
    if order["data_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (order["data_bytes"], order["data_bytes"]))
    if order["shm"]:
        own_shared_memory(libc, order["shm"])
    try:
        os.chdir(order["folder"])
        os.execvp(order["argv"][0], order["argv"])  # noqa: S606 - that is what it is for
    except OSError as error:
        sys.stderr.write(f"{error.filename or order['argv'][0]}: {error.strerror}\n")
        sys.exit(_CANNOT_EXECUTE)


def own_shared_memory(libc: ctypes.CDLL, folder: str) -> bool:
    """Mount a folder over /dev/shm for this process and its children; False where that is not allowed."""
    if libc.unshare(_CLONE_NEWNS) != 0:
        return False
    if libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
        return False
    return bool(libc.mount(folder.encode(), b"/dev/shm", None, _MS_BIND, None) == 0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
