"""The three ways to run a job that are compared: what each change costs the training, and what is lost of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from elastic_infra.simulate.measured import IN_PLACE, RESTARTS, TORCHRUN, Latencies, Measured
from elastic_infra.simulate.scenario import Kind, Saving, Scenario

Name = Literal["torchrun", "restarts", "in place"]
NAMES: Final[tuple[Name, ...]] = ("torchrun", "restarts", "in place")

SAID: Final = {
    "torchrun": "torchrun",
    "restarts": "elastic-infra, restarts",
    "in place": "elastic-infra, in place",
}
"""The arms' names for readers."""

_MEASURED: Final[Mapping[Name, Measured]] = {"torchrun": TORCHRUN, "restarts": RESTARTS, "in place": IN_PLACE}


@dataclass(frozen=True)
class Arm:
    """One way to run a job."""

    name: Name
    latencies: Latencies
    saving: Saving
    """The saves to which the training returns, and for which it pauses."""
    saves: Literal["checkpoint", "snapshot"]
    background_seconds: float
    """Seconds of training between two checkpoints that a snapshot's copy becomes in the background, without a pause of
    their own."""
    restart_seconds: float
    """What the script adds to each change."""
    first_seconds: float
    """From the job's creation to the first step."""
    cold_seconds: float
    """From the first nodes of a job without any to the first step, from a checkpoint on disk."""
    stops_in_step: bool
    """Whether the group agrees on a step at which to stop when a node comes or leaves, so that nothing is repeated."""
    repeats_step_only: bool
    """Whether the loss of a node or worker costs no more than the step under way."""

    @property
    def disk_seconds(self) -> float:
        """Seconds of training between two states on disk, to which it returns when no node is left."""
        return self.background_seconds if self.saves == "snapshot" else self.saving.interval_seconds

    def outage(self, kind: Kind) -> float:
        """Seconds without a step after a change."""
        return self.latencies.of(kind) + self.restart_seconds

    def keeps_work(self, kind: Kind) -> bool:
        """Whether a change comes at an agreed step, with the state saved."""
        return self.stops_in_step and kind in {"preemption", "return"}


def names(scenario: Scenario) -> tuple[Name, ...]:
    """The ways in which the job can be run: in place only with ``training.Elastic``."""
    return tuple(name for name in NAMES if scenario.costs.snapshot or name != "in place")


def arm(name: Name, scenario: Scenario) -> Arm:
    """An arm as it runs this job."""
    costs = scenario.costs
    snapshot = None if name == "torchrun" else costs.snapshot
    sent = costs.state if snapshot else 0.0  # without snapshots each node reads the state from disk, in ``load``
    latencies = _MEASURED[name].latencies(sent, costs.transfer_rate)
    restore = costs.load if snapshot is None else snapshot.pause_seconds
    in_place = name == "in place"
    return Arm(
        name,
        latencies,
        snapshot or costs.checkpoint,
        "snapshot" if snapshot else "checkpoint",
        costs.checkpoint.interval_seconds,
        restart_seconds=0.0 if in_place else costs.script_start + restore,
        first_seconds=latencies.start + costs.script_start,
        cold_seconds=latencies.start + costs.script_start + costs.load,
        stops_in_step=snapshot is not None,
        repeats_step_only=in_place,
    )
