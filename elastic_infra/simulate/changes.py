"""The cluster's changes, one after the other: random ones from the rates, and those of a trace."""

from __future__ import annotations

import random

from elastic_infra.simulate.scenario import OF_NODES, Change, Kind, Scenario


class Changes:
    """What happens next to a cluster.

    Exponential times have no memory, so a random change that a trace's change precedes may be drawn anew after it.
    """

    def __init__(self, scenario: Scenario, seed: str) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - nothing secret is drawn
        self._trace = scenario.trace
        self._taken = 0
        self._rates = tuple((kind, scenario.rate(kind)) for kind in OF_NODES)
        self._rate = sum(rate for _, rate in self._rates)
        self._return = scenario.rate("return")
        self._wanted = scenario.nodes[1]

    def after(self, now: float, up: int) -> Change | None:
        """The next change while so many nodes run; None where nothing will happen any more."""
        drawn = self._draw(now, up)
        known = self._trace[self._taken] if self._taken < len(self._trace) else None
        if known is None or (drawn is not None and drawn.at < known.at):
            return drawn
        self._taken += 1
        return known

    def share(self) -> float:
        """A random share from 0 to 1."""
        return self._rng.random()

    def _draw(self, now: float, up: int) -> Change | None:
        leaving, coming = up * self._rate, max(0, self._wanted - up) * self._return
        if not leaving + coming:
            return None
        at = now + self._rng.expovariate(leaving + coming)
        if self._rng.random() * (leaving + coming) < coming:
            return Change(at, "return")
        return Change(at, self._kind(self._rng.random() * self._rate))

    def _kind(self, point: float) -> Kind:
        for kind, rate in self._rates[:-1]:
            if point < rate:
                return kind
            point -= rate
        return self._rates[-1][0]
