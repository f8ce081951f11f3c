"""Lightning's Trainer with its adapter, under both of Lightning's names; `num_nodes` is a constant in the script."""

import argparse
import os
import sys

import torch
from slow_storage import WIDTH, Points
from torch import nn
from torch.utils.data import DataLoader

if "pytorch_lightning" in sys.argv:
    import pytorch_lightning as L
    from pytorch_lightning.callbacks import ModelCheckpoint
    from elastic_infra.training.pytorch_lightning import (
        ElasticCallback,
        ElasticEnvironment,
        accumulation_steps,
        latest,
    )
else:
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint
    from elastic_infra.training.lightning import ElasticCallback, ElasticEnvironment, accumulation_steps, latest


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
        self.print(f"resuming from step {self.global_step}" if self.global_step else "starting afresh", flush=True)


def fit(module, dataset, folder, save_every, **options):
    """Train from the newest whole checkpoint on; whether training is over."""
    elastic = ElasticCallback(folder)
    trainer = L.Trainer(
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        accumulate_grad_batches=accumulation_steps(global_batch=12, micro_batch=2),
        plugins=[ElasticEnvironment()],
        callbacks=[elastic, ModelCheckpoint(folder, every_n_train_steps=save_every)],
        **options,
    )
    trainer.fit(module, DataLoader(dataset, batch_size=2), ckpt_path=latest(folder))
    return elastic.finished


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("package", nargs="?", help="`pytorch_lightning` for the package of that name")
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save-every", type=int, default=5, help="steps")
    options = parser.parse_args()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    length = {"max_steps": options.steps, "accelerator": "cpu", "num_nodes": 3}
    is_over = fit(Sides(), Points(), options.output, options.save_every, **length, **quiet)
    if is_over and os.environ["RANK"] == "0":
        print(f"finished at step {options.steps}")


if __name__ == "__main__":
    main()
