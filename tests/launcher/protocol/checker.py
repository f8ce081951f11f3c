"""Breadth-first exploration of a model: every property in every reachable world, and a way out of each."""

from __future__ import annotations

import gc
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.launcher.protocol.model import Model
from tests.launcher.protocol.world import AGE, MOMENT, BrokenError, Scenario, World

WAITS = {"moment": MOMENT, "age": AGE}
"""Steps that take time."""

Law = Callable[[World], None]
"""Raises ``BrokenError`` where a world breaks it."""


@dataclass(frozen=True)
class Explored:
    """What an exploration covered."""

    states: int
    transitions: int
    good: int
    seconds: float
    """How long it takes at most to a good world, from any and without a further fault, where what need not wait does
    not."""


def explore(scenario: Scenario, laws: tuple[Law, ...], is_good: Callable[[World], bool], limit: int) -> Explored:
    """Visit every world.

    Raises:
        BrokenError: a world breaks a law or has no way to a good one; with the shortest way there.
    """
    with _without_garbage_collection():
        return _explore(Model(scenario), laws, is_good, limit)


def _explore(model: Model, laws: tuple[Law, ...], is_good: Callable[[World], bool], limit: int) -> Explored:
    first = model.initial()
    worlds = [first]
    index = {model.key(first): 0}
    parents: list[tuple[int, str]] = [(-1, "start")]
    backward: list[list[tuple[int, float]]] = [[]]
    queue, transitions = deque([0]), 0
    while queue:
        here = queue.popleft()
        try:
            for law in laws:
                law(worlds[here])
            for label, world, free in model.successors(worlds[here]):
                transitions += 1
                key = model.key(world)
                there = index.get(key)
                if there is None:
                    there = index[key] = len(worlds)
                    worlds.append(world)
                    parents.append((here, label))
                    backward.append([])
                    queue.append(there)
                if free and there != here:
                    backward[there].append((here, WAITS.get(label, 0.0)))
        except BrokenError as broken:
            message = f"{broken}\n{_way(parents, here)}"
            raise BrokenError(message) from broken
        _raise_if_too_many(len(worlds), limit)
    good = [i for i, world in enumerate(worlds) if is_good(world)]
    seconds = _seconds_to(good, backward)
    _raise_if_stuck(worlds, parents, seconds)
    return Explored(len(worlds), transitions, len(good), max(seconds))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Every world is kept, and none is part of a cycle: each search for cycles would look at all of them in vain."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class TooManyError(RuntimeError):
    """A scenario has more states than the limit."""


def _raise_if_too_many(states: int, limit: int) -> None:
    if states > limit:
        message = f"more than {limit} states: narrow the scenario"
        raise TooManyError(message)


def _raise_if_stuck(worlds: list[World], parents: list[tuple[int, str]], seconds: list[float]) -> None:
    stuck = next((i for i, wait in enumerate(seconds) if wait == math.inf), None)
    if stuck is not None:
        message = f"no way from here to a good state:\n{_picture(worlds[stuck])}\n{_way(parents, stuck)}"
        raise BrokenError(message)


def _seconds_to(good: list[int], backward: list[list[tuple[int, float]]]) -> list[float]:
    """Of every world the shortest time to a good one; infinite where there is no way."""
    seconds = [math.inf] * len(backward)
    heap = [(0.0, i) for i in good]
    while heap:
        wait, here = heapq.heappop(heap)
        if wait >= seconds[here]:
            continue
        seconds[here] = wait
        for before, more in backward[here]:
            if wait + more < seconds[before]:
                heapq.heappush(heap, (wait + more, before))
    return seconds


def _way(parents: list[tuple[int, str]], end: int) -> str:
    labels: list[str] = []
    while end >= 0:
        end, label = parents[end]
        labels.append(label)
    return " > ".join(reversed(labels))


def _picture(world: World) -> str:
    lines = [f"store: {world.store and world.store.generation}"]
    for host in world.hosts:
        state = host.state
        group = state.workers if state else None
        mood = f"connected={host.connected} cut={host.cut} frozen={host.frozen} workers={host.workers}"
        lines.append(f"  {host.end or 'node'} {mood} group={group} waiting={state.waiting_for if state else ''!r}")
    return "\n".join(lines)
