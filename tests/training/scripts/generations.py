"""Goes from generation to generation until it is dismissed: generations.py FOLDER NAME.

Each has one all-reduce. Writes to FOLDER/journal what the process holds, and whether its group is the first one.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist

from elastic_infra.training import ElasticGroup

folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
group = ElasticGroup.start(experimental=os.environ["WAY"] == "reconfigured")
first = dist.group.WORLD


def settle() -> None:
    """The first collective of a generation."""
    total = torch.ones(1)
    dist.all_reduce(total)
    held = {kind: len(list(pathlib.Path("/proc/self", kind).iterdir())) for kind in ("task", "fd")}
    line = {"event": "settled", "name": name, "total": total.item(), "same": dist.group.WORLD is first, **held}
    with (folder / "journal").open("a") as journal:
        journal.write(json.dumps({**line, "generation": group.generation}) + "\n")


dismissed = group.begin(settle)
while dismissed is None:
    dismissed = group.move(0, settle)
