"""Trains a small network on scikit-learn's handwritten digits, on one to twelve workers, and goes on where it stopped.

The weights come out the same to the last bit, however many workers there are and whatever is lost on the way.
That needs two things, for sums of floating-point numbers depend on their order, and products on the shape of the batch:

- a batch is always computed in `SHARDS` parts of one size, of which each worker takes its share;
- a part's gradients are rounded to multiples of `GRID`, whose sums in double precision are exact in any order.

Runs under the launcher and under torchrun alike: `torchrun --nproc-per-node 2 train.py --epochs 20`.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from elastic_infra.training import Progress  # comes with the launcher; does nothing under torchrun

CHECKPOINT = Path(os.environ.get("ELASTIC_INFRA_CHECKPOINT_DIR", "checkpoints"), "digits.pt")

SHARDS = 12  # one, two, three, four, six and twelve workers share them evenly
SHARD_SIZE = 8  # images
BATCH = SHARDS * SHARD_SIZE
GRID = 2.0**-40  # fine enough for any gradient, and a double holds such sums exactly up to 2**13


@dataclasses.dataclass
class Training:
    """Everything that a checkpoint has to hold."""

    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    step: int = 0

    def save(self) -> None:
        """Write the checkpoint; a reader sees the old one or the new one, never half of it."""
        if dist.get_rank() == 0:
            CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
            draft = CHECKPOINT.with_suffix(".draft")
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
            torch.save(state, draft)
            draft.replace(CHECKPOINT)
        dist.barrier()  # no rank is ahead of the checkpoint

    def load(self) -> None:
        """Go on from the checkpoint, if there is one. Rank 0 reads for all, so that all go on from the same."""
        found = [None]
        if dist.get_rank() == 0 and CHECKPOINT.exists():
            found = [torch.load(CHECKPOINT, map_location="cpu", weights_only=True)]
        dist.broadcast_object_list(found)
        if (state := found[0]) is not None:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]


def main() -> None:
    """Train, and say how well the network reads digits that it has not seen."""
    options = parse_options()
    torch.set_num_threads(1)  # the order of sums depends on the number of threads too
    device = join()
    if dist.get_world_size() > SHARDS:
        sys.exit(f"At most {SHARDS} workers can train: a batch is computed in {SHARDS} shards. Use fewer nodes.")
    (images, labels), test_set = digits(device)
    training = new_training(device, options.learning_rate)
    training.load()
    say(f"starting at step {training.step} with {dist.get_world_size()} workers")
    progress = Progress()
    steps_per_epoch = len(labels) // BATCH
    for step in range(training.step, options.epochs * steps_per_epoch):
        epoch, place = divmod(step, steps_per_epoch)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        batch = order[place * BATCH : (place + 1) * BATCH].to(device)
        train_step(training, images[batch], labels[batch])
        training.step = step + 1
        progress.step(training.step)
        if progress.stopped or place + 1 == steps_per_epoch:
            training.save()
            progress.checkpoint(training.step)
        if progress.stopped:
            break
    if progress.stopped:  # nodes come or go: what is saved goes on with the new ones
        say(f"stopping at step {training.step}")
    else:
        say(f"accuracy {accuracy(training, *test_set):.2%}, weights {fingerprint(training)}")
    dist.barrier()  # a worker that ends at the very moment of its last all-reduce may abort: gloo still wants Python
    dist.destroy_process_group()


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=0.001)
    return parser.parse_args()


def join() -> torch.device:
    """Join the other workers; what to train on is this worker's own GPU, where there are any."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    return device


def digits(device: torch.device) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """1797 images of 8 x 8 pixels with their labels, in a fixed order; every fifth is for the test."""
    pixels, classes = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels / 16, device=device), torch.tensor(classes, device=device)
    test = torch.arange(len(labels), device=device) % 5 == 0
    return (images[~test], labels[~test]), (images[test], labels[test])


def new_training(device: torch.device, learning_rate: float) -> Training:
    """A fresh network, the same on every worker, whose gradients add up exactly."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device, torch.float64)
    for parameter in network.parameters():
        parameter.register_hook(lambda gradient: (gradient / GRID).round() * GRID)
    model = DistributedDataParallel(network)
    model.register_comm_hook(None, add_up)
    return Training(model, torch.optim.Adam(model.parameters(), lr=learning_rate))


def add_up(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The workers' gradients added up, instead of DDP's mean: its division would leave the grid."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def train_step(training: Training, images: torch.Tensor, labels: torch.Tensor) -> None:
    """One step on one batch, of which every worker computes its shards."""
    mine = range(dist.get_rank(), SHARDS, dist.get_world_size())
    training.optimizer.zero_grad()
    for shard in mine:
        part = slice(shard * SHARD_SIZE, (shard + 1) * SHARD_SIZE)
        with contextlib.nullcontext() if shard == mine[-1] else training.model.no_sync():
            loss = nn.functional.cross_entropy(training.model(images[part]), labels[part], reduction="sum")
            (loss / BATCH).backward()
    training.optimizer.step()


def accuracy(training: Training, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of the test images that are recognised; every worker counts all of them."""
    with torch.no_grad():
        found = training.model.module(images).argmax(dim=1)
    return float((found == labels).double().mean())


def fingerprint(training: Training) -> str:
    """A checksum of the weights' bits."""
    checksum = hashlib.sha256()
    for parameter in training.model.parameters():
        checksum.update(parameter.detach().cpu().numpy().tobytes())
    return checksum.hexdigest()[:16]


def say(text: str) -> None:
    """Print once, not once a worker."""
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
