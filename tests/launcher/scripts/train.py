"""A training script for tests: one all-reduce a step, a checkpoint of the step, a journal of what happened.

Usage: train.py FOLDER STEPS SECONDS_A_STEP BACKEND. It ends after STEPS steps, counted over all generations by the
checkpoint. BACKEND is gloo, or sockets: a star of plain sockets that fails as gloo does when a peer is gone, for
tests of membership that need not wait until torch is imported; or none: no rank notices another.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import sys
import time

from elastic_infra.training.progress import Progress

folder, steps, pause, backend = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
checkpoint = folder / "checkpoint"
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
meeting = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


class Gloo:
    """Collectives of torch on gloo."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        dist.init_process_group("gloo")

    def count(self) -> int:
        one = self.torch.ones(1)
        self.dist.all_reduce(one)
        return int(one)

    def close(self) -> None:
        self.dist.destroy_process_group()


class Sockets:
    """Rank 0 counts the connected ranks and tells them."""

    def __init__(self) -> None:
        if rank == 0:
            listener = socket.create_server(meeting)
            self.ends = [listener.accept()[0] for _ in range(world - 1)]
            return
        self.ends = [self.connect()]

    def connect(self) -> socket.socket:
        deadline = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection(meeting)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def count(self) -> int:
        if rank != 0:
            self.ends[0].sendall(b"1")
        present = 1 + sum(self.read(end) for end in self.ends)
        if rank == 0:
            for end in self.ends:
                end.sendall(bytes([present]))
        return present if rank == 0 else present - 1

    def read(self, end: socket.socket) -> int:
        data = end.recv(1)
        if not data:
            message = "Connection closed by peer"
            raise RuntimeError(message)
        return data[0] if rank else 1

    def close(self) -> None:
        for end in self.ends:
            end.close()


class Alone:
    """No collective at all."""

    def count(self) -> int:
        return world

    def close(self) -> None:
        pass


def journal(event: str, step: int) -> None:
    """Append one line; short appends are atomic."""
    line = {
        "event": event,
        "step": step,
        "rank": rank,
        "world": world,
        "generation": int(os.environ["ELASTIC_INFRA_GENERATION"]),
        "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        "pid": os.getpid(),
        "port": meeting[1],
        "time": time.monotonic(),
    }
    with (folder / "journal").open("a") as file:
        file.write(json.dumps(line) + "\n")


def save(step: int) -> None:
    """Rank 0 writes, atomically."""
    if rank == 0:
        temporary = folder / f"checkpoint.{os.getpid()}"
        temporary.write_text(str(step))
        temporary.rename(checkpoint)


def fail_once(step: int) -> None:
    """Exit with 7, or hang, where a test has asked this rank to, at this step; -1 is before it meets the others."""
    crash = folder / f"crash-{rank}-{step}"
    if crash.exists():
        crash.unlink()
        sys.exit(7)
    hang = folder / f"hang-{rank}-{step}"
    if hang.exists():
        hang.unlink()
        time.sleep(3600)


def main() -> bool:
    """Train from the checkpoint on; returns whether the last step is done."""
    journal("start", -1)
    while (folder / "loads").exists():  # a start that takes as long as a test wants
        time.sleep(0.02)
    fail_once(-1)
    kinds: dict[str, type[Gloo | Sockets | Alone]] = {"gloo": Gloo, "sockets": Sockets, "none": Alone}
    group = kinds[backend]()
    assert not (folder / f"refuse-{world}").exists(), f"the batch cannot be shared by {world} workers"
    progress = Progress()
    first = int(checkpoint.read_text()) + 1 if checkpoint.exists() else 0
    for step in range(first, steps):
        assert group.count() == world
        time.sleep(pause)
        journal("step", step)
        fail_once(step)
        if progress.step(step):
            save(step)
            journal("stopped", step)
            break
        if step % 10 == 9:
            save(step)
    else:
        save(steps - 1)
        journal("finished", steps - 1)
    group.close()
    return not progress.stopped


if __name__ == "__main__":
    main()
