"""Trains a small language model on Python's own documentation; weights and optimizer are sharded over all workers.

It reads characters and learns to guess the next one. FSDP2 keeps a part of every matrix on each worker, so that models
fit which do not fit on one; on a machine without GPUs the same code runs on CPUs. Each worker writes its part of a
checkpoint, and reads what it needs of it: any number of workers goes on where another number stopped.

Runs under the launcher and under torchrun alike: `torchrun --nproc-per-node 2 train.py --steps 100`.
"""

import argparse
import dataclasses
import os
import pydoc_data.topics
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from elastic_infra.training import Progress  # comes with the launcher; does nothing under torchrun

CHECKPOINTS = Path(os.environ.get("ELASTIC_INFRA_CHECKPOINT_DIR", "checkpoints"))  # shared by all nodes
CONTEXT = 64  # characters that the model sees
CHARACTERS = 128  # the documentation is ASCII


class LanguageModel(nn.Module):  # type: ignore[misc]  # where torch is not type-checked, its classes are Any
    """A transformer that guesses each next character."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.guess = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CHARACTERS))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """A score for each possible next character, at each place of each text."""
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        state = self.characters(text) + self.positions.weight[: text.shape[1]]
        for layer in self.layers:
            state = layer(state, src_mask=mask, is_causal=True)
        return self.guess(state)


@dataclasses.dataclass
class Training:
    """Everything that a checkpoint has to hold; the two methods are what torch asks for to save and load it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0

    def state_dict(self) -> dict[str, Any]:
        """The part of the state that this worker saves."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take this worker's part."""
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = state["step"]


def main() -> None:
    """Train, and say how many characters of a text that it has not seen the model guesses."""
    options = parse_options()
    device = join()
    training_text, test_text = documentation(device)
    training = new_training(options, device)
    load(training)
    say(f"starting at step {training.step} with {dist.get_world_size()} workers")
    progress = Progress()
    while training.step < options.steps:
        loss = train_step(training, training_text, options.batch_size)
        progress.step(training.step)
        if progress.stopped or training.step % options.save_every == 0 or training.step == options.steps:
            with progress.phase("save", timeout=600):
                save(training)
            progress.checkpoint(training.step)
            say(f"step {training.step}: loss {loss:.2f}")
        if progress.stopped:
            break
    if progress.stopped:  # nodes come or go: what is saved goes on with the new ones
        say(f"stopping at step {training.step}")
    else:
        say(f"accuracy {accuracy(training.model, test_text):.2%}")
    dist.barrier()  # a worker that ends at the very moment of its last all-reduce may abort: gloo still wants Python
    dist.destroy_process_group()


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=48, help="of all workers together, whatever their number")
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--save-every", type=int, default=50, help="steps")
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


def documentation(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The language reference that ships with Python, half a million characters; the last tenth is for the test."""
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
    characters = torch.tensor(list(text), device=device)
    cut = len(characters) * 9 // 10
    return characters[:cut], characters[cut:]


def new_training(options: argparse.Namespace, device: torch.device) -> Training:
    """A fresh model, the same on every worker, then cut into parts: layer by layer, and what is around them."""
    torch.manual_seed(0)
    model = LanguageModel(options.layers, options.width).to(device)
    workers = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=workers)
    fully_shard(model, mesh=workers)
    return Training(model, torch.optim.AdamW(model.parameters(), lr=options.learning_rate))


def save(training: Training) -> None:
    """Write a checkpoint, every worker its part, and drop those before the last one."""
    checkpoint.save({"training": training}, checkpoint_id=CHECKPOINTS / f"step-{training.step:08}")
    if dist.get_rank() == 0:
        for old in complete_checkpoints()[:-2]:
            shutil.rmtree(old)


def load(training: Training) -> None:
    """Go on from the last complete checkpoint, if there is one; rank 0 says which it is."""
    last = [complete_checkpoints()[-1:]]
    dist.broadcast_object_list(last)
    for folder in last[0]:
        checkpoint.load({"training": training}, checkpoint_id=folder)


def complete_checkpoints() -> list[Path]:
    """Oldest first. Torch writes `.metadata` last: a checkpoint without it was interrupted."""
    return sorted(file.parent for file in CHECKPOINTS.glob("step-*/.metadata"))


def train_step(training: Training, text: torch.Tensor, batch_size: int) -> torch.Tensor:
    """One step on excerpts drawn by its number, of which every worker takes its share; the loss of this share.

    FSDP takes the mean over the workers: that of these losses is the batch's, however it was shared out.
    """
    starts = torch.randint(len(text) - CONTEXT, (batch_size,), generator=torch.Generator().manual_seed(training.step))
    loss = excerpt_loss(training.model, text, starts[dist.get_rank() :: dist.get_world_size()])
    training.optimizer.zero_grad()
    loss = loss * dist.get_world_size() / (batch_size * CONTEXT)
    loss.backward()
    training.optimizer.step()
    training.step += 1
    return loss.detach()


def excerpt_loss(model: nn.Module, text: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """The summed loss of all guesses in these excerpts."""
    excerpts = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])
    scores = model(excerpts[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1), excerpts[:, 1:].flatten(), reduction="sum")


def accuracy(model: nn.Module, text: torch.Tensor) -> float:
    """Share of the characters that are guessed; every worker counts its part of the text."""
    excerpts = text[: len(text) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1)
    mine = excerpts[dist.get_rank() :: dist.get_world_size()]
    with torch.no_grad():
        right = (model(mine[:, :-1]).argmax(dim=2) == mine[:, 1:]).sum()
    dist.all_reduce(right)
    return float(right / excerpts[:, 1:].numel())


def say(text: str) -> None:
    """Print once, not once a worker."""
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
