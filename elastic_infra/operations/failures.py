"""The last failure of a job in one line, from what the cluster still has of it.

A pod that ends leaves the launcher's termination message; a worker that is started again leaves the launcher's line in
the pod's log; a controller that gives the job up leaves a condition. A pod that was deleted takes its own along.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from elastic_infra.launcher import exit_codes, log
from elastic_infra.manifests.figures import at, items
from elastic_infra.operations import workload as jobs
from elastic_infra.operations.objects import Object, moment, name_of, one_line, part, text, whole

LONGEST: Final = 400
"""Characters of a failure that are shown: an exception's text may be a page."""

NO_FAILURE: Final[tuple[int | None, ...]] = (exit_codes.SUCCESS, exit_codes.STOPPED)
"""Exit codes of a node that has done its part, or was told to leave."""

# What ended the workers, and what follows; nodes that come and go as they were told are no failure.
_ANNOUNCED: Final = re.compile(
    rf"{log.PROGRAM}: (?P<what>(?!Node \S+ (?:joined|was told to end)\.).+)"
    r" \((?:Restart \d+ of|Not charged).*\) Workers (?:start again|go on in place):"
)


@dataclasses.dataclass(frozen=True, order=True)
class Failure:
    """One failure.

    Attributes:
        at: Unix seconds.
        about: the pod that says it, or the job.
    """

    at: float
    about: str
    what: str


def last_failure(workload: Object, pods: Iterable[Object], logs: Iterable[tuple[str, str]]) -> Failure | None:
    """The newest failure; the controller's own word only where nothing else is known.

    Args:
        logs: pods' names, and the lines of their logs with kubectl's time stamps.
    """
    found = [*_of_pods(pods), *(each for pod, lines in logs for each in _of_log(pod, lines))]
    if found:
        return max(found)
    why = jobs.why_failed(workload)
    return Failure(jobs.ended(workload) or 0.0, name_of(workload), _short(why)) if why else None


def _of_pods(pods: Iterable[Object]) -> Iterator[Failure]:
    for pod in pods:
        if text(pod, "status.phase") == "Failed" and (reason := text(pod, "status.reason")):  # evicted
            since = moment(at(pod, "status.startTime")) or 0.0
            yield Failure(since, name_of(pod), _short(f"{reason}: {text(pod, 'status.message')}"))
        for status in items(at(pod, "status.initContainerStatuses")):
            yield from _of_status(pod, status, f"init container {status.get('name')} ")
        for status in items(at(pod, "status.containerStatuses")):
            yield from _of_status(pod, status, "")


def _of_status(pod: Object, status: Object, who: str) -> Iterator[Failure]:
    for place in ("lastState.terminated", "state.terminated"):
        end = part(status, place)
        if end and whole(end, "exitCode") not in NO_FAILURE:
            yield Failure(moment(end.get("finishedAt")) or 0.0, name_of(pod), _short(f"{who}{_of_container(end)}"))


def _of_container(end: Object) -> str:
    """What a container's end says: the launcher's report, else its last line, else the kubelet's word."""
    message = str(end.get("message") or "").strip()
    try:
        report = json.loads(message)
    except ValueError:
        report = None
    if isinstance(report, dict):
        said = report.get("message") or report.get("reason")
    else:
        said = message.splitlines()[-1] if message else ""
    ended = f"exited with code {whole(end, 'exitCode')} ({text(end, 'reason')})"
    return f"{ended}: {said}" if said else ended


def _of_log(pod: str, lines: str) -> Iterator[Failure]:
    for line in lines.splitlines():
        stamp, _, rest = line.partition(" ")
        if told := _ANNOUNCED.match(rest):
            yield Failure(moment(stamp) or 0.0, pod, _short(told["what"]))


def _short(what: str) -> str:
    line = one_line(what)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
