"""The laws of a soak in place, checked on its journal. Pure.

Every function returns the violations that it found, as lines for people; an empty answer is the law kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Line = Mapping[str, Any]

TOLERANCE: Final = 1e-8
"""Sums of another order differ by less; a sample changes the weights by a hundredth of it at least a million times."""
LEAST_GENERATIONS: Final = 9
"""A process that has settled in fewer shows no growth: one descriptor a generation is not told from chance."""
SPARE: Final = {"descriptors": 0, "threads": 0, "kib": 4096}
"""What a process may hold more in its last third than in its first: memory moves by what the allocator keeps."""


@dataclass(frozen=True)
class Undisturbed:
    """One step of a run without faults."""

    samples: Sequence[int]
    mark: float


def exactly_once(journal: Iterable[Line], expected: Sequence[Undisturbed]) -> list[str]:
    """The ranks of the last generation that began a step had its samples, each once; no step is missing.

    ``expected`` holds the steps up to the last that counts.
    """
    begun: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for line in journal:
        if line["event"] == "begun":
            begun[line["step"]][line["generation"]] += line["seen"]
    broken = []
    for step, undisturbed in enumerate(expected, 1):
        tried = begun.get(step, {})
        seen = sorted(tried[max(tried)]) if tried else []
        if seen != sorted(undisturbed.samples):
            broken.append(f"step {step}: trained on {seen}, not on {sorted(undisturbed.samples)}")
    return broken


def equal_ranks(journal: Iterable[Line]) -> list[str]:
    """After every step all ranks have the same weights to the bit."""
    digests: dict[tuple[int, int], set[str]] = defaultdict(set)
    for line in journal:
        if line["event"] == "step":
            digests[line["generation"], line["step"]].add(line["digest"])
    different = {group: found for group, found in digests.items() if len(found) > 1}
    return [f"step {step} of generation {generation}: {found}" for (generation, step), found in different.items()]


def undisturbed(journal: Iterable[Line], expected: Sequence[Undisturbed]) -> list[str]:
    """After every step each worker has the weights of a run without faults."""
    return [
        f"step {line['step']} of generation {line['generation']}: {line['mark']}, not {expected[line['step'] - 1].mark}"
        for line in journal
        if line["event"] == "step" and abs(line["mark"] - expected[line["step"] - 1].mark) > TOLERANCE
    ]


def identical(journal: Iterable[Line], left_alone: Iterable[Line]) -> list[str]:
    """After every step each worker has the weights of another run, which nothing disturbed, to the bit."""
    expected = {line["step"]: line["digest"] for line in left_alone if line["event"] == "step"}
    return [
        f"step {line['step']} of generation {line['generation']}: {line['digest']}, not {expected.get(line['step'])}"
        for line in journal
        if line["event"] == "step" and line["digest"] != expected.get(line["step"])
    ]


def of_size(journal: Iterable[Line], world: int) -> list[str]:
    """No step counts that other than so many workers made."""
    return [
        f"step {line['step']} of generation {line['generation']}: {line['world']} workers"
        for line in journal
        if line["event"] == "step" and line["world"] != world
    ]


@dataclass(frozen=True)
class Life:
    """What one process held in groups of one size, early and late in its life."""

    pid: int
    world: int
    generations: int
    """Generations of this size in which it settled."""
    early: Mapping[str, int]
    """The most that it held in the first third of these."""
    middle: Mapping[str, int]
    """The most in the second third; whoever became rank 0 early on serves a store since then, which is no growth."""
    late: Mapping[str, int]
    """The least that it held in the last third."""

    @property
    def growth(self) -> list[str]:
        """Each thing of which it held more and more."""
        name = f"process {self.pid}, {self.generations} groups of {self.world}"
        return [
            f"{name}: {kind} {self.early[kind]} -> {self.late[kind]}"
            for kind, spare in SPARE.items()
            if self.late[kind] > max(self.early[kind] + spare, self.middle[kind])
        ]


def lives(journal: Iterable[Line]) -> list[Life]:
    """The processes that lived through many generations; sizes are apart, since each peer has a connection."""
    readings: dict[tuple[int, int], list[Line]] = defaultdict(list)
    for line in journal:
        if "descriptors" in line:
            readings[line["pid"], line["world"]].append(line)
    found = []
    for (pid, world), mine in readings.items():
        if len(mine) >= LEAST_GENERATIONS:
            third = len(mine) // 3
            early = {kind: max(line[kind] for line in mine[:third]) for kind in SPARE}
            middle = {kind: max(line[kind] for line in mine[third:-third]) for kind in SPARE}
            late = {kind: min(line[kind] for line in mine[-third:]) for kind in SPARE}
            found.append(Life(pid, world, len(mine), early, middle, late))
    return found


def replaced(journal: Iterable[Line], struck: frozenset[int]) -> list[int]:
    """Processes that ended though no fault struck them: the launcher replaced them."""
    steps, ends = set[int](), set[int]()
    for line in journal:
        (ends if line["event"] == "end" else steps).add(line["pid"])
    return sorted(steps - ends - struck)


@dataclass(frozen=True)
class Changes:
    """How many generations began in which way."""

    moves: int
    """With a worker of the one before."""
    restarts: int
    """With new workers alone."""


def changes(journal: Iterable[Line]) -> Changes:
    """Count the generations that made a step, the first one left out."""
    members: dict[int, set[int]] = defaultdict(set)
    for line in journal:
        if line["event"] == "step":
            members[line["generation"]].add(line["pid"])
    seen = set[int]()
    moves = restarts = 0
    for generation in sorted(members):
        if seen:
            kept = bool(seen & members[generation])
            moves, restarts = moves + kept, restarts + (not kept)
        seen |= members[generation]
    return Changes(moves, restarts)
