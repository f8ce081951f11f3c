"""The history as OpenTelemetry traces, in OTLP's JSON encoding. Pure.

One trace is one job: a span for the job, below it one for each generation, below these one for each phase of each node.
Marks are events of the span of the job, with their node. Ids are computed from the history, so that the same events
give the same trace. Any collector takes the value at ``/v1/traces``
(https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from elastic_infra.timeline.generations import Generation
from elastic_infra.timeline.history import History, Lane, Mark

SERVICE: Final = "elastic-infra"
INTERNAL: Final = 1
"""``SPAN_KIND_INTERNAL``."""
STATUS: Final = {"succeeded": 1, "failed": 2}
"""``STATUS_CODE_OK`` and ``STATUS_CODE_ERROR``; a job that runs has no status."""

Json = Mapping[str, Any]


def traces(history: History) -> Json:
    """The history as the body of an export request.

    Returns:
        An ``ExportTraceServiceRequest`` as JSON values: one resource for the job with its generations, one a node.
    """
    ids = _Ids(history)
    nodes = [
        _resource(history, {"service.instance.id": lane.node}, list(_phases(lane, history, ids)))
        for lane in history.lanes
    ]
    job = _resource(history, {}, [_job(history, ids), *_generations(history, ids)])
    return {"resourceSpans": [job, *nodes]}


class _Ids:
    """The ids of one trace."""

    def __init__(self, history: History) -> None:
        self._seed = f"{history.run_id} {history.begin}"
        self.trace = self._digest("", 16)
        self.job = self.span("job")

    def span(self, *path: object) -> str:
        """The id of the span at a path."""
        return self._digest(" ".join(map(str, path)), 8)

    def _digest(self, path: str, size: int) -> str:
        return hashlib.blake2b(f"{self._seed}\n{path}".encode(), digest_size=size).hexdigest()


def _job(history: History, ids: _Ids) -> Json:
    marked: list[tuple[Mark, str | None]] = [(mark, lane.node) for lane in history.lanes for mark in lane.marks]
    marked += [(mark, None) for mark in history.marks]
    events = [
        {
            "name": mark.kind,
            "timeUnixNano": _nanoseconds(mark.at),
            "attributes": _attributes({"node": node, "message": mark.text}),
        }
        for mark, node in sorted(marked, key=lambda each: each[0].at)
    ]
    status = {"code": STATUS[history.outcome], "message": history.reason} if history.outcome in STATUS else {}
    return {
        **_span(ids, ids.job, "job", (history.begin, history.end), {"script": history.script}),
        "events": events,
        "status": status,
    }


def _generations(history: History, ids: _Ids) -> Iterator[Json]:
    ends = [*(generation.begin for generation in history.generations), history.end][1:]
    for generation, end in zip(history.generations, ends, strict=True):
        cause, steps = generation.cause, generation.steps
        attributes = {
            "generation": generation.number,
            "nodes": list(generation.nodes),
            "world_size": generation.world_size,
            "change": generation.kind,
            "in_place": generation.moved,
            "cause": cause.kind if cause else None,
            "cause.node": cause.node if cause else None,
            "cause.message": cause.message if cause else None,
            "first_step": steps.first if steps else None,
            "last_step": steps.last if steps else None,
            "restored_from": generation.restored_from or None,
            "checkpoint": generation.checkpoint,
            "memory_step": generation.memory_step,
            "samples": generation.samples,
        }
        own = ids.span("generation", generation.life, generation.number)
        yield _span(ids, own, f"generation {generation.number}", (generation.begin, end), attributes, ids.job)


def _phases(lane: Lane, history: History, ids: _Ids) -> Iterator[Json]:
    for interval in lane.intervals:
        own = ids.span("phase", lane.node, interval.begin)
        generation = _generation_at(history.generations, interval.generation, interval.begin)
        parent = ids.span("generation", generation.life, generation.number) if generation else ids.job
        attributes = {"generation": interval.generation or None}
        yield _span(ids, own, interval.phase, (interval.begin, interval.end), attributes, parent)


def _generation_at(generations: Sequence[Generation], number: int, at: float) -> Generation | None:
    """The generation of a number, of several lives the newest that had begun; None before the first."""
    numbered = [generation for generation in generations if generation.number == number]
    begun = [generation for generation in numbered if generation.begin <= at]
    return (begun or numbered)[-1] if numbered else None


def _resource(history: History, own: Mapping[str, object], spans: Sequence[Json]) -> Json:
    attributes = {"service.name": SERVICE, **own, "run_id": history.run_id or None}
    scope = {"scope": {"name": __name__}, "spans": spans}
    return {"resource": {"attributes": _attributes(attributes)}, "scopeSpans": [scope]}


def _span(
    ids: _Ids, own: str, name: str, time: tuple[float, float], attributes: Mapping[str, object], parent: str = ""
) -> Json:
    begin, end = time
    return {
        "traceId": ids.trace,
        "spanId": own,
        **({"parentSpanId": parent} if parent else {}),
        "name": name,
        "kind": INTERNAL,
        "startTimeUnixNano": _nanoseconds(begin),
        "endTimeUnixNano": _nanoseconds(end),
        "attributes": _attributes(attributes),
    }


def _nanoseconds(moment: float) -> str:
    """A moment as text, since a JSON number cannot hold it; events have milliseconds."""
    return str(round(moment * 1000) * 1_000_000)


def _attributes(values: Mapping[str, object]) -> list[Json]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: object) -> Json:
    """A value with its type; 64-bit integers are text in protobuf's JSON."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}
