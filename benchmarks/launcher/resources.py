"""The cost of a launcher while its workers train: memory and CPU time of the launcher's processes, from ``/proc``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.launcher import arms
from benchmarks.launcher.job import Job, await_, folder
from benchmarks.launcher.measure import Sample
from tests.launcher.loopback import tree

STEADY_SECONDS: Final = 20.0
START_SECONDS: Final = 120.0
USUAL_WORKERS: Final = 2
"""Rows that name no number of workers are about so many."""
NANOSECONDS: Final = 1e9


def run(arm: arms.Arm, workers: int) -> Iterator[Sample]:
    """So many workers of one node train; what the launcher needs beside them."""
    many = workers > USUAL_WORKERS
    training, beside = (f"{workers} workers train", f" beside {workers} workers") if many else ("training", "")
    with folder() as path, Job(path, arm, arms.Launch(workers=workers)) as job:
        node = job.start_node()
        await_(lambda: job.trains(workers), START_SECONDS)
        job.warm_up()
        time.sleep(1)
        own = control_plane(node.process.pid)
        before, begin = cpu_seconds(own), time.monotonic()
        time.sleep(STEADY_SECONDS)
        share = 100 * (cpu_seconds(own) - before) / (time.monotonic() - begin)
        memory = f"memory of the launcher's processes{beside}"
        yield Sample(f"CPU of the launcher's processes while {training}", arm.name, share)
        yield Sample(f"{memory}, shared pages by share", arm.name, megabytes(own, "Pss"))
        yield Sample(f"{memory}, resident", arm.name, megabytes(own, "Rss"))
        if arm is arms.OURS:
            warm = forked(node.process.pid)
            yield Sample(
                f"memory of the fork server and its {workers} workers, by share", arm.name, megabytes(warm, "Pss")
            )


def control_plane(launcher: int) -> list[int]:
    """The launcher and what it forked without running another program: torchrun, or supervisor, agent and store."""
    own = _command(launcher)
    return [pid for pid in tree(launcher) if _command(pid) == own]


def forked(launcher: int) -> list[int]:
    """The fork server, and the workers that came from it."""
    return [pid for pid in tree(launcher) if any(word.endswith(b"_fork_server.py") for word in _command(pid))]


def cpu_seconds(pids: Sequence[int]) -> float:
    """Time on a processor so far, of all their threads."""
    threads = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in threads) / NANOSECONDS


def megabytes(pids: Sequence[int], kind: str) -> float:
    """Their memory in MB; ``kind`` is Rss or Pss."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")) * 1024 / 1e6


def _command(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []
