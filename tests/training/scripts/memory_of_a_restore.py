"""Saves a state or restores it, and prints by how many times its size the restore raised this process's memory.

python memory_of_a_restore.py save|restore FOLDER
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch

from elastic_infra.training import ElasticState

NUMBERS = 1 << 26
"""Numbers of four bytes each."""


def kibibytes(name: str) -> int:
    """What the kernel counts for this process under this name."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def main(action: str, folder: str) -> None:
    """Do one of the two."""
    model = torch.nn.Linear(NUMBERS, 1, bias=False)
    state = ElasticState(folder, model=model)
    before = kibibytes("VmRSS")
    if action == "save":
        state.snapshot(durable=True)
        state.wait()
    else:
        assert state.restore().source == "disk"
        sys.stdout.write(f"{(kibibytes('VmHWM') - before) * 1024 / (NUMBERS * 4)}\n")


main(*sys.argv[1:])
