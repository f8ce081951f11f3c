"""The faults of a soak with their times, drawn from a seed. Pure; the same seed gives the same plan."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

Kind = Literal[
    "kill_worker",
    "kill_agent",
    "kill_node",
    "freeze",
    "partition",
    "cut",
    "restart_store",
    "scale_up",
    "scale_down",
]
"""``kill_node``: every process of a node at once. ``freeze``: SIGSTOP to all of them for a time. ``partition``: packets
to and from the store's port are dropped for a time. ``cut``: all packets of a node are. ``restart_store``: it is killed
and comes back empty. ``scale_up`` and ``scale_down``: a new node, SIGTERM to the last one."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

WORKERS: Final = (1, 2, 8)
"""Workers a node that a soak may have: the least, the least with siblings, and what real nodes have."""
LEAST_NODES: Final = 1
FIRST_NODES: Final = 2
MOST_NODES: Final = 3

PAIRED: Final = 0.25
"""How many faults follow their predecessor at once, while the job still recovers from it."""

_SHORT: Final = (0.3, 3.0)
"""Seconds that nodes bear without taking each other for lost."""
_LONG: Final = (5.5, 8.0)
"""Seconds after which a node is taken for lost: the store calls it silent after 5."""
_ENDLESS: Final = (12.0, 14.0)
"""Seconds beyond the soak's ``orphan_timeout``: supervisors end their workers by themselves."""


@dataclass(frozen=True)
class Fault:
    """One fault of a plan."""

    number: int
    kind: Kind
    pick: float
    """Which of the nodes or workers there are at that moment, from 0 up to 1."""
    seconds: float
    """How long the fault lasts; 0 for a fault that is over at once."""
    after: float | None
    """Seconds after the fault before it; None: once training has recovered from all of them."""


def draw(seed: int, count: int) -> tuple[Fault, ...]:
    """The faults of a soak: all kinds equally often, in random order, never three at once, nor two of one kind.

    Two at once are borne by any budget; three failures at one step end the job with 93, and two of one node end that
    node with 200, as they should.
    """
    dice = random.Random(seed)
    kinds = _kinds(dice)
    faults: list[Fault] = []
    nodes = FIRST_NODES
    for number in range(count):
        kind = _possible(next(kinds), nodes)
        nodes += {"scale_up": 1, "scale_down": -1}.get(kind, 0)
        may_pair = bool(faults) and faults[-1].after is None and faults[-1].kind != kind
        paired = dice.random() < PAIRED
        after = round(dice.uniform(0.05, 2.5), 3)
        pick, seconds = round(dice.random(), 4), _seconds(dice, kind)
        faults.append(Fault(number, kind, pick, seconds, after if may_pair and paired else None))
    return tuple(faults)


def _kinds(dice: random.Random) -> Iterator[Kind]:
    while True:
        yield from dice.sample(KINDS, len(KINDS))


def _possible(kind: Kind, nodes: int) -> Kind:
    if kind == "scale_up" and nodes == MOST_NODES:
        return "scale_down"
    if kind == "scale_down" and nodes == LEAST_NODES:
        return "scale_up"
    return kind


def _seconds(dice: random.Random, kind: Kind) -> float:
    if kind in {"freeze", "partition", "cut"}:
        spans = [*[_SHORT] * 3, *[_LONG] * 4, _ENDLESS]
    elif kind == "restart_store":
        spans = [*[_SHORT] * 7, _ENDLESS]
    else:
        return 0.0
    return round(dice.uniform(*dice.choice(spans)), 2)
