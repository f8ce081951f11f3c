"""What a change costs each way to run a job by itself, as measured: medians of seconds without a step.

Sources, both measured on one machine, are two committed results of this repository, and a test holds each number
against them. ``benchmarks/launcher/RESULTS.md`` is for torchrun and restarts: three nodes, a script that is ready at
once and whose state is next to nothing, less the step of 0.1 s that ends each of its outages.
``benchmarks/training/RESULTS.json`` is for changes in place, and for what a gigabyte of state adds (from 10 MB, which
count as next to nothing, to 1 GB), less the steps that were done again, at the 0.05 s that each takes at least. What a
script adds is the user's to give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from elastic_infra.simulate.scenario import Kind

GIGABYTE: Final = 1e9


@dataclass(frozen=True)
class Latencies:
    """Seconds without a step for each change, without the script's share."""

    start: float = 0.0
    """From the job's creation to its first step."""
    loss: float = 0.0
    preemption: float = 0.0
    crash: float = 0.0
    join: float = 0.0
    """A node comes."""

    def of(self, kind: Kind) -> float:
        """The latency of a change."""
        return {"loss": self.loss, "preemption": self.preemption, "crash": self.crash, "return": self.join}[kind]


@dataclass(frozen=True)
class Measured:
    """One way to run a job."""

    stateless: Latencies
    """With a state that is next to nothing."""
    per_gigabyte: Latencies = Latencies()
    """What each gigabyte of a node's state adds."""

    def latencies(self, state: float, transfer_rate: float | None = None) -> Latencies:
        """The latencies with a state of so many bytes.

        Args:
            state: of a node.
            transfer_rate: bytes a second at which a node that comes is sent the state; None: as measured.
        """
        rates = self.per_gigabyte
        if transfer_rate is not None:
            rates = dataclasses.replace(rates, join=GIGABYTE / transfer_rate)
        both = zip(dataclasses.astuple(self.stateless), dataclasses.astuple(rates), strict=True)
        return Latencies(*(seconds + state / GIGABYTE * rate for seconds, rate in both))


ROWS: Final[Mapping[str, str]] = {
    "start": "start with 2 of 3 nodes",
    "loss": "lost node, 3 to 2",
    "preemption": "scale down 3 to 2",
    "crash": "restart of 2 workers",
    "join": "scale up 2 to 3",
}
"""Each latency's row in the launcher's results."""

EVENTS: Final[Mapping[str, str]] = {
    "loss": "a node is lost",
    "preemption": "a node is lost",
    "crash": "a worker is killed",
    "join": "a node joins",
}
"""Each latency's event in the results of training. A node that leaves is not measured in place: it costs no more than
one that is lost."""

TORCHRUN: Final = Measured(Latencies(start=8.19, loss=17.21, preemption=16.76, crash=3.71, join=6.62))
"""Column ``tuned torchrun``: the fastest settings known to us. As it comes, torchrun needs longer or loses the job."""

RESTARTS: Final = Measured(
    Latencies(start=5.44, loss=0.31, preemption=0.34, crash=0.17, join=0.35), per_gigabyte=Latencies(join=5.25)
)
"""Column ``ours``. A worker restores from its node's own memory, which takes what a snapshot does; a node that comes is
sent the state first. The latter is what a restart with a newcomer takes longer than one without: the rest that grows
with the state is the script's, such as building the model, and the launchers have that in common."""

IN_PLACE: Final = Measured(
    Latencies(start=5.44, loss=0.048, preemption=0.048, crash=0.035, join=0.059),
    per_gigabyte=Latencies(loss=1.02, preemption=1.02, crash=1.07, join=3.56),
)
"""Until the job is whole again; workers start as for restarts."""
