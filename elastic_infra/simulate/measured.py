"""The launchers' own latencies, as measured: medians of seconds without a step.

Source: ``benchmarks/launcher/RESULTS.md`` of this repository (three nodes on one machine, a script that is ready at
once); a test holds each number against that file. What a script adds on its hardware is the user's to give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from elastic_infra.simulate.scenario import Kind


@dataclass(frozen=True)
class Latencies:
    """What one launcher needs for each change, without the script's share."""

    start: float
    """From the job's creation to its first step."""
    loss: float
    preemption: float
    crash: float
    join: float
    """A node comes."""

    def of(self, kind: Kind) -> float:
        """The latency of a change."""
        return {"loss": self.loss, "preemption": self.preemption, "crash": self.crash, "return": self.join}[kind]


ROWS: Final[Mapping[str, str]] = {
    "start": "start with 2 of 3 nodes",
    "loss": "lost node, 3 to 2",
    "preemption": "scale down 3 to 2",
    "crash": "restart of 2 workers",
    "join": "scale up 2 to 3",
}
"""Each latency's row in the results."""

OURS: Final = Latencies(start=5.62, loss=0.45, preemption=2.31, crash=0.37, join=2.09)
"""Column ``ours``. Workers that keep their processes are given the same numbers, for want of a measurement: these
workers need no start, but agree on a state."""

TORCHRUN: Final = Latencies(start=8.82, loss=21.84, preemption=22.81, crash=4.26, join=7.82)
"""Column ``tuned torchrun``: the fastest settings known to us. As it comes, torchrun needs longer or loses the job."""
