"""The checkpoint from which a `Trainer` goes on."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch

from elastic_infra.training.hf_checkpoints import latest

HEADER = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
SAFETENSORS = struct.pack("<Q", len(HEADER)) + HEADER.encode() + bytes(8)


def write(folder: Path, step: int) -> Path:
    """A whole checkpoint as the Trainer writes it with two workers, its weights in two files."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        (path / name).write_bytes(SAFETENSORS)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth", "training_args.bin"):
        torch.save({"step": step}, path / name)
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return path


def test_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    """By the number of its step; folders and files with other names do not count."""
    assert latest(tmp_path / "missing") is None
    assert latest(tmp_path) is None
    for step in (5, 100, 20):
        write(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "checkpoint-200").write_text("a file")

    assert latest(tmp_path) == str(tmp_path / "checkpoint-100")


@pytest.mark.parametrize("name", ["model-00002-of-00002.safetensors", "rng_state_1.pth", "trainer_state.json"])
def test_a_checkpoint_with_a_file_that_ends_too_early_is_skipped(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the file was cut off, by whichever rank; the checkpoint before it is taken, and the warning says why."""
    before, newest = write(tmp_path, 5), write(tmp_path, 10)
    whole = (newest / name).read_bytes()

    for length in {0, 1, 4, 9, len(whole) // 2, len(whole) - 1}:
        (newest / name).write_bytes(whole[:length])
        assert latest(tmp_path) == str(before), length
        warning = capsys.readouterr().err
        assert f"{newest} is skipped: {name}" in warning


def test_a_checkpoint_that_was_not_finished_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the file that is written last, or a file that the index of weights names; nothing is deleted."""
    newest = write(tmp_path, 10)
    (newest / "model-00002-of-00002.safetensors").unlink()
    (write(tmp_path, 20) / "trainer_state.json").unlink()

    assert latest(tmp_path) is None
    warnings = capsys.readouterr().err.splitlines()
    assert "trainer_state.json, which is written last, is missing" in warnings[0]
    assert "model-00002-of-00002.safetensors, which model.safetensors.index.json names, is missing" in warnings[1]
    assert newest.exists()


def test_a_sharded_checkpoint_that_was_not_finished_is_skipped(tmp_path: Path) -> None:
    """Parts of `torch.distributed.checkpoint` without the file that is written last."""
    parts = write(tmp_path, 10) / "pytorch_model_fsdp_0"
    parts.mkdir()
    (parts / "__0_0.distcp").write_bytes(b"part")
    assert latest(tmp_path) is None
    (parts / ".metadata").write_bytes(b"whole")
    assert latest(tmp_path) == str(parts.parent)
