"""Two sides become one comparison: the pure heart of the preview."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from elastic_infra.config import JobConfig
from elastic_infra.config.load import job_name, named_by
from elastic_infra.config.names import name_faults
from elastic_infra.manifests import render
from elastic_infra.preview.attribution import attribute
from elastic_infra.preview.deltas import deltas
from elastic_infra.preview.effects import Effect, effects
from elastic_infra.preview.model import (
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
    worst,
)
from elastic_infra.preview.pairing import Pair, pairs
from elastic_infra.preview.redaction import shown
from elastic_infra.preview.tree import differences, written
from elastic_infra.preview.warnings import warnings

Versions: TypeAlias = "tuple[str | None, str | None]"

LAUNCHER_CHANGED: Final = "launcher changed"
"""Path of the change that a new version of this package makes: the mounted launcher is another one."""

_LAUNCHER_VOLUME: Final = {
    True: "spec.template.spec.volumes[launcher].configMap.name",
    False: "spec.pytorchReplicaSpecs.Worker.template.spec.volumes[launcher].configMap.name",
}


def compare(base: Side, head: Side) -> Comparison:
    """What going from `base` to `head` does to each job.

    A job that one side cannot declare properly is left out and told among the errors.
    """
    broken = (*base.faults, *head.faults, *_misnamed("base", base.jobs), *_misnamed("head", head.jobs))
    broken += (*_ambiguous("base", base.jobs), *_ambiguous("head", head.jobs))
    left_out = {fault.job for fault in broken}
    left, right = ([job for job in side.jobs if job.name not in left_out] for side in (base, head))
    one_job = base.is_file and head.is_file and left and right
    found = (Pair(left[0], right[0]),) if one_job else pairs(left, right)
    versions = (base.package, head.package) if base.package != head.package else None
    return Comparison(in_order(_job(pair, versions) for pair in found), tuple(broken))


def _misnamed(side: SideName, jobs: Sequence[Job]) -> Iterator[SideFault]:
    """Jobs whose name Kubernetes would refuse."""
    for job in jobs:
        is_of_path = job.config.name is None and job.name == job_name(job.path, job.name)
        origin = f" {named_by(job.path)}" if is_of_path else ""
        for fault in name_faults(job.name, job.config):
            yield SideFault(side, job.path, f"{fault}{origin}", job.name)


def _ambiguous(side: SideName, jobs: Sequence[Job]) -> Iterator[SideFault]:
    """Jobs that share their name, by which they would be found on the other side."""
    first: dict[str, Job] = {}
    for job in jobs:
        known = first.setdefault(job.name, job)
        if known is not job:
            reason = (
                f"declares job {job.name!r}, and so does {known.path}: the two cannot be told apart. "
                "Rename one of the files, or set `name` in it; --name is for two single files."
            )
            yield SideFault(side, job.path, reason, job.name)


def _job(pair: Pair, versions: Versions | None) -> JobDiff:
    base, head = pair.base, pair.head
    if head is None or base is None:
        return _one_sided(base, head)
    changes = (*_renaming(base, head), *_launcher(head.config, versions), *_changes(base.config, head))
    consequence = worst(*(change.consequence for change in changes))
    return JobDiff(
        name=head.name,
        consequence=consequence,
        changes=changes,
        deltas=deltas(base.config, head.config),
        warnings=warnings(base, head, consequence),
        renamed_from=base.name if base.name != head.name else None,
    )


def _one_sided(base: Job | None, head: Job | None) -> JobDiff:
    figures = deltas(base.config if base else None, head.config if head else None)
    if base is None:
        return JobDiff(head.name if head else "", Consequence.ADDED, deltas=figures)
    return JobDiff(base.name, Consequence.REMOVED, (), figures, warnings(base, None, Consequence.REMOVED))


def _renaming(base: Job, head: Job) -> Iterator[Change]:
    if base.name != head.name:
        total = effects(render(base.name, base.config), render(head.name, base.config), base.config)
        yield _change("name", base.name, head.name, total)


def _launcher(config: JobConfig, versions: Versions | None) -> Iterator[Change]:
    """Another version of this package mounts another launcher; an image that has its own keeps it."""
    if versions is not None and config.launcher.delivery == "configmap":
        kind = "Job" if config.is_single_pod else "PyTorchJob"
        places = ("ConfigMap metadata.name", f"{kind} {_LAUNCHER_VOLUME[config.is_single_pod]}")
        yield Change(LAUNCHER_CHANGED, *versions, Consequence.RESTART, places)


def _changes(base: JobConfig, head: Job) -> Iterator[Change]:
    found = tuple(differences(base, head.config))
    shares = attribute(head.name, base, head.config, found) if found else ()
    for difference, share in zip(found, shares, strict=True):
        path, is_order = written(difference.path), difference.kind != "value"
        yield _change(path, shown(path, difference.old), shown(path, difference.new), share, is_order=is_order)


def _change(path: str, old: Shown, new: Shown, share: Sequence[Effect], *, is_order: bool = False) -> Change:
    consequence = worst(*(effect.consequence for effect in share))
    places = tuple(dict.fromkeys(effect.path for effect in share))
    return Change(path, old, new, consequence, places, is_order)
