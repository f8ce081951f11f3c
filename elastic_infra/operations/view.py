"""A job in a cluster as lines for a terminal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from elastic_infra.manifests.figures import at, items
from elastic_infra.manifests.metadata import COMPLETION_INDEX, COMPONENT
from elastic_infra.operations import ranks
from elastic_infra.operations import workload as jobs
from elastic_infra.operations.failures import last_failure
from elastic_infra.operations.objects import Object, conditions, moment, name_of, one_line, part, text, whole
from elastic_infra.timeline import formatting, scale
from elastic_infra.timeline.clocks import Clocks
from elastic_infra.timeline.figures import figures
from elastic_infra.timeline.history import history, natural
from elastic_infra.timeline.records import NoEventError, Record, parse

WARNINGS: Final = 3
"""Warnings of the cluster that are shown: the newest say why a pod does not start."""
OWNERS: Final[Mapping[str, str]] = {
    "config": "set by the config",
    "autoscaler": "set by an autoscaler",
    "queue": "set by Kueue when it admitted the job",
    "scale": "set by `elastic-infra scale`",
}
STATES: Final[Mapping[jobs.State, str]] = {
    "waits": "waits for its pods",
    "running": "running",
    "suspended": "suspended",
    "queued": "waits in its queue",
    "succeeded": "succeeded",
    "failed": "failed",
}
COLUMNS: Final = ("pod", "status", "launcher", "gen.", "step", "saved", "restarts")


@dataclasses.dataclass(frozen=True)
class Seen:
    """What was asked of the cluster, and what it said.

    Attributes:
        pods: pods of nodes and of the store.
        snapshots: what the status ports say, by pod.
        logs: lines with time stamps, by pod, of those pods that were asked.
        warnings: events of type Warning in the namespace.
        notes: what could not be asked, and why.
        at: when, in Unix seconds.
    """

    workload: Object
    pods: Sequence[Object] = ()
    snapshots: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    logs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: Sequence[Object] = ()
    notes: Sequence[str] = ()
    at: float = 0.0


def nodes(pods: Iterable[Object]) -> list[Object]:
    """The pods that train, in the order of their indices, without those on their way out.

    Of each index of an Indexed Job the newest: the failed pods before it stay, under names of their own.
    """
    found = [pod for pod in pods if _labels(pod).get(COMPONENT) == "worker" and not _is_leaving(pod)]
    by_age = sorted(found, key=lambda pod: text(pod, "metadata.creationTimestamp"))
    newest = {_labels(pod).get(COMPLETION_INDEX) or name_of(pod): pod for pod in by_age}
    return sorted(newest.values(), key=lambda pod: natural(name_of(pod)))


def node_name(pod: Object) -> str:
    """The name by which the launchers know a node: a pod of an Indexed Job has its host's, which outlives the pod."""
    return text(pod, "spec.hostname") or name_of(pod)


def restarts(pod: Object) -> int:
    """How often the kubelet has started containers of a pod again."""
    return sum(whole(status, "restartCount") or 0 for status in items(at(pod, "status.containerStatuses")))


def lines(seen: Seen) -> list[str]:
    """What `status` prints: the job, its failure, its pods, warnings and notes."""
    failure = last_failure(seen.workload, seen.pods, seen.logs.items())
    told = [headline(seen), *_group(seen), *_goodput(seen)]
    if failure:
        told.append(f"last failure: {formatting.moment(failure.at)}, {failure.about}: {failure.what}")
    told += ["", *_table(seen)] if seen.pods else []
    warnings = list(_warnings(seen))
    told += ["", *warnings] if warnings else []
    return [*told, *(f"note: {note}" for note in (*_sources(seen), *seen.notes))]


def headline(seen: Seen) -> str:
    """The job in one line: its state, since when, and its nodes."""
    job, size, state = seen.workload, jobs.size(seen.workload), jobs.state(seen.workload)
    begin, end = jobs.since(job), jobs.ended(job) or seen.at
    lasting = f" {'for' if state not in jobs.ENDED else 'after'} {scale.clock(max(0.0, end - begin))}" if begin else ""
    return f"{jobs.described(job)}: {STATES[state]}{lasting}, {_size(seen, size)}"


def happened(seen: Seen) -> tuple[object, ...]:
    """What a reader without a terminal is told of when it changes."""
    pods = tuple((name_of(pod), _status(pod)) for pod in nodes(seen.pods))
    failure = last_failure(seen.workload, seen.pods, seen.logs.items())
    return jobs.state(seen.workload), jobs.size(seen.workload), pods, _newest(seen).get("generation"), failure


def brief(seen: Seen) -> str:
    """The same and the training in one line."""
    return "; ".join([headline(seen), *_group(seen)])


def _size(seen: Seen, size: jobs.Size) -> str:
    ready = sum(_is_ready(pod) for pod in nodes(seen.pods))
    if size.min_nodes == size.max_nodes:
        return f"{ready} of {formatting.count(size.nodes, 'node')} ready"
    return (
        f"{ready} of {formatting.count(size.nodes, 'node')} ready ({size.min_nodes} to {size.max_nodes}, "
        f"{OWNERS[size.owner]})"
    )


def _group(seen: Seen) -> Iterator[str]:
    """Workers, steps and restarts, from the status ports or else from event lines in the logs."""
    newest = _newest(seen)
    if newest:
        members, generation = newest.get("nodes"), _count(newest, "generation")
        size = formatting.count(len(members) if isinstance(members, list) else 0, "node")
        yield f"generation {generation}: {formatting.count(_count(newest, 'world_size'), 'worker')} on {size}"
        step, saved = _highest(seen, "highest_step"), _highest(seen, "checkpoint_step")
        told = "no step reported" if step is None else f"step {step}" + ("" if saved is None else f", {saved} saved")
        yield told + _in_memory(seen) + _samples(seen) + _failed_saves(seen)
        yield (
            f"restarts: {_count(newest, 'restart_count')} of {_count(newest, 'max_restarts')} charged, "
            f"{formatting.count(_count(newest, 'membership_changes'), 'change')} of members{_in_place(newest)}"
        )
        yield from _restored(seen)
        return
    groups = history(records).generations if (records := _records(seen)) else ()
    if groups:
        workers = formatting.count(groups[-1].world_size, "worker")
        yield f"generation {groups[-1].number}: {workers} on {formatting.count(groups[-1].size, 'node')}"
        steps = groups[-1].steps
        yield f"step {steps.last}, {steps.per_second:.3g} a second" if steps else "no step reported"


def _in_place(newest: Mapping[str, Any]) -> str:
    """In how many of the changes workers kept their processes; empty where none did."""
    moves = _count(newest, "moves")
    return f", {moves} in place" if moves else ""


def _in_memory(seen: Seen) -> str:
    """The newest step with a snapshot in a node's memory; empty where none is known."""
    step = _highest(seen, "memory_step")
    return "" if step is None else f", {step} in memory"


def _samples(seen: Seen) -> str:
    """The samples on which the job has trained; empty where they are not known."""
    samples = _highest(seen, "samples")
    return "" if samples is None else f", {formatting.count(samples, 'sample')}"


def _failed_saves(seen: Seen) -> str:
    """How many checkpoints could not be saved; empty where all could."""
    failed = _highest(seen, "failed_saves")
    return f"; {formatting.count(failed, 'save')} failed since the launcher began" if failed else ""


def _restored(seen: Seen) -> Iterator[str]:
    """Where the state came from with which training went on last; nothing for a fresh start."""
    step, source = _highest(seen, "restored_step"), text(_newest(seen), "restored_from")
    if step is None or source in {"", "nothing"}:
        return
    lost = _highest(seen, "steps_lost")
    again = f", {formatting.count(lost, 'step')} lost since the launcher began" if lost else ""
    yield f"went on from {formatting.origin(source)} at step {step}{again}"


def _goodput(seen: Seen) -> Iterator[str]:
    """The share of the time that went into progress, where the logs hold event lines with steps."""
    records = _records(seen)
    if not records:
        return
    known = figures(history(records))
    if known.goodput is None:
        yield "goodput: unknown, for the script reports no steps (elastic_infra.training.Progress does)"
    else:
        yield f"goodput: {formatting.percent(known.goodput)} over {formatting.seconds(known.wall_seconds)} of events"


def _records(seen: Seen) -> list[Record]:
    """Event lines of the logs, on one clock."""
    if not jobs.writes_events_to_its_log(seen.workload):
        return []
    clocks, found = Clocks(), []
    for log in seen.logs.values():
        for line in log.splitlines():
            try:
                event = parse(line.partition(" ")[2])
            except NoEventError:
                continue
            found.append(event.placed(clocks.place(event.wall, event.monotonic)))
    return sorted(found, key=lambda record: record.at)


def _table(seen: Seen) -> list[str]:
    rows = [COLUMNS, *(_row(pod, seen.snapshots.get(name_of(pod), {})) for pod in _shown(seen.pods))]
    used = [index for index, _ in enumerate(COLUMNS) if any(row[index] for row in rows[1:])]
    widths = {index: max(len(row[index]) for row in rows) for index in used}
    return ["  ".join(row[index].ljust(widths[index]) for index in used).rstrip() for row in rows]


def _shown(pods: Sequence[Object]) -> list[Object]:
    return sorted(pods, key=lambda pod: (_labels(pod).get(COMPONENT) != "worker", natural(name_of(pod))))


def _row(pod: Object, snapshot: Mapping[str, Any]) -> tuple[str, ...]:
    def number(name: str) -> str:
        return "" if snapshot.get(name) is None else one_line(snapshot[name])

    steps = (number("generation"), number("highest_step"), number("checkpoint_step"))
    return (name_of(pod), _status(pod), one_line(snapshot.get("phase")), *steps, str(restarts(pod) or ""))


def _status(pod: Object) -> str:
    """The pod's phase, and why it does not run."""
    if _is_leaving(pod):
        return "leaving"
    phase = text(pod, "status.phase") or "Unknown"
    waiting = [
        *(_initializing(status) for status in items(at(pod, "status.initContainerStatuses"))),
        *(text(status, "state.waiting.reason") for status in items(at(pod, "status.containerStatuses"))),
    ]
    unscheduled = [
        text(each, "reason")
        for each in items(at(pod, "status.conditions"))
        if each.get("type") == "PodScheduled" and each.get("status") == "False"
    ]
    reason = next(filter(None, [*waiting, *unscheduled]), "")
    return f"{phase} ({reason})" if reason else phase


def _initializing(status: Object) -> str:
    """What an init container does to have the pod wait; nothing before its turn, and after its end."""
    reason = text(status, "state.waiting.reason")
    is_at_work = status.get("restartPolicy") != "Always" and bool(part(status, "state.running"))
    if is_at_work or reason not in {"", "PodInitializing"}:
        return f"init container {text(status, 'name')}{f': {reason}' if reason else ''}"
    return ""


def _is_leaving(pod: Object) -> bool:
    return bool(text(pod, "metadata.deletionTimestamp"))


def _is_ready(pod: Object) -> bool:
    return any(each.get("type") == "Ready" for each in conditions(pod))


def _warnings(seen: Seen) -> Iterator[str]:
    """The newest warnings of the cluster about the job's objects as they are now."""
    about = {str(at(each, "metadata.uid")) for each in (seen.workload, *seen.pods)}
    own = [event for event in seen.warnings if str(at(event, "involvedObject.uid")) in about]
    for event in sorted(own, key=_told_at)[-WARNINGS:]:
        yield f"{text(event, 'involvedObject.name')}: {text(event, 'reason')}: {text(event, 'message')}"


def _told_at(event: Object) -> float:
    times = (moment(at(event, path)) for path in ("series.lastObservedTime", "lastTimestamp", "eventTime"))
    return max((time for time in times if time is not None), default=-math.inf)


def _sources(seen: Seen) -> Iterator[str]:
    """What the view lacks, and what would show it."""
    if jobs.state(seen.workload) != "running":
        return
    if jobs.status_port(seen.workload) is None:
        yield (
            "steps and restarts are not known live: this is from pods, conditions, events and logs. Set "
            "launcher.metrics_port for the launchers' own state."
        )
    if not jobs.writes_events_to_its_log(seen.workload):
        yield 'goodput is not known: set launcher.events to "-", and the pods\' logs tell it.'


def _newest(seen: Seen) -> Mapping[str, Any]:
    return ranks.newest(seen.snapshots.values())


def _highest(seen: Seen, name: str) -> int | None:
    """The highest number that any node of the newest generation reports."""
    generation = _newest(seen).get("generation")
    found = [each.get(name) for each in seen.snapshots.values() if each.get("generation") == generation]
    return max((number for number in found if isinstance(number, int)), default=None)


def _count(snapshot: Mapping[str, Any], name: str) -> int:
    number = snapshot.get(name)
    return number if isinstance(number, int) else 0


def _labels(pod: Object) -> Object:
    return part(pod, "metadata.labels")
