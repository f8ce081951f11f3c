"""Saves snapshots in children that are killed at each of their system calls in turn: killed_saves.py FOLDER CASE.

Prints a JSON object for each kill: the steps that were whole before, those that are whole afterwards with whether their
bytes are right, and the same after one more save. A child is traced by ptrace(2) and killed as it enters a call: all
calls before that one were made, and no other.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from elastic_infra.training import places
from elastic_infra.training.places import MANIFEST, Disk
from elastic_infra.training.snapshots import Folder, Keep, Saving, Writer
from tests.training.parts import content

TRACEME, SYSCALL = 0, 24
PTRACE = ctypes.CDLL(None, use_errno=True).ptrace
PTRACE.argtypes, PTRACE.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p], ctypes.c_long
CONTENT = {step: bytes([step]) * 1000 for step in range(4)}
CHUNK = 400
"""Bytes of a write, so that a part takes several."""


def save(root: Path, step: int, writer: Writer, *, last: int = 1, saving: Saving | None = None) -> None:
    """Save a part of a step; so many snapshots stay."""
    Folder(Disk(root), lambda _: None, Keep(last)).save(step, CONTENT[step], writer, saving)


def prepare(root: Path, case: str) -> None:
    """What is there before the save that is killed."""
    if case == "first":
        return
    save(root, 1, Writer())
    if case == "damaged":  # the step was saved before, and its snapshot is not whole
        save(root, 2, Writer(), last=2)
        (root / "step-000000000002" / MANIFEST).write_bytes(b"{")


def work(root: Path, case: str) -> None:
    """The save that is killed: step 2 by rank 0, or by rank 1."""
    save(root, 2, Writer(1, 2, "new") if case == "peer" else Writer(run="new"))


def publish(root: Path) -> None:
    """Rank 0 saves its part of step 2, and does not wait for that of rank 1, which was killed."""
    saving = Saving()
    saving.given_up.set()
    save(root, 2, Writer(0, 2, "new"), saving=saving)


def whole(root: Path) -> dict[int, bool]:
    """Each step that would be restored, and whether all parts are what was saved."""
    folder = Folder(Disk(root), lambda _: None)
    return {step: _is_right(folder, root, step) for step in folder.steps()}


def _is_right(folder: Folder, root: Path, step: int) -> bool:
    parts = json.loads((root / f"step-{step:012d}" / MANIFEST).read_bytes())["parts"]
    return all(content(folder, step, rank) == CONTENT[step] for rank in range(len(parts)))


def is_killed_at(call: int, body: Callable[[], None]) -> bool:
    """Run ``body`` in a child that is killed as it enters its call of this number; False where it ends before."""
    pid = os.fork()
    if pid == 0:
        _trace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        body()
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    for _ in range(2 * call + 1):  # the child stops as it enters a call, and as it leaves the call
        _trace(SYSCALL, pid)
        if not os.WIFSTOPPED(os.waitpid(pid, 0)[1]):
            return False
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def _trace(request: int, pid: int) -> None:
    if PTRACE(request, pid, None, None) == -1:
        raise OSError(ctypes.get_errno(), f"ptrace: {os.strerror(ctypes.get_errno())}")


def kill_at(call: int, root: Path, case: str) -> dict[str, object] | None:
    """What one kill leaves behind; None where the save makes fewer calls."""
    # Only the children's syncs are of interest, and a Mock would take longer than they do.
    unsynced = mock.patch.object(os, "fsync", lambda _: None)  # noqa: PT008
    with unsynced:
        prepare(root, case)
        before = whole(root)
    if not is_killed_at(call, lambda: work(root, case)):
        return None
    with unsynced:
        if case == "peer":
            publish(root)
        after = whole(root)
        save(root, 3, Writer(run="newer"))
        return {"before": [*before], "after": [*after.items()], "next": [*whole(root).items()]}


def main(root: Path, case: str) -> None:
    """One line for each call of a save."""
    with mock.patch.object(places, "_CHUNK", CHUNK):
        for call in itertools.count():
            line = kill_at(call, root / f"{call}", case)
            if line is None:
                return
            sys.stdout.write(f"{json.dumps(line)}\n")
            sys.stdout.flush()  # a child would have the line too


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
