"""Trains six steps on a volume that is full in the second and third, and read-only from the fifth on.

Run as ``full_volume_loop.py FOLDER``, the root of a small tmpfs. Prints the snapshots there at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from elastic_infra.training import Elastic, ElasticState, Snapshots

root = Path(sys.argv[1])
filler = root / "filler"
state = ElasticState(root, in_memory=False, model=torch.nn.Linear(158, 158))  # 100 kB


def step(state: ElasticState) -> None:
    """Change the volume for the snapshot of this step, once the one before is over."""
    state.wait()
    if state.step == 1:
        filler.write_bytes(bytes(100_000))
    elif state.step == 3:
        filler.unlink()
    elif state.step == 4:
        subprocess.run(["mount", "-o", "remount,ro", root], check=True)


assert Elastic(state, snapshots=Snapshots(durable_steps=1)).run(step, until=6)
sys.stdout.write(json.dumps(sorted(path.name for path in root.glob("step-*"))))
