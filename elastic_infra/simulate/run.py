"""One life of a job: from change to change, with the time split into what it was spent on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from elastic_infra.simulate.arms import Arm
from elastic_infra.simulate.changes import Changes
from elastic_infra.simulate.scenario import HOUR, Change, Scenario

Activity = Literal["training", "saving", "repeated", "restarting", "waiting"]

ACTIVITIES: Final[Mapping[Activity, str]] = {
    "training": "training that was kept",
    "saving": "pauses for saves",
    "repeated": "training that was repeated",
    "restarting": "starts and restarts",
    "waiting": "waiting for nodes",
}

MOST_CHANGES: Final = 5_000
"""A run ends after so many random changes in a row, and its rest is taken to be as its beginning. The mean of so many
is known to one or two hundredths, and a job for which the cluster is too unreliable does not run for ever. Changes of a
trace say nothing of what follows, and do not count."""


@dataclass(frozen=True)
class Run:
    """One life of a job.

    Attributes:
        spent: seconds by what they were spent on; together the time from the job's creation to its end.
        node_hours: hours of all nodes that ran, whether or not they trained.
        changes: number of changes that had an effect on the nodes or the training.
        finished: False where the training never ends: no progress, or too few nodes for ever.
    """

    spent: Mapping[Activity, float]
    node_hours: float
    changes: int
    finished: bool

    @property
    def goodput(self) -> float:
        """The share of the time that went into training that was kept; 0 where the training does not end."""
        return self.share("training") if self.finished else 0.0

    @property
    def hours(self) -> float:
        """Time to finish; infinite where the training does not end."""
        return sum(self.spent.values()) / HOUR if self.finished else math.inf

    def share(self, activity: Activity) -> float:
        """The share of the time for one activity."""
        return self.spent[activity] / (sum(self.spent.values()) or 1.0)


def simulate(scenario: Scenario, arm: Arm, seed: str) -> Run:
    """One life of the job under an arm; the same for the same seed."""
    changes = Changes(scenario, seed)
    job = _Job(scenario, arm, changes)
    while changes.drawn < MOST_CHANGES:
        change = changes.after(job.now, job.up, job.group)
        job.go_on(math.inf if change is None else change.at)
        if job.is_done or change is None:
            break
        job.take(change)
    return job.result()


class _Job:
    """The state of one run."""

    def __init__(self, scenario: Scenario, arm: Arm, changes: Changes) -> None:
        self.now = 0.0
        self.up = scenario.nodes[1]
        self.is_done = False
        self.group = scenario.group(self.up)
        self._scenario, self._arm, self._changes = scenario, arm, changes
        self._speed = scenario.speed(self.group)
        self._left = scenario.work
        self._ready_at = arm.first_seconds
        self._is_cold = False
        """No node has run since: memory is lost, and the training goes on from disk."""
        self._place = 0.0
        """Seconds into the cycle of training and the pause for its save."""
        self._since_disk = 0.0
        """Seconds of training since the last state on disk."""
        self._work_since_disk = 0.0
        """The work of these seconds."""
        self._spent: dict[Activity, float] = dict.fromkeys(ACTIVITIES, 0.0)
        self._node_seconds = 0.0
        self._count = 0

    def go_on(self, until: float) -> None:
        """Pass the time until a moment, or until the training is done."""
        if not self.group:
            self._spend("waiting", until)
            return
        self._spend("restarting", min(until, self._ready_at))
        if until > self._ready_at:
            done_at = self.now + self._until_done()
            self.is_done = done_at <= until
            self._train(min(until, done_at))

    def take(self, change: Change) -> None:
        """Let a change happen."""
        before, ran, is_hit = self.group, self.up, self._is_hit(change)
        self.up = self._up_after(change)
        self.group = self._scenario.group(self.up)
        self._count += is_hit or self.up != ran
        is_emptied = ran > 0 and not self.up
        if not (is_hit or is_emptied or self.group != before):
            return  # only nodes that wait until they make up a unit, or enough of them, come or go
        if before or is_emptied:
            self._lose(change, before)
        self._is_cold = self._is_cold or not self.up
        self._speed = self._scenario.speed(self.group)
        if self.group:
            outage = self._arm.cold_seconds if self._is_cold else self._arm.outage(change.kind)
            self._ready_at = max(self._ready_at, self.now + outage)
            self._is_cold = False

    def result(self) -> Run:
        """The run so far, as long as the whole job; unfinished where nothing was achieved."""
        share = 1 - self._left / self._scenario.work
        finished = self.is_done or (self._changes.drawn >= MOST_CHANGES and share > 0)
        scale = 1 / share if finished and not self.is_done else 1.0
        spent = {activity: seconds * scale for activity, seconds in self._spent.items()}
        return Run(spent, self._node_seconds * scale / HOUR, round(self._count * scale), finished)

    def _is_hit(self, change: Change) -> bool:
        """Whether a change takes a worker or a node of a group that trains; which nodes go is chance."""
        if change.kind == "return" or not self.group:
            return False
        if change.kind == "crash":
            return True  # a node that waits trains nothing that could fail
        spare = self.up - self.group
        return change.nodes > spare or any(
            self._changes.share() * (self.up - gone) >= spare - gone for gone in range(change.nodes)
        )

    def _up_after(self, change: Change) -> int:
        if change.kind == "crash":
            return self.up
        if change.kind == "return":
            return min(self._scenario.nodes[1], self.up + change.nodes)
        return max(0, self.up - change.nodes)

    def _spend(self, activity: Activity, until: float) -> None:
        if math.isfinite(until) and until > self.now:
            seconds = until - self.now
            self._spent[activity] += seconds
            self._node_seconds += seconds * self.up
            self.now = until

    def _train(self, until: float) -> None:
        seconds, interval = until - self.now, self._arm.saving.interval_seconds
        cycle = interval + self._arm.saving.pause_seconds
        whole, place = divmod(self._place + seconds, cycle)
        trained = whole * interval + min(place, interval) - min(self._place, interval)
        self._place = place
        self._spent["training"] += trained
        self._spent["saving"] += max(0.0, seconds - trained)
        self._left = 0.0 if self.is_done else self._left - trained * self._speed
        whole, since_disk = divmod(self._since_disk + trained, self._arm.disk_seconds)
        self._work_since_disk = since_disk * self._speed if whole else self._work_since_disk + trained * self._speed
        self._since_disk = since_disk
        self._node_seconds += seconds * self.up
        self.now = until

    def _until_done(self) -> float:
        """Seconds from now, pauses included."""
        interval = self._arm.saving.interval_seconds
        rest = min(self._place, interval) + self._left / self._speed
        whole = max(0, math.ceil(rest / interval) - 1)
        return rest + whole * self._arm.saving.pause_seconds - self._place

    def _lose(self, change: Change, group: int) -> None:
        """Give up the training that is not kept."""
        has_workers = group > 0 or self._arm.repeats_step_only  # in place they live while they wait for nodes
        speed, is_kept = self._scenario.speed(group), has_workers and self._arm.keeps_work(change.kind)
        trained = min(self._place, self._arm.saving.interval_seconds)
        lost, work = trained, trained * speed
        if is_kept:
            lost = work = 0.0
        elif not self.up:
            lost, work = max(lost, self._since_disk), max(work, self._work_since_disk)
        elif self._arm.repeats_step_only:
            lost = min(trained, self._scenario.costs.step) * self._changes.share()
            work = lost * speed
        self._spent["training"] -= lost
        self._spent["repeated"] += lost
        self._left += work
        self._place = 0.0
        is_saved = not self.up or (is_kept and not self._arm.repeats_step_only)
        self._since_disk = 0.0 if is_saved else max(0.0, self._since_disk - lost)
        self._work_since_disk = 0.0 if is_saved else max(0.0, self._work_since_disk - work)
