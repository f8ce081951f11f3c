"""The rendezvous at a size at which it once grew with the square of the nodes: messages and bytes, not seconds."""

from __future__ import annotations

import json
import random

import pytest

from benchmarks.rendezvous.__main__ import form, measure, running, slope

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


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_many_nodes_go_on_under_random_faults(seed: int) -> None:
    """Nodes end, vanish and come, several at a time and before the last change is over: all that are left go on."""
    chance, next_index = random.Random(seed), NODES + 1
    with running(NODES + 1) as run:
        number = form(run, NODES)["number"]
        for _ in range(10):
            for index in chance.sample(sorted(run.lights.nodes), chance.randrange(1, 6)):
                run.lights.lose(index, *chance.choice([(), (b"",), (b'{"op":"set","key":"node',)]))
                run.lights.serve(chance.choice([0.0, 0.05, 0.3]))
            for _ in range(chance.randrange(NODES - len(run.lights.nodes) + 1)):
                run.lights.add(next_index)
                run.lights.serve(chance.choice([0.0, 0.05]))
                next_index += 1
            number = run.wait_for(len(run.lights.nodes) + 1, number)["number"]
        told, _ = run.probe.communicate(timeout=60)
        assert run.lights.lost_connections == 0

    assert json.loads(told.splitlines()[-1])["reconnects"] == 0
