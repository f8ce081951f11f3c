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

OURS: Final = Latencies(start=5.54, loss=0.41, preemption=0.44, crash=0.27, join=0.45)
"""Column ``ours``. Workers that keep their processes are given the same numbers: these workers need no start, but a
newcomer is sent the state, so that a small state takes less and one of a gigabyte more (docs/simulate.md)."""

TORCHRUN: Final = Latencies(start=8.29, loss=17.31, preemption=16.86, crash=3.81, join=6.72)
"""Column ``tuned torchrun``: the fastest settings known to us. As it comes, torchrun needs longer or loses the job."""
