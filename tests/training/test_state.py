"""A state goes on where it was, from memory or from disk, and says what does not fit."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.distributed as dist

from elastic_infra.launcher.workers.progress import VARIABLE
from elastic_infra.training import (
    ElasticIterable,
    ElasticSampler,
    ElasticState,
    Restored,
    StateError,
    host_memory,
    memory_room,
)
from elastic_infra.training import state as state_module
from elastic_infra.training.places import MANIFEST, Disk
from elastic_infra.training.snapshots import Writer

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"


def trained(folder: Path | None, steps: int, **plain: Any) -> ElasticState:
    """A small training after so many steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    sampler = ElasticSampler(8, global_batch=4)
    state = ElasticState(folder, model=model, optimizer=optimizer, scheduler=scheduler, data=sampler, **plain)
    train(state, steps)
    return state


def save_twice(folder: Path, steps: int) -> None:
    """Save the training after so many steps, and after one more."""
    state = trained(folder, steps)
    for _ in range(2):
        state.snapshot(durable=True)
        state.wait()
        train(state, 1)


def train(state: ElasticState, steps: int) -> float:
    """Some steps; the last loss."""
    last = 0.0
    for _ in range(steps):
        loss = (state.model(torch.randn(4, 3)) ** 2).mean() * (1 + random.random() + np.random.random())  # noqa: NPY002  the generator that scripts use
        loss.backward()
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.scheduler.step()
        state.data.advance()
        state.step += 1
        last = loss.item()
    return last


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_training_goes_on_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Weights, moments, learning rate, buffers, position and every generator: the same losses follow."""
    if where == "memory":
        monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/progress-1")
    folder = tmp_path / "checkpoints" if where == "disk" else None
    state = trained(folder, 3, best=0.5)
    state.best = 0.25
    state.snapshot(durable=where == "disk")
    state.wait()
    expected = [train(state, 1) for _ in range(3)]
    random.seed(99)
    np.random.seed(99)  # noqa: NPY002

    resumed = trained(folder, 1, best=0.0)
    assert dataclasses.astuple(resumed.restore()) == (3, where, "")
    assert (resumed.step, resumed.best, resumed.data.offset) == (3, 0.25, state.data.global_batch)
    assert [train(resumed, 1) for _ in range(3)] == expected


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_a_mean_of_numpy_s_can_be_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Literal["disk", "memory"]
) -> None:
    """``state.best = np.mean(losses)`` looks like a float and is none, in a member too."""
    if where == "memory":
        monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/progress-1")
    folder = tmp_path / "checkpoints" if where == "disk" else None
    state = trained(folder, 2, best=0.0, history=[])
    state.best = np.mean([0.5, 1.0])
    state.history.append(np.float32(0.25))
    state.optimizer.param_groups[0]["lr"] = np.float64(0.125)
    state.snapshot(durable=where == "disk")
    state.wait()

    resumed = trained(folder, 0, best=0.0, history=[])
    assert resumed.restore() == Restored(2, where)
    assert (resumed.best, resumed.history) == (0.75, [0.25])
    assert type(resumed.best) is float
    assert resumed.optimizer.param_groups[0]["lr"] == 0.125


def test_nothing_saved_is_a_fresh_start(tmp_path: Path) -> None:
    """The state of a first generation."""
    assert trained(tmp_path / "new", 0).restore() == Restored(0, "nothing")


def test_memory_wins_where_it_is_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's own node has what the disk does not have yet; a disk that is ahead wins."""
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/progress-1")
    state = trained(tmp_path / "c", 2)
    state.snapshot(durable=True)
    state.wait()
    train(state, 1)
    state.snapshot()

    assert trained(tmp_path / "c", 0).restore() == Restored(3, "memory")
    for file in tmp_path.glob("state.*"):
        file.unlink()
    assert trained(tmp_path / "c", 0).restore() == Restored(2, "disk")


def test_a_restore_from_disk_takes_the_size_of_the_state_once(tmp_path: Path) -> None:
    """In host memory, for each worker of a node at the same time: a node has no room for two."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    for action in ("save", "restore"):
        command = [sys.executable, str(SCRIPTS / "memory_of_a_restore.py"), action, str(tmp_path)]
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)

    assert float(done.stdout) < 1.5


def flip(folder: Path, step: int) -> None:
    """Change one byte of a snapshot, which keeps its length."""
    part = folder / f"step-{step:012d}" / "rank-00000.bin"
    data = bytearray(part.read_bytes())
    data[-3] ^= 1
    part.write_bytes(data)


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One wrong byte in the newest: the one before is taken, and a line says so."""
    save_twice(tmp_path, 1)
    flip(tmp_path, 2)

    assert trained(tmp_path, 0).restore() == Restored(1, "disk")
    assert "has another checksum than the manifest says" in capsys.readouterr().err


def test_a_snapshot_that_a_peer_cannot_read_does_not_count_among_those_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 can read its own part of it, and deletes none of the two whole ones beside it."""
    save_twice(tmp_path, 1)
    peer = iter([False, True])
    monkeypatch.setattr(state_module, "_gather", lambda mine: [mine, next(peer) if mine is True else mine])
    again = trained(tmp_path, 0)
    assert again.restore() == Restored(1, "disk")

    again.step = 3
    again.snapshot(durable=True)
    again.wait()
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["1", "2", "3"]


def test_a_rank_that_can_read_no_snapshot_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its volume is not mounted: training does not begin anew on all ranks, unless the memory has an older state."""
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/progress-1")
    save_twice(tmp_path / "c", 2)
    monkeypatch.setattr(Disk, "pieces", _not_there)
    for file in tmp_path.glob("state.*"):
        file.unlink()

    with pytest.raises(StateError, match=r"Rank 0 can read none of the 2 snapshots in .*: .*No such file.* Mount the"):
        trained(tmp_path / "c", 0).restore()
    trained(tmp_path / "c", 1).snapshot()
    assert trained(tmp_path / "c", 0).restore() == Restored(1, "memory")


@pytest.mark.parametrize("beside", ["whole", "sharded"])
def test_a_first_rank_that_finds_no_snapshot_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """It chooses the snapshot for all: its empty folder is none for a fresh start where another rank finds some."""

    def gather(mine: Any) -> list[Any]:
        return [mine, True] if mine is False else [mine, mine]

    monkeypatch.setattr(state_module, "_gather", gather)
    monkeypatch.setattr(ElasticState, "is_sharded", beside == "sharded")

    with pytest.raises(StateError, match=r"Rank 0 finds no snapshots in .*, and rank 1 does\. Mount the folder"):
        trained(tmp_path, 0).restore()


def _not_there(_disk: object, name: str) -> Iterator[bytes]:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    yield b""


def test_memory_is_used_where_all_newer_ones_on_disk_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was trained since the damage was found is not lost to an even older snapshot."""
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/progress-1")
    state = trained(tmp_path / "c", 3)
    state.snapshot(durable=True)
    state.wait()
    flip(tmp_path / "c", 3)
    for file in tmp_path.glob("state.*"):
        file.unlink()
    trained(tmp_path / "c", 2).snapshot()

    assert trained(tmp_path / "c", 0).restore() == Restored(2, "memory")


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    """Members missing, extra, or of another shape or type, each with what is expected and what is there."""
    state = trained(tmp_path, 1)
    state.snapshot(durable=True)
    state.wait()

    with pytest.raises(StateError, match=r"it has data besides; it has optimizer .*\. Give ElasticState the members"):
        ElasticState(tmp_path, model=state.model).restore()
    with pytest.raises(StateError, match="does not fit: it misses ema"):
        trained(tmp_path, 0, ema=torch.nn.Linear(1, 1)).restore()
    other = trained(tmp_path, 0)
    other.members["model"] = torch.nn.Linear(3, 4)
    with pytest.raises(StateError, match=r"does not fit: model: .*Missing key\(s\) in state_dict: .*Give ElasticState"):
        other.restore()
    other.members["model"] = torch.nn.Sequential(torch.nn.Linear(3, 5), *state.model[1:])
    with pytest.raises(StateError, match=r"size mismatch for 0\.weight: .*\[4, 3\].*\[5, 3\]"):
        other.restore()


def test_a_snapshot_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not passed over for an older one, also where the memory has the state; all ranks say so."""
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/progress-1")
    save_twice(tmp_path / "c", 1)
    manifest = tmp_path / "c" / "step-000000000002" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))

    said = r"step-000000000002 has format 2, and .* reads formats up to 1\. Train with the version that saved it"
    with pytest.raises(StateError, match=said):
        trained(tmp_path / "c", 0).restore()


def test_a_folder_that_takes_nothing_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not ten minutes later, when the first snapshot is due; that one and other workers of the node say nothing new."""
    (tmp_path / "file").touch()
    for local_rank in range(3):
        monkeypatch.setenv("LOCAL_RANK", f"{local_rank}")
        state = trained(tmp_path / "file" / "snapshots", 0)
        assert state.restore() == Restored(0, "nothing")
        state.snapshot(durable=True)
        state.wait()

    (line,) = capsys.readouterr().err.splitlines()
    assert f"Snapshots cannot be saved in {tmp_path}/file/snapshots: Not a directory. Training goes on." in line


def test_a_copy_is_taken_at_once(tmp_path: Path) -> None:
    """What training does after ``snapshot`` does not reach the disk, however late it is written."""
    state = trained(tmp_path, 1)
    before = state.model[0].weight.detach().clone()
    state.snapshot(durable=True)
    with torch.no_grad():
        state.model[0].weight.zero_()
    state.wait()
    state.restore()

    assert torch.equal(state.model[0].weight, before)


def test_any_rank_saves_the_whole_state_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks of a group whose rank 0 is gone save the same step: one copy stays, and no part is missing."""
    state = trained(tmp_path, 2)
    saved: list[int] = []
    for rank in (1, 2):
        monkeypatch.setattr(state_module, "_rank", lambda rank=rank: rank)
        state.save_alone(saved.append)
    monkeypatch.undo()

    assert saved == [2, 2]
    assert trained(tmp_path, 0).restore() == Restored(2, "disk")
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000002"]
    assert capsys.readouterr().err == ""


@pytest.mark.timeout(120)
def test_a_generation_that_breaks_frees_the_thread_that_waits_for_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread waits for the snapshot before the next one, so only another thread can hear of the loss."""
    monkeypatch.setattr(state_module, "_writer", lambda _run: Writer(0, 2))
    state = trained(tmp_path, 1)
    state.snapshot(durable=True)
    waits = threading.Thread(target=state.wait)
    waits.start()
    while not list(tmp_path.glob(".draft-*/rank-00000.bin.json")):
        threading.Event().wait(0.001)
    assert waits.is_alive()
    state.end_generation(broken=True)
    waits.join()

    assert trained(tmp_path, 0).restore() == Restored(0, "nothing")


@pytest.mark.timeout(120)
def test_a_part_of_an_earlier_start_is_in_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job was ended while rank 1 alone had written its part, and the next one, of the same run, saves this step."""
    monkeypatch.setattr(state_module, "_world", lambda: 2)

    def of_rank(rank: int, start: str) -> ElasticState:
        def gather(mine: Any) -> list[Any]:
            first = dataclasses.replace(mine, start=start) if hasattr(mine, "start") else mine
            return [first, mine]

        monkeypatch.setattr(state_module, "_rank", lambda: rank)
        monkeypatch.setattr(state_module, "_gather", gather)
        state = trained(tmp_path, 0)
        state.restore()
        train(state, 1)
        state.snapshot(durable=True)
        return state

    of_rank(1, "first").wait()
    later = of_rank(0, "second")
    while not [*tmp_path.glob(".draft-*second/rank-00000.bin.json")]:
        threading.Event().wait(0.001)
    later.end_generation(broken=True)
    later.wait()

    assert not [*tmp_path.glob("step-*")]


@pytest.mark.timeout(120)
def test_a_snapshot_of_a_generation_that_is_over_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 waits for a peer's part; the peer is lost, and the next generation's snapshots do not wait for it."""
    monkeypatch.setattr(state_module, "_writer", lambda _run: Writer(0, 2, "first"))
    state = trained(tmp_path, 1)
    state.snapshot(durable=True)
    while not list(tmp_path.glob(".draft-*/rank-00000.bin.json")):
        threading.Event().wait(0.001)
    state.end_generation()
    monkeypatch.setattr(state_module, "_writer", lambda _run: Writer(0, 1, "second"))
    state.step = 2
    state.snapshot()
    state.snapshot(durable=True)
    state.wait()

    assert trained(tmp_path, 0).restore() == Restored(2, "disk")


def test_memory_without_room_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Snapshots go on to disk alone, and one line says what to raise."""
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/gone/progress-1")
    state = trained(tmp_path / "c", 1)
    state.snapshot(durable=True)
    state.wait()

    assert "Snapshots in memory are off: " in capsys.readouterr().err
    assert trained(tmp_path / "c", 0).restore() == Restored(1, "disk")


def test_memory_beyond_the_limit_is_a_warning_with_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says what is needed, what is left, and the fields of the config that give more; disk is used alone."""
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/progress-1")
    monkeypatch.setattr(memory_room, "bytes_left", lambda: 0)
    state = trained(tmp_path / "c", 1)
    for _ in range(2):
        state.snapshot(durable=True)
        state.wait()

    said = capsys.readouterr().err
    assert re.search(r"two copies need \d+\.\d MiB, and the memory limit leaves 0\.0 MiB", said)
    assert said.count("Raise resources.memory and shared_memory.") == 1
    assert trained(tmp_path / "c", 0).restore() == Restored(1, "disk")


def test_a_group_for_shards_goes_with_the_error_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside NCCL: left over, it would keep this rank's peers waiting, and this process from being moved."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
        with pytest.raises(ConnectionError), state_module._gloo():
            raise ConnectionError
        assert len(dist.distributed_c10d._world.pg_map) == 1
    finally:
        dist.destroy_process_group()


def test_a_script_can_do_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the node's memory, and the disk has the state."""
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/memory/progress-1")
    (tmp_path / "memory").mkdir()
    state = ElasticState(tmp_path / "c", model=torch.nn.Linear(1, 1), in_memory=False)
    assert not state.snapshot()
    state.snapshot(durable=True)
    state.wait()

    assert not list((tmp_path / "memory").iterdir())
    assert state.restore() == Restored(0, "disk")


class Position:
    """A place in the data of a script's own."""

    def state_dict(self) -> dict[str, int]:
        """Always the beginning of the data."""
        return {"at": 0}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Any place will do."""


@pytest.mark.parametrize(
    ("given", "world", "lines"),
    [
        ({"data": Position()}, 2, 1),
        ({"data": Position()}, 1, 0),
        ({"position": Position()}, 2, 0),
        ({"data": ElasticSampler(8, global_batch=4)}, 2, 0),
        ({"data": ElasticIterable([1], global_batch=1)}, 2, 0),
        ({"best": 0.5}, 2, 0),
    ],
)
def test_a_position_that_may_be_one_rank_s_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: dict[str, Any], world: int, lines: int
) -> None:
    """Rank 0's is saved for all; the line says what to use, and how to say that it is right."""
    monkeypatch.setattr(state_module, "_world", lambda: world)
    state = ElasticState(None, in_memory=False, **given)
    for _ in range(2):
        state.restore()

    said = capsys.readouterr().err
    assert said.count("data= is a Position, and rank 0's position is saved for all ranks") == lines
    assert said.count("\n") == lines


def test_an_unknown_name_is_an_attribute_error(tmp_path: Path) -> None:
    """A misspelt value is not made by assigning to a member, nor read as None."""
    state = trained(tmp_path, 0, best=1.0)

    with pytest.raises(AttributeError, match="The state has no 'bets'"):
        _ = state.bets
    with pytest.raises(AttributeError, match="'model' is a member"):
        state.model = None


class Kept:
    """A member that keeps the tensors that it is given, as a replay buffer does."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {"seen": [torch.zeros(2000)]}

    def state_dict(self) -> dict[str, Any]:
        """The very object that was given."""
        return self.given

    def load_state_dict(self, given: dict[str, Any]) -> None:
        """Keep what is given."""
        self.given = given


class Metric(torch.nn.Module):  # type: ignore[misc]
    """A module with a tensor that is neither a parameter nor a buffer, as torchmetrics has them."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(2000)

    def get_extra_state(self) -> torch.Tensor:
        """What is saved besides parameters and buffers."""
        return self.total

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Keep what is given."""
        self.total = state


def test_later_snapshots_do_not_reach_what_was_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one overwrites the memory from which all came, in another place as the header is longer.

    Moments of a parameter without gradients, plain tensors and members that keep what they are given do not change.
    """
    monkeypatch.setenv(VARIABLE, f"0:{tmp_path}/progress-1")

    def begun() -> ElasticState:
        state = trained(None, 1, note="", best={"weight": torch.rand(2000)}, kept=Kept(), metric=Metric())
        state.metric.total.copy_(torch.rand(2000))
        state.kept.given["seen"][0].copy_(torch.rand(2000))
        return state

    state = begun()
    state.snapshot()
    saved = [tensor.clone() for tensor in host_memory.tensors_in(state.capture()["members"])]
    best = state.best["weight"].clone()

    resumed = begun()
    assert resumed.restore() == Restored(1, "memory")
    resumed.note = "longer " * 100
    for _ in range(2):
        resumed.step += 1
        resumed.snapshot()

    for before, after in zip(saved, host_memory.tensors_in(resumed.capture()["members"]), strict=True):
        assert torch.equal(before, after)
    assert torch.equal(resumed.best["weight"], best)
