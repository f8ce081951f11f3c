"""Decides how many nodes the job asks for. Pure: what was seen and what is remembered in, a number out.

The API server does not say whether one more pod would find a place. So the job asks for one: a pod that is scheduled
trains, and one that is not is taken back. A pod that waits holds nothing and disturbs no other node of the job.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Final

LONGEST_PAUSE: Final = 32
"""The longest pause after a step down, as a multiple of the probe."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the config says.

    Attributes:
        sizes: the numbers of nodes that the job can train with, ascending; the first is the minimum.
        probe: seconds that a node may be without a place before it is taken back, and the measure of every pause.
    """

    sizes: tuple[int, ...]
    probe: float


@dataclasses.dataclass(frozen=True)
class Observation:
    """The job and its neighbours at one moment.

    Attributes:
        size: the number of nodes that the job asks for.
        placed: the indices, below `size`, whose pod has a place in the cluster.
        is_settled: whether all these pods are ready, and none is on its way out.
        waiting: others' pods, by uid, that could take the place of one of the job's, and workloads that lack quota
            which the job has.
        spare: how many nodes the disruption budgets of the job's pods let go.
    """

    size: int
    placed: frozenset[int]
    is_settled: bool
    waiting: frozenset[str] = frozenset()
    spare: int = 0


@dataclasses.dataclass(frozen=True)
class Memory:
    """What earlier looks have left; all times are of one monotonic clock, in seconds.

    Attributes:
        ready: the job does not grow before.
        stride: how many sizes the next growth goes up: twice as many after each success.
        is_trial: whether the latest growth has yet to succeed.
        missing: since when nodes have been without a place; None where all have one.
        pause: how long the job did not grow after its latest step down.
        down: when that was.
        due: when each waiting pod is given a node, by uid; never (`inf`) once it has been.
    """

    ready: float
    stride: int = 1
    is_trial: bool = False
    missing: float | None = None
    pause: float = 0
    down: float = -math.inf
    due: Mapping[str, float] = dataclasses.field(default_factory=dict)


def begin(limits: Limits, now: float) -> Memory:
    """The memory of a driver that has just started, and does not know what happened before."""
    return Memory(ready=now + limits.probe)


def decide(seen: Observation, limits: Limits, memory: Memory, now: float) -> tuple[int, str, Memory]:
    """The number of nodes to ask for, the reason, and what to remember once the number has been set."""
    memory = _looked(seen, limits, memory, now)
    allowed = max((each for each in limits.sizes if each <= seen.size), default=limits.sizes[0])
    if allowed != seen.size:
        return allowed, "the job cannot train with the number that it had", memory
    if memory.missing is not None:
        return _without_place(seen, limits, memory, now)
    if not seen.is_settled:
        return seen.size, "not all of its pods are ready, or one is ending", memory
    below = max((each for each in limits.sizes if each < seen.size), default=None)
    if below is not None and any(due < math.inf for due in memory.due.values()):
        return _asked(seen, below, limits, memory, now)
    above = [each for each in limits.sizes if each > seen.size]
    return _with_room(seen, above, memory, now)


def _with_room(seen: Observation, above: list[int], memory: Memory, now: float) -> tuple[int, str, Memory]:
    if not above or now < memory.ready:
        return seen.size, "waits before it asks for more" if above else "has its maximum", memory
    more = above[min(memory.stride, len(above)) - 1]
    return more, "asks whether there is room", dataclasses.replace(memory, is_trial=True, missing=now)


def _looked(seen: Observation, limits: Limits, memory: Memory, now: float) -> Memory:
    """The memory with what this look shows."""
    due = {uid: memory.due.get(uid, now + limits.probe) for uid in seen.waiting}
    if len(seen.placed) < seen.size:
        missing = now if memory.missing is None else memory.missing
        return dataclasses.replace(memory, due=due, missing=missing)
    memory = dataclasses.replace(memory, due=due, missing=None)
    if memory.is_trial and seen.is_settled:
        return dataclasses.replace(memory, is_trial=False, stride=2 * memory.stride, ready=now + limits.probe)
    return memory


def _without_place(seen: Observation, limits: Limits, memory: Memory, now: float) -> tuple[int, str, Memory]:
    if memory.missing is not None and now - memory.missing < limits.probe:
        return seen.size, "waits for a place for its pods", memory
    needed = _needed(limits.sizes, seen)
    if needed == seen.size:
        return needed, "waits for a place for pods that it lost", memory
    return needed, "there is no room for more", _stepped_down(limits, memory, now)


def _needed(sizes: tuple[int, ...], seen: Observation) -> int:
    """The smallest size that costs no node of those that train: the highest indices go first."""

    def training(placed: int) -> int:
        return max((each for each in sizes if each <= placed), default=placed)

    now = training(len(seen.placed))
    return next(each for each in sizes if training(sum(index < each for index in seen.placed)) == now)


def _asked(seen: Observation, below: int, limits: Limits, memory: Memory, now: float) -> tuple[int, str, Memory]:
    """Another pod could take the place of one of ours: it is given one node, once, and not at once."""
    due, pod = min((due, uid) for uid, due in memory.due.items())
    if now < due:
        return seen.size, "another pod waits for room", memory
    if seen.size - below > seen.spare:
        return seen.size, "a PodDisruptionBudget keeps its nodes from a pod that waits for room", memory
    given = dataclasses.replace(memory, due={**memory.due, pod: math.inf})
    return below, "makes room for another pod", _stepped_down(limits, given, now)


def _stepped_down(limits: Limits, memory: Memory, now: float) -> Memory:
    """A step down soon after another doubles the pause."""
    is_soon = now - memory.down < 2 * memory.pause
    pause = min(2 * memory.pause, LONGEST_PAUSE * limits.probe) if is_soon else 2 * limits.probe
    return dataclasses.replace(memory, ready=now + pause, stride=1, is_trial=False, missing=None, pause=pause, down=now)
