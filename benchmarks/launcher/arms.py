"""What is compared: this launcher, and torchrun as it comes and as experts set it. Data and command lines only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TORCHRUN: Final = "torch.distributed.run"


@dataclass(frozen=True)
class Arm:
    """One launcher with its settings."""

    name: str
    module: str
    conf: tuple[str, ...] = ()
    """What goes into ``--rdzv-conf``."""
    environ: Mapping[str, str] = field(default_factory=dict)


OURS: Final = Arm("ours", "elastic_infra.launcher")
TUNED: Final = Arm("tuned", TORCHRUN, ("last_call_timeout=3",), {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
"""Without the first, an agent that has been through a round does not tell newcomers where to meet; the second is 30 s
by default and runs in full whenever fewer than the maximum of nodes join."""
PLAIN: Final = Arm("plain", TORCHRUN)
ARMS: Final = (OURS, TUNED, PLAIN)


@dataclass(frozen=True)
class Launch:
    """What every arm is told alike."""

    nnodes: str = "1:1"
    workers: int = 1
    """Number of workers on each node."""
    max_restarts: int = 3
    options: tuple[str, ...] = ()
    hosts_store: bool = True
    """Whether a node may serve the store; otherwise a separate store runs."""


def arguments(arm: Arm, launch: Launch, port: int) -> tuple[str, ...]:
    """The command line of one node, without the script."""
    conf = (*arm.conf, *(() if launch.hosts_store else ("is_host=false",)))
    return (
        *("--nnodes", launch.nnodes, "--nproc-per-node", str(launch.workers)),
        *("--max-restarts", str(launch.max_restarts)),
        *("--rdzv-backend", "c10d", "--rdzv-id", "bench", "--rdzv-endpoint", f"127.0.0.1:{port}"),
        *("--local-addr", "127.0.0.1"),
        *(("--rdzv-conf", ",".join(conf)) if conf else ()),
        *launch.options,
    )
