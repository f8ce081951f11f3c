"""A plain loop with DDP: data workers by any start method, `torch.compile`, and a process of `torch.multiprocessing`.

Usage: ddp_loop.py --output FOLDER --steps N [--start-method METHOD] [--compile] [--augment-process] [--wandb]
"""

import argparse
import os
import uuid
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from slow_storage import WIDTH, Points
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def augment(requests, answers):
    """A process beside the training: adds noise to tensors in shared memory."""
    while (points := requests.get()) is not None:
        answers.put(points + 0.01 * torch.randn_like(points))


def wandb_run(folder):
    """The one run of this job in Weights & Biases, however often its workers are started."""
    import wandb

    path = Path(folder, "wandb-id")
    if not path.exists():
        path.write_text(uuid.uuid4().hex)
    return wandb.init(project="points", dir=folder, id=path.read_text(), resume="allow")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--start-method", choices=mp.get_all_start_methods())
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--augment-process", action="store_true")
    parser.add_argument("--wandb", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    os.makedirs(options.output, exist_ok=True)
    path, step = os.path.join(options.output, "checkpoint.pt"), 0
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    if dist.get_rank() == 0:
        print(f"resuming from step {step}" if step else "starting afresh")
    ddp = DistributedDataParallel(model)
    trained = torch.compile(ddp) if options.compile else ddp
    run = wandb_run(options.output) if options.wandb and dist.get_rank() == 0 else None
    requests = answers = helper = None
    if options.augment_process:
        context = mp.get_context("spawn")
        requests, answers = context.Queue(), context.Queue()
        helper = context.Process(target=augment, args=(requests, answers), daemon=True)
        helper.start()
    data = Points()
    workers = {"num_workers": 2, "multiprocessing_context": options.start_method, "persistent_workers": True}
    loader = DataLoader(
        data, batch_size=4, sampler=DistributedSampler(data), **(workers if options.start_method else {})
    )
    for points, sides in loader:
        if helper:
            requests.put(points)
            points = answers.get()
        loss = nn.functional.cross_entropy(trained(points), sides)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if run:
            run.log({"loss": loss.item()}, step=step)
        if step % 5 == 0 and dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{path}.tmp")
            os.replace(f"{path}.tmp", path)
        if step >= options.steps:
            break
    if helper:
        requests.put(None)
        helper.join()
    if run:
        run.finish()
    if dist.get_rank() == 0:
        print(f"finished at step {step}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
