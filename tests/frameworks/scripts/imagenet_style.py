"""Epochs over images with DistributedDataParallel, as scripts for ImageNet do it: train, validate, keep the best."""

import argparse
import os
import shutil
import time

import torch
import torch.distributed as dist
from slow_storage import WIDTH, Points
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm


class Average:
    """The mean of all values so far, weighted by their counts."""

    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, count):
        self.sum += value * count
        self.count += count

    def __str__(self):
        return f"{self.name} {self.sum / max(self.count, 1):.3f}"


def train(loader, model, criterion, optimizer, epoch):
    model.train()
    losses, seconds, before = Average("loss"), Average("s"), time.monotonic()
    bar = tqdm(loader, f"epoch {epoch}", disable=dist.get_rank() != 0)
    for images, target in bar:
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), len(images))
        seconds.update(time.monotonic() - before, 1)
        before = time.monotonic()
        bar.set_postfix_str(f"{losses} {seconds}")


@torch.no_grad()
def validate(loader, model):
    model.eval()
    counts = torch.zeros(2)
    for images, target in loader:
        counts += torch.tensor([(model(images).argmax(1) == target).sum(), len(target)])
    dist.all_reduce(counts)
    return float(counts[0] / counts[1])


def save_checkpoint(state, is_best, path):
    """Written beside the old one, which is whole until the new one is."""
    torch.save(state, f"{path}.tmp")
    os.replace(f"{path}.tmp", path)
    if is_best:
        shutil.copyfile(path, f"{path}.best.tmp")
        os.replace(f"{path}.best.tmp", f"{path}.best")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, required=True, help="all epochs together")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    epochs, images = options.steps // 5, Subset(Points(), range(5 * 4 * world))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 2)))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30)
    sampler = DistributedSampler(images)
    loader = DataLoader(images, 4, sampler=sampler, num_workers=options.workers)
    held_out = DataLoader(Subset(Points(), range(world, world + 8)), 8)
    os.makedirs(options.output, exist_ok=True)
    path, first, best = os.path.join(options.output, "checkpoint.pth.tar"), 0, 0.0
    if os.path.isfile(path):
        saved = torch.load(path, map_location="cpu")
        first, best = saved["epoch"], saved["best"]
        model.load_state_dict(saved["state_dict"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["scheduler"])
    if dist.get_rank() == 0:
        print(f"resuming from epoch {first}" if first else "starting afresh")
    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)
        train(loader, model, criterion, optimizer, epoch)
        accuracy = validate(held_out, model)
        schedule.step()
        is_best, best = accuracy > best, max(accuracy, best)
        if dist.get_rank() == 0:
            state = {
                "epoch": epoch + 1,
                "best": best,
                "state_dict": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": schedule.state_dict(),
            }
            save_checkpoint(state, is_best, path)
    if dist.get_rank() == 0:
        print(f"finished at step {5 * epochs}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
