"""Many runs of every arm, each run of an arm with the seed of the same run of the others. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from elastic_infra.simulate import arms
from elastic_infra.simulate.estimate import Estimate, estimate
from elastic_infra.simulate.run import ACTIVITIES, Activity, Run, simulate
from elastic_infra.simulate.scenario import Saving, Scenario

RUNS: Final = 40
"""Runs of each arm by default: the mean is known to a third of the spread of single runs."""
MOST_RUNS: Final = 1000


@dataclass(frozen=True)
class Result:
    """What the runs of one arm say."""

    arm: arms.Arm
    runs: tuple[Run, ...]

    @property
    def goodput(self) -> Estimate:
        """Share of the time for training that was kept."""
        return estimate([run.goodput for run in self.runs])

    @property
    def hours(self) -> Estimate:
        """Time to finish; infinite where a run does not end."""
        return estimate([run.hours for run in self.runs])

    @property
    def node_hours(self) -> Estimate:
        """Hours of all nodes that ran."""
        return estimate([run.node_hours if run.finished else float("inf") for run in self.runs])

    @property
    def changes(self) -> float:
        """Mean number of changes in a run."""
        return sum(run.changes for run in self.runs) / len(self.runs)

    @property
    def unfinished(self) -> int:
        """Runs in which the training would never end."""
        return sum(not run.finished for run in self.runs)

    def share(self, activity: Activity) -> float:
        """Mean share of the time for an activity."""
        return sum(run.share(activity) for run in self.runs) / len(self.runs)

    def shares(self) -> dict[Activity, float]:
        """Mean shares of the time for all activities, together 1."""
        return {activity: self.share(activity) for activity in ACTIVITIES}


def study(scenario: Scenario, runs: int, seed: int) -> tuple[Result, ...]:
    """The runs of all arms that the job can have."""
    return tuple(result(scenario, name, runs, seed) for name in arms.names(scenario))


def result(scenario: Scenario, name: arms.Name, runs: int, seed: int, interval: float | None = None) -> Result:
    """The runs of one arm.

    Args:
        interval: seconds of training between two of the saves to which the arm returns, in place of the scenario's.
    """
    arm = arms.arm(name, scenario)
    if interval is not None:
        arm = replace(arm, saving=Saving(interval, arm.saving.pause_seconds))
    return Result(arm, tuple(simulate(scenario, arm, f"{seed}.{index}") for index in range(runs)))
