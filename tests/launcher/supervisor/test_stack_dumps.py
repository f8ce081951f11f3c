"""Every worker's stacks are one block under its name, even if other workers end meanwhile."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from elastic_infra.launcher.supervisor import stack_dumps

WORKER = """
import faulthandler, signal, socket, sys, threading
faulthandler.enable()
faulthandler.register(signal.SIGRTMIN + 7, all_threads=True, chain=False)
rank, hears, peer = int(sys.argv[1]), sys.argv[2], socket.socket(fileno=int(sys.argv[3]))
if hears == "deaf":
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    peer = None

def waits(depth, end):
    if depth:
        return waits(depth - 1, end)
    if end is None:
        signal.pause()
    if not end.recv(1):
        raise RuntimeError("Connection closed by peer")

exec(f"def rank_{rank}(end): waits(40, end)")
mine, other = socket.socketpair()
for _ in range(10):
    threading.Thread(target=globals()[f"rank_{rank}"], args=(mine,), daemon=True).start()
print("ready", flush=True)
globals()[f"rank_{rank}"](peer)
"""
"""Eleven threads deep in a function named after the rank; the main one fails when the worker before it is gone."""

RANKS = range(3)
Workers = Mapping[int, "subprocess.Popen[str]"]
Start = Callable[..., Workers]


@pytest.fixture
def output(tmp_path: pathlib.Path) -> pathlib.Path:
    """The one file to which all workers and this process write."""
    return tmp_path / "output"


@pytest.fixture
def start(output: pathlib.Path) -> Iterator[Start]:
    """Starts a ring of workers; those named are deaf to SIGABRT."""
    with contextlib.ExitStack() as stack:

        def begin(deaf: tuple[int, ...] = ()) -> Workers:
            links = [socket.socketpair() for _ in RANKS]
            file = stack.enter_context(output.open("ab"))
            workers = {}
            for rank in RANKS:
                mine, next_one = links[rank][0].fileno(), links[(rank + 1) % len(RANKS)][1].fileno()
                workers[rank] = subprocess.Popen(
                    [sys.executable, "-c", WORKER, str(rank), "deaf" if rank in deaf else "usual", str(mine)],
                    stdout=subprocess.PIPE, stderr=file, text=True, pass_fds=(mine, next_one),
                )  # fmt: skip
                stack.callback(end, workers[rank])
            for one, other in links:
                one.close()
                other.close()
            assert [line(worker) for worker in workers.values()] == ["ready\n"] * len(RANKS)
            return workers

        yield begin


def line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline()


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.communicate()


def alive(workers: Workers) -> dict[int, int]:
    """Local rank by pid, of those not reaped yet."""
    return {worker.pid: rank for rank, worker in workers.items() if worker.poll() is None}


def blocks(output: pathlib.Path, dump: stack_dumps.Dump, workers: Workers) -> list[str]:
    """Carry a dump out with this process's stderr where the workers' is; the text under each header."""
    kept = os.dup(2)
    with output.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        with os.fdopen(os.dup(2), "w") as stderr, contextlib.redirect_stderr(stderr):
            while not dump.is_over(alive(workers), time.monotonic()):
                dump.go_on(alive(workers), time.monotonic())
                time.sleep(0.005)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    return output.read_text().split("elasticrun: Stacks of local rank ")[1:]


def names(written: list[str]) -> list[tuple[str, set[str]]]:
    """The rank of each header, and the functions named after ranks that stand under it."""
    return [(block[0], set(re.findall(r"in (rank_\d)\n", block))) for block in written]


def test_stacks_of_ending_workers_do_not_mix(start: Start, output: pathlib.Path) -> None:
    """One block a rank, in order, each with its own threads; no dump fails because another worker has ended."""
    workers = start()
    written = blocks(output, stack_dumps.of_ending(alive(workers)), workers)

    assert names(written) == [("0", {"rank_0"}), ("1", {"rank_1"}), ("2", {"rank_2"})]
    assert [block.count("Fatal Python error: Aborted") for block in written] == [1, 1, 1]
    assert "Connection closed" not in output.read_text()
    assert alive(workers) == {}


def test_a_deaf_worker_keeps_nobody_from_writing(start: Start, output: pathlib.Path) -> None:
    """One that does not end when asked has its second, then the others write."""
    workers = start(deaf=(1,))
    written = blocks(output, stack_dumps.of_ending(alive(workers)), workers)

    assert names(written) == [("0", {"rank_0"}), ("1", set()), ("2", {"rank_2"})]
    assert list(alive(workers).values()) == [1]


def test_stacks_of_living_workers_do_not_mix(start: Start, output: pathlib.Path) -> None:
    """The same on a suspicion, and every worker lives on."""
    workers = start()
    written = blocks(output, stack_dumps.of_living(alive(workers)), workers)

    assert names(written) == [("0", {"rank_0"}), ("1", {"rank_1"}), ("2", {"rank_2"})]
    assert sorted(alive(workers).values()) == list(RANKS)
