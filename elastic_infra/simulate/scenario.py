"""What is simulated: the job, the cluster's rates, and how long saving and starting take. Pure data and its checks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from elastic_infra.config import Fault, JobConfig

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
NODE_DAYS: Final = 1000
"""Rates are given per so many node-days, as published ones are."""

LEAST: Final = 1e-3
MOST: Final = 1e12
"""No number is smaller, where it must not be 0, or larger: beyond them sums of floats lose what they are for."""

Kind = Literal["loss", "preemption", "crash", "return"]
"""A node is gone at once; a node leaves after a notice; a worker fails and its node stays; a node comes."""
OF_NODES: Final[tuple[Kind, ...]] = ("loss", "preemption", "crash")
"""What happens to nodes that run."""


@dataclass(frozen=True)
class Change:
    """Something that happens to nodes at a moment."""

    at: float
    """Seconds since the job was created."""
    kind: Kind
    nodes: int = 1


@dataclass(frozen=True)
class Rates:
    """How often something happens to a node, per 1,000 node-days, and how long the cluster takes to replace a node."""

    failures: float = 6.5
    """Losses of a node without notice. 6.5 on Meta's RSC-1, 2.34 on RSC-2 (https://arxiv.org/abs/2410.21680); Llama 3
    had 419 in 54 days on 2,048 nodes, 3.8 (https://arxiv.org/abs/2407.21783, section 3.3.4)."""
    preemptions: float = 0.0
    """Nodes taken back with a notice. 0 for nodes that are not spot; a spot node that lives for a day has 1,000."""
    crashes: float = 0.0
    """Failures of a worker on a node that stays. 0: the published rates count jobs' interruptions of any cause."""
    replacement_seconds: float = 600.0
    """Mean of the exponential time until another node runs in place of one that is gone. 600 is an assumption: seconds
    with spare nodes, hours or days without."""


@dataclass(frozen=True)
class Saving:
    """How the state is saved: an interval of training, and the time that training waits for each time."""

    interval_seconds: float
    pause_seconds: float


@dataclass(frozen=True)
class Costs:
    """What the user's script costs on the user's hardware, in seconds."""

    script_start: float = 60.0
    """From the script's first line to its first step, without loading a checkpoint: model, data, process groups,
    compilation. 60 is an assumption; large jobs need minutes."""
    load: float = 30.0
    """Loading a checkpoint from disk. 30 is an assumption."""
    step: float = 5.0
    """One optimizer step. 5 is an assumption."""
    checkpoint: Saving = Saving(600.0, 30.0)
    """Checkpoints on disk. 600 is the default of ``training.Snapshots.durable_seconds``; a pause of 30 is an
    assumption for a script that writes before it goes on."""
    snapshot: Saving | None = Saving(100.0, 1.0)
    """Snapshots in the nodes' memory (``training.Elastic``). A pause of 1 is an assumption; the interval of 100 keeps
    the pauses at a hundredth of the time, as ``Elastic`` does by itself. None: the script does not use ``Elastic``, and
    every change sends the script back to its checkpoint."""
    state: float = 10e9
    """Bytes of model and optimizer that a node that comes is sent. 10 GB are an assumption, of a job to which the other
    assumptions belong: a snapshot of so much pauses training for about 1 s."""
    transfer_rate: float | None = None
    """Bytes a second at which it is sent them; None: as measured on one machine, which a network may exceed by far."""


@dataclass(frozen=True)
class Scenario:
    """A job on a cluster.

    Attributes:
        nodes: fewest, and most nodes that train; the cluster is asked for the most.
        unit: nodes train in multiples of it.
        hours: time of the training on ``full_size`` nodes, without any loss.
        full_size: number of nodes for which ``hours`` counts; None for the most of ``nodes``.
        efficiency: the speed of twice the nodes as a share of twice the speed. 1 is perfect scaling.
        trace: changes at known times.
        returns: whether nodes come back at random; False where the trace says when they do.
    """

    nodes: tuple[int, int]
    hours: float
    unit: int = 1
    full_size: int | None = None
    efficiency: float = 1.0
    rates: Rates = Rates()
    costs: Costs = Costs()
    trace: tuple[Change, ...] = ()
    returns: bool = True

    @property
    def work(self) -> float:
        """The whole training, in seconds of one node."""
        return self.hours * HOUR * self.speed(self.full_size or self.nodes[1])

    def speed(self, nodes: int) -> float:
        """The speed of so many nodes, where one node has 1."""
        return nodes ** (1 + math.log2(self.efficiency)) if nodes else 0.0

    def group(self, up: int) -> int:
        """The number of nodes that train where so many run; 0 where these are too few."""
        size = min(up, self.nodes[1]) // self.unit * self.unit
        return size if size >= self.nodes[0] else 0

    def rate(self, kind: Kind) -> float:
        """How often a change of this kind comes, per node and second; of a return: per node that is gone."""
        if kind == "return":
            return 1 / self.rates.replacement_seconds if self.returns else 0.0
        per_days = {"loss": self.rates.failures, "preemption": self.rates.preemptions, "crash": self.rates.crashes}
        return per_days[kind] / NODE_DAYS / DAY


def wanted_nodes(config: JobConfig) -> int:
    """The number of nodes that the cluster is asked for: with an autoscaler the most."""
    return config.elastic.max_nodes if config.autoscaling else config.initial_nodes


def faults(scenario: Scenario) -> Iterator[Fault]:
    """Every number that cannot be simulated, by the name of its option."""
    costs, rates = scenario.costs, scenario.rates
    for option, least in (
        ("--failures", rates.failures),
        ("--preemptions", rates.preemptions),
        ("--crashes", rates.crashes),
        ("--script-start", costs.script_start),
        ("--load", costs.load),
        ("--checkpoint-pause", costs.checkpoint.pause_seconds),
        ("--snapshot-pause", costs.snapshot.pause_seconds if costs.snapshot else 0.0),
        ("--state", costs.state),
    ):
        if not 0 <= least <= MOST:
            yield Fault(option, f"must be a number from 0 to {MOST:g}.")
    for option, positive in (
        ("--hours", scenario.hours),
        ("--replacement", rates.replacement_seconds),
        ("--checkpoint-interval", costs.checkpoint.interval_seconds),
        ("--step", costs.step),
    ):
        if not LEAST <= positive <= MOST:
            yield Fault(option, f"must be a number from {LEAST:g} to {MOST:g}.")
    if costs.transfer_rate is not None and not 1 <= costs.transfer_rate <= MOST:
        yield Fault("--transfer-rate", f"must be a number of bytes a second from 1 to {MOST:g}.")
    if not 0.5 <= scenario.efficiency <= 1:  # noqa: PLR2004 - half: twice the nodes are no faster
        yield Fault("--efficiency", "must be from 0.5 (twice the nodes are no faster) to 1 (twice as fast).")
