"""A loop of one's own with Accelerate that reports its steps: one global batch for any number of workers."""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from slow_storage import WIDTH, Points
from torch import nn
from torch.utils.data import DataLoader

from accelerate_loop import Step, save
from elastic_infra.training import Progress, accumulation_steps


def load(accelerator, folder):
    """Load a checkpoint; the next micro-batch is the first of a step, for any number of workers."""
    accelerator.load_state(str(folder))
    accelerator.step = 0


def must_stop(accelerator, progress, step, folder, save_every):
    """Report a step, and save every few steps and at the agreed stop; whether to leave the loop."""
    stop = progress.step(step)
    if stop or step % save_every == 0:
        with progress.phase("save"):
            save(accelerator, folder / f"step-{step}")
        progress.checkpoint(step)
    return stop


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save-every", type=int, default=5, help="steps")
    options = parser.parse_args()
    torch.manual_seed(0)
    progress = Progress()
    parts = accumulation_steps(global_batch=12, micro_batch=2)
    order = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=parts, dataloader_config=order)
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, data = accelerator.prepare(model, optimizer, DataLoader(Points(), batch_size=2, shuffle=True))
    step = Step()
    accelerator.register_for_checkpointing(step)
    options.output.mkdir(parents=True, exist_ok=True)
    saved = sorted(options.output.glob("step-*[0-9]"), key=lambda folder: int(folder.name.removeprefix("step-")))
    if saved:
        load(accelerator, saved[-1])
    progress.restored(step.number)
    accelerator.print(f"resuming from {saved[-1]}" if saved else "starting afresh", flush=True)
    for points, sides in accelerator.skip_first_batches(data, step.number * parts):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(points), sides)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if not accelerator.sync_gradients:
            continue
        step.number += 1
        if must_stop(accelerator, progress, step.number, options.output, options.save_every):
            break
        if step.number >= options.steps:
            break
    if not progress.stopped:
        accelerator.print(f"finished at step {step.number}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
