"""Eight workers of a node keep their state once, and each its own generators; the next node keeps these too."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from elastic_infra.training import node_memory
from elastic_infra.training.host_memory import bytes_of
from elastic_infra.training.node_memory import NodeMemory

WORKERS = 8
FIRST = 16
"""The first rank of the node."""


def tree(rank: int, step: int) -> dict[str, object]:
    """What a worker captures; only the first has the members."""
    members = {"members": {"weight": torch.full((1000,), float(step))}} if rank == 0 else {}
    return {**members, "rng": torch.tensor([rank, step])}


def keep(folder: Path, rank: int, step: int) -> None:
    """A worker of this local rank ends a step."""
    NodeMemory(str(folder), rank).store(step, FIRST + rank, tree(rank, step))


def test_the_state_is_kept_once(tmp_path: Path) -> None:
    """Every worker finds the state and its own generators; the files of eight are little more than those of one."""
    for step in (1, 2, 3):
        for rank in range(WORKERS):
            keep(tmp_path, rank, step)

    for rank in range(WORKERS):
        memory = NodeMemory(str(tmp_path), rank)
        newest = memory.newest()
        assert newest is not None
        assert newest[0] == 3
        assert torch.equal(newest[1]["members"]["weight"], torch.full((1000,), 3.0))
        assert {step: [*ranks] for step, ranks in memory.parts().items()} == {2: [FIRST + rank], 3: [FIRST + rank]}
        assert memory.parts()[3][FIRST + rank].tolist() == [rank, 3]
    assert len(list(tmp_path.glob("state.*"))) == 2
    state = max(file.stat().st_size for file in tmp_path.glob("state.*"))
    own = [file.stat().st_size for file in tmp_path.glob("generators-*")]
    assert len(own) == 2 * (WORKERS - 1)
    assert max(own) < state


def test_a_node_without_snapshots_has_none(tmp_path: Path) -> None:
    """The memory of a fresh node has no state and no generators."""
    assert NodeMemory(str(tmp_path), 3).newest() is None
    assert NodeMemory(str(tmp_path), 0).parts() == {}


def test_the_next_node_keeps_the_generators_of_all_workers(tmp_path: Path) -> None:
    """Of the newest two snapshots; only the next node's first worker answers for them."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    next_node = NodeMemory(str(there), 0)
    for step in (1, 2, 3):
        for rank in range(WORKERS):
            keep(here, rank, step)
        content = NodeMemory(str(here), 0).outgoing(step, torch.tensor([0, step]), FIRST, WORKERS)
        assert content is not None
        next_node.keep(content)

    assert next_node.parts().keys() == {2, 3}
    for step, rank in itertools.product((2, 3), range(WORKERS)):
        assert next_node.parts()[step][FIRST + rank].tolist() == [rank, step]
    assert NodeMemory(str(there), 1).parts() == {}


def test_a_worker_that_did_not_end_the_step_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot with some ranks' generators is none: the one before stays on the next node."""
    monkeypatch.setattr(node_memory, "SIBLING_SECONDS", 0.05)
    keep(tmp_path, 1, 1)

    assert NodeMemory(str(tmp_path), 0).outgoing(2, torch.tensor([0, 2]), FIRST, 2) is None


def test_a_worker_that_is_beyond_the_step_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender was late, and what it waits for cannot come: the next snapshot is on its way instead."""
    monkeypatch.setattr(node_memory, "SIBLING_SECONDS", 3600.0)
    for step in (1, 2, 3):
        keep(tmp_path, 1, step)

    assert NodeMemory(str(tmp_path), 0).outgoing(1, torch.tensor([0, 1]), FIRST, 2) is None


def test_a_damaged_copy_is_not_taken(tmp_path: Path) -> None:
    """It was cut, or its header is not what was written: the worker begins its random numbers anew."""
    content = NodeMemory(str(tmp_path), 0).outgoing(3, torch.tensor([0, 3]), FIRST, 1)
    assert content is not None
    memory = NodeMemory(str(tmp_path), 0)
    memory.keep(content)
    assert memory.parts()[3][FIRST].tolist() == [0, 3]

    (file,) = tmp_path.glob("neighbour.*")
    for damaged in (content[:40], content[:-1], content[:50] + bytes([content[50] ^ 1]) + content[51:]):
        file.write_bytes(damaged)
        assert memory.parts() == {}


def sharded(step: int, run: str = "run") -> dict[str, object]:
    """What the first worker of a node captures of a sharded state."""
    return {"shards": {"weight": torch.tensor([step])}, "run": run, "rng": torch.tensor([step])}


def test_a_copy_of_another_node_is_whole_or_not_there(tmp_path: Path) -> None:
    """It counts from the moment on at which its first bytes are the magic; the last two stay."""
    memory = NodeMemory(str(tmp_path), 0)
    for step in (1, 2, 3):
        content = bytes_of(step, sharded(step))
        room, finish = memory.receive(0, len(content))
        room[8:] = content[8:]
        assert (step, "run") not in memory.copies()
        finish()
        assert (step, "run") in memory.copies()

    found = NodeMemory(str(tmp_path), 0).copies()
    assert {key: [tree["shards"]["weight"].tolist() for tree in trees] for key, trees in found.items()} == {
        (2, "run"): [[2]],
        (3, "run"): [[3]],
    }
    assert NodeMemory(str(tmp_path), 1).copies() == {}


@pytest.mark.parametrize("used", [4, 5])
def test_what_training_goes_on_from_is_not_overwritten_first(tmp_path: Path, used: int) -> None:
    """Of two steps only one may be whole on all nodes, and it is needed until the next one is."""
    memory = NodeMemory(str(tmp_path), 0)
    for step in (4, 5):
        memory.store(step, 0, sharded(step))
        content = bytes_of(step, sharded(step))
        room, finish = memory.receive(0, len(content))
        room[8:] = content[8:]
        finish()
    memory.spare((used, "run"))
    memory.store(6, 0, sharded(6, "next"))
    memory.receive(0, 100)

    assert memory.sharded().keys() == {(used, "run"), (6, "next")}
    assert memory.copies().keys() == {(used, "run")}
