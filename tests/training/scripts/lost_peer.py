"""Two ranks of gloo of which one is lost: while the group forms, or in the middle of a message.

Usage: lost_peer.py FOLDER making|message. Prints how the remaining rank was freed, or that it is known to be stuck.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from elastic_infra.training import waits
from elastic_infra.training.connections import Connections, _listens, open_sockets

WAIT = timedelta(seconds=300)
"""The group's timeout, with which the remaining rank would be free at last."""
BYTES = 1 << 28
"""So many that a rank can be stopped while it sends them."""
BEGUN = 1 << 22
"""Bytes after which the message has begun."""

path = Path(sys.argv[1]) / "store"


class Vanishing(dist.Store):  # type: ignore[misc]  # torch's types are not read
    """Publishes this rank's address in the store and ends the process, unless this rank is to connect to rank 0."""

    def __init__(self, target: dist.Store, first: int) -> None:
        super().__init__()
        self._target = target
        self._first = first

    def set(self, key: str, value: str) -> None:
        """Gloo compares addresses as the network has them: the higher one connects."""
        own = max(ports() - {self._first}, key=socket.htons)
        if socket.htons(own) < socket.htons(self._first):
            os._exit(1)
        self._target.set(key, value)
        os.kill(os.getpid(), signal.SIGKILL)


def ports() -> set[int]:
    """The ports at which this process listens."""
    found = set()
    for descriptor in filter(_listens, open_sockets()):
        with socket.socket(fileno=os.dup(descriptor)) as end:
            found.add(end.getsockname()[1])
    return found


def say(word: str) -> None:
    """Write the result of the script, which a test reads."""
    sys.stdout.write(word)
    sys.stdout.flush()


def meet(store: dist.Store, rank: int) -> None:
    """Make the group of both ranks with gloo."""
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=WAIT)


def forked(function: Callable[[], None]) -> int:
    """Run a function in another process."""
    pid = os.fork()
    if pid == 0:
        function()
        os._exit(0)
    return pid


def vanish() -> None:
    """As rank 1, once rank 0 waits for its connection."""
    first = ports().pop()
    dist.distributed_c10d._world.group_count = 0  # this process has begun to make its own group
    meet(Vanishing(dist.FileStore(str(path), 2), first), 1)


def lose_while_making() -> None:
    """The remaining rank is freed from the making by a cut."""
    connections, formed = Connections(), threading.Event()

    def form() -> None:
        with contextlib.suppress(RuntimeError), connections.making(2):
            meet(dist.FileStore(str(path), 2), 0)
        formed.set()

    threading.Thread(target=form, daemon=True).start()
    while not ports():
        time.sleep(0.01)
    while os.waitstatus_to_exitcode(os.waitpid(forked(vanish), 0)[1]) != -signal.SIGKILL:
        pass  # its port was the lower one
    assert not formed.wait(0.5), "it waits for the connection"
    while not formed.wait(0.1):
        connections.cut()
    say("freed")


def stop_while_sending() -> None:
    """As rank 1, which has sent a part of the message."""
    meet(dist.FileStore(str(path), 2), 1)
    sent = dist.broadcast(torch.zeros(BYTES, dtype=torch.uint8), 1, async_op=True)
    while int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0]) < BEGUN:
        pass
    os.kill(os.getpid(), signal.SIGSTOP)
    sent.wait()


def lose_in_message() -> None:
    """The remaining rank is stuck, which is known once its connections are gone, and not before."""
    peer = forked(stop_while_sending)
    connections = Connections()
    with connections.making(2):
        meet(dist.FileStore(str(path), 2), 0)

    def watch() -> None:
        os.waitpid(peer, os.WUNTRACED)
        time.sleep(0.5)
        if waits.FUTEX is None or not any(waits._name(each) == waits.COLLECTIVES for each in waits.threads()):
            say("unnamed")
            os.kill(peer, signal.SIGKILL)  # it is stopped and would hold this script's output open
            os._exit(0)
        assert connections.left_waiting() == (), "the peer may go on"
        os.kill(peer, signal.SIGKILL)
        found: waits.Waits = ()
        while not found:
            time.sleep(0.1)
            connections.cut()
            found = connections.left_waiting()
        time.sleep(1)
        say("stuck" if connections.left_waiting() == found else "not stuck")
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    dist.broadcast(torch.empty(BYTES, dtype=torch.uint8), 1)
    say("received")


{"making": lose_while_making, "message": lose_in_message}[sys.argv[2]]()
os._exit(0)
