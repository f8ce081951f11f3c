"""A loop of one's own with Accelerate."""

import argparse
import os
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
from slow_storage import WIDTH, Points
from torch import nn
from torch.utils.data import DataLoader


class Step:
    """The number of steps, saved with the rest."""

    def __init__(self):
        self.number = 0

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


def save(accelerator, folder):
    """Save all or nothing: the folder has its name only once it is complete."""
    temporary = folder.with_name(folder.name + ".incomplete")
    if accelerator.is_main_process:
        shutil.rmtree(temporary, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(temporary))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(temporary, folder)
    accelerator.wait_for_everyone()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, data = accelerator.prepare(model, optimizer, DataLoader(Points(), batch_size=4, shuffle=True))
    step = Step()
    accelerator.register_for_checkpointing(step)
    options.output.mkdir(parents=True, exist_ok=True)
    saved = sorted(options.output.glob("step-*[0-9]"), key=lambda folder: int(folder.name.removeprefix("step-")))
    if saved:
        accelerator.load_state(str(saved[-1]))
    accelerator.print(f"resuming from {saved[-1]}" if saved else "starting afresh")
    for points, sides in data:
        loss = nn.functional.cross_entropy(model(points), sides)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step.number += 1
        if step.number % 5 == 0:
            save(accelerator, options.output / f"step-{step.number}")
        if step.number >= options.steps:
            break
    accelerator.print(f"finished at step {step.number}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
