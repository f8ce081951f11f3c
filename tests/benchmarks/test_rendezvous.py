"""The rendezvous at a size at which it once grew with the square of the nodes: messages and bytes, not seconds."""

from __future__ import annotations

import json
import random
import re

import pytest

from benchmarks.rendezvous import picture, report
from benchmarks.rendezvous.__main__ import Run, form, measure, running
from elastic_infra.launcher.store import wire

NODES = 64


@pytest.mark.timeout(300)
def test_a_node_says_little_however_many_there_are() -> None:
    """Formed, one lost, one new: each node sends a few records and its beats, and hears of each other a few times."""
    figures = measure(NODES, idle_seconds=1.0, silent=False)

    assert (figures["lost connections"], figures["reconnects"]) == (0, 0)
    assert figures[report.MESSAGES] <= 7, "hello, and six records: ready, member of three generations, stopped in two"
    assert figures["kB sent by a node"] < 2.5 + len(wire.BEAT) * figures[report.BEATS] / 1e3
    assert figures["kB sent to a node and node"] < 1.0
    for name in report.IDLE_BYTES:
        assert 0 < figures[name] <= 2 * len(wire.BEAT), "no more than two beats in a second, and nothing else"


def test_the_slope_is_the_power_of_the_largest_sizes() -> None:
    """Growth with the square is 2, whatever small sizes cost."""
    runs = {nodes: [{"form": nodes**2 / 1000}] for nodes in (64, 256, 1024)}

    assert report.slope({8: [{"form": 5.0}], **runs}, "form") == pytest.approx(2)


def test_torchs_rendezvous_stands_beside_ours() -> None:
    """Medians with p95 and the number of runs, a ratio of runs of the same round; what did not come has no ratio."""
    ours = [{"form": 1.0, "newcomer": 1.0}, {"form": 2.0, "newcomer": 1.0}, {"form": 6.0, "newcomer": 1.0}]
    control: list[dict[str, float | str]] = [{"form": 10.0, "newcomer": "over 120"}, {"form": 40.0}, {"form": 60.0}]
    rows = {name: cells for name, *cells in report.compared({8: {"ours": ours, "c10d": control}, 64: {"ours": ours}})}

    assert rows["form, ours"] == ["2 (p95 6, n 3)"] * 2
    assert rows["form, c10d"] == ["40 (p95 60, n 3)", "-"]
    assert rows["form, ours / c10d"] == ["0.10", "-"]
    assert (rows["newcomer, c10d"][0], rows["newcomer, ours / c10d"][0]) == ("over 120 1 of 1", "-")


def test_the_picture_shows_each_median() -> None:
    """A point with its seconds for each size and rendezvous, and none for a size that did not come."""
    control: dict[str, list[dict[str, float | str]]] = {"ours": [{"form": 2.0}], "c10d": [{"form": "over 120"}]}
    runs = {"8": {"ours": [{"form": 0.1}, {"form": 0.3}, {"form": 0.2}], "c10d": [{"form": 30.0}]}, "4096": control}
    drawn = picture.document({"runs": runs})

    shown = re.findall(r"<title>(.*?, form, .*?)</title>", drawn)
    assert shown == [
        "this launcher, form, 8 nodes: 0.2 s",
        "this launcher, form, 4,096 nodes: 2 s",
        "torch's c10d, form, 8 nodes: 30 s",
    ]


class Chaos:
    """Random faults of a job, each before the one before it is over."""

    def __init__(self, run: Run, seed: int) -> None:
        self.run, self.lights, self.chance = run, run.lights, random.Random(seed)
        self.next_index = NODES + 1
        self.restarts = 0
        self.faults = (self.lose, self.freeze, self.cut, self.slow_down, self.restart_store)

    def strike(self) -> None:
        """Some kinds of faults; one node is lost in any case, so that another generation must come."""
        for fault in (self.lose, *self.chance.sample(self.faults, self.chance.randrange(1, 4))):
            fault()
            self.lights.serve(self.chance.choice([0.0, 0.05, 0.3]))

    def lose(self) -> None:
        """Nodes end with a farewell, without one, or in the middle of a message."""
        for index in self.some(5):
            self.lights.lose(index, *self.chance.choice([(), (b"",), (b'{"op":"set","key":"node',)]))
            self.lights.serve(self.chance.choice([0.0, 0.05]))

    def freeze(self) -> None:
        """Nodes neither read nor beat, and later go on where they were."""
        for index in self.some(3):
            self.lights.freeze(index)

    def cut(self) -> None:
        """The network is parted: some nodes hear nothing, and later connect anew."""
        for index in self.some(8):
            self.lights.freeze(index, is_cut=True)

    def slow_down(self) -> None:
        """Nodes read a few bytes at a time for the rest of their lives."""
        for index in self.some(3):
            self.lights.slow_down(index)

    def restart_store(self) -> None:
        """Another store begins with nothing; of a node that was lost meanwhile only the workers' collective tells."""
        self.run.restart_store()
        self.run.break_collective()
        self.restarts += 1

    def some(self, most: int) -> list[int]:
        """A few nodes of a job that stays large enough."""
        spare = max(0, len(self.lights.nodes) - NODES * 2 // 3)
        return self.chance.sample(sorted(self.lights.nodes), min(spare, self.chance.randrange(1, most + 1)))

    def come_back(self) -> None:
        """All nodes that were cut off or frozen, and new ones in places that are free."""
        for index in sorted(self.lights.frozen):
            self.lights.thaw(index)
            self.lights.serve(self.chance.choice([0.0, 0.05]))
        for _ in range(self.chance.randrange(NODES - len(self.lights.nodes) + 1)):
            self.lights.add(self.next_index)
            self.lights.serve(self.chance.choice([0.0, 0.05]))
            self.next_index += 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_many_nodes_go_on_under_random_faults(seed: int) -> None:
    """Whatever happens, several things at a time and before the last change is over: all that are left go on."""
    with running(NODES + 1) as run:
        chaos, number = Chaos(run, seed), form(run, NODES)["number"]
        for _ in range(10):
            chaos.strike()
            number = run.wait_for(len(run.lights.nodes) + 1, number)["number"]
            before = len(run.lights.nodes)
            chaos.come_back()
            if len(run.lights.nodes) > before:
                number = run.wait_for(len(run.lights.nodes) + 1, number)["number"]
        told, _ = run.probe.communicate(timeout=60)
        assert run.lights.lost_connections == 0

    assert json.loads(told.splitlines()[-1])["reconnects"] == chaos.restarts
