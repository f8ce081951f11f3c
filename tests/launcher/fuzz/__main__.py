"""``python -m tests.launcher.fuzz``: damaged traffic against a store and a status port for ten minutes.

Exit code 1 and one line if one of them ends, stops answering, reports an internal fault that ended a connection, or
takes more memory than its bound. The line has the seed, with which the same traffic is sent again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from elastic_infra.launcher.store import wire
from tests.launcher.fuzz import traffic

ROOT: Final = Path(__file__).resolve().parents[3]
TOKEN: Final = "c0ffee" * 8
STORE_MEGABYTES: Final = 256
"""The store pod's limit, `rendezvous.resources.memory`."""
STATUS_MEGABYTES: Final = 64
STANDING: Final = 60
"""Connections that are kept: most say nothing more, and read nothing."""
LOOK_EVERY: Final = 200
STATUS: Final = (
    "import sys, time; from elastic_infra.launcher.agent import status_server;"
    "print(status_server.serve(0, lambda: None), flush=True); time.sleep(100000)"
)


class FoundError(Exception):
    """A law of the servers was broken."""


@dataclass
class Target:
    """A server in a separate process, with its laws."""

    name: str
    process: subprocess.Popen[str]
    port: int
    errors: IO[str]
    megabytes: int
    traffic: Callable[[random.Random], bytes]
    greeting: bytes
    answer: bytes
    peak: float = 0.0

    def look(self) -> None:
        """Raise ``FoundError`` unless it lives, answers, is silent about faults and small."""
        if self.process.poll() is not None:
            self._fail(f"it ended with {self.process.returncode}")
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        self.peak = max(self.peak, next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS")) / 1024)
        if self.peak > self.megabytes:
            self._fail(f"it takes {self.peak:.0f} MB")
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as end:
            end.sendall(self.greeting)
            if self.answer not in end.recv(1 << 16):
                self._fail("it does not answer")
        said = Path(self.errors.name).read_text("utf-8")
        if "Error" in said:
            self._fail(f"it says: {said.strip().splitlines()[-1]}")

    def _fail(self, why: str) -> None:
        message = f"{self.name}: {why}"
        raise FoundError(message)


@contextlib.contextmanager
def started(name: str, token: str | None) -> Iterator[Target]:
    """A store with this token, or for None a status port."""
    store = ["-m", "elastic_infra.launcher.store", "--host", "127.0.0.1", "--port", "0"]
    arguments = ["-c", STATUS] if token is None else store
    environ = {**os.environ, "ELASTIC_INFRA_STORE_TOKEN": token or ""}
    with (
        tempfile.NamedTemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[-1])
        sent = traffic.of_a_node(TOKEN)
        hello = wire.encode({"op": "hello", "id": 0, "job": "witness", "token": TOKEN})
        try:
            if token is None:
                yield Target(name, process, port, errors, STATUS_MEGABYTES, request, traffic.REQUESTS[2], b"503")
            else:
                yield Target(
                    name, process, port, errors, STORE_MEGABYTES,
                    lambda chance: traffic.damaged(chance, sent), hello, b"incarnation",
                )  # fmt: skip
        finally:
            process.kill()


def request(chance: random.Random) -> bytes:
    """A damaged request to the status port."""
    return traffic.damaged(chance, chance.choice(traffic.REQUESTS))


def strike(chance: random.Random, target: Target, standing: list[socket.socket]) -> None:
    """One connection: it sends, then ends in one of several ways, or stays and never reads."""
    end = socket.create_connection(("127.0.0.1", target.port), timeout=30)
    with contextlib.suppress(OSError):
        end.settimeout(0.2)  # a server that has stopped reading this one is within its rights
        end.sendall(target.traffic(chance))
    if chance.random() < 1 / 3:
        standing.append(end)
        if len(standing) > STANDING:
            standing.pop(chance.randrange(len(standing))).close()
        return
    with contextlib.suppress(OSError):
        if chance.random() < 1 / 2:
            end.shutdown(socket.SHUT_WR)
            end.recv(1 << 16)
    end.close()


def fuzz(seed: int, seconds: float) -> str:
    """Strike until the time is over; a summary.

    Raises:
        FoundError: something broke.
    """
    chance, count, deadline = random.Random(seed), 0, time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        tokens = {"open store": "", "closed store": TOKEN, "status port": None}
        targets = [stack.enter_context(started(name, token)) for name, token in tokens.items()]
        standing: dict[str, list[socket.socket]] = {target.name: [] for target in targets}
        while time.monotonic() < deadline:
            for target in targets:
                strike(chance, target, standing[target.name])
                if count % LOOK_EVERY == 0:
                    target.look()
            count += 1
        for target in targets:
            target.look()
            for end in standing[target.name]:
                end.close()
    peaks = ", ".join(f"{target.name} {target.peak:.0f} MB" for target in targets)
    return f"seed {seed}: {count} connections to each, nothing broke; most memory: {peaks}"


def main() -> int:
    """Fuzz, and print the result."""
    parser = argparse.ArgumentParser("python -m tests.launcher.fuzz", description="Damaged traffic on every port.")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long; 600 by default")
    parser.add_argument("--seed", type=int, default=None, help="of the damage; a new one by default")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    try:
        print(fuzz(seed, given.seconds))
    except (FoundError, OSError) as error:
        print(f"seed {seed}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
