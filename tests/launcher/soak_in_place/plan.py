"""The faults of a soak in place, drawn from a seed. Pure; the same seed gives the same plan."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal, get_args

Kind = Literal["kill_worker", "kill_node"]
"""``kill_worker``: SIGKILL to one worker, which its launcher replaces. ``kill_node``: SIGKILL to every process of a
node at once; a new node comes later."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

Point = Literal["forward", "backward", "reduced", "optimized", "done", "any"]
"""Where the victim's step is: before its forward pass; in backward, with other gradients under way; between the
exchange of gradients and the optimizer; after the optimizer, in a step that does not count yet; in front of the next
step. ``any``: wherever the victim is, in the middle of a move too."""

POINTS: Final[tuple[Point, ...]] = get_args(Point)

WORKERS: Final = 2
"""Workers a node by default: the least with siblings, which live on when one of them is killed."""
NODES: Final = 3
"""Nodes by default."""

PAIRED: Final = 0.25
"""How many faults follow their predecessor at once, while the job still recovers from it."""
ELDEST_EVERY: Final = 40
"""Every so many faults the worker that has lived longest is the victim: it is rank 0, serves the group's store and is
spared by all other faults, so that it lives through dozens of generations."""

MOST_STEPS: Final = 12
"""New steps before the next fault are one to so many: a node that was killed is not back by then."""
LONGEST_AWAY: Final = 2.5
"""Seconds before the successor of a killed node starts, at most."""


@dataclass(frozen=True)
class Fault:
    """One fault of a plan."""

    number: int
    kind: Kind
    point: Point
    pick: float
    """Which of the workers or nodes there are at that moment, from 0 up to 1."""
    steps: int
    """New steps that the job makes before the fault."""
    after: float | None
    """Seconds after the fault before it, whatever the job does then; None: the steps count."""
    away: float
    """Seconds until a killed node's successor starts."""
    eldest: bool
    """Whether it strikes the worker that has lived longest, once all nodes are there."""

    @property
    def whole(self) -> bool:
        """Whether it strikes once all nodes are there: every other one, since a node that lacks a worker steps back."""
        return self.number % 2 == 0 and self.after is None


def draw(seed: int, count: int) -> tuple[Fault, ...]:
    """The faults of a soak: most strike workers, all points come equally often, never three at once.

    Two at once are of different kinds: a worker that dies twice at one step has its node left out, as it should.
    """
    dice = random.Random(seed)
    faults: list[Fault] = []
    points: list[Point] = []
    for number in range(count):
        points = points or list(dice.sample(POINTS, len(POINTS)))
        kind: Kind = dice.choice(("kill_worker", "kill_worker", "kill_worker", "kill_node"))
        eldest = number % ELDEST_EVERY == ELDEST_EVERY // 2
        previous = faults[-1] if faults else None
        may_pair = previous is not None and previous.after is None and not previous.eldest and not eldest
        is_paired, after = dice.random() < PAIRED, round(dice.uniform(0.02, 1.5), 3)
        if previous is not None and may_pair and is_paired:
            other: Kind = "kill_node" if previous.kind == "kill_worker" else "kill_worker"
            faults.append(_fault(dice, number, other, "any", after, eldest=False))
        else:
            faults.append(_fault(dice, number, kind, points.pop(), None, eldest=eldest))
    return tuple(faults)


def _fault(dice: random.Random, number: int, kind: Kind, point: Point, after: float | None, *, eldest: bool) -> Fault:
    pick, steps, away = round(dice.random(), 4), dice.randint(1, MOST_STEPS), round(dice.uniform(0.2, LONGEST_AWAY), 2)
    return Fault(number, kind, point, pick, steps, after, away, eldest)
