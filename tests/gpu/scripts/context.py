"""Opens its device, holds memory there, and writes what it found; the first worker kills itself once a fork can follow.

Usage: context.py DEVICE BYTES. The modules ``asks`` and ``opens`` touch the device as they are imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import sys
import time

import asks  # type: ignore[import-not-found]  # in a folder that the test makes
import opens  # type: ignore[import-not-found]
import torch
from journals import journal  # type: ignore[import-not-found]

from tests.gpu.device import free_bytes, settle, take

GENERATION = int(os.environ["ELASTIC_INFRA_GENERATION"])


def devices_of(pid: int) -> list[str]:
    """The device files that a process has open."""
    found = set()
    for each in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(each.readlink()))
    return sorted(target for target in found if target.startswith("/dev/nvidia"))


def fork_server_is_ready() -> bool:
    """Whether the launcher has said so."""
    path = pathlib.Path("events")
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return any(json.loads(line)["event"] == "fork_server" for line in lines if line.endswith("\n"))


device = take(sys.argv[1])
found = {"parent_devices": devices_of(os.getppid()), "is_bad_fork": torch.cuda._is_in_bad_fork()}
settle(device)  # the context is there, in this measurement of free memory as in the next one
journal("found", **found, free=free_bytes(device), total=float(torch.ones(8, device=device).sum()))
held = torch.ones(int(sys.argv[2]), dtype=torch.uint8, device=device)
settle(device)
journal("holds", free=free_bytes(device), modules=[asks.__name__, opens.__name__])
deadline = time.monotonic() + 120
while GENERATION == 1 and time.monotonic() < deadline:
    if fork_server_is_ready():
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
