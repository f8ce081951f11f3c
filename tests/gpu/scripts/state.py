"""Trains on a device with dropout, saves a snapshot and goes on, or restores it and goes on: prints what came after.

Usage: state.py save|restore FOLDER DEVICE. Both print the same where the state was restored to the bit.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what cuBLAS needs to compute the same each time

import torch

from elastic_infra.training import ElasticState
from tests.gpu.device import take

STEPS = 3
part, folder, device = sys.argv[1], pathlib.Path(sys.argv[2]), take(sys.argv[3])
torch.use_deterministic_algorithms(mode=True)
torch.manual_seed(0 if part == "save" else 1)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 64),
    torch.nn.BatchNorm1d(64),
    torch.nn.Dropout(0.5),
    torch.nn.Linear(64, 16),
).to(device)
half = torch.nn.Linear(16, 16, dtype=torch.bfloat16).to(device)
optimizer = torch.optim.Adam([*model.parameters(), *half.parameters()])
state = ElasticState(folder, model=model, half=half, optimizer=optimizer)


def train() -> None:
    """One step, whose data and dropout are drawn on the device."""
    loss = half(model(torch.randn(8, 16, device=device)).to(torch.bfloat16)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


source = ""
if part == "save":
    for _ in range(STEPS):
        train()
    state.step = STEPS
    assert state.snapshot(durable=True)
    state.wait()
else:
    torch.randn(5, device=device)  # a stranger's draws
    source = state.restore().source
after = torch.rand(4, device=device, dtype=torch.float64).tolist()
for _ in range(STEPS):
    train()
bits = [tensor.cpu().view(torch.uint8).tolist() for tensor in (*model.state_dict().values(), half.weight.detach())
        if tensor.dim()]  # fmt: skip
kept = sorted(tensor.device.type for moments in optimizer.state.values() for tensor in (moments["exp_avg"],))
print(json.dumps({"step": state.step, "source": source, "after": after, "bits": bits, "devices": kept}))
