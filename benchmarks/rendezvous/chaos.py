"""Random faults against a job of many light nodes and a real one: all that are left go on after each.

    python -m benchmarks.rendezvous.chaos [--lives N] [--rounds N] [--out FILE]

Each life has a seed, which gives the same faults in the same order. A life that does not go on ends the program with an
error, and nothing is written.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.common import results
from benchmarks.rendezvous.__main__ import Run, form, running

RESULTS: Final = Path(__file__).with_name("CHAOS.json")
NODES: Final = 64
LIVES: Final = 3
ROUNDS: Final = 10
KINDS: Final = {
    "lost": "the node ends with a farewell, without one, or in the middle of a message",
    "agent killed": "the node ends without a farewell, and another comes at once under its name",
    "told to end": "the node gets SIGTERM, says that it leaves and goes with the next change, and a new one comes",
    "worker failed": "a worker of the node fails before its first step in the next generation",
    "frozen": "the node neither reads nor beats, and later goes on where it was",
    "cut off": "the network is parted: the node hears nothing, and later connects anew",
    "slow": "the node reads a few bytes at a time for the rest of its life",
    "store restarted": "another store begins with nothing, and a worker of the real node fails",
}
ABOUT: Final = """\
Several kinds of faults at a time, each before the last change is over, strike a job of {nodes} light nodes and a real
one: a real store process, the real node in a process of its own, and light nodes that send a real node's messages. A
round loses at least one node; all that are left must enter one generation, and then all that came back or are new
enter another. The laws: they do, within 120 s; those that were told to end have gone by then; no light node loses its
connection; the real node connects anew as often as the store was restarted, and never else. `pytest
tests/benchmarks/test_rendezvous.py -m slow` holds the same lives to the same laws."""


@dataclass(frozen=True)
class Life:
    """What became of one job."""

    seed: int
    rounds: int
    generations: int
    times: dict[str, int]
    """How often each kind of fault struck."""
    nodes: dict[str, int]
    """How many nodes each kind of fault struck."""
    returns: int
    """Number of nodes that came back or were new."""
    reconnections: int
    """Of the real node."""
    lost_connections: int
    """Of light nodes."""
    seconds: float


class Chaos:
    """Random faults of a job, each before the one before it is over."""

    def __init__(self, run: Run, seed: int) -> None:
        self.run, self.lights, self.chance = run, run.lights, random.Random(seed)
        self.next_index = NODES + 1
        self.faults = (
            self.lose,
            self.kill_agent,
            self.tell_to_end,
            self.fail,
            self.freeze,
            self.cut,
            self.slow_down,
            self.restart_store,
        )
        self.failed: set[int] = set()
        """Nodes of which a worker has failed: one that fails twice in a row, alone, is left out."""
        self.times: collections.Counter[str] = collections.Counter()
        self.nodes: collections.Counter[str] = collections.Counter()
        self.returns = 0

    def strike(self) -> None:
        """Some kinds of faults; one node is lost in any case, so that another generation must come."""
        for fault in (self.lose, *self.chance.sample(self.faults, self.chance.randrange(1, 4))):
            fault()
            self.lights.serve(self.chance.choice([0.0, 0.05, 0.3]))

    def lose(self) -> None:
        """Nodes end with a farewell, without one, or in the middle of a message."""
        for index in self.some("lost", 5):
            self.lights.lose(index, *self.chance.choice([(), (b"",), (b'{"op":"set","key":"node',)]))
            self.lights.serve(self.chance.choice([0.0, 0.05]))

    def kill_agent(self) -> None:
        """Nodes end without a farewell, and others come at once under their names."""
        for index in self.some("agent killed", 3):
            place = self.lights.nodes[index].place
            self.lights.lose(index, b"")
            self.lights.serve(self.chance.choice([0.0, 0.05]))
            self._come(place)

    def tell_to_end(self) -> None:
        """Nodes are told to end, and as many new ones come."""
        for index in self.some("told to end", 3):
            self.lights.tell_to_end(index)
            self.lights.serve(self.chance.choice([0.0, 0.05]))
            self._come()

    def fail(self) -> None:
        """A worker fails before its first step in the next generation, which every strike leads to."""
        index = self.chance.choice([index for index in self.lights.staying if index not in self.failed])
        self.failed.add(index)
        self.lights.fail_next(index)
        self._note("worker failed", 1)

    def freeze(self) -> None:
        """Nodes neither read nor beat, and later go on where they were."""
        for index in self.some("frozen", 3):
            self.lights.freeze(index)

    def cut(self) -> None:
        """The network is parted: some nodes hear nothing, and later connect anew."""
        for index in self.some("cut off", 8):
            self.lights.freeze(index, is_cut=True)

    def slow_down(self) -> None:
        """Nodes read a few bytes at a time for the rest of their lives."""
        for index in self.some("slow", 3):
            self.lights.slow_down(index)

    def restart_store(self) -> None:
        """Another store begins with nothing; of a node that was lost meanwhile only the workers' collective tells."""
        self.run.restart_store()
        self.run.break_collective()
        self._note("store restarted", len(self.lights.nodes) + 1)

    def some(self, kind: str, most: int) -> list[int]:
        """A few nodes of a job that stays large enough."""
        staying = self.lights.staying
        spare = max(0, len(staying) - NODES * 2 // 3)
        struck = self.chance.sample(staying, min(spare, self.chance.randrange(1, most + 1)))
        self._note(kind, len(struck))
        return struck

    def come_back(self) -> None:
        """All nodes that were cut off or frozen, and new ones in places that are free."""
        for index in sorted(self.lights.frozen):
            self.lights.thaw(index)
            self.returns += 1
            self.lights.serve(self.chance.choice([0.0, 0.05]))
        for _ in range(self.chance.randrange(NODES - len(self.lights.staying) + 1)):
            self._come()

    def _come(self, place: int | None = None) -> None:
        """A new node, in a place that is free or in that of one that is gone."""
        self.lights.add(self.next_index, place)
        self.lights.serve(self.chance.choice([0.0, 0.05]))
        self.next_index += 1
        self.returns += 1

    def _note(self, kind: str, nodes: int) -> None:
        if nodes:
            self.times[kind] += 1
            self.nodes[kind] += nodes


def live(seed: int, rounds: int = ROUNDS) -> Life:
    """One job from its first generation through so many rounds of faults.

    Raises:
        TimeoutError: those that were left did not go on.
    """
    began = time.monotonic()
    with running(NODES + 1) as run:
        chaos, number = Chaos(run, seed), form(run, NODES)["number"]
        for _ in range(rounds):
            chaos.strike()
            number = run.wait_for(len(run.lights.staying) + 1, number)["number"]
            returns = chaos.returns
            chaos.come_back()
            if chaos.returns > returns:
                number = run.wait_for(len(run.lights.staying) + 1, number)["number"]
        told, _ = run.probe.communicate(timeout=60)
        return Life(
            seed,
            rounds,
            number,
            dict(chaos.times),
            dict(chaos.nodes),
            chaos.returns,
            json.loads(told.splitlines()[-1])["reconnects"],
            run.lights.lost_connections,
            time.monotonic() - began,
        )


def document(found: results.Results) -> str:
    """The page as Markdown."""
    parts = (
        "# Random faults against a crowd",
        results.listed(found),
        ABOUT.format(nodes=NODES),
        results.table(_lives(found)),
        results.table(_kinds(found)),
    )
    return "\n\n".join(parts) + "\n"


def _lives(found: results.Results) -> Iterator[list[str]]:
    yield [
        "seed",
        "rounds",
        "faults",
        "nodes that came back or were new",
        "generations",
        "restarts of the store",
        "reconnections of the real node",
        "connections lost by light nodes",
        "seconds",
    ]
    for life in found["lives"]:
        counts = (sum(life["times"].values()), life["returns"], life["generations"])
        laws = (life["times"].get("store restarted", 0), life["reconnections"], life["lost_connections"])
        yield [*map(str, (life["seed"], life["rounds"], *counts, *laws)), f"{life['seconds']:.0f}"]


def _kinds(found: results.Results) -> Iterator[list[str]]:
    yield ["fault", "what happens", "times", "nodes"]
    for kind, what in KINDS.items():
        counts = (sum(life[count].get(kind, 0) for life in found["lives"]) for count in ("times", "nodes"))
        yield [kind, what, *map(str, counts)]


def main(arguments: list[str]) -> int:
    """Live as often as asked, and write what became of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rendezvous.chaos")
    parser.add_argument("--lives", type=int, default=LIVES, help="jobs, with seeds from 0")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of faults in each")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON of the lives, with the page beside it")
    options = parser.parse_args(arguments)
    machine = results.machine(results.command("benchmarks.rendezvous.chaos", arguments))
    lives = [dataclasses.asdict(live(seed, options.rounds)) for seed in range(options.lives)]
    print(results.save(options.out, {"machine": machine, "lives": lives}, document))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
