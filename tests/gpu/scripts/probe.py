"""One rank of a group that adds up ones and ends: probe.py DEVICE BACKEND."""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.gpu.device import take

device = take(sys.argv[1])
dist.init_process_group(sys.argv[2], timeout=timedelta(seconds=60))
total = torch.ones(1, device=device)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
dist.destroy_process_group()
