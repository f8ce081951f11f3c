"""One life of a job, the same for every workload object: start, growth, losses, preemption and the end.

Each event returns once the job trains again as it should, or has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.cluster import faults, jobs
from tests.cluster.cluster import Namespace
from tests.cluster.targets import MOST, Target


@dataclass(frozen=True)
class Life:
    """A job whose life is told.

    Attributes:
        seconds: how long one event may take until the job trains again.
        changes: keys of the config.
    """

    space: Namespace
    target: Target
    job: str
    training: jobs.Training
    changes: Mapping[str, Any]
    arm: jobs.Arm = "ours"
    seconds: float = jobs.TRAINING_SECONDS

    def start(self) -> None:
        """The job is made, and its first two nodes train."""
        settings = self.target.config(self.space, self.training, **self.changes)
        self.target.start(self.space, self.job, settings, self.arm)
        self._trains(2)
        jobs.await_step(self.space, 10)

    def grow(self) -> None:
        """A third node trains with the others."""
        before = self._uids()
        self.target.grow(self.space, self.job)
        self._trains(MOST)
        assert before.items() <= self._uids().items()

    def lose_a_node(self) -> None:
        """A pod is deleted at once, and another comes; the others stay."""
        self._replaced(1, lambda pod: self.space.api.delete(self.space.pod(pod), grace=0))

    def lose_the_store(self) -> None:
        """The store's pod is deleted at once; torchrun's own store is in node 0."""
        if self.arm == "ours":
            faults.lose_store(self.space)
            jobs.await_step(self.space, jobs.last_step(self.space) + 20)
        else:
            self._replaced(0, lambda pod: self.space.api.delete(self.space.pod(pod), grace=0))

    def preempt(self) -> None:
        """The cluster takes a pod away, as for a job of higher priority; another comes when there is room."""
        self._replaced(MOST - 1, lambda pod: faults.evict(self.space, pod))

    def finish(self) -> None:
        """The workers end after their next step, and the job has succeeded."""
        jobs.tell_to_finish(self.space)
        self.target.await_end(self.space, self.job, self.seconds)

    def _trains(self, size: int) -> None:
        jobs.await_world(self.space, size, after=jobs.last_step(self.space), seconds=self.seconds)

    def _uids(self) -> dict[int, str]:
        nodes = self.target.nodes(self.space, self.job)
        return {index: str(pod["metadata"]["uid"]) for index, pod in nodes.items()}

    def _replaced(self, index: int, take: Callable[[str], None]) -> None:
        pods, before = self.target.nodes(self.space, self.job), self._uids()
        assert index in pods, self.space.describe()
        take(pods[index]["metadata"]["name"])
        self.target.replace(self.space, self.job, index, before.pop(index))
        self._trains(MOST)
        assert before.items() <= self._uids().items()


EVENTS: Final[Mapping[str, Callable[[Life], None]]] = {
    "start with 2 of 3 nodes": Life.start,
    "scale up 2 to 3": Life.grow,
    "lose a node": Life.lose_a_node,
    "lose the store": Life.lose_the_store,
    "preempt a node": Life.preempt,
    "finish": Life.finish,
}
