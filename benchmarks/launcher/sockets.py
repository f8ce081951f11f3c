"""Which process listens on a port, from ``/proc``: several nodes of one address race for the store's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LISTENING: Final = "0A"
"""The kernel's TCP_LISTEN."""


def listens(pids: Iterable[int], port: int, root: Path = Path("/proc")) -> bool:
    """Whether one of these processes has the port's listening socket."""
    wanted = {f"socket:[{inode}]" for inode in inodes(port, root)}
    return any(wanted & _open(root / str(pid) / "fd") for pid in pids)


def inodes(port: int, root: Path) -> set[str]:
    """Of the sockets that listen on it, on any address."""
    found = set()
    for table in (root / "net" / "tcp", root / "net" / "tcp6"):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, *rest = line.split()
            if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                found.add(rest[5])
    return found


def _open(folder: Path) -> set[str]:
    found = set()
    try:
        for entry in folder.iterdir():
            found.add(os.readlink(entry))  # noqa: PTH115  the target is no path
    except OSError:
        return found  # the process ends meanwhile
    return found
