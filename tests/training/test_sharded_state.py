"""A sharded state is restored for any number of ranks, from the memory of present nodes or from disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from elastic_infra.training import ElasticState, Restored
from tests.training.sharded import assert_equal, logs, run

# Slow: torch is imported once for all of them, for ten seconds. tests/training/test_shards.py has FSDP2 in one process.
pytestmark = [
    pytest.mark.launcher,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="FSDP2 of torch 2.6 cannot compute on the CPU"),
]


def sources(said: list[dict[str, object]]) -> list[object]:
    """Where each rank's state came from."""
    return [line["source"] for line in said]


def test_shards_of_two_ranks_are_one_whole_model(tmp_path: Path) -> None:
    """Real FSDP2: a process that shards nothing reads the weights and moments of both ranks, to the bit."""
    run(tmp_path, "2", "train=2", "disk", "write=saved")
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    state = ElasticState(tmp_path / "checkpoints", model=model, optimizer=optimizer, best=0.0)

    assert state.restore() == Restored(2, "disk")
    assert state.best == 2.0
    here = dict(model.state_dict())
    for index, values in optimizer.state_dict()["state"].items():
        here |= {f"{index}.{name}": value for name, value in values.items()}
    torch.save(here, tmp_path / "here.pt")
    assert_equal(tmp_path, "saved", "here")


def test_each_size_restores_what_the_one_before_has_saved(tmp_path: Path) -> None:
    """Two ranks, three, one, four, two copies of two, five: a rank may have no row of a tensor."""
    run(tmp_path, "2", "train=2", "disk", "write=0")
    for attempt, mesh in enumerate(("3", "1", "4", "2x2", "5", "2"), 1):
        forget_nodes(tmp_path)
        actions = ("restore", f"write={attempt}-restored", "train=1", "disk", f"write={attempt}")
        said = run(tmp_path, mesh, *actions, attempt=attempt)

        assert set(sources(said)) == {"disk"}, mesh
        assert {(line["step"], line["best"]) for line in said} == {(attempt + 2, attempt + 2.0)}
        assert_equal(tmp_path, f"{attempt - 1}", f"{attempt}-restored")


def test_the_same_ranks_go_on_from_memory(tmp_path: Path) -> None:
    """Each rank finds its own shards and generators, also those of a step that is on no disk."""
    before = run(tmp_path, "3", "train=1", "disk", "train=1", "memory", "write=saved")
    after = run(tmp_path, "3", "restore", "write=restored", attempt=1)

    assert sources(after) == ["memory"] * 3
    assert [line["step"] for line in after] == [2] * 3
    assert [line["random"] for line in after] == [line["random"] for line in before]
    assert_equal(tmp_path, "saved", "restored")


def test_a_lost_shard_is_taken_from_disk_and_named(tmp_path: Path) -> None:
    """A node is gone with its memory: the newer step in the memory of the others is not used, and a line says why."""
    run(tmp_path, "3", "train=1", "disk", "write=saved", "train=1", "memory")
    shutil.rmtree(tmp_path / "node-1")
    said = run(tmp_path, "3", "restore", "write=restored", attempt=1)

    assert sources(said) == ["disk"] * 3
    assert_equal(tmp_path, "saved", "restored")
    (line,) = [line for line in logs(tmp_path).splitlines() if "in memory is not used" in line]
    assert "of step 2 " in line
    assert "a shard is in the memory of no present node" in line
    assert line.endswith("Training goes on from step 1, from disk.")


def test_another_copy_of_a_lost_shard_is_sent(tmp_path: Path) -> None:
    """HSDP: a lost node's shards are in the memory of another node, and go to a new node, or to fewer ranks."""
    run(tmp_path, "2x2", "train=2", "memory", "write=saved")
    shutil.rmtree(tmp_path / "node-1")
    replaced = run(tmp_path, "2x2", "restore", "write=replaced", "memory", attempt=1)
    shutil.rmtree(tmp_path / "node-3")
    shrunk = run(tmp_path, "3", "restore", "write=shrunk", attempt=2)

    assert sources(replaced) == ["memory", "peer", "memory", "memory"]
    assert "peer" in sources(shrunk)
    assert "disk" not in sources(shrunk)
    assert_equal(tmp_path, "saved", "replaced")
    assert_equal(tmp_path, "saved", "shrunk")


def test_a_snapshot_with_a_damaged_shard_is_passed_over(tmp_path: Path) -> None:
    """One wrong byte in the part of a rank that only some of the new ranks read: all take the snapshot before."""
    run(tmp_path, "4", "train=1", "disk", "write=saved", "train=1", "disk")
    forget_nodes(tmp_path)
    part = tmp_path / "checkpoints" / "step-000000000002" / "rank-00003.bin"
    data = bytearray(part.read_bytes())
    data[-3] ^= 1
    part.write_bytes(data)
    said = run(tmp_path, "2", "restore", "write=restored", attempt=1)

    assert [(line["source"], line["step"]) for line in said] == [("disk", 1)] * 2
    assert_equal(tmp_path, "saved", "restored")


def forget_nodes(folder: Path) -> None:
    """Delete the memory of all nodes."""
    for node in folder.glob("node-*"):
        shutil.rmtree(node)
