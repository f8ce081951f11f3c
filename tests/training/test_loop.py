"""A loop goes on where its snapshots cannot be saved, and the launcher hears of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch.utils.data import DataLoader

from elastic_infra.launcher.workers.progress import Memory, Slot
from elastic_infra.training import Elastic, ElasticIterable, ElasticSampler, ElasticState, Restored, Snapshots
from elastic_infra.training.places import Disk, Files
from elastic_infra.training.snapshots import Folder
from tests.training.volumes import small_volume

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The launcher's memory, in which this worker reports."""
    memory = Memory.create(str(tmp_path / "progress-1"), slots=1)
    for name, value in memory.variable(0).items():
        monkeypatch.setenv(name, value)
    return memory


def reported(shared: Memory) -> Slot:
    """What this worker has reported."""
    (slot,) = shared.read()
    return slot


def test_training_goes_on_without_snapshots(tmp_path: Path, shared: Memory, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder cannot be made: all steps are done, one line says so, and the launcher counts the saves."""
    (tmp_path / "file").touch()
    state = ElasticState(tmp_path / "file" / "snapshots", model=torch.nn.Linear(1, 1))

    assert Elastic(state, snapshots=Snapshots(durable_steps=1)).run(lambda _: None, until=3)
    assert (reported(shared).failed_saves, reported(shared).checkpoint) == (3, None)
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be saved in" in line
    assert "Not a directory" in line


def test_a_full_and_a_read_only_volume_cost_no_step(tmp_path: Path, shared: Memory) -> None:
    """Each of the four saves that fail is counted for the metric, and there is one warning for each of two reasons."""
    volume = tmp_path / "volume"
    volume.mkdir()
    command = [*small_volume(volume), sys.executable, str(SCRIPTS / "full_volume_loop.py"), str(volume)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["step-000000000001", "step-000000000004"]
    assert (reported(shared).step, reported(shared).checkpoint, reported(shared).failed_saves) == (6, 4, 4)
    full, again, refused = done.stderr.splitlines()
    assert "No space left on device" in full
    assert "are saved again, from step 4 on" in again
    assert "Read-only file system" in refused


@pytest.mark.parametrize("overlap", [False, True])
def test_samples_and_snapshots_in_memory_are_reported(shared: Memory, *, overlap: bool) -> None:
    """Of the last step, which is the short one of the epoch; a copy beside the next step counts once it is whole."""
    model = torch.nn.Linear(200, 200)
    sampler = ElasticSampler(10, global_batch=4)
    state = ElasticState(None, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data=sampler)
    elastic = Elastic(state, snapshots=Snapshots(memory_steps=1, overlap=overlap))

    assert elastic.run(lambda state: state.optimizer.step(), until=3)
    assert (reported(shared).samples, reported(shared).snapshot) == (10, 2 if overlap else 3)


@pytest.mark.parametrize(("lost", "source", "expected", "told"), [(False, "memory", 2, 2), (True, "disk", None, 3)])
def test_a_snapshot_that_training_went_back_before_is_forgotten(
    tmp_path: Path, shared: Memory, source: Literal["memory", "disk"], expected: int | None, told: int, *, lost: bool
) -> None:
    """The newest in memory is the restored one, or none, of which the launcher hears with the next one."""
    state = ElasticState(tmp_path / "c", model=torch.nn.Linear(1, 1))
    at_two = {}

    def step(state: ElasticState) -> None:
        state.wait()  # for the snapshot on disk, beside which none is put into memory
        if state.step == 2:
            at_two.update({path: path.read_bytes() for path in tmp_path.glob("state.*")})

    Elastic(state, snapshots=Snapshots(memory_steps=1, durable_steps=2)).run(step, until=3)
    assert (state.memory_step, reported(shared).snapshot) == (3, 3)
    for path in tmp_path.glob("state.*"):
        path.unlink()
    for path, content in () if lost else at_two.items():
        path.write_bytes(content)

    again = Elastic(state)
    again.run(step, until=2)
    assert again.restored == Restored(2, source)
    assert state.memory_step == expected
    assert reported(shared).snapshot == told


def test_training_does_not_wait_for_a_slow_volume(
    tmp_path: Path, shared: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Snapshots are due at each step, and the first is not on disk: the steps go on, one line says so, none fails."""
    on_disk = threading.Event()
    write = Files.write

    def slow(self: Files, path: Path, data: memoryview | bytes) -> None:
        assert on_disk.wait(60)
        write(self, path, data)

    def step(state: ElasticState) -> None:
        if state.step == 5:
            on_disk.set()

    monkeypatch.setattr(Files, "write", slow)
    state = ElasticState(tmp_path / "snapshots", model=torch.nn.Linear(1, 1))
    assert Elastic(state, snapshots=Snapshots(durable_seconds=0)).run(step, until=6)

    assert Folder(Disk(tmp_path / "snapshots"), pytest.fail).steps()[-1] == 1
    assert reported(shared).failed_saves == 0
    assert reported(shared).save_seconds is not None
    (line,) = capsys.readouterr().err.splitlines()
    assert f"A snapshot is still being saved in {tmp_path}/snapshots" in line


def by_index(global_batch: int = 2, micro_batch: int | None = None) -> tuple[ElasticSampler, DataLoader]:
    """The samples of a dataset of 24, in its order, and their loader."""
    sampler = ElasticSampler(24, global_batch=global_batch, micro_batch=micro_batch, shuffle=False)
    return sampler, DataLoader(torch.arange(24.0), batch_sampler=sampler)


def from_stream(global_batch: int = 2, micro_batch: int | None = None) -> tuple[ElasticIterable, DataLoader]:
    """The same of a stream with a loader of its own."""
    stream = DataLoader(torch.arange(24.0), batch_size=None)
    data = ElasticIterable(stream, global_batch=global_batch, micro_batch=micro_batch)
    return data, DataLoader(data, batch_size=None)


@pytest.mark.parametrize("loaded", [by_index, from_stream])
def test_dropout_goes_on_as_in_an_undisturbed_run(
    tmp_path: Path, loaded: Callable[[], tuple[ElasticSampler | ElasticIterable, DataLoader]]
) -> None:
    """Each ``iter`` of a loader draws from torch's generator, and a run that was restored needs one more of them."""

    def trained(folder: Path, *untils: int) -> list[torch.Tensor]:
        masks = []
        for until in untils:
            torch.manual_seed(1)
            data, loader = loaded()
            state = ElasticState(folder, model=torch.nn.Dropout(), data=data)
            for _, micro in (elastic := Elastic(state, loader, Snapshots(durable_steps=1))).steps(until):
                with elastic.step():
                    masks += [state.model(torch.ones(20)) for _, sync in micro]
        return masks

    undisturbed = trained(tmp_path / "undisturbed", 7)
    disturbed = trained(tmp_path / "disturbed", 2, 3, 7)
    assert len(undisturbed) == 7
    assert torch.equal(torch.stack(disturbed), torch.stack(undisturbed))


@pytest.mark.parametrize("loaded", [by_index, from_stream])
def test_micro_batches_that_a_step_leaves_are_skipped(
    tmp_path: Path, loaded: Callable[..., tuple[ElasticSampler | ElasticIterable, DataLoader]]
) -> None:
    """As after a bad loss: each step trains on its own samples, and a restart goes on with the next ones."""
    read: dict[int, list[float]] = {}
    for until in (3, 5):
        data, loader = loaded(global_batch=6, micro_batch=2)
        state = ElasticState(tmp_path / "c", model=torch.nn.Linear(1, 1), data=data)
        elastic = Elastic(state, loader, Snapshots(durable_steps=1))
        for step, micro in elastic.steps(until):
            with elastic.step():
                read[step] = []
                for batch, _ in micro:
                    read[step] += batch.tolist()
                    if step == 1:
                        break

    order = [*range(24), *range(6)]
    assert read == {1: order[:2], **{step: order[6 * (step - 1) : 6 * step] for step in (2, 3, 4, 5)}}


@pytest.mark.parametrize("loaded", [by_index, from_stream])
def test_a_step_that_reads_nothing_of_its_loader_is_refused(
    tmp_path: Path, loaded: Callable[..., tuple[ElasticSampler | ElasticIterable, DataLoader]]
) -> None:
    """Its samples would be trained on never, and those of each later step be taken for another one's."""
    data, loader = loaded()
    state = ElasticState(tmp_path / "c", model=torch.nn.Linear(1, 1), data=data)

    with pytest.raises(RuntimeError, match="Step 1 read none of its micro-batches"):
        Elastic(state, loader).run(lambda _: None, until=1)
    assert state.step == 0
