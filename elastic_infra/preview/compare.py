"""Two sides become one comparison: the pure heart of the preview."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from elastic_infra.config import EnvVar, JobConfig
from elastic_infra.config.load import job_name, named_by
from elastic_infra.config.names import name_faults
from elastic_infra.config.values import KnownLater
from elastic_infra.config.workdir import Files
from elastic_infra.manifests.render import lasting
from elastic_infra.preview.attribution import attribute
from elastic_infra.preview.deltas import deltas
from elastic_infra.preview.effects import Effect, effects
from elastic_infra.preview.model import (
    ADOPTED,
    CHILDREN,
    Change,
    Comparison,
    Consequence,
    Job,
    JobDiff,
    Shown,
    Side,
    SideFault,
    SideName,
    in_order,
    taken_over,
    worst,
)
from elastic_infra.preview.pairing import Pair, pairs
from elastic_infra.preview.redaction import redacted
from elastic_infra.preview.tree import Difference, differences, written
from elastic_infra.preview.warnings import (
    Versions,
    keeps_launchers,
    loses_checkpoints,
    makes_objects_anew,
    resource_warnings,
    warnings,
)

LAUNCHER_READY: Final = "a newer launcher is ready"
"""Path of the change that a new version of this package makes: the job takes it when something else restarts it."""

LAUNCHER_CHANGED: Final = "launcher changed"
"""The same where the base pins a version whose jobs do not keep their launcher."""

RESOURCE: Final = "Pulumi resource"
"""Path of the change of a job's name in Pulumi."""

_POD: Final = {
    "Job": "Job spec.template",
    "PyTorchJob": "PyTorchJob spec.pytorchReplicaSpecs.Worker.template",
    "TrainJob": "TrainingRuntime spec.template.spec.replicatedJobs[node].template.spec.template",
}
"""The place of the pods' template, by the workload's kind."""


def compare(base: Side, head: Side) -> Comparison:
    """What going from `base` to `head` does to each job.

    A job that one side cannot declare properly is left out and told among the errors. Where a whole side could not be
    read, what becomes of the jobs of the other is unknown.
    """
    broken = (*base.faults, *head.faults, *_misnamed("base", base.jobs), *_misnamed("head", head.jobs))
    broken += (*_ambiguous("base", base.jobs), *_ambiguous("head", head.jobs))
    if not (base.is_read and head.is_read):
        known = {job.place: job for job in (*base.jobs, *head.jobs)}.values()
        return Comparison(_told_apart((job, JobDiff(job.name, Consequence.UNKNOWN)) for job in known), broken)
    left_out = {fault.job for fault in broken}
    left, right = ([job for job in side.jobs if job.name not in left_out] for side in (base, head))
    one_job = base.is_file and head.is_file and left and right
    found = (Pair(left[0], right[0]),) if one_job else pairs(left, right)
    versions = (base.package, head.package) if base.package != head.package else None
    unread = {(fault.side, fault.path) for fault in broken if fault.job is None}
    return Comparison(_told_apart((pair.jobs[-1], _job(pair, versions, unread)) for pair in found), tuple(broken))


def _told_apart(found: Iterable[tuple[Job, JobDiff]]) -> tuple[JobDiff, ...]:
    """Every job in order, with its namespace where its name is not enough."""
    listed = list(found)
    counts = Counter(diff.name for _, diff in listed)
    return in_order(
        dataclasses.replace(diff, namespace=str(job.config.namespace)) if counts[diff.name] > 1 else diff
        for job, diff in listed
    )


def _misnamed(side: SideName, jobs: Sequence[Job]) -> Iterator[SideFault]:
    """Jobs whose name Kubernetes would refuse."""
    for job in jobs:
        is_of_path = job.config.name is None and job.name == job_name(job.path, job.name)
        origin = f" {named_by(job.path)}" if is_of_path else ""
        for fault in name_faults(job.name, job.config):
            yield SideFault(side, job.path, f"{fault}{origin}", job.name)


def _ambiguous(side: SideName, jobs: Sequence[Job]) -> Iterator[SideFault]:
    """Jobs that share their name and namespace, by which they would be found on the other side."""
    first: dict[tuple[str, object], Job] = {}
    for job in jobs:
        known = first.setdefault(job.place, job)
        if known is not job:
            reason = (
                f"declares job {job.name!r}, and so does {known.path}: the two cannot be told apart. "
                "Rename one of the files, or set `name` in it; --name is for two single files."
            )
            yield SideFault(side, job.path, reason, job.name)


def _job(pair: Pair, versions: Versions | None, unread: Collection[tuple[SideName, str]]) -> JobDiff:
    """One job.

    Args:
        unread: files and programs that declare jobs, how many and which is not known.
    """
    base, head = pair.base, pair.head
    if base is None:
        return _added(head, unread) if head else JobDiff("", Consequence.NONE)
    if head is None:
        return _removed(base, unread)
    found = (*_renaming(base, head, versions), *_launcher(head.config, versions), *_changes(base.config, head))
    if makes_objects_anew(base, head, versions):
        found = tuple(_anew(head.config, change) if change.path == CHILDREN else change for change in found)
    changes = tuple(_as_adopted(head.config, change) for change in found)
    consequence = worst(*(change.consequence for change in changes))
    return JobDiff(
        name=head.name,
        consequence=consequence,
        changes=changes,
        deltas=deltas(base.config, head.config),
        warnings=(*warnings(base, head, consequence), *resource_warnings(base, head, versions)),
        renamed_from=base.name if base.name != head.name else None,
        loses_checkpoints=loses_checkpoints(base, head, consequence, versions),
    )


def _as_adopted(config: JobConfig, change: Change) -> Change:
    """A change of an adopted job reaches nothing; once the job is that no more, it is made anew."""
    if config.adopted and change.path != "name":
        return dataclasses.replace(change, consequence=Consequence.NONE, manifest_paths=())
    return _anew(config, change) if change.path == ADOPTED else change


def _anew(config: JobConfig, change: Change) -> Change:
    """The change as one for which the job is made anew."""
    return dataclasses.replace(change, consequence=Consequence.RESTART, manifest_paths=(f"{config.kind} (made anew)",))


def _added(head: Job, unread: Collection[tuple[SideName, str]]) -> JobDiff:
    if head.config.adopted:
        return taken_over(head.name)
    consequence = Consequence.UNKNOWN if ("base", head.path) in unread else Consequence.ADDED
    return JobDiff(head.name, consequence, deltas=deltas(None, head.config))


def _removed(base: Job, unread: Collection[tuple[SideName, str]]) -> JobDiff:
    figures = deltas(base.config, None)
    if ("head", base.path) in unread:
        return JobDiff(base.name, Consequence.UNKNOWN, deltas=figures)
    return JobDiff(base.name, Consequence.REMOVED, (), figures, warnings(base, None, Consequence.REMOVED))


def _renaming(base: Job, head: Job, versions: Versions | None) -> Iterator[Change]:
    if base.name != head.name:
        total = effects(lasting(base.name, base.config), lasting(head.name, base.config), base.config)
        yield _change("name", base.name, head.name, total)
    if base.resource != head.resource and base.resource and head.resource:
        made_anew = makes_objects_anew(base, head, versions)
        yield Change(RESOURCE, base.resource, head.resource, Consequence.RESTART if made_anew else Consequence.NONE)


def _launcher(config: JobConfig, versions: Versions | None) -> Iterator[Change]:
    """Another version of this package has another launcher; an image that has its own keeps it."""
    if versions is not None and config.launcher.delivery == "configmap":
        places = ("ConfigMap metadata.name", f"{_POD[config.kind]}.spec.volumes[launcher].configMap.name")
        if keeps_launchers(versions[0]):
            yield Change(LAUNCHER_READY, *versions, Consequence.NONE)
        else:
            yield Change(LAUNCHER_CHANGED, *versions, Consequence.RESTART, places)


def _changes(base: JobConfig, head: Job) -> Iterator[Change]:
    found = tuple(differences(base, head.config))
    shares = attribute(head.name, base, head.config, found) if found else ()
    for difference, share in zip(found, shares, strict=True):
        if isinstance(difference.old, Files) and isinstance(difference.new, Files):
            yield from _files(difference, share)
            continue
        path, is_order = written(difference.path), difference.kind != "value"
        change = _change(path, redacted(path, difference.old), redacted(path, difference.new), share)
        is_secret = _is_secret(difference.old) and _is_secret(difference.new)
        yield dataclasses.replace(change, is_order=is_order, is_secret=is_secret)


def _files(difference: Difference, share: Sequence[Effect]) -> Iterator[Change]:
    """Each file of local code that differs; together they have the effects."""
    for each in differences(dict(difference.old), dict(difference.new), difference.path):  # type: ignore[call-overload]
        path = written(each.path)
        yield _change(path, redacted(path, each.old), redacted(path, each.new), share)


def _change(path: str, old: Shown, new: Shown, share: Sequence[Effect]) -> Change:
    consequence = worst(*(effect.consequence for effect in share))
    places = tuple(dict.fromkeys(effect.path for effect in share))
    return Change(path, old, new, consequence, places)


def _is_secret(value: object) -> bool:
    """Whether a program's secret stands there, which is only known to equal another or not."""
    late = value.value if isinstance(value, EnvVar) else value
    return isinstance(late, KnownLater) and late.secret is not None
