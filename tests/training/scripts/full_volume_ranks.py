"""Saves parts of two ranks on a volume with room for one: full_volume_ranks.py FOLDER, the root of a small tmpfs.

At step 1 rank 0 has written its part when rank 1 finds no room, at step 2 it is the other way round, and at step 3
there is room for both. Prints a JSON object: which saves succeeded, rank 0's warnings, the parts that were left after
each step, the seconds that it took, and the snapshots at the end.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from elastic_infra.training.places import Disk
from elastic_infra.training.snapshots import Folder, Writer

PART = bytes(100_000)
root, warnings = Path(sys.argv[1]), list[str]()
folders = (Folder(Disk(root), warnings.append), Folder(Disk(root), lambda _: None))
filler, begin = root / "filler", time.monotonic()


def save(step: int, *, first: int) -> list[bool | None]:
    """Save a step, by one rank and then by the other one beside it; whether each succeeded, None where one waits."""
    saved: list[bool | None] = [None, None]

    def work(rank: int) -> None:
        saved[rank] = folders[rank].save(step, PART, Writer(rank, 2))

    threads = {rank: threading.Thread(target=work, args=(rank,), daemon=True) for rank in (first, 1 - first)}
    for rank, thread in threads.items():
        thread.start()
        while thread.is_alive() and not list(root.glob(f".draft-*{step}-0/rank-{rank:05d}.bin.json")):
            time.sleep(0.001)
    for thread in threads.values():
        thread.join(5)
    return saved


def parts() -> list[str]:
    """The parts that are in no snapshot."""
    return [path.name for path in root.glob(".draft-*/*") if path.suffix != ".failed"]


filler.write_bytes(PART)
saved, left_behind = [save(1, first=0)], [parts()]
saved, left_behind = [*saved, save(2, first=1)], [*left_behind, parts()]
filler.unlink()
saved, left_behind = [*saved, save(3, first=1)], [*left_behind, parts()]
seconds, steps = time.monotonic() - begin, folders[0].steps()
line = {"saved": saved, "warnings": warnings, "left behind": left_behind, "seconds": seconds, "steps": steps}
sys.stdout.write(json.dumps(line))
