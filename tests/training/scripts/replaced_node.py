"""One worker of a node: goes on from the newest state, trains, and says what it would draw next.

Run as ``replaced_node.py ANSWER STEPS`` with torchrun's variables and the launcher's folder of the node. It ends once
the memory of this node has the generators of the node before after the last step.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import sys
import time

import torch
import torch.distributed as dist

from elastic_infra.training import ElasticState
from elastic_infra.training.node_memory import NodeMemory

answer, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(2, 1)
state = ElasticState(None, model=model)
torch.manual_seed(dist.get_rank())
random.seed(dist.get_rank())
restored = state.restore()
for _ in range(steps - state.step):
    torch.rand(1)
    random.random()
    torch.nn.init.constant_(model.weight, float(os.environ["ELASTIC_INFRA_ATTEMPT"]))  # what one generation makes of it
    state.step += 1
    state.snapshot()
memory = NodeMemory(str(pathlib.Path(os.environ["ELASTIC_INFRA_PROGRESS"].partition(":")[2]).parent), 0)
before = (dist.get_rank() - 1) % dist.get_world_size()
deadline = time.monotonic() + 60
while restored.step < steps and before not in memory.parts().get(steps, {}) and time.monotonic() < deadline:
    time.sleep(0.01)
said = {"restored": dataclasses.astuple(restored), "draws": [torch.rand(1).item(), random.random()]}
said["weight"] = model.weight[0, 0].item()
dist.barrier()
answer.write_text(json.dumps(said))
dist.destroy_process_group()
