"""What the adapters of both Lightning packages do, without these packages."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from elastic_infra.launcher.workers.progress import Memory
from elastic_infra.training.lightning_hooks import LauncherEnvironment, StepReports, latest

LAUNCHED = {
    "MASTER_ADDR": "10.0.0.7",
    "MASTER_PORT": "29500",
    "WORLD_SIZE": "6",
    "RANK": "5",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "2",
    "GROUP_WORLD_SIZE": "3",
}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the last worker of three nodes with two workers each."""
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("launched")
def test_ranks_and_addresses_are_the_launchers() -> None:
    """Lightning's own numbers, from `devices` and `num_nodes`, change nothing."""
    environment = LauncherEnvironment()
    environment.validate_settings(num_devices=2, num_nodes=7)
    environment.set_world_size(14)
    environment.set_global_rank(13)

    assert environment.detect()
    assert (environment.world_size(), environment.global_rank()) == (6, 5)
    assert (environment.local_rank(), environment.node_rank()) == (1, 2)
    assert (environment.main_address, environment.main_port) == ("10.0.0.7", 29500)


@pytest.mark.usefixtures("launched")
def test_another_number_of_devices_is_refused() -> None:
    """Lightning would choose a device that is not this worker's; the error says what to set."""
    with pytest.raises(ValueError, match=r"devices=2, or start 1 workers on a node \(nproc_per_node\)"):
        LauncherEnvironment().validate_settings(num_devices=1, num_nodes=3)


def test_outside_the_launcher_there_is_a_group_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may give the plugin always."""
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    environment = LauncherEnvironment()
    environment.validate_settings(num_devices=1, num_nodes=1)

    assert not environment.detect()
    assert (environment.world_size(), environment.global_rank(), environment.local_rank()) == (1, 0, 0)


@pytest.mark.usefixtures("launched")
def test_the_number_of_nodes_is_corrected_where_lightning_divides_the_data() -> None:
    """And a strategy for one process is refused, because each worker would train alone."""
    reports = StepReports("folder")
    trainer = SimpleNamespace(strategy=SimpleNamespace(num_nodes=1), world_size=6)
    reports.setup(trainer, None, "fit")
    assert trainer.strategy.num_nodes == 3

    trainer.world_size = 1
    with pytest.raises(ValueError, match=r'6 were started\. Give Trainer strategy="ddp"'):
        reports.setup(trainer, None, "fit")


def test_batches_are_counted_anew_where_a_step_has_another_number_of_them() -> None:
    """Nine batches of three steps become six; a checkpoint of the same division, or of another script, stays."""
    reports = StepReports("folder")
    checkpoint = counted(9)
    reports.on_save_checkpoint(SimpleNamespace(accumulate_grad_batches=3, global_step=3), None, checkpoint)

    reports.on_load_checkpoint(SimpleNamespace(accumulate_grad_batches=3), None, checkpoint)
    assert checkpoint["loops"] == counted(9)["loops"]
    reports.on_load_checkpoint(SimpleNamespace(accumulate_grad_batches=2), None, checkpoint)
    assert checkpoint["loops"] == counted(6)["loops"]
    unknown = counted(9)
    reports.on_load_checkpoint(SimpleNamespace(accumulate_grad_batches=2), None, unknown)
    assert unknown == counted(9)


@pytest.mark.parametrize(("step", "source"), [(0, "nothing"), (7, "disk")])
def test_the_checkpoint_from_which_training_goes_on_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, source: str
) -> None:
    """The launcher shows it and counts the lost steps; the restored step itself is not reported as made."""
    shared = Memory.create(str(tmp_path / "progress"), slots=1)
    for name, value in shared.variable(0).items():
        monkeypatch.setenv(name, value)
    reports, trainer = StepReports(tmp_path), SimpleNamespace(global_step=step)
    reports.on_train_start(trainer, None)
    reports.on_train_batch_end(trainer, None)

    (slot,) = shared.read()
    assert (slot.restored, slot.step) == ((step, source), None)


def test_the_newest_whole_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the time of its writing; a file that ends too early, and a folder without its last file, are skipped."""
    assert latest(tmp_path / "missing") is None
    names = ("epoch=0-step=5.ckpt", "last.ckpt", "cut.ckpt", "sharded.ckpt")
    whole, last, cut, sharded = (tmp_path / name for name in names)
    for path in (whole, last, cut):
        torch.save({"step": 1}, path)
    cut.write_bytes(cut.read_bytes()[:-1])
    sharded.mkdir()
    for written, path in enumerate((whole, last, cut, sharded)):
        os.utime(path, (written, written))

    assert latest(tmp_path) == str(last)
    assert "sharded.ckpt is skipped: meta.pt" in (warnings := capsys.readouterr().err)
    assert "cut.ckpt is skipped: cut.ckpt ends too early" in warnings
    torch.save({}, sharded / "meta.pt")
    os.utime(sharded, (4, 4))
    assert latest(tmp_path) == str(sharded)


def counted(batches: int) -> dict[str, dict[str, dict[str, dict[str, dict[str, int]]]]]:
    """What a checkpoint of Lightning says of the batches in its epoch."""
    current = {"ready": batches, "started": batches, "processed": batches, "completed": batches - 1}
    return {"loops": {"fit_loop": {"epoch_loop.batch_progress": {"current": current}}}}
