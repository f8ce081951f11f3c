"""``lightning.Trainer`` on a tiny model, a step of 0.1 s: what costs a restart here are the imports.

Usage: train_lightning.py CHECKPOINTS. Its journal is that of ``train.py``. It runs until it is ended.
"""

import os
import sys
import time
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn

from benchmarks.launcher import train

SAVE_STEPS = 20


class Vectors(torch.utils.data.Dataset):
    """Random vectors, without end."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(train.WIDTH)


class Model(lightning.LightningModule):
    """The model of ``train.py``, as a module of Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(train.WIDTH, train.WIDTH), nn.ReLU(), nn.Linear(train.WIDTH, 1))

    def training_step(self, batch: torch.Tensor, _index: int) -> torch.Tensor:
        """The same loss as there."""
        return self.layers(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The same optimizer as there."""
        return torch.optim.AdamW(self.parameters())


class Journal(Callback):
    """Tells of every step, which takes its time."""

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        """A step is done."""
        time.sleep(train.STEP_SECONDS)
        train.journal(trainer.global_step)


def main(folder: Path) -> None:
    """Train from the newest complete checkpoint on."""
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        max_steps=1_000_000,
        callbacks=[ModelCheckpoint(folder, save_last=True, every_n_train_steps=SAVE_STEPS), Journal()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(Vectors(), batch_size=8), ckpt_path="last")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
