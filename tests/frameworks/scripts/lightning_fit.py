"""Lightning's Trainer on as many nodes as there are."""

import argparse
import os

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from slow_storage import WIDTH, Points
from torch import nn
from torch.utils.data import DataLoader


class Sides(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 2))

    def training_step(self, batch, _):
        points, sides = batch
        return nn.functional.cross_entropy(self.layers(points), sides)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def on_train_start(self):
        self.print(f"resuming from step {self.global_step}" if self.global_step else "starting afresh")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save-every", type=int, default=5, help="steps")
    options = parser.parse_args()
    callbacks = [ModelCheckpoint(options.output, save_last=True, every_n_train_steps=options.save_every)]
    launched = {"devices": int(os.environ["LOCAL_WORLD_SIZE"]), "num_nodes": int(os.environ["GROUP_WORLD_SIZE"])}
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        **launched,
        max_steps=options.steps,
        callbacks=callbacks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Sides(), DataLoader(Points(), batch_size=4, shuffle=True), ckpt_path="last")
    if trainer.global_step >= options.steps and trainer.is_global_zero:
        print(f"finished at step {trainer.global_step}")


if __name__ == "__main__":
    main()
