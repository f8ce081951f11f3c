"""A comparison in words that text and Markdown share: counts, figures and values on one line."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from elastic_infra.preview.model import Change, Comparison, Consequence, Delta, JobDiff, Shown
from elastic_infra.preview.redaction import HIDDEN

ABSENT: Final = "unset"

_COUNTED: Final = {
    Consequence.UNKNOWN: ("unknown", "unknown"),
    Consequence.REMOVED: ("removed", "removed"),
    Consequence.RESTART: ("restart", "restarts"),
    Consequence.ADDED: ("added", "added"),
    Consequence.IN_PLACE: ("update in place", "updates in place"),
    Consequence.NONE: ("unchanged", "unchanged"),
}
_FIGURES: Final = {
    "gpus_at_most": "GPUs at most",
    "max_restarts": "restarts allowed",
    "container_restarts": "container restarts allowed",
    "drain_seconds": "stopping workers after a failure (s)",
    "hang_seconds": "hang seen after (s)",
    "join_seconds": "waiting for peers (s)",
    "silent_hang_seconds": "silent hang seen after (s)",
    "start_seconds": "waiting for late nodes (s)",
    "stop_seconds": "time to save (s)",
    "worst_case_seconds": "failed for good after (s)",
    "workers_per_node": "workers a node",
    "memory_per_node": "memory a node",
}


def tally(comparison: Comparison) -> tuple[str, ...]:
    """``("2 restarts", "1 update in place")``, the worst first."""
    counts = Counter(job.consequence for job in comparison.jobs)
    parts = [f"{counts[each]} {words[counts[each] > 1]}" for each, words in _COUNTED.items() if counts[each]]
    errors, more = len(comparison.errors), {name: _more(comparison, name) for name in COSTS}
    cost = [f"{count:+d} {_label(name)}" for name, count in more.items() if count]
    return (*parts, *cost, *([f"{errors} error{'s' if errors > 1 else ''}"] if errors else []))


def _more(comparison: Comparison, name: str) -> int:
    """How many more of these all jobs together may use, at their largest."""
    found = (job.deltas.get(name, Delta(0, 0)) for job in comparison.jobs)
    return sum(_count(delta.new) - _count(delta.old) for delta in found)


def _count(value: str | int | None) -> int:
    return value if isinstance(value, int) else 0


def figure(name: str, delta: Delta) -> str:
    """``GPUs at most 32 → 48``; one value when the other is not there."""
    label = _label(name)
    if delta.old is None:
        return f"{label} {delta.new}"
    return f"{label} {delta.old} → {ABSENT if delta.new is None else delta.new}"


def _label(name: str) -> str:
    return _FIGURES.get(name, name.replace("_seconds", " (s)").replace("_", " "))


def figures(job: JobDiff) -> tuple[str, ...]:
    """Every figure that moved; of a job that comes or goes, the figures it has."""
    if job.consequence in {Consequence.ADDED, Consequence.REMOVED}:
        return tuple(figure(name, Delta(None, delta.new or delta.old)) for name, delta in job.deltas.items())
    return tuple(figure(name, delta) for name, delta in job.deltas.items())


def headline(job: JobDiff) -> str:
    """What a reviewer reads of a job first: what changed, then the figures that moved."""
    named = [f"renamed from {job.renamed_from}"] if job.renamed_from else []
    paths = [_caused_by(change) for change in job.changes if change.path != "name"]
    listed = [", ".join(paths[:MAX_NAMED]) + (f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else "")]
    key = dataclasses.replace(job, deltas={name: job.deltas[name] for name in KEY_FIGURES if name in job.deltas})
    count = len(job.warnings)
    warned = [f"⚠️ {count} warning{'s' if count > 1 else ''}"] if count else []
    return "; ".join(filter(None, [*named, *listed, *figures(key), *warned]))


MAX_NAMED: Final = 4
COSTS: Final = ("gpus_at_most", "device_claims_at_most")
"""Figures whose sum over all jobs a reviewer reads first."""
KEY_FIGURES: Final = ("nodes", *COSTS, "memory_at_most", "shared_memory", "max_restarts")


def shortened(change: Change) -> str:
    """The path of a change, with a word when only the order differs."""
    return f"{change.path} (order only)" if change.is_order else change.path


def _caused_by(change: Change) -> str:
    return f"{change.path} ({SECRET_CHANGED})" if change.is_secret else shortened(change)


SECRET_CHANGED: Final = "a secret changed"  # noqa: S105 - says that one did, is none


def on_one_line(value: Shown) -> str:
    """A value for one cell or line; lists of words as a shell would read them."""
    if value is None:
        return ABSENT
    if isinstance(value, str):
        return value.replace("\r", "").replace("\n", "⏎")
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return shlex.join(map(str, value)).replace("\n", "⏎") if value else "(empty)"
    return json.dumps(value, ensure_ascii=False)


def from_to(change: Change) -> str:
    """Both values on one line; that a hidden one changed is all that is told of it."""
    if change.is_secret:
        return SECRET_CHANGED
    if change.old == change.new == HIDDEN:
        return "changed (values are not shown)"
    return f"{on_one_line(change.old)} → {on_one_line(change.new)}"


def places(paths: Sequence[str], most: int) -> tuple[tuple[str, ...], int]:
    """The first places, and how many are left out.

    Whole objects come first, those that are added as one place and those that are removed as another; then the places
    of the workload, which say why the job restarts. Those that only follow from others come last.
    """
    ordered = sorted(_with_objects_in_one(paths), key=_turn)
    return tuple(_POD.sub("…", path) for path in ordered[:most]), max(0, len(ordered) - most)


def _with_objects_in_one(paths: Sequence[str]) -> Iterator[str]:
    """``ServiceAccount, Role, RoleBinding (added)`` in the place of three."""
    for fate in ("(added)", "(removed)"):
        if kinds := [path.removesuffix(f" {fate}") for path in paths if path.endswith(f" {fate}")]:
            yield f"{', '.join(kinds)} {fate}"
    yield from (path for path in paths if not path.endswith(OBJECTS))


def _turn(path: str) -> int:
    if path.endswith(DERIVED):
        return 4
    if " (becomes a " in path:
        return 0
    return 1 if path.endswith(OBJECTS) else 2 if path.startswith(WORKLOADS) else 3


OBJECTS: Final = (" (added)", " (removed)")
WORKLOADS: Final = ("PyTorchJob ", "Job ", "TrainJob ", "TrainingRuntime ")
_POD: Final = re.compile(r"spec\.(pytorchReplicaSpecs\.Worker\.)?template\.spec\.")
"""The way down to a pod, which every reader knows."""


DERIVED: Final = (
    "spec.elasticPolicy.rdzvId",
    "env[PET_RDZV_ID].value",
    "TrainingRuntime metadata.name",
    "TrainJob spec.runtimeRef.name",
)
"""What holds a hash of the workload, the run id or a runtime's name: it changes with everything else."""
