"""Which job of BASE is which job of HEAD: by name, and a job that only got another name by its content."""

from __future__ import annotations

import dataclasses
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


def pairs(base: Sequence[Job], head: Sequence[Job]) -> tuple[Pair, ...]:
    """Every job of both sides, once."""
    before, after = {job.name: job for job in base}, {job.name: job for job in head}
    same = [Pair(job, after[name]) for name, job in before.items() if name in after]
    removed = [job for name, job in before.items() if name not in after]
    added = [job for name, job in after.items() if name not in before]
    renamed = list(_renamed(removed, added))
    known = {job.name for pair in renamed for job in (pair.base, pair.head) if job}
    gone = [Pair(job, None) for job in removed if job.name not in known]
    return (*same, *renamed, *gone, *(Pair(None, job) for job in added if job.name not in known))


def _renamed(removed: Sequence[Job], added: Sequence[Job]) -> Iterator[Pair]:
    """The most similar pairs, best first."""
    least = MIN_SIMILARITY if len(removed) * len(added) <= MAX_COMPARED else 1.0
    settings = {job.name: _settings(job) for job in (*removed, *added)}
    scores = [(_similarity(settings[old.name], settings[new.name]), Pair(old, new)) for old in removed for new in added]
    taken: set[str] = set()
    for score, pair in sorted(scores, key=lambda item: -item[0]):
        names = {job.name for job in (pair.base, pair.head) if job}
        if score >= least and not names & taken:
            taken |= names
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
