"""The cluster's changes, one after the other: random ones from the rates, and those of a trace."""

from __future__ import annotations

import random

from elastic_infra.simulate.scenario import OF_NODES, Change, Kind, Scenario


class Changes:
    """What happens next to a cluster.

    Exponential times have no memory, so a random change that a trace's change precedes may be drawn anew after it.
    """

    def __init__(self, scenario: Scenario, seed: str) -> None:
        self.drawn = 0
        """Random changes since the last one of the trace."""
        self._rng = random.Random(seed)  # noqa: S311 - nothing secret is drawn
        self._trace = scenario.trace
        self._taken = 0
        self._rates = tuple((kind, scenario.rate(kind)) for kind in OF_NODES)
        self._return = scenario.rate("return")
        self._wanted = scenario.nodes[1]

    def after(self, now: float, up: int, group: int) -> Change | None:
        """The next change while so many nodes run, of which a group trains; None where nothing will happen any more."""
        drawn = self._draw(now, up, group)
        known = self._trace[self._taken] if self._taken < len(self._trace) else None
        if known is None or (drawn is not None and drawn.at < known.at):
            self.drawn += drawn is not None
            return drawn
        self.drawn = 0
        self._taken += 1
        return known

    def share(self) -> float:
        """A random share from 0 to 1."""
        return self._rng.random()

    def _draw(self, now: float, up: int, group: int) -> Change | None:
        # A node that does not train has no worker that could crash.
        rates = tuple((kind, rate * (group if kind == "crash" else up)) for kind, rate in self._rates)
        happening, coming = sum(rate for _, rate in rates), max(0, self._wanted - up) * self._return
        if not happening + coming:
            return None
        at = now + self._rng.expovariate(happening + coming)
        if self._rng.random() * (happening + coming) < coming:
            return Change(at, "return")
        return Change(at, _kind(rates, self._rng.random() * happening))


def _kind(rates: tuple[tuple[Kind, float], ...], point: float) -> Kind:
    """The kind in whose part of the sum of all rates a point lies."""
    for kind, rate in rates[:-1]:
        if point < rate:
            return kind
        point -= rate
    return rates[-1][0]
