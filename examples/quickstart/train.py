"""Trains a small network on scikit-learn's handwritten digits, on any number of nodes, and goes on where it stopped.

Runs under the launcher and under torchrun alike: `torchrun --nproc-per-node 2 train.py --epochs 20`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from elastic_infra.training import Progress  # comes with the launcher; does nothing under torchrun

CHECKPOINTS = Path(os.environ.get("ELASTIC_INFRA_CHECKPOINT_DIR", "checkpoints"))


@dataclasses.dataclass
class Training:
    """Everything that a checkpoint has to hold."""

    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    epoch: int = 0

    def save(self, path: Path) -> None:
        """Write a checkpoint; a reader sees the old one or the new one, never half of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": self.epoch}
        torch.save(state, draft)
        draft.replace(path)

    def load(self, path: Path) -> None:
        """Read the checkpoint, if there is one. Rank 0 reads for all, so that all start from the same."""
        found = [
            torch.load(path, map_location="cpu", weights_only=True) if dist.get_rank() == 0 and path.exists() else None
        ]
        dist.broadcast_object_list(found)
        if (state := found[0]) is not None:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch = state["epoch"]


def main() -> None:
    """Train."""
    options = parse_options()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    training_set, test_set = digits()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    training = new_training(device, options.learning_rate)
    training.load(CHECKPOINTS / "digits.pt")
    progress = Progress()
    say(f"starting at epoch {training.epoch} with {dist.get_world_size()} workers")
    while training.epoch < options.epochs:
        loss = train_epoch(training, training_set, options.batch_size, device)
        training.epoch += 1
        if dist.get_rank() == 0:
            training.save(CHECKPOINTS / "digits.pt")
        dist.barrier()  # nobody is ahead of the checkpoint
        say(f"epoch {training.epoch}: loss {loss:.3f}")
        progress.checkpoint(training.epoch)
        if progress.step(training.epoch):  # nodes come or go: what is saved goes on with the new ones
            break
    say(f"accuracy {accuracy(training, test_set, device):.1%}")
    dist.destroy_process_group()


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="of all workers together, whatever their number")
    parser.add_argument("--learning-rate", type=float, default=0.003)
    return parser.parse_args()


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1797 images of 8 x 8 pixels, in a fixed order; every fifth is for the test."""
    images, labels = load_digits(return_X_y=True)
    pixels, classes = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    test = torch.arange(len(classes)) % 5 == 0
    return TensorDataset(pixels[~test], classes[~test]), TensorDataset(pixels[test], classes[test])


def new_training(device: torch.device, learning_rate: float) -> Training:
    """A fresh network, the same on every worker."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    model = DistributedDataParallel(network)
    return Training(model, torch.optim.Adam(model.parameters(), lr=learning_rate))


def train_epoch(training: Training, data: TensorDataset, batch_size: int, device: torch.device) -> float:
    """One pass over the data, every worker its share; the last loss."""
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(data, seed=0)
    sampler.set_epoch(training.epoch)
    loss = torch.zeros(())
    for pixels, classes in DataLoader(data, batch_size=max(1, batch_size // dist.get_world_size()), sampler=sampler):
        training.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(training.model(pixels.to(device)), classes.to(device))
        loss.backward()
        training.optimizer.step()
    return float(loss)


def accuracy(training: Training, data: TensorDataset, device: torch.device) -> float:
    """Share of the test images that are recognised; every worker counts all of them."""
    pixels, classes = (tensor.to(device) for tensor in data.tensors)
    with torch.no_grad():
        found = training.model.module(pixels).argmax(dim=1)
    return float((found == classes).float().mean())


def say(text: str) -> None:
    """Print once, not once a worker."""
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
