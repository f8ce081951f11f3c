"""Which job of BASE is which job of HEAD: by name and namespace, one that moved by name, a renamed one by content."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from elastic_infra.preview.model import Job
from elastic_infra.preview.tree import Tree, children

MIN_SIMILARITY: Final = 0.7
"""Share of equal settings from which a removed and an added job count as one renamed job (git's own is 0.5)."""

MAX_COMPARED: Final = 10_000
"""Pairs compared for similarity; beyond it only equal configs count as renamed."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """One job on both sides; None on the side that lacks it."""

    base: Job | None
    head: Job | None

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The job as it is on each side that has it, BASE first."""
        return tuple(job for job in (self.base, self.head) if job)


def pairs(base: Sequence[Job], head: Sequence[Job]) -> tuple[Pair, ...]:
    """Every job of both sides, once; on each side no two have one place."""
    found: list[Pair] = []
    for matches in (_of_one_place, _of_one_name, _renamed):
        found += matches(_rest(base, found), _rest(head, found))
    removed, added = _rest(base, found), _rest(head, found)
    return (*found, *(Pair(job, None) for job in removed), *(Pair(None, job) for job in added))


def _rest(jobs: Sequence[Job], found: Sequence[Pair]) -> list[Job]:
    """The jobs of a side that have no pair yet."""
    known = {job.place for pair in found for job in pair.jobs}
    return [job for job in jobs if job.place not in known]


def _of_one_place(base: Sequence[Job], head: Sequence[Job]) -> Iterator[Pair]:
    """Jobs that have kept their name and their namespace."""
    after = {job.place: job for job in head}
    return (Pair(job, after[job.place]) for job in base if job.place in after)


def _of_one_name(removed: Sequence[Job], added: Sequence[Job]) -> Iterator[Pair]:
    """Jobs that have moved to another namespace; of several with one name only the content tells which is which."""
    before, after = (Counter(job.name for job in side) for side in (removed, added))
    moved = {job.name: job for job in added if before[job.name] == after[job.name] == 1}
    return (Pair(job, moved[job.name]) for job in removed if job.name in moved)


def _renamed(removed: Sequence[Job], added: Sequence[Job]) -> Iterator[Pair]:
    """The most similar pairs, best first."""
    least = MIN_SIMILARITY if len(removed) * len(added) <= MAX_COMPARED else 1.0
    settings = {job.place: _settings(job) for job in (*removed, *added)}
    scores = [
        (_similarity(settings[old.place], settings[new.place]), Pair(old, new)) for old in removed for new in added
    ]
    taken: set[tuple[str, object]] = set()
    for score, pair in sorted(scores, key=lambda item: -item[0]):
        places = {job.place for job in pair.jobs}
        if score >= least and not places & taken:
            taken |= places
            yield pair


def _settings(job: Job) -> Mapping[str, Tree]:
    """Every setting that is not the default, by its path."""
    return dict(_leaves(job.config.model_dump(exclude_defaults=True, warnings=False), ""))


def _leaves(tree: Tree, path: str) -> Iterator[tuple[str, Tree]]:
    branches = children(tree)
    if branches is None:
        yield path, tree
        return
    for name, value in branches.items():
        yield from _leaves(value, f"{path}.{name}")


def _similarity(one: Mapping[str, Tree], other: Mapping[str, Tree]) -> float:
    equal = sum(1 for path, value in one.items() if path in other and other[path] == value)
    return equal / len({*one, *other})
