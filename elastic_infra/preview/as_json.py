"""A comparison as JSON, for other programs."""

from __future__ import annotations

from elastic_infra.preview.model import Change, Comparison, JobDiff, Shown, SideFault


def as_json(comparison: Comparison) -> dict[str, Shown]:
    """``{"jobs": [...], "errors": [...]}``; keys never go away, new ones may come."""
    return {
        "jobs": [_job(job) for job in comparison.jobs],
        "errors": [_error(error) for error in comparison.errors],
    }


def _job(job: JobDiff) -> Shown:
    return {
        "name": job.name,
        "namespace": job.namespace,
        "consequence": job.consequence.value,
        "renamed_from": job.renamed_from,
        "changes": [_change(change) for change in job.changes],
        "deltas": {name: {"old": delta.old, "new": delta.new} for name, delta in job.deltas.items()},
        "warnings": list(job.warnings),
        "loses_checkpoints": job.loses_checkpoints,
    }


def _change(change: Change) -> Shown:
    return {
        "path": change.path,
        "old": change.old,
        "new": change.new,
        "order_only": change.is_order,
        "secret": change.is_secret,
        "consequence": change.consequence.value,
        "manifest_paths": list(change.manifest_paths),
    }


def _error(fault: SideFault) -> Shown:
    return {"side": fault.side, "path": fault.path, "job": fault.job, "reason": fault.reason}
