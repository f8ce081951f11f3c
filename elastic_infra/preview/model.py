"""The data of a preview: two sides with jobs, and their differences. Plain values without secrets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, Literal, TypeAlias

from elastic_infra.config import JobConfig

Shown: TypeAlias = "bool | int | float | str | list[Shown] | Mapping[str, Shown] | None"
"""JSON without any value that may be secret."""

SideName: TypeAlias = Literal["base", "head"]


class Consequence(Enum):
    """What a change does to a job; from the mildest to the one a reviewer must see first."""

    NONE = "none"
    """Nothing reaches the cluster."""

    IN_PLACE = "in place"
    """Objects are updated while training goes on."""

    ADDED = "added"
    """A new job starts."""

    RESTART = "restart"
    """The workload object is replaced, or its pods end; training resumes from its checkpoint."""

    REMOVED = "removed"
    """The job ends for good."""

    UNKNOWN = "unknown"
    """The other side could not be read, so that the consequence is unknown."""

    @property
    def weight(self) -> int:
        """Place in the order; the largest is the worst."""
        return list(Consequence).index(self)


def worst(*consequences: Consequence) -> Consequence:
    """The worst of them; none for none."""
    return max((Consequence.NONE, *consequences), key=lambda consequence: consequence.weight)


@dataclasses.dataclass(frozen=True)
class Job:
    """One job of one side.

    Attributes:
        name: name of the job, from which the names of its objects derive.
        path: file or program that declares the job, as a path for readers.
        resource: its name in Pulumi; None where no program was run.
    """

    name: str
    path: str
    config: JobConfig
    resource: str | None = None

    @property
    def place(self) -> tuple[str, object]:
        """Name and namespace, which no other job of a side has; namespaces that are known later count as one."""
        return self.name, self.config.namespace

    @classmethod
    def declared(cls, name: str, path: str, config: JobConfig, resource: str | None = None) -> Job:
        """A job as it is declared: a name in its config wins, and then counts as the job's, not as a setting."""
        return cls(config.name or name, path, config.model_copy(update={"name": None}), resource)


@dataclasses.dataclass(frozen=True)
class SideFault:
    """A file or job of one side that cannot be compared.

    Attributes:
        path: the file, or the side as given when it is not about one file.
        job: name of the job that this file declares, when it can be told.
    """

    side: SideName
    path: str
    reason: str
    job: str | None = None


@dataclasses.dataclass(frozen=True)
class Side:
    """Every job of one side, and what could not be read.

    Attributes:
        package: pinned version of this package; None when the side pins none. It decides which launcher runs.
        notices: notes for the user about how the side was read.
        is_file: whether the side is one file given directly; two such files are one job, whatever they call it.
        is_read: whether the side could be read; of one that could not there are faults alone.
    """

    jobs: tuple[Job, ...]
    faults: tuple[SideFault, ...] = ()
    package: str | None = None
    notices: tuple[str, ...] = ()
    is_file: bool = False
    is_read: bool = True


@dataclasses.dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        path: where in the config (`elastic.nnodes`, `env.DATASET`), or which object when there is no config.
        old: value in BASE, None when it is not there.
        new: value in HEAD, None when it is not there.
        consequence: of this change alone.
        manifest_paths: what it changes in the job's objects.
        is_order: only the order differs.
        is_secret: a secret changed, of which neither value is told.
    """

    path: str
    old: Shown
    new: Shown
    consequence: Consequence
    manifest_paths: tuple[str, ...] = ()
    is_order: bool = False
    is_secret: bool = False


@dataclasses.dataclass(frozen=True)
class Delta:
    """A figure for reviewers, before and after; None where the job does not exist or has no such figure."""

    old: str | int | None
    new: str | int | None


@dataclasses.dataclass(frozen=True)
class JobDiff:
    """One job on both sides.

    Attributes:
        warnings: facts beyond the consequence, such as lost checkpoints.
        renamed_from: its name in BASE when that was another.
        loses_checkpoints: whether the job goes on without the checkpoints that it had.
        namespace: its namespace where a job of another has the same name.
    """

    name: str
    consequence: Consequence
    changes: tuple[Change, ...] = ()
    deltas: Mapping[str, Delta] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    renamed_from: str | None = None
    loses_checkpoints: bool = False
    namespace: str | None = None

    @property
    def title(self) -> str:
        """What tells readers which job it is."""
        return self.name if self.namespace is None else f"{self.namespace}/{self.name}"


ADOPTED: Final = "adopted"
"""Path of the key by which a live job is taken over."""

CHILDREN: Final = "children"
"""Path of the key that names the job's objects in Pulumi."""


def taken_over(name: str) -> JobDiff:
    """A job that another tool made and that the program adopts: nothing of the job changes."""
    return JobDiff(name, Consequence.NONE, (Change(ADOPTED, None, new=True, consequence=Consequence.NONE),))


def in_order(jobs: Iterable[JobDiff]) -> tuple[JobDiff, ...]:
    """The worst consequence first, then by name: the same every time."""
    return tuple(sorted(jobs, key=lambda job: (-job.consequence.weight, job.name, job.title)))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sides compared; jobs with the worst consequence first, then by name."""

    jobs: tuple[JobDiff, ...]
    errors: tuple[SideFault, ...] = ()

    @property
    def consequence(self) -> Consequence:
        """The worst of all jobs."""
        return worst(*(job.consequence for job in self.jobs))
