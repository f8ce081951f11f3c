"""A snapshot on disk as a checkpoint of torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import checkpoint

from elastic_infra.training import ElasticState, export
from tests.training.sharded import run

pytestmark = pytest.mark.launcher


def saved(folder: Path, *steps: int) -> ElasticState:
    """A state with a model, an optimizer with moments and a plain value, saved after each of these steps."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    state = ElasticState(folder, model=model, optimizer=optimizer, best=0.0)
    for step in steps:
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        state.step, state.best = step, float(step)
        state.snapshot(durable=True)
        state.wait()
    return state


def assert_same(found: dict[str, Any], state: ElasticState) -> None:
    """Every value of the state is there, to the bit."""
    model, moments = state.model.state_dict(), state.optimizer.state_dict()["state"]
    assert found.keys() == {"step", "model", "optimizer", "best"}
    assert all(torch.equal(found["model"][name], tensor) for name, tensor in model.items())
    assert all(
        torch.equal(found["optimizer"]["state"][index][name], tensor)
        for index, values in moments.items()
        for name, tensor in values.items()
    )
    assert (found["step"], found["best"]) == (state.step, state.best)


def test_the_newest_snapshot_is_one_file_for_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It loads with `weights_only=True`, and an optimizer takes its part."""
    state = saved(tmp_path / "job", 3, 5)

    assert export.main([str(tmp_path / "job"), str(tmp_path / "out.pt")]) == 0
    found = torch.load(tmp_path / "out.pt", weights_only=True)

    assert_same(found, state)
    state.optimizer.load_state_dict(found["optimizer"])
    assert capsys.readouterr().out == f"{tmp_path}/out.pt: step, model, optimizer, best; step 5\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job", "out.pt"]


def test_one_member_of_an_older_snapshot(tmp_path: Path) -> None:
    """`--step` and `--only`: the file has nothing else, and takes no room for it."""
    saved(tmp_path / "job", 3, 5)

    command = [str(tmp_path / "job"), str(tmp_path / "out.pt"), "--step", "3", "--only", "model", "--only", "best"]
    assert export.main(command) == 0
    found = torch.load(tmp_path / "out.pt", weights_only=True)

    assert (found.keys(), found["step"], found["best"]) == ({"step", "model", "best"}, 3, 3.0)
    assert (tmp_path / "out.pt").stat().st_size < 4096


@pytest.mark.filterwarnings("ignore:torch.distributed is")  # torch, of a load in one process
def test_a_folder_for_distributed_checkpoint(tmp_path: Path) -> None:
    """`torch.distributed.checkpoint.load` fills another model with it."""
    state = saved(tmp_path / "job", 3)

    assert export.main([str(tmp_path / "job"), str(tmp_path / "out"), "--format", "dcp"]) == 0
    model = torch.nn.Linear(3, 2)
    wanted = {"model": model.state_dict(), "step": 0}
    checkpoint.load(wanted, checkpoint_id=tmp_path / "out")

    assert wanted["step"] == 3
    assert torch.equal(model.weight, state.model.weight)


def test_a_damaged_snapshot_gives_way_to_the_one_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One changed byte: a warning names the snapshot; where its step is asked for, nothing is written."""
    saved(tmp_path / "job", 3, 5)
    (part,) = (tmp_path / "job" / "step-000000000005").glob("*.bin")
    data = bytearray(part.read_bytes())
    data[-3] ^= 1
    part.write_bytes(data)

    assert export.load(tmp_path / "job")["step"] == 3
    assert "The snapshot of step 5" in capsys.readouterr().err
    assert export.main([str(tmp_path / "job"), str(tmp_path / "out.pt"), "--step", "5"]) == 1
    assert not (tmp_path / "out.pt").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("empty", "new.pt"), "has no whole snapshot. Give the folder"),
        (
            ("job", "new.pt", "--step", "4"),
            "has no whole snapshot of step 4. Whole snapshots are there of the steps 3.",
        ),
        (("job", "new.pt", "--only", "modle"), "has no 'modle', but 'model', 'optimizer', 'best'."),
        (("job", "old.pt"), "old.pt exists. Give another name, or delete it."),
        (("job", "nowhere/new.pt"), "nowhere/new.pt cannot be written: "),
        (("what://job", "new.pt"), "what://job"),
    ],
)
def test_what_cannot_be_exported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    """A line without a traceback; nothing is written."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "job", 3)
    (tmp_path / "empty").mkdir()
    (tmp_path / "old.pt").write_text("old")

    assert export.main(options) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "job", "old.pt"]
    assert (tmp_path / "old.pt").read_text() == "old"


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="FSDP2 of torch 2.6 cannot compute on the CPU")
def test_shards_of_all_ranks_are_whole_tensors(tmp_path: Path) -> None:
    """HSDP, two copies of three shards: one process without a group, as a command, has the weights of all ranks."""
    run(tmp_path, "2x3", "train=2", "disk", "write=whole")
    command = [sys.executable, "-m", "elastic_infra.training.export", "checkpoints", "out.pt"]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())})

    found, whole = torch.load(tmp_path / "out.pt", weights_only=True), torch.load(tmp_path / "whole.pt")
    assert all(torch.equal(tensor, whole[name]) for name, tensor in found["model"].items())
    assert all(
        torch.equal(tensor, whole[f"{index}.{name}"])
        for index, values in found["optimizer"]["state"].items()
        for name, tensor in values.items()
    )
    assert found["step"] == 2
