"""Trains a small network on scikit-learn's handwritten digits, in processes that stay while nodes come and go.

Under the launcher a new node's workers join the running ones, and the peers of a lost worker repeat one step without
it: no process is started again. Every image is trained on once an epoch, for any number of workers. Under torchrun the
same script trains in torch's usual group: `torchrun --nproc-per-node 2 train.py --steps 1000`.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from elastic_infra.training import Elastic, ElasticGroup, ElasticSampler, ElasticState  # comes with the launcher

CHECKPOINTS = os.environ.get("ELASTIC_INFRA_CHECKPOINT_DIR", "checkpoints")


def main() -> None:
    """Train, and say how well the network reads digits that it has not seen."""
    options = parse_options()
    torch.set_num_threads(1)
    group = ElasticGroup.start()  # in place of torch.distributed.init_process_group
    torch.manual_seed(0)
    train_set, (images, labels) = digits()
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    sampler = ElasticSampler(train_set, global_batch=96, micro_batch=16)
    state = ElasticState(CHECKPOINTS, model=model, optimizer=optimizer, data=sampler)
    elastic = Elastic(state, DataLoader(train_set, batch_sampler=sampler), group=group)
    generation: int | None = None
    for step, micro in elastic.steps(until=options.steps):
        time.sleep(options.pause)
        if group.generation != generation:
            generation = group.generation
            print(
                f"step {step}: process {os.getpid()} is rank {dist.get_rank()} of {dist.get_world_size()}", flush=True
            )
        with elastic.step():
            for (pixels, digit), sync in micro:
                with sync:
                    elastic.backward(nn.functional.cross_entropy(model(pixels), digit))
            optimizer.step()
            optimizer.zero_grad()
    if elastic.finished and dist.get_rank() == 0:
        print(f"step {state.step}: accuracy {accuracy(network, images, labels):.2%}", flush=True)
    dist.barrier()  # a worker that ends at the very moment of its last all-reduce may abort: gloo still wants Python
    dist.destroy_process_group()


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each step, for a look at a short run")
    parser.add_argument("--learning-rate", type=float, default=0.001)
    return parser.parse_args()


def digits() -> tuple[TensorDataset, tuple[torch.Tensor, torch.Tensor]]:
    """1797 images of 8 x 8 pixels with their labels: a data set to train on, and every fifth image for the test."""
    pixels, classes = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(classes)
    test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~test], labels[~test]), (images[test], labels[test])


def accuracy(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of the test images that are recognised."""
    network.eval()
    with torch.no_grad():
        found = network(images).argmax(dim=1)
    return float((found == labels).double().mean())


if __name__ == "__main__":
    main()
