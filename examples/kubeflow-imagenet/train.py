"""Trains a small convolutional network on folders of images, one folder a class, as ImageNet is laid out.

`DATA/train/CLASS/*.pgm` and `DATA/val/CLASS/*.pgm`. Where there is no DATA yet, scikit-learn's handwritten digits are
written there once, 1797 real images. The batch of a step is a function of the step's number alone, and every worker
takes its share of it; so a checkpoint is the weights and a number, and training goes on in the middle of an epoch with
more or fewer workers than before.

Runs under the launcher and under torchrun alike: `torchrun --nproc-per-node 2 train.py --epochs 5`.
"""

import argparse
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from elastic_infra.training import Progress  # comes with the launcher; does nothing under torchrun

STORAGE = Path(os.environ.get("ELASTIC_INFRA_CHECKPOINT_DIR", "checkpoints"))  # shared by all nodes
CHECKPOINT = STORAGE / "imagenet.pt"


class ImageFolder:
    """The images below one folder and their classes, as a dataset: item n is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.classes = sorted(path.name for path in folder.iterdir())
        self.files = sorted(folder.glob("*/*.pgm"))

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """An image with values from 0 to 1, and the number of its class."""
        header, _, pixels = self.files[index].read_bytes().partition(b"\n")
        _, width, height, top = header.split()
        image = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).reshape(1, int(height), int(width))
        return image / int(top), self.classes.index(self.files[index].parent.name)


@dataclasses.dataclass
class Training:
    """Everything that a checkpoint has to hold."""

    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    step: int = 0

    def save(self) -> None:
        """Write the checkpoint; a reader sees the old one or the new one, never half of it."""
        if dist.get_rank() == 0:
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
    """Train, and say after every epoch how many of the images kept for validation are recognised."""
    options = parse_options()
    device = join()
    make_images_once(options.data)
    images, kept = ImageFolder(options.data / "train"), ImageFolder(options.data / "val")
    training = new_training(len(images.classes), device, options.learning_rate)
    training.load()
    say(f"starting at step {training.step} with {dist.get_world_size()} workers")
    train(training, images, kept, device, options)
    dist.barrier()  # a worker that ends at the very moment of its last all-reduce may abort: gloo still wants Python
    dist.destroy_process_group()


def train(
    training: Training, images: ImageFolder, kept: ImageFolder, device: torch.device, options: argparse.Namespace
) -> None:
    """Train from the step that training is at to the last one, or until the launcher says stop."""
    progress = Progress()
    epoch_steps = len(images) // options.batch_size
    steps = range(training.step, options.epochs * epoch_steps)
    shares = my_shares(len(images), options.batch_size, steps)
    for pixels, classes in DataLoader(images, batch_sampler=shares, num_workers=options.workers):
        train_step(training, pixels.to(device), classes.to(device), options.batch_size)
        progress.step(training.step)
        if progress.stopped or training.step % options.save_every == 0:
            training.save()
            progress.checkpoint(training.step)
        if progress.stopped:  # nodes come or go: what is saved goes on with the new ones
            say(f"stopping at step {training.step}")
            return
        if training.step % epoch_steps == 0:
            with progress.phase("validate", timeout=600):
                say(f"epoch {training.step // epoch_steps}: top-1 {top_1(training, kept, device):.2%}")
    training.save()
    say(f"top-1 {top_1(training, kept, device):.2%}")


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=STORAGE / "images", help="folder with train and val")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="of all workers together, whatever their number")
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument("--workers", type=int, default=0, help="processes that read images, a training process")
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


def make_images_once(data: Path) -> None:
    """Write the digits as images of 8 x 8 pixels, unless DATA is there; every fifth is kept for validation."""
    if dist.get_rank() == 0 and not data.exists():
        from sklearn.datasets import load_digits

        draft = data.with_name(f"{data.name}.draft")
        for index, (pixels, digit) in enumerate(zip(*load_digits(return_X_y=True), strict=True)):
            folder = draft / ("val" if index % 5 == 0 else "train") / str(digit)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{index:04}.pgm").write_bytes(b"P5 8 8 16\n" + bytes(pixels.astype("uint8")))
        draft.replace(data)
    dist.barrier()


def new_training(classes: int, device: torch.device, learning_rate: float) -> Training:
    """A fresh network, the same on every worker, for images of any size."""
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        nn.Linear(32 * 2 * 2, classes),
    )
    model = DistributedDataParallel(network.to(device))
    return Training(model, torch.optim.Adam(model.parameters(), lr=learning_rate))


def my_shares(images: int, batch_size: int, steps: range) -> Iterator[list[int]]:
    """This worker's images of each step's batch; each epoch shows every image once, in a different order."""
    epoch_steps = images // batch_size
    for step in steps:
        epoch, place = divmod(step, epoch_steps)
        if place == 0 or step == steps.start:
            order = torch.randperm(images, generator=torch.Generator().manual_seed(epoch))
        batch = order[place * batch_size : (place + 1) * batch_size]
        yield batch[dist.get_rank() :: dist.get_world_size()].tolist()


def train_step(training: Training, images: torch.Tensor, classes: torch.Tensor, batch_size: int) -> None:
    """One step. DDP takes the mean over the workers: that of these losses is the batch's, however it was shared out."""
    loss = nn.functional.cross_entropy(training.model(images), classes, reduction="sum")
    training.optimizer.zero_grad()
    (loss * dist.get_world_size() / batch_size).backward()
    training.optimizer.step()
    training.step += 1


def top_1(training: Training, images: ImageFolder, device: torch.device) -> float:
    """Share of the images whose class is the network's first guess; every worker counts its part."""
    mine = range(dist.get_rank(), len(images), dist.get_world_size())
    right = torch.zeros((), device=device)
    with torch.no_grad():
        for pixels, classes in DataLoader(images, batch_size=256, sampler=mine):
            right += (training.model.module(pixels.to(device)).argmax(dim=1) == classes.to(device)).sum()
    dist.all_reduce(right)
    return float(right) / len(images)


def say(text: str) -> None:
    """Print once, not once a worker."""
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
