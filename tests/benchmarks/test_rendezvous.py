"""The rendezvous at a size at which it once grew with the square of the nodes: messages and bytes, not seconds."""

from __future__ import annotations

import pytest

from benchmarks.rendezvous.__main__ import measure, slope

NODES = 64


@pytest.mark.timeout(300)
def test_a_node_says_little_however_many_there_are() -> None:
    """Formed, one lost, one new: each node sends a few records and its beats, and hears of each other a few times."""
    figures = measure(NODES, idle_seconds=0.5)

    assert (figures["lost connections"], figures["reconnects"]) == (0, 0)
    beats = figures["messages sent by a node"] - 7
    assert beats >= 0, "hello, and six records: ready, member of three generations, stopped in two"
    assert figures["kB sent by a node"] < 2.5 + 0.03 * beats
    assert figures["kB sent to a node and node"] < 1.0


def test_the_slope_is_the_power_of_the_largest_sizes() -> None:
    """Growth with the square is 2, whatever small sizes cost."""
    results = {nodes: {"form": nodes**2 / 1000} for nodes in (64, 256, 1024)}

    assert slope({8: {"form": 5.0}, **results}, "form") == pytest.approx(2)
