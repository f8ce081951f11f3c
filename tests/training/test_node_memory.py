"""Eight workers of a node keep their state once, and each its own generators."""

from __future__ import annotations

from pathlib import Path

import torch

from elastic_infra.training.node_memory import NodeMemory

WORKERS = 8


def tree(rank: int, step: int) -> dict[str, object]:
    """What a worker captures; only the first has the members."""
    members = {"members": {"weight": torch.full((1000,), float(step))}} if rank == 0 else {}
    return {**members, "rng": torch.tensor([rank, step])}


def test_the_state_is_kept_once(tmp_path: Path) -> None:
    """Every worker finds the state and its own generators; the files of eight are little more than those of one."""
    for step in (1, 2, 3):
        for rank in range(WORKERS):
            NodeMemory(str(tmp_path), rank).store(step, tree(rank, step))

    for rank in range(WORKERS):
        newest = NodeMemory(str(tmp_path), rank).newest()
        assert newest is not None
        assert newest[0] == 3
        assert torch.equal(newest[1]["members"]["weight"], torch.full((1000,), 3.0))
        assert newest[1]["rng"].tolist() == [rank, 3]
    assert len(list(tmp_path.glob("state.*"))) == 2
    state = max(file.stat().st_size for file in tmp_path.glob("state.*"))
    assert all(file.stat().st_size < state for file in tmp_path.glob("generators-*"))


def test_generators_of_another_step_are_not_taken(tmp_path: Path) -> None:
    """A worker that was ended before it had kept a step draws anew, and not what it drew before."""
    NodeMemory(str(tmp_path), 1).store(2, tree(1, 2))
    NodeMemory(str(tmp_path), 0).store(3, tree(0, 3))

    newest = NodeMemory(str(tmp_path), 1).newest()
    assert newest is not None
    assert newest[1].keys() == {"members"}


def test_a_node_without_snapshots_has_none(tmp_path: Path) -> None:
    """The memory of a fresh node gives None."""
    assert NodeMemory(str(tmp_path), 3).newest() is None
